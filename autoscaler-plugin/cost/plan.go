package cost

import (
	"math"
	"sort"

	"gonum.org/v1/gonum/stat/distuv"
)

// Plan is what is expected of a job before it runs. All hours are node-hours but where it says otherwise; a job of one node
// of one GPU has as many node-hours as GPU-hours.
type Plan struct {
	Hours float64 `json:"hours"` // of training
	Nodes float64 `json:"nodes"` // that train in step: they save together, and an interruption of one sets all back

	SpotPrice     float64 `json:"spot_price"`      // per node-hour, on average over the job
	OnDemandShare float64 `json:"on_demand_share"` // of Hours bought on demand, such as the base of a pool, 0 to 1
	ReservedShare float64 `json:"reserved_share"`  // of Hours on reserved capacity, 0 to 1
	ReservedPrice float64 `json:"reserved_price"`  // per node-hour, what was prepaid spread over its hours

	Interruptions  float64 `json:"interruptions"`    // of any node over the job
	RecoveryHours  float64 `json:"recovery_hours"`   // of each node per interruption, the RestartHours among them
	RestartHours   float64 `json:"restart_hours"`    // those that do not depend on the checkpoint interval: start, restore
	RecoveryOnSpot bool    `json:"recovery_on_spot"` // recovery is bought at the spot price; else on demand

	Checkpoints Checkpoints `json:"checkpoints"`
}

// Checkpoints is how often the nodes of a job save and what that takes. Without an interval only FullBytes count.
type Checkpoints struct {
	IntervalHours  float64 `json:"interval_hours"`  // of training from one checkpoint to the next, by the clock; 0: not known
	StallHours     float64 `json:"stall_hours"`     // for which training stands still per checkpoint, by the clock
	FullBytes      float64 `json:"full_bytes"`      // kept all through the job however often it saves
	IncrementBytes float64 `json:"increment_bytes"` // that each checkpoint adds
	RetentionHours float64 `json:"retention_hours"` // for which an increment is kept, by the clock; or
	KeepLast       float64 `json:"keep_last"`       // how many increments are kept
	Writes         float64 `json:"writes"`          // requests of a checkpoint
	Reads          float64 `json:"reads"`           // requests of a restore
	EgressBytes    float64 `json:"egress_bytes"`    // that a checkpoint sends to where it is paid for
}

// WallHours is how long the job trains by the clock, without stalls and recovery.
func (p Plan) WallHours() float64 { return p.Hours / p.Nodes }

// Count is how many checkpoints the job makes; 0 where the interval is not known.
func (p Plan) Count() float64 {
	if p.Checkpoints.IntervalHours == 0 {
		return 0
	}
	return p.WallHours() / p.Checkpoints.IntervalHours
}

// Usage is what the plan will use, as expected. Recovery on demand is bought at the on-demand price.
func (p Plan) Usage(prices Prices) Usage {
	u := Usage{Interruptions: p.Interruptions, OnDemandHours: p.Hours}
	p.buy(&u.Work, p.Hours, prices.OnDemand)
	c, count := p.Checkpoints, p.Count()
	p.buy(&u.Stall, count*c.StallHours*p.Nodes, prices.OnDemand)
	recovery := p.Interruptions * p.RecoveryHours * p.Nodes
	if p.RecoveryOnSpot {
		u.Recovery.Spot.Buy(recovery, p.SpotPrice)
	} else {
		u.Recovery.OnDemand.Buy(recovery, prices.OnDemand)
	}
	kept := c.RetentionHours + c.KeepLast*c.IntervalHours
	u.Storage = Storage{
		ByteHours:   c.FullBytes*p.WallHours() + count*c.IncrementBytes*kept,
		Writes:      count * c.Writes,
		Reads:       p.Interruptions * c.Reads,
		EgressBytes: count * c.EgressBytes,
	}
	return u
}

// buy buys hours in the plan's mix.
func (p Plan) buy(h *Hours, hours, onDemand float64) {
	h.OnDemand.Buy(hours*p.OnDemandShare, onDemand)
	h.Reserved.Buy(hours*p.ReservedShare, p.ReservedPrice)
	h.Spot.Buy(hours*(1-p.OnDemandShare-p.ReservedShare), p.SpotPrice)
}

// Cost is what the plan is expected to cost.
func (p Plan) Cost(prices Prices) Breakdown { return prices.Of(p.Usage(prices)) }

// Range is where a value lies that is not known exactly.
type Range struct {
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// Spread is where the inputs of a plan lie that nobody knows ahead.
type Spread struct {
	SpotPrice     Range `json:"spot_price"`
	Interruptions Range `json:"interruptions"`
	RecoveryHours Range `json:"recovery_hours"`
}

// Exactly is the spread of a plan that is known to come true, from which others are made.
func (p Plan) Exactly() Spread {
	return Spread{
		SpotPrice:     Range{p.SpotPrice, p.SpotPrice},
		Interruptions: Range{p.Interruptions, p.Interruptions},
		RecoveryHours: Range{p.RecoveryHours, p.RecoveryHours},
	}
}

// Estimate is a cost with its range.
type Estimate struct {
	Low      Breakdown `json:"low"`
	Expected Breakdown `json:"expected"`
	High     Breakdown `json:"high"`
}

// Estimate is what the plan costs at the low end of every range, as expected, and at the high end of every range. Since no
// component falls when one of them rises, the cost lies within it whenever all of them lie within their ranges.
func (p Plan) Estimate(prices Prices, s Spread) Estimate {
	low, high := p, p
	low.SpotPrice, high.SpotPrice = s.SpotPrice.Low, s.SpotPrice.High
	low.Interruptions, high.Interruptions = s.Interruptions.Low, s.Interruptions.High
	low.RecoveryHours, high.RecoveryHours = s.RecoveryHours.Low, s.RecoveryHours.High
	return Estimate{Low: low.Cost(prices), Expected: p.Cost(prices), High: high.Cost(prices)}
}

// PoissonRange is where the number of independent events lies with at least a probability, the same share being left out
// at each end, where so many are expected on average.
func PoissonRange(mean, probability float64) Range {
	if mean == 0 {
		return Range{}
	}
	d := distuv.Poisson{Lambda: mean}
	quantile := func(q float64) float64 {
		// Far more than any quantile that is asked for: 40 standard deviations and 40 events above the mean.
		most := int(math.Ceil(mean + 40*math.Sqrt(mean) + 40))
		return float64(sort.Search(most, func(n int) bool { return d.CDF(float64(n)) >= q }))
	}
	tail := (1 - probability) / 2
	return Range{Low: quantile(tail), High: quantile(1 - tail)}
}
