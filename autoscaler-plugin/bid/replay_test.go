package bid

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-spotter/autoscaler-plugin/market"
)

var epoch = time.Date(2016, 1, 1, 0, 0, 0, 0, time.UTC)

// ofTicks is a history of prices at ticks.
func ofTicks(t *testing.T, prices ...float64) *History {
	t.Helper()
	s := market.Series{End: epoch.Add(time.Duration(len(prices)) * Tick)}
	for i, p := range prices {
		s.Points = append(s.Points, market.Point{At: epoch.Add(time.Duration(i) * Tick), Value: 2 * p})
	}
	h, err := NewHistory(s, 2)
	must.NoError(t, err)
	return h
}

// auctionHistory is a generated auction.
func auctionHistory(t *testing.T, seed uint64, days int) *History {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 1))
	a := market.DrawAuction(r)
	h, err := NewHistory(a.Prices(r.Uint64(), epoch, time.Duration(days)*24*time.Hour), a.OnDemand)
	must.NoError(t, err)
	return h
}

// repeat is n times a price.
func repeat(n int, price float64) []float64 {
	prices := make([]float64, n)
	for i := range prices {
		prices[i] = price
	}
	return prices
}

// Half an hour of work, a changeover of a tick, checkpoints every two ticks.
func TestRun(t *testing.T) {
	job := Job{Work: 6 * Tick, Deadline: 20 * Tick, Changeover: Tick, Checkpoint: 2 * Tick}
	noticed := job
	noticed.Notice = true
	tick := Tick.Hours()
	eager := Fraction{Fraction: 1, Fallback: Eager}
	atMost1 := Fraction{Fraction: 1}
	spike := append(append(repeat(4, 0.2), repeat(3, 3)...), repeat(23, 0.2)...)
	cases := map[string]struct {
		prices   []float64
		job      Job
		strategy Strategy
		cost     float64 // in ticks of on-demand
		finish   int     // in ticks
		reclaims int
		lost     int // in ticks
	}{
		"calm":               {repeat(30, 0.2), job, Fraction{Fraction: 1}, 7 * 0.2, 7, 0, 0},
		"on-demand":          {repeat(30, 0.2), job, AlwaysOnDemand{}, 7, 7, 0, 0},
		"at the bid is kept": {append(repeat(3, 0.2), repeat(27, 1)...), job, Fraction{Fraction: 1}, 3*0.2 + 4, 7, 0, 0},
		// Three ticks of work by the reclaim, the third after the checkpoint; three ticks of waiting; then a changeover.
		"reclaimed":     {spike, job, atMost1, 9 * 0.2, 12, 1, 1},
		"with a notice": {spike, noticed, atMost1, 8 * 0.2, 11, 1, 0},
		"a high bid":    {spike, job, Fraction{Fraction: 5}, 4*0.2 + 9, 7, 0, 0},
		"a low bid waits for on-demand at the last moment": {repeat(30, 0.5), job, Fraction{Fraction: 0.2}, 7, 20, 0, 0},
		"eager":                         {repeat(30, 2), job, eager, 7, 7, 0, 0},
		"eager returns to spot":         {append(repeat(2, 2), repeat(28, 0.2)...), job, eager, 2 + 6*0.2, 8, 0, 0},
		"a price in $/h":                {repeat(30, 0.2), job, Fixed{USDPerHour: 0.5, OnDemandUSDPerHour: 2}, 7 * 0.2, 7, 0, 0},
		"the price is not known":        {append(repeat(2, 0.2), repeat(28, math.NaN())...), job, eager, 2*0.2 + 7, 9, 1, 1},
		"a quantile of what was so far": {repeat(30, 0.2), job, Quantile{Q: 0.5, Horizon: time.Hour}, 7 * 0.2, 7, 0, 0},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			o := ofTicks(t, c.prices...).Run(0, c.job, c.strategy)
			must.InDelta(t, c.cost*tick, o.Cost, 1e-9)
			must.InDelta(t, float64(c.finish)*tick, o.Finish.Hours(), 1e-6)
			must.Eq(t, c.reclaims, o.Reclaims)
			must.InDelta(t, float64(c.lost)*tick, o.Lost.Hours(), 1e-6)
			must.False(t, o.Missed)
		})
	}
}

// whim chooses at random.
type whim struct{ *rand.Rand }

func (w whim) Choose(Situation) Action {
	return Action{Verb: Verb(w.IntN(3)), Max: 3 * w.Float64()}
}

// Whatever is chosen and whatever the price does, a deadline that on-demand can meet is met, the work is done, and what
// was paid for is accounted for.
func TestRun_deadlines(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for n := range 400 {
		h := ofTicks(t, repeat(600, 0)...)
		for i := range h.prices {
			h.prices[i] = 3 * r.Float64()
		}
		work := time.Duration(1+r.IntN(200)) * time.Minute
		changeover := time.Duration(r.IntN(30)) * time.Minute
		j := Job{
			Work: work, Deadline: work + changeover + time.Duration(r.IntN(300))*time.Minute, Changeover: changeover,
			Checkpoint: time.Duration(r.IntN(90)) * time.Minute, Notice: r.IntN(2) == 0,
		}
		must.NoError(t, j.Validate())
		o := h.Run(0, j, whim{r})
		must.False(t, o.Missed, must.Sprintf("%d: %+v %+v", n, j, o))
		must.GreaterEq(t, j.Work+o.Lost-time.Microsecond, o.Spot+o.OnDemand)
		must.LessEq(t, o.Finish+time.Microsecond, o.Spot+o.OnDemand)
		must.GreaterEq(t, o.OnDemand.Hours()-1e-9, o.Cost)
	}
}

func TestJob_Validate(t *testing.T) {
	j := Job{Work: 4 * time.Hour, Deadline: 4*time.Hour + 6*time.Minute, Changeover: 6 * time.Minute}
	must.NoError(t, j.Validate())
	j.Deadline--
	must.ErrorContains(t, j.Validate(), "the earliest deadline is 4h6m0s")
	must.ErrorContains(t, Job{Deadline: time.Hour}.Validate(), "work 0s must be above 0")
}

// A job whose deadline cannot be met runs on on-demand at once, and is said to have missed it.
func TestRun_impossible(t *testing.T) {
	o := ofTicks(t, repeat(3, 0.2)...).Run(0, Job{Work: 6 * Tick, Deadline: 3 * Tick, Changeover: Tick}, Fraction{Fraction: 1})
	must.True(t, o.Missed)
	must.InDelta(t, 7*Tick.Hours(), o.OnDemand.Hours(), 1e-6)
}

func TestPaced(t *testing.T) {
	s := Situation{Price: 2, Work: 10 * time.Hour, Slack: 10 * time.Hour, Changeover: 6 * time.Minute}
	f := Fraction{Fraction: 1, Fallback: Paced}
	must.Eq(t, Wait, f.Choose(s).Verb, must.Sprint("at the start nothing is due"))
	s.Elapsed, s.Slack = time.Hour, 9*time.Hour // half an hour is due
	must.Eq(t, OnDemand, f.Choose(s).Verb)
	s.Done, s.Work, s.Slack = 29*time.Minute, 9*time.Hour+31*time.Minute, 9*time.Hour+29*time.Minute
	must.Eq(t, OnDemand, f.Choose(s).Verb)
	s.Done, s.Work, s.Slack = 31*time.Minute, 9*time.Hour+29*time.Minute, 9*time.Hour+31*time.Minute
	must.Eq(t, Wait, f.Choose(s).Verb)
	s.OnDemand = true
	must.Eq(t, OnDemand, f.Choose(s).Verb, must.Sprint("two changeovers ahead before it is left"))
	s.Done, s.Work, s.Slack = 37*time.Minute, 9*time.Hour+23*time.Minute, 9*time.Hour+37*time.Minute
	must.Eq(t, Wait, f.Choose(s).Verb)
	s.Price = 1
	must.Eq(t, Action{Verb: Spot, Max: 1}, f.Choose(s))
}
