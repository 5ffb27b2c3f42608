package cost

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/shoenig/test/must"
	"pgregory.net/rapid"
)

// drawPlan draws a plan without faults, and prices for it.
func drawPlan(t *rapid.T) (Plan, Prices) {
	draw := func(name string, low, high float64) float64 { return rapid.Float64Range(low, high).Draw(t, name) }
	p := Plan{
		Hours: draw("hours", 0.1, 1e5), Nodes: float64(rapid.IntRange(1, 64).Draw(t, "nodes")),
		SpotPrice: draw("spot price", 0, 10), ReservedPrice: draw("reserved price", 0, 10),
		OnDemandShare: draw("on-demand share", 0, 0.5), ReservedShare: draw("reserved share", 0, 0.5),
		Interruptions: draw("interruptions", 0, 100), RecoveryHours: draw("recovery", 0, 10),
		RecoveryOnSpot: rapid.Bool().Draw(t, "on spot"),
		Checkpoints: Checkpoints{
			IntervalHours: draw("interval", 0.2, 10), StallHours: draw("stall", 0, 0.1), FullBytes: draw("full", 0, 1e13),
			IncrementBytes: draw("increment", 0, 1e11), RetentionHours: draw("retention", 0.1, 1000),
			Writes: draw("writes", 0, 1000), Reads: draw("reads", 0, 1000), EgressBytes: draw("egress", 0, 1e11),
		},
	}
	return p, Prices{
		Currency: "USD", OnDemand: draw("on-demand price", 0.1, 10), Storage: draw("storage price", 0, 1),
		Writes: draw("write price", 0, 1), Reads: draw("read price", 0, 1), Egress: draw("egress price", 0, 1),
	}
}

// The total is the sum of the components, each 0 or more, and every hour of the plan is bought once.
func TestPlan_sums(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, prices := drawPlan(t)
		must.NoError(t, errors.Join(p.Check(), prices.Check(), p.Exactly().Check(p)))
		u, b := p.Usage(prices), p.Cost(prices)
		sum := 0.0
		for _, x := range []float64{b.Compute, b.Stall, b.Recovery, b.Storage, b.Transfer} {
			must.GreaterEq(t, -1e-9, x) // a share of nothing left may come out as less than 0 by its last bit
			sum += x
		}
		must.Eq(t, sum, b.Total())
		must.InDelta(t, 1, u.Work.Total().Hours/p.Hours, 1e-12)
		must.InDelta(t, p.Interruptions*p.RecoveryHours*p.Nodes, u.Recovery.Total().Hours, 1e-6)
		must.InDelta(t, p.Hours*p.Checkpoints.StallHours/p.Checkpoints.IntervalHours, u.Stall.Total().Hours, 1e-6)
		must.LessEq(t, 1+1e-12, b.SavedShare())
		must.InDelta(t, b.OnDemand, b.Total()+b.Saved(), 1e-6)
	})
}

// A price that rises, more interruptions and a longer recovery make nothing cheaper.
func TestPlan_monotone(t *testing.T) {
	raise := map[string]func(*Plan, *Prices, float64){
		"spot price":      func(p *Plan, _ *Prices, by float64) { p.SpotPrice += by },
		"reserved price":  func(p *Plan, _ *Prices, by float64) { p.ReservedPrice += by },
		"on-demand price": func(_ *Plan, q *Prices, by float64) { q.OnDemand += by },
		"storage price":   func(_ *Plan, q *Prices, by float64) { q.Storage += by },
		"write price":     func(_ *Plan, q *Prices, by float64) { q.Writes += by },
		"read price":      func(_ *Plan, q *Prices, by float64) { q.Reads += by },
		"egress price":    func(_ *Plan, q *Prices, by float64) { q.Egress += by },
		"interruptions":   func(p *Plan, _ *Prices, by float64) { p.Interruptions += by },
		"recovery hours":  func(p *Plan, _ *Prices, by float64) { p.RecoveryHours += by },
		"stall":           func(p *Plan, _ *Prices, by float64) { p.Checkpoints.StallHours += by },
		"full bytes":      func(p *Plan, _ *Prices, by float64) { p.Checkpoints.FullBytes += by },
	}
	for name, f := range raise {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				p, prices := drawPlan(t)
				dearer, high := p, prices
				f(&dearer, &high, rapid.Float64Range(0, 10).Draw(t, "by"))
				must.LessEq(t, dearer.Cost(high).Total()*(1+1e-12), p.Cost(prices).Total())
			})
		})
	}
}

// Whatever comes true within the ranges costs what the estimate says.
func TestPlan_Estimate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, prices := drawPlan(t)
		wide := func(x float64) Range {
			return Range{Low: x * rapid.Float64Range(0, 1).Draw(t, "low"), High: x * rapid.Float64Range(1, 3).Draw(t, "high")}
		}
		s := Spread{SpotPrice: wide(p.SpotPrice), Interruptions: wide(p.Interruptions), RecoveryHours: wide(p.RecoveryHours)}
		must.NoError(t, s.Check(p))
		within := func(r Range) float64 { return r.Low + (r.High-r.Low)*rapid.Float64Range(0, 1).Draw(t, "at") }
		came := p
		came.SpotPrice, came.Interruptions, came.RecoveryHours = within(s.SpotPrice), within(s.Interruptions), within(s.RecoveryHours)
		e := p.Estimate(prices, s)
		must.LessEq(t, came.Cost(prices).Total()*(1+1e-12), e.Low.Total())
		must.GreaterEq(t, came.Cost(prices).Total()*(1-1e-12), e.High.Total())
		must.LessEq(t, e.High.Total()*(1+1e-12), e.Expected.Total())
	})
	p, prices := worked()
	e := p.Estimate(prices, p.Exactly())
	must.Eq(t, e.Low, e.High)
}

func TestPoissonRange(t *testing.T) {
	// R: qpois(c(0.05, 0.95), 5) is 2 and 9, qpois(c(0.05, 0.95), 0.5) 0 and 2, qpois(c(0.025, 0.975), 100) 81 and 120.
	must.Eq(t, Range{2, 9}, PoissonRange(5, 0.9))
	must.Eq(t, Range{0, 2}, PoissonRange(0.5, 0.9))
	must.Eq(t, Range{81, 120}, PoissonRange(100, 0.95))
	must.Eq(t, Range{}, PoissonRange(0, 0.9))
	r := PoissonRange(1e9, 0.9)
	must.InDelta(t, 1e9-1.645*math.Sqrt(1e9), r.Low, 100)
	must.InDelta(t, 1e9+1.645*math.Sqrt(1e9), r.High, 100)
}

func TestBreakdown_json(t *testing.T) {
	p, prices := worked()
	text, err := json.Marshal(p.Cost(prices))
	must.NoError(t, err)
	must.Eq(t, `{"currency":"USD","compute":800,"stall":0,"recovery":30,"storage":0,"transfer":0,"on_demand":3000,`+
		`"total":830,"overhead":30,"saved":2170,"saved_share":0.723333}`, string(text))
}

// fields are the fields of the faults of an error, in order.
func fields(err error) string {
	var out []string
	for _, e := range Faults(err) {
		out = append(out, e.Field)
	}
	return strings.Join(out, "; ")
}

func TestCheck_faults(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	cases := []struct {
		name   string
		change func(*Plan, *Prices, *Measures, *Spread)
		fields string
		text   string
	}{
		{"none", func(*Plan, *Prices, *Measures, *Spread) {}, "", ""},
		{"all together", func(p *Plan, q *Prices, m *Measures, _ *Spread) {
			p.Hours, p.Nodes, p.Interruptions, p.RecoveryHours = 0, 1.5, nan, inf
			q.OnDemand, q.Storage, q.Currency, m.StorageSaving = -3, -1, "dollars", 2
		}, "hours; nodes; interruptions; recovery_hours; currency; on_demand_price; storage_price; storage_saving", ""},
		{
			"zero hours", func(p *Plan, _ *Prices, _ *Measures, _ *Spread) { p.Hours = 0 },
			"hours", "hours: 0 is not allowed; give more than 0",
		},
		{"huge", func(p *Plan, _ *Prices, _ *Measures, _ *Spread) { p.Hours = 1e19 }, "hours", "1e+19 is above 1e+18; check its unit"},
		{
			"shares", func(p *Plan, _ *Prices, _ *Measures, _ *Spread) { p.OnDemandShare, p.ReservedShare = 0.7, 0.4 },
			"on_demand_share, reserved_share", "0.7 and 0.4 are more than 1 together",
		},
		{
			"restart above recovery", func(p *Plan, _ *Prices, _ *Measures, _ *Spread) { p.RestartHours = 3 },
			"recovery_hours, restart_hours", "2 is less than 3",
		},
		{
			"two rules", func(p *Plan, _ *Prices, _ *Measures, _ *Spread) {
				p.Checkpoints.KeepLast, p.Checkpoints.RetentionHours = 3, 4
			},
			"retention_hours, keep_last", "4 and 3 are two rules",
		},
		{
			"no rule, no interval", func(p *Plan, _ *Prices, _ *Measures, _ *Spread) { p.Checkpoints.IncrementBytes = 7 },
			"increment_bytes, retention_hours, keep_last; increment_bytes, interval_hours", "7 is of each checkpoint",
		},
		{"stall too long", func(p *Plan, _ *Prices, _ *Measures, _ *Spread) {
			p.Checkpoints.IntervalHours, p.Checkpoints.StallHours = 1, 1
		}, "stall_hours, interval_hours", "1 is not less than 1"},
		{
			"split of nothing", func(_ *Plan, _ *Prices, m *Measures, _ *Spread) { m.SplitHours = 200 },
			"run_hours, split_hours", "0 and 200; give both",
		},
		{
			"split longer", func(_ *Plan, _ *Prices, m *Measures, _ *Spread) { m.RunHours, m.SplitHours = 100, 200 },
			"run_hours, split_hours", "100 is less than 200",
		},
		{
			"range aside", func(_ *Plan, _ *Prices, _ *Measures, s *Spread) { s.SpotPrice = Range{0.1, 0.2} },
			"spot_price_range, spot_price", "0.1..0.2 does not hold 0.8",
		},
		{
			"range upside down", func(_ *Plan, _ *Prices, _ *Measures, s *Spread) { s.Interruptions = Range{9, 2} },
			"interruptions_range", "9..2 ends before it begins; write it like 0.7..0.9",
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			p, prices := worked()
			s, m := p.Exactly(), Measures{}
			c.change(&p, &prices, &m, &s)
			var names, texts []string
			for _, err := range []error{p.Check(), prices.Check(), m.Check()} {
				if err != nil {
					names, texts = append(names, fields(err)), append(texts, err.Error())
				}
			}
			if strings.HasPrefix(c.name, "range") {
				names, texts = append(names, fields(s.Check(p))), append(texts, s.Check(p).Error())
			}
			must.Eq(t, c.fields, strings.Join(names, "; "))
			must.StrContains(t, strings.Join(texts, "\n"), c.text)
		})
	}
}

// What has no faults has a finite cost, and whatever has one is refused or has one too: nothing panics.
func FuzzPlan(f *testing.F) {
	f.Add(1000.0, 1.0, 0.8, 3.0, 5.0, 2.0, 2.0, 0.01, 1e12, 1e9, 100.0)
	f.Add(0.0, math.Inf(1), math.NaN(), -1.0, 1e300, 0.0, 5e-324, 0.0, 0.0, 0.0, 0.0)
	f.Add(1e18, 1e18, 1e18, 1e18, 1e18, 1e18, 1e-6, 0.0, 1e18, 1e18, 1e18)
	f.Fuzz(func(
		t *testing.T, hours, nodes, spot, onDemand, interruptions, recovery, interval, stall, full, increment, retention float64,
	) {
		prices := Prices{Currency: "USD", OnDemand: onDemand, Storage: spot, Writes: spot, Egress: onDemand}
		p := Plan{
			Hours: hours, Nodes: nodes, SpotPrice: spot, Interruptions: interruptions, RecoveryHours: recovery,
			Checkpoints: Checkpoints{
				IntervalHours: interval, StallHours: stall, FullBytes: full, IncrementBytes: increment, RetentionHours: retention,
			},
		}
		if errors.Join(p.Check(), prices.Check()) != nil {
			return
		}
		total := p.Cost(prices).Total()
		if math.IsNaN(total) || total < 0 {
			t.Fatalf("%+v costs %v", p, total)
		}
		_ = Steps(p, prices, Measures{StorageSaving: 0.4, PaidPrice: 1})
		if tau, ok := p.Optimum(prices); ok && !(tau >= 0) {
			t.Fatalf("%+v has the optimum %v", p, tau)
		}
	})
}
