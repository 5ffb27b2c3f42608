package cost

import (
	"math"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-spotter/autoscaler-plugin/market"
)

var noon = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

func at(hours float64) time.Time { return noon.Add(time.Duration(hours * float64(time.Hour))) }

func TestPrices_Of(t *testing.T) {
	var u Usage
	u.Work.Of(Spot).Buy(1000, 0.8)
	u.Work.Of(Reserved).Buy(10, 0.5)
	u.Stall.Of(Spot).Buy(5, 0.8)
	u.Recovery.Of(OnDemand).Buy(10, 3)
	u.OnDemandHours = 1010
	u.Storage = Storage{ByteHours: 2 * GiB * HoursPerMonth, Writes: 3000, Reads: 500, EgressBytes: 7 * GiB}
	b := Prices{Currency: "USD", OnDemand: 3, Storage: 0.02, Writes: 0.005, Reads: 0.0004, Egress: 0.09}.Of(u)
	must.InDelta(t, 805, b.Compute, 1e-9)
	must.InDelta(t, 4, b.Stall, 1e-9)
	must.InDelta(t, 30, b.Recovery, 1e-9)
	must.InDelta(t, 2*0.02+3*0.005+0.5*0.0004, b.Storage, 1e-9)
	must.InDelta(t, 0.63, b.Transfer, 1e-9)
	must.InDelta(t, 3030, b.OnDemand, 1e-9)
	must.InDelta(t, 839.6852, b.Total(), 1e-9)
	must.InDelta(t, 34.6852, b.Overhead(), 1e-9)
	must.InDelta(t, 3030-839.6852, b.Saved(), 1e-9)
	must.InDelta(t, 1-839.6852/3030, b.SavedShare(), 1e-12)
	must.Eq(t, 0, b.UnpricedHours)
	must.Eq(t, 0, Breakdown{Compute: 1}.SavedShare(), must.Sprint("nothing to compare with"))
}

func TestBought_BuySpan(t *testing.T) {
	gap := math.NaN()
	price := market.Series{
		Points: []market.Point{{At: at(0), Value: 1}, {At: at(1), Value: 2}, {At: at(2), Value: gap}, {At: at(3), Value: 4}},
		End:    at(5),
	}
	cases := []struct {
		name     string
		from, to float64
		want     Bought
	}{
		{"within a step", 0.25, 0.75, Bought{Hours: 0.5, Cost: 0.5}},
		{"a whole step", 1, 2, Bought{Hours: 1, Cost: 2}},
		{"across a change", 0.5, 1.5, Bought{Hours: 1, Cost: 1.5}},
		{"across a gap", 1.5, 3.5, Bought{Hours: 2, Cost: 3, Unpriced: 1}},
		{"before the start", -2, 0.5, Bought{Hours: 2.5, Cost: 0.5, Unpriced: 2}},
		{"past the end", 4, 7, Bought{Hours: 3, Cost: 4, Unpriced: 2}},
		{"after the end", 6, 7, Bought{Hours: 1, Unpriced: 1}},
		{"all", -1, 6, Bought{Hours: 7, Cost: 1 + 2 + 8, Unpriced: 3}},
		{"empty", 1, 1, Bought{}},
		{"backwards", 2, 1, Bought{}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var b Bought
			b.BuySpan(price, at(c.from), at(c.to))
			must.Eq(t, c.want, b)
		})
	}
	var b Bought
	b.BuySpan(Constant(0.8), at(0), at(1000))
	must.Eq(t, Bought{Hours: 1000, Cost: 800}, b)
	b.BuySpan(market.Series{}, at(0), at(1))
	must.Eq(t, Bought{Hours: 1001, Cost: 800, Unpriced: 1}, b)
}

func TestUsage_Add(t *testing.T) {
	var a, b Usage
	for i, u := range []*Usage{&a, &b} {
		n := float64(i + 1)
		for _, k := range []Kind{Spot, OnDemand, Reserved} {
			u.Work.Of(k).Buy(n, 1)
			u.Stall.Of(k).Buy(n, 2)
			u.Recovery.Of(k).Buy(n, math.NaN())
		}
		u.Interruptions, u.OnDemandHours = n, n
		u.Storage = Storage{ByteHours: n, Writes: n, Reads: n, EgressBytes: n}
	}
	a.Add(b)
	must.Eq(t, Bought{Hours: 9, Cost: 9}, a.Work.Total())
	must.Eq(t, Bought{Hours: 9, Cost: 18}, a.Stall.Total())
	must.Eq(t, Bought{Hours: 9, Unpriced: 9}, a.Recovery.Total())
	must.Eq(t, Bought{Hours: 3, Cost: 3}, a.Work.Reserved)
	must.Eq(t, 3, a.Interruptions)
	must.Eq(t, 3, a.OnDemandHours)
	must.Eq(t, Storage{ByteHours: 3, Writes: 3, Reads: 3, EgressBytes: 3}, a.Storage)
	must.Eq(t, 9, Prices{}.Of(a).UnpricedHours)
}
