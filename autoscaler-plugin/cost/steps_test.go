package cost

import (
	"strings"
	"testing"

	"github.com/shoenig/test/must"
)

// The worked example: 1000 GPU-hours, 3.0 $/h on demand, 0.8 $/h on spot with 5 interruptions of 2 h.
func worked() (Plan, Prices) {
	return Plan{Hours: 1000, Nodes: 1, SpotPrice: 0.8, Interruptions: 5, RecoveryHours: 2}, Prices{Currency: "USD", OnDemand: 3}
}

// line is a step as the tables print it.
func line(s Step) string {
	return strings.Join([]string{s.Name, Money(s.Cost.Total(), s.Cost.Currency), percent(s.Cost.SavedShare())}, " | ")
}

func TestSteps_workedExample(t *testing.T) {
	p, prices := worked()
	steps := Steps(p, prices, Measures{StorageSaving: 0.4, RunHours: 1000, SplitHours: 200, PaidPrice: 0.744})
	want := []string{
		"on demand | 3000.00 $ | 0 %",
		"spot | 830.00 $ | 72.3 %",
		"incremental checkpoints | 830.00 $ | 72.3 %",
		"split runs | 806.00 $ | 73.1 %",
		"price paid | 750.00 $ | 75 %",
	}
	must.Len(t, len(want), steps)
	for i, s := range steps {
		must.Eq(t, want[i], line(s))
	}
	must.InDelta(t, 30, steps[1].Cost.Recovery, 1e-9)
	must.InDelta(t, 6, steps[3].Cost.Recovery, 1e-9)
	for i, part := range []string{
		"1000 h at 3.00 $/h, no interruptions",
		"spot at 0.80 $/h, 5 interruptions of 2 h at 3.00 $/h, no storage priced",
		"they store 40 % less: no storage is priced, so it changes nothing here",
		"runs of 200 h instead of 1000: an interruption reaches 80 % less, 0.4 h of recovery instead of 2",
		"spot is bought at 0.744 $/h on average instead of 0.80 $/h, which changes the total by -56.00 $",
	} {
		must.StrContains(t, steps[i].Assumes, part)
	}
}

// Without the assumption there is no 750 $: no measure is taken that was not asked for.
func TestSteps_noneUnasked(t *testing.T) {
	p, prices := worked()
	must.Len(t, 2, Steps(p, prices, Measures{}))
	for _, s := range Steps(p, prices, Measures{StorageSaving: 0.4, RunHours: 1000, SplitHours: 200}) {
		must.GreaterEq(t, 806-1e-9, s.Cost.Total())
	}
}

func TestSteps_assumptionsOfMixes(t *testing.T) {
	p, prices := worked()
	p.Nodes, p.OnDemandShare, p.ReservedShare, p.ReservedPrice, p.RecoveryOnSpot = 4, 0.1, 0.25, 1.2, true
	p.Checkpoints = Checkpoints{FullBytes: 100 * GiB}
	prices.Storage = 0.023
	s := Steps(p, prices, Measures{StorageSaving: 0.5})
	must.Eq(t, "spot at 0.80 $/h, 10 % of the hours on demand, 25 % on reserved capacity at 1.20 $/h, "+
		"5 interruptions of 2 h on 4 nodes at 0.80 $/h", s[1].Assumes)
	must.InDelta(t, s[1].Cost.Storage/2, s[2].Cost.Storage, 1e-12)
	must.StrContains(t, s[2].Assumes, "storage was 0.79 $")
}

func TestMoney(t *testing.T) {
	for _, c := range []struct {
		amount      float64
		code        string
		money, what string
	}{
		{830, "USD", "830.00 $", "830.00 $"},
		{0.744, "USD", "0.74 $", "0.744 $"},
		{829.995, "USD", "830.00 $", "829.995 $"}, // 829.99500000000000454…
		{1.005, "USD", "1.00 $", "1.005 $"},       // 1.00499999999999989…
		{-56, "USD", "-56.00 $", "-56.00 $"},
		{-0.001, "USD", "0.00 $", "-0.001 $"},
		{1234.5, "JPY", "1234 JP¥", "1234.5 JP¥"}, // half to even
		{0.5, "EUR", "0.50 €", "0.50 €"},
		{1, "CNY", "1.00 CN¥", "1.00 CN¥"},
		{1, "", "1.00 ", "1.00 "},
	} {
		must.Eq(t, c.money, Money(c.amount, c.code))
		must.Eq(t, c.what, Price(c.amount, c.code))
	}
}
