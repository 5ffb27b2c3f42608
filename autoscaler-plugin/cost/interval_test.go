package cost

import (
	"testing"
	"time"

	"github.com/shoenig/test/must"
	"pgregory.net/rapid"

	"nomad-spotter/checkpointer/cadence"
)

// The example of the interval: every 2 h, storage costs as much as recovery, and a fifth of what is kept are increments.
func intervalExample() (Plan, Prices) {
	p, prices := worked()
	prices.Storage = 0.0219
	p.Checkpoints = Checkpoints{IntervalHours: 2, FullBytes: 800 * GiB, IncrementBytes: 4 * GiB, RetentionHours: 100}
	return p, prices
}

func TestWhatIf_example(t *testing.T) {
	p, prices := intervalExample()
	now := p.Cost(prices)
	must.InDelta(t, 30, now.Storage, 1e-9)
	must.InDelta(t, 30, now.Recovery, 1e-9)
	w := p.WhatIf(prices, 1)
	must.InDelta(t, 0.20, *w.Storage, 1e-12)
	must.InDelta(t, -0.50, *w.Recovery, 1e-12)
	must.InDelta(t, -0.15, *w.Overhead, 1e-12)
	must.Nil(t, w.Stall)
	must.InDelta(t, 800+51, w.Cost.Total(), 1e-9)
	must.Eq(t, p, p.Every(2), must.Sprint("the same interval changes nothing"))
}

// Where storage and recovery are equal, the total changes by the mean of their changes, whatever the sizes are.
func TestWhatIf_equalParts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, prices := intervalExample()
		share := rapid.Float64Range(0, 1).Draw(t, "share of increments")
		recovery := rapid.Float64Range(0.1, 1e4).Draw(t, "recovery")
		p.Interruptions = recovery / (p.RecoveryHours * prices.OnDemand)
		held := recovery / prices.Storage * HoursPerMonth / p.Hours * GiB
		p.Checkpoints.FullBytes = held * (1 - share)
		p.Checkpoints.IncrementBytes = held * share * p.Checkpoints.IntervalHours / p.Checkpoints.RetentionHours
		w := p.WhatIf(prices, 1)
		must.InDelta(t, share, *w.Storage, 1e-9)
		must.InDelta(t, -0.5, *w.Recovery, 1e-9)
		must.InDelta(t, (share-0.5)/2, *w.Overhead, 1e-9)
	})
}

// What is kept by number, and the restart, do not depend on the interval.
func TestWhatIf_fixedParts(t *testing.T) {
	p, prices := intervalExample()
	p.Checkpoints.RetentionHours, p.Checkpoints.KeepLast = 0, 50
	p.RestartHours = 2
	w := p.WhatIf(prices, 1)
	must.InDelta(t, 0, *w.Storage, 1e-12)
	must.InDelta(t, 0, *w.Recovery, 1e-12)
}

func TestOptimum_young(t *testing.T) {
	// Only time counts: the same price everywhere, half an interval lost, so it is Young's interval.
	const mtbf, stall = 4.0, 30.0 / 3600
	prices := Prices{Currency: "USD", OnDemand: 1}
	p := Plan{
		Hours: 1000, Nodes: 1, SpotPrice: 1, Interruptions: 1000 / mtbf, RecoveryHours: Loss(0.5, 0, 0),
		Checkpoints: Checkpoints{IntervalHours: 0.5, StallHours: stall},
	}
	tau, ok := p.Optimum(prices)
	must.True(t, ok)
	must.InDelta(t, cadence.Young(30*time.Second, 4*time.Hour).Hours(), tau, 1e-6)

	// A final checkpoint that succeeds with probability p makes it longer by 1/√(1-p).
	p.RecoveryHours = Loss(0.5, 0, 0.75)
	longer, ok := p.Optimum(prices)
	must.True(t, ok)
	must.InDelta(t, 2*tau, longer, 1e-6)
}

// With all terms it is the interval of cadence: √(2M(C+k/c_s)/(1−p)·c_s/c_r).
func TestOptimum_cadence(t *testing.T) {
	prices := Prices{Currency: "USD", OnDemand: 3, Storage: 0.02, Writes: 0.005, Egress: 0.09}
	p := Plan{
		Hours: 8000, Nodes: 8, SpotPrice: 0.9, Interruptions: 80, RestartHours: 0.1, RecoveryHours: 0.1 + Loss(1, 0, 0.6),
		Checkpoints: Checkpoints{
			IntervalHours: 1, StallHours: 0.01, IncrementBytes: 10 * GiB, RetentionHours: 365, Writes: 40, EgressBytes: GiB,
		},
	}
	terms := cadence.Terms{
		Stall: 36 * time.Second, NoticeSuccess: 0.6, SpotUSDPerHour: 0.9, ReworkUSDPerHour: 3,
		StorageUSD: (10*0.02/2 + 40*0.005/1000 + 0.09) / 8, // a node's part
	}
	tau, ok := p.Optimum(prices)
	must.True(t, ok)
	must.InDelta(t, 1, tau/cadence.Young(terms.Equivalent(), 1000*time.Hour/80).Hours(), 1e-6)
}

func TestOptimum_none(t *testing.T) {
	for name, change := range map[string]func(*Plan){
		"no interval":        func(p *Plan) { p.Checkpoints = Checkpoints{} },
		"no interruptions":   func(p *Plan) { p.Interruptions = 0 },
		"only restarts":      func(p *Plan) { p.RestartHours = p.RecoveryHours },
		"checkpoints cost 0": func(p *Plan) { p.Checkpoints.IncrementBytes = 0 },
	} {
		p, prices := intervalExample()
		_, ok := p.Optimum(prices)
		must.True(t, ok)
		change(&p)
		_, ok = p.Optimum(prices)
		must.False(t, ok, must.Sprint(name))
	}
}

// No interval of a fine grid is cheaper than the optimum, and what the optimum is does not depend on where one starts.
func TestOptimum_least(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, prices := drawPlan(t)
		p.Checkpoints.IntervalHours = rapid.Float64Range(0.5, 10).Draw(t, "interval")
		p.Checkpoints.StallHours = rapid.Float64Range(0.0001, 0.1).Draw(t, "stall")
		p.RestartHours = p.RecoveryHours / 3
		p.Interruptions += 0.1
		p.RecoveryHours += 0.1
		p.SpotPrice += 0.1
		tau, ok := p.Optimum(prices)
		if !ok {
			t.Fatalf("no optimum of %+v", p)
		}
		least := p.Every(tau).Cost(prices).Total()
		for f := 0.05; f < 20; f *= 1.1 {
			must.LessEq(t, p.Every(tau*f).Cost(prices).Total()*(1+1e-12), least)
		}
		again, ok := p.Every(tau * 3).Optimum(prices)
		must.True(t, ok)
		must.InDelta(t, 1, again/tau, 1e-4)
	})
}

func TestLoss(t *testing.T) {
	must.Eq(t, 1, Loss(2, 0, 0))
	must.InDelta(t, 0.3*1.25, Loss(2, 0.25, 0.7), 1e-12)
	must.Eq(t, 0, Loss(2, 1, 1))
}
