package cost

import (
	"fmt"
	"strings"
)

// Measures are what may make a plan cheaper than plain spot, one by one. A field that is 0 is not taken.
type Measures struct {
	StorageSaving float64 `json:"storage_saving"` // share of the stored bytes that incremental checkpoints save, 0 to 1
	RunHours      float64 `json:"run_hours"`      // how long a run is that an interruption reaches, and
	SplitHours    float64 `json:"split_hours"`    // how long after it is split: recovery shrinks by SplitHours / RunHours
	PaidPrice     float64 `json:"paid_price"`     // average price per node-hour that is paid for spot instead of SpotPrice
}

// Step is a plan after one more measure.
type Step struct {
	Name    string    `json:"name"`
	Assumes string    `json:"assumes"` // what must hold for its figures
	Cost    Breakdown `json:"cost"`
}

// Steps prices a plan from on-demand to all of its measures, each step with what it assumes beyond the one before.
func Steps(p Plan, prices Prices, m Measures) []Step {
	money := func(x float64) string { return Money(x, prices.Currency) }
	steps := []Step{
		{
			Name:    "on demand",
			Assumes: fmt.Sprintf("%s h at %s/h, no interruptions", number(p.Hours), Price(prices.OnDemand, prices.Currency)),
			Cost:    onDemand(p, prices),
		},
		{Name: "spot", Assumes: assumptions(p, prices), Cost: p.Cost(prices)},
	}
	add := func(name, format string, args ...any) {
		steps = append(steps, Step{Name: name, Assumes: fmt.Sprintf(format, args...), Cost: p.Cost(prices)})
	}
	if m.StorageSaving > 0 {
		before := p.Cost(prices).Storage
		p.Checkpoints.FullBytes *= 1 - m.StorageSaving
		p.Checkpoints.IncrementBytes *= 1 - m.StorageSaving
		p.Checkpoints.EgressBytes *= 1 - m.StorageSaving
		what := fmt.Sprintf("storage was %s", money(before))
		if before == 0 {
			what = "no storage is priced, so it changes nothing here"
		}
		add("incremental checkpoints", "they store %s less: %s", percent(m.StorageSaving), what)
	}
	if m.RunHours > 0 && m.SplitHours > 0 {
		part := m.SplitHours / m.RunHours
		was := p.RecoveryHours
		p.RecoveryHours *= part
		p.RestartHours *= part
		add("split runs", "runs of %s h instead of %s: an interruption reaches %s less, %s h of recovery instead of %s",
			number(m.SplitHours), number(m.RunHours), percent(1-part), number(p.RecoveryHours), number(was))
	}
	if m.PaidPrice > 0 {
		was := p.SpotPrice
		before := p.Cost(prices).Total()
		p.SpotPrice = m.PaidPrice
		add("price paid", "spot is bought at %s/h on average instead of %s/h, which changes the total by %s; measure whether yours is",
			Price(p.SpotPrice, prices.Currency), Price(was, prices.Currency), money(p.Cost(prices).Total()-before))
	}
	return steps
}

// onDemand is the plan's training without spot, interruptions and checkpoints.
func onDemand(p Plan, prices Prices) Breakdown {
	u := Usage{OnDemandHours: p.Hours}
	u.Work.OnDemand.Buy(p.Hours, prices.OnDemand)
	return prices.Of(u)
}

// assumptions are what the price of a plan rests on, in words.
func assumptions(p Plan, prices Prices) string {
	spot := Price(p.SpotPrice, prices.Currency) + "/h"
	said := []string{"spot at " + spot}
	if p.OnDemandShare > 0 {
		said = append(said, fmt.Sprintf("%s of the hours on demand", percent(p.OnDemandShare)))
	}
	if p.ReservedShare > 0 {
		said = append(said, fmt.Sprintf("%s on reserved capacity at %s/h",
			percent(p.ReservedShare), Price(p.ReservedPrice, prices.Currency)))
	}
	nodes := ""
	if p.Nodes > 1 {
		nodes = fmt.Sprintf(" on %s nodes", number(p.Nodes))
	}
	again := Price(prices.OnDemand, prices.Currency) + "/h"
	if p.RecoveryOnSpot {
		again = spot
	}
	said = append(said, fmt.Sprintf("%s interruptions of %s h%s at %s",
		number(p.Interruptions), number(p.RecoveryHours), nodes, again))
	if c := p.Cost(prices); c.Storage+c.Transfer == 0 {
		said = append(said, "no storage priced")
	}
	return strings.Join(said, ", ")
}
