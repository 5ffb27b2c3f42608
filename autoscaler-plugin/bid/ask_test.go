package bid

import (
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-spotter/autoscaler-plugin/market"
)

// daily is a series with a price for each day.
func daily(prices ...float64) market.Series {
	s := market.Series{Key: market.Key{Zone: "us-east-1a", Type: "g2.2xlarge"}}
	s.End = epoch.Add(time.Duration(len(prices)) * 24 * time.Hour)
	for i, p := range prices {
		s.Points = append(s.Points, market.Point{At: epoch.Add(time.Duration(i) * 24 * time.Hour), Value: p})
	}
	return s
}

func TestMatters(t *testing.T) {
	gap := math.NaN()
	for name, c := range map[string]struct {
		series  market.Series
		od      float64
		matters bool
		waiting float64
		reason  string
	}{
		"flat":              {daily(0.3, 0.3, 0.3, 0.3), 1, false, 0, "in 4.0 days the price was between 0.3 and 0.3 $/h, never above"},
		"flat, unknown":     {daily(0.3, 0.3, 0.3, 0.3), math.NaN(), false, 0, "0.3 $/h, and waiting"},
		"flat at on-demand": {daily(1, 1, 1, 1), 1, false, 0, "a bid changes nothing here"},
		"above on-demand":   {daily(0.3, 0.3, 1.1, 0.3), 1, true, 0, "25.0 % of the time above on-demand, 1"},
		"half price":        {daily(1, 0.5), 2, true, 0.5, "waiting for low prices saves up to 50.0 %"},
		"a step of 0.9 %":   {daily(1, 0.991), 2, false, 0.009, "saves at most 0.90 %"},
		"a step of 1.1 %":   {daily(1, 0.989), 2, true, 0.011, "up to 1.1 %"},
		"too short":         {daily(1), 2, false, math.NaN(), "too little to tell"},
		"gaps":              {daily(1, gap, 0.5, gap), 2, false, math.NaN(), "between 0.5 and 1 $/h; that is not 48 h"},
		"nothing":           {market.Series{}, 2, false, math.NaN(), "nothing is known"},
	} {
		t.Run(name, func(t *testing.T) {
			v := Matters(c.series, c.od)
			must.Eq(t, c.matters, v.Matters, must.Sprint(v.Reason))
			must.StrContains(t, v.Reason, c.reason)
			if name == "above on-demand" {
				must.InDelta(t, 0.25, v.Above, 1e-9)
				return
			}
			must.Eq(t, math.IsNaN(c.waiting), math.IsNaN(v.Waiting))
			if !math.IsNaN(c.waiting) {
				must.InDelta(t, c.waiting, v.Waiting, 1e-9)
			}
		})
	}
}

// In every generated auction a bid matters, whatever is known of on-demand.
func TestMatters_auctions(t *testing.T) {
	for seed := range uint64(10) {
		r := rand.New(rand.NewPCG(seed, 5))
		a := market.DrawAuction(r)
		s := a.Prices(r.Uint64(), epoch, 30*24*time.Hour)
		v := Matters(s, a.OnDemand)
		must.True(t, v.Matters, must.Sprint(v.Reason))
		must.Positive(t, v.Above)
		must.Greater(t, 0.1, v.Waiting)
		must.True(t, Matters(s, math.NaN()).Matters)
	}
}

// On no recorded price of the years after the auctions does a bid matter.
func TestMatters_recorded(t *testing.T) {
	dir := os.Getenv("SPOTTER_DATA")
	if dir == "" {
		t.Skip("SPOTTER_DATA is not set: no recorded prices to read")
	}
	for name, n := range map[string]int{"aws-2019-12-to-2020-02-15.csv.gz": 98, "gcp-2023-05-to-2025-06-30.csv.gz": 880} {
		f, err := os.Open(filepath.Join(dir, "prices", name))
		must.NoError(t, err)
		defer f.Close()
		prices, err := market.ReadPrices(f)
		must.NoError(t, err)
		must.Len(t, n, prices.Spot)
		for i, s := range prices.Spot {
			if i%5 != 0 { // for the sake of time; the benchmark reads all of them
				continue
			}
			v := Matters(s, math.NaN())
			must.False(t, v.Matters, must.Sprintf("%s: %s", s.Key, v.Reason))
		}
	}
}

func TestMaxPrice(t *testing.T) {
	restless := daily(0.2, 2, 0.2, 0.2, 2, 0.2)
	now := epoch.Add(5*24*time.Hour + time.Hour)
	high := epoch.Add(4*24*time.Hour + time.Hour)
	ask := Ask{
		Now: now, Prices: restless, OnDemandUSDPerHour: 1, Work: time.Hour, Slack: 8 * time.Hour, Changeover: 6 * time.Minute,
		Rework: 12 * time.Minute, Priority: Low,
	}
	flat := daily(0.2, 0.2, 0.2, 0.2, 0.2, 0.2)
	first, after := epoch.Add(23*time.Hour), epoch.Add(99*24*time.Hour)
	seven := func(time.Duration, float64) float64 { return 0.7 }
	for name, c := range map[string]struct {
		strategy Strategy
		change   func(a *Ask)
		verb     Verb
		max      float64
		reason   string
	}{
		"policy": {tiny(), func(*Ask) {}, Spot, 1, "bid 1.00 of on-demand: the price is 0.20 of on-demand, 1.0 h of work and " +
			"8.0 h of slack left, " +
			"an interruption costs 0.30 h, priority low"},
		"high price":           {tiny(), func(a *Ask) { a.Now = high }, Wait, 0, "wait for a lower price: the price is 2.00"},
		"in a hurry":           {tiny(), func(a *Ask) { a.Now, a.Priority = high, High }, OnDemand, 0, "on-demand rather than spot"},
		"no strategy":          {nil, func(*Ask) {}, Spot, 1, "bid 1.00"},
		"in dollars":           {nil, func(a *Ask) { a.OnDemandUSDPerHour = 1.5 }, Spot, 1.5, "the price is 0.13 of on-demand"},
		"low bid":              {patientBid{0.1}, func(*Ask) {}, Wait, 0, "wait: the bid of 0.10 of on-demand is below the price"},
		"quantile":             {Quantile{Q: 1, Horizon: time.Hour}, func(*Ask) {}, Spot, 2, "bid 2.00"},
		"own forecast":         {Quantile{Q: 1}, func(a *Ask) { a.Forecast = seven }, Spot, 0.7, ""},
		"slack too short":      {tiny(), func(a *Ask) { a.Slack = 35 * time.Minute }, OnDemand, 0, "0.58 h does not cover a spot"},
		"progress unknown":     {tiny(), func(a *Ask) { a.Work, a.Slack = 0, 0 }, Spot, 1, "progress and deadline not known"},
		"flat":                 {tiny(), func(a *Ask) { a.Prices = flat }, Spot, 1, "bid the on-demand price: a bid"},
		"later does not count": {tiny(), func(a *Ask) { a.Now = first }, Spot, 1, "in 1.0 days the price was between 0.2 and 0.2"},
		"unknown price":        {tiny(), func(a *Ask) { a.Now = after }, Spot, 1, "the spot price is not known now"},
	} {
		t.Run(name, func(t *testing.T) {
			a := ask
			c.change(&a)
			got, err := MaxPrice(c.strategy, a)
			must.NoError(t, err)
			must.Eq(t, c.verb, got.Verb, must.Sprint(got.Reason))
			must.InDelta(t, c.max, got.MaxUSDPerHour, 1e-9)
			must.StrContains(t, got.Reason, c.reason)
		})
	}
	for _, od := range []float64{0, -1, math.NaN(), math.Inf(1)} {
		ask.OnDemandUSDPerHour = od
		_, err := MaxPrice(nil, ask)
		must.ErrorContains(t, err, "on-demand price of us-east-1a/g2.2xlarge")
	}
}

// patientBid asks for a price whatever the market's is.
type patientBid struct{ bid float64 }

func (p patientBid) Choose(Situation) Action { return Action{Verb: Spot, Max: p.bid} }

func TestPersistence(t *testing.T) {
	s := daily(1, 2, 4, 8)
	now := epoch.Add(3 * 24 * time.Hour)
	f := Persistence(s, 4, now)
	must.InDelta(t, 4, f(24*time.Hour, 1), 1e-9, must.Sprint("it doubled every day"))
	must.InDelta(t, 4, f(24*time.Hour, 0.5), 1e-9)
	must.InDelta(t, 2, f(time.Hour, 0.5), 1e-9, must.Sprint("it mostly stood still"))
	must.InDelta(t, 4, f(time.Hour, 1), 1e-9)
	must.InDelta(t, 2, Persistence(daily(8), 4, epoch)(time.Hour, 0.9), 1e-9, must.Sprint("no past"))

	// The quantiles of a history are those of its series.
	h, err := NewHistory(s, 4)
	must.NoError(t, err)
	tick := int(3 * 24 * time.Hour / Tick)
	for _, q := range []float64{0, 0.3, 0.9, 0.995, 1} {
		must.InDelta(t, f(time.Hour, q), h.forecast(tick, time.Hour, q), 1e-9)
	}
}

func TestPriority(t *testing.T) {
	for p := Low; p <= High; p++ {
		got, err := ParsePriority(p.String())
		must.NoError(t, err)
		must.Eq(t, p, got)
	}
	_, err := ParsePriority("urgent")
	must.ErrorContains(t, err, `"urgent" is none of low, middle, high`)
	must.Less(t, Middle.DelayPrice(), Low.DelayPrice())
	must.Less(t, High.DelayPrice(), Middle.DelayPrice())
}

func TestNewHistory_faults(t *testing.T) {
	_, err := NewHistory(daily(1), 0)
	must.ErrorContains(t, err, "0 $/h is not above 0")
	_, err = NewHistory(market.Series{}, 1)
	must.ErrorContains(t, err, "no prices")
	_, err = NewHistory(daily(1, -1), 1)
	must.ErrorContains(t, err, "-1")
}
