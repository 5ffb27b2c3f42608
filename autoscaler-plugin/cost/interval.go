package cost

import "math"

// A longer interval costs less storage and stall and more recovery. In the model, with the interval τ,
//
//	stall, requests, transfer, increments kept for a time   ∝ 1/τ
//	recovery beyond the restart                             ∝ τ
//	full checkpoints, increments kept by number, restarts   do not depend on it
//
// so from 2 h to 1 h the recovery beyond the restart is halved, and the storage grows by the share that increments have of
// it: a fifth where a fifth of the bytes kept are increments.

// Every is the plan with another interval between checkpoints, in hours. A plan whose interval is not known stays as it is.
func (p Plan) Every(interval float64) Plan {
	if p.Checkpoints.IntervalHours == 0 {
		return p
	}
	p.RecoveryHours = p.RestartHours + (p.RecoveryHours-p.RestartHours)*interval/p.Checkpoints.IntervalHours
	p.Checkpoints.IntervalHours = interval
	return p
}

// Optimum is the interval, in hours, at which stall, storage, transfer and recovery together cost the least. False where
// there is none: without an interval to start from, without recovery that depends on it (the longer the better), and where
// a checkpoint costs nothing (the shorter the better).
//
// With what a checkpoint and an hour of interval cost it is the least of wall/τ·checkpoint + hour·τ: √(wall·checkpoint/hour).
// Where half an interval is lost with an instance that is Young's √(2CM), with prices and notices that of package cadence.
func (p Plan) Optimum(prices Prices) (float64, bool) {
	tau := p.Checkpoints.IntervalHours
	if tau == 0 {
		return 0, false
	}
	// Both are asked of the model itself: an interval twice as long makes half as many checkpoints.
	now, twice := p.Cost(prices), p.Every(2*tau).Cost(prices)
	checkpoint := ((now.Overhead() - now.Recovery) - (twice.Overhead() - twice.Recovery)) / (p.Count() / 2)
	hour := (twice.Recovery - now.Recovery) / tau
	if checkpoint <= 0 || hour <= 0 {
		return 0, false
	}
	return math.Sqrt(p.WallHours() * checkpoint / hour), true
}

// Loss is the training, in hours, that an interruption undoes on average: half an interval and what was made but was not
// yet durable, a lag, unless a final checkpoint succeeds.
func Loss(interval, lag, finalSuccess float64) float64 {
	return (1 - finalSuccess) * (interval/2 + lag)
}

// WhatIf is a plan with another interval, and by how much that changes its cost.
type WhatIf struct {
	IntervalHours float64   `json:"interval_hours"`
	Cost          Breakdown `json:"cost"`
	Storage       *float64  `json:"storage_change"`  // share by which storage and transfer change; nil where there were none
	Recovery      *float64  `json:"recovery_change"` // the same of recovery, and so on
	Stall         *float64  `json:"stall_change"`
	Overhead      *float64  `json:"overhead_change"` // of all but the training itself
	Total         *float64  `json:"total_change"`
}

// WhatIf compares the plan with itself at another interval, in hours.
func (p Plan) WhatIf(prices Prices, interval float64) WhatIf {
	a, b := p.Cost(prices), p.Every(interval).Cost(prices)
	return WhatIf{
		IntervalHours: interval, Cost: b,
		Storage:  change(a.Storage+a.Transfer, b.Storage+b.Transfer),
		Recovery: change(a.Recovery, b.Recovery),
		Stall:    change(a.Stall, b.Stall),
		Overhead: change(a.Overhead(), b.Overhead()),
		Total:    change(a.Total(), b.Total()),
	}
}

func change(from, to float64) *float64 {
	if from == 0 {
		return nil
	}
	share := to/from - 1
	return &share
}
