package pool

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-spotter/autoscaler-plugin/cloud"
)

// half is a price that doubles every second hour for an hour, seen until an hour.
func half(hours int) (prices, time.Time) {
	p := prices{}
	now := noon
	for n := range hours {
		now = noon.Add(time.Duration(n) * time.Hour)
		p.see("west", 0.5+0.5*float64(n%2), now)
		p.foresee(now)
	}
	return p, now
}

func TestPrices(t *testing.T) {
	must.Eq(t, 0.8, prices{}.now(west))
	must.Eq(t, 0, prices{}.outbid("west", 1))

	p, now := half(48) // at 1
	p.see("west", 1, now.Add(time.Minute))
	must.Len(t, 48, p["west"].Points, must.Sprint("the same price again is no news"))
	must.Eq(t, 1, p.now(west))
	must.Eq(t, 1, p.outbid("west", 0.1), must.Sprint("the price has been above always"))

	calm, _ := half(47) // at 0.5
	must.Greater(t, 0.4, calm.outbid("west", 0.9), must.Sprint("half of the changes double the price"))
	must.Eq(t, 0, calm.outbid("west", 1.1))
	must.Eq(t, 0, calm.outbid("west", 0), must.Sprint("no maximum"))

	p.see("west", 3, noon.Add(40*24*time.Hour))
	must.Len(t, 2, p["west"].Points, must.Sprint("old prices are forgotten, but for the one that held"))
}

func TestPrices_noise(t *testing.T) {
	p := prices{}
	for _, none := range []float64{0, -1, math.NaN(), math.Inf(1)} {
		p.see("west", none, noon)
	}
	must.MapEmpty(t, p)

	// A price that moves all the time takes a point a minute, and is the last one seen all the same.
	for n := range 24 * 60 * 12 {
		p.see("west", 1+0.1*float64(n%7), noon.Add(time.Duration(n)*5*time.Second))
	}
	must.LessEq(t, 24*60, len(p["west"].Points))
	must.Eq(t, 1+0.1*float64((24*60*12-1)%7), p.now(west))
	must.NoError(t, p["west"].Validate())

	// A clock that goes back by hours does not hold up the price until it has caught up.
	p.see("west", 5, noon.Add(12*time.Hour))
	must.Eq(t, 5, p.now(west))
	p.see("west", 6, noon.Add(-time.Hour))
	must.Eq(t, 6, p.now(west))
	must.Len(t, 1, p["west"].Points, must.Sprint("what is still to come is not known"))
	must.NoError(t, p["west"].Validate())
}

// Forecasts are made again when ten minutes are over and the price has moved, or an hour is over, and few at a time.
func TestPrices_foresee(t *testing.T) {
	p, now := half(47)
	made := func(after time.Duration, price float64) bool {
		p.see("west", price, now.Add(after))
		p.foresee(now.Add(after))
		return p["west"].made.Equal(now.Add(after))
	}
	must.False(t, made(9*time.Minute, 0.6))
	must.InDelta(t, 0.5, p.outbid("west", 1.1), 0.05, must.Sprint("as likely to double as it was, from the price there is"))
	must.True(t, made(10*time.Minute, 0.6))
	must.False(t, made(69*time.Minute, 0.6))
	must.True(t, made(70*time.Minute, 0.6))

	p = prices{}
	names := []string{"a", "b", "c", "d", "e", "f"}
	for _, name := range names {
		p.see(name, 1, noon)
	}
	count := func() (n int) {
		for _, name := range names {
			if !p[name].made.IsZero() {
				n++
			}
		}
		return n
	}
	p.foresee(noon)
	must.Eq(t, outlooksOfTick, count())
	must.True(t, p["e"].made.IsZero(), must.Sprint("in the order of names"))
	p.foresee(noon.Add(time.Second))
	must.Eq(t, len(names), count())
}

// reverting is an hourly price that is drawn back to 0.8 by half of its distance every hour, and ends at a value.
func reverting(hours int, last float64) []float64 {
	rng := rand.New(rand.NewPCG(3, 4))
	x := 0.0
	return append(series(hours-1, func(int) float64 {
		x = 0.5*x + 0.1*rng.NormFloat64()
		return 0.8 * math.Exp(x)
	}), last)
}

// After three days a forecast knows more than how much the price changed: one that always comes back is expected to.
func TestPrices_model(t *testing.T) {
	outbid := func(hours int, last, maximum float64) float64 {
		p := prices{}
		now := noon
		for n, price := range reverting(hours, last) {
			now = noon.Add(time.Duration(n)*time.Hour + 17*time.Minute)
			p.see("west", price, now)
		}
		p.foresee(now)
		return p.outbid("west", maximum)
	}
	must.Between(t, 0.4, outbid(60, 1.05, 1.06), 0.6, must.Sprint("as likely up as down"))
	must.Less(t, 0.25, outbid(14*24, 1.05, 1.06), must.Sprint("it falls from there"))
	must.Between(t, 0.2, outbid(60, 0.62, 0.65), 0.5)
	must.Greater(t, 0.5, outbid(14*24, 0.62, 0.65), must.Sprint("it rises from there"))
}

// A node is moved before the price passes its maximum: to the models, that is when a price below its usual one comes back.
func TestPrices_modelMoves(t *testing.T) {
	c := bidConfig()
	c.OnDemandBase = 0
	instance := spotLife(1, west, 100*time.Hour, 0, false)
	instance.State, instance.Terminated = cloud.Running, false
	instance.PriceUSDPerHour, instance.MaxPriceUSDPerHour = 0.62, 0.65
	for hours, urgent := range map[int]bool{60: false, 14 * 24: true} {
		m, err := newMemory(c)
		must.NoError(t, err)
		for n, price := range reverting(hours, 0.62) {
			m.prices.see("west", price, noon.Add(-time.Duration(hours-1-n)*time.Hour))
		}
		nodes := map[string]NomadNode{instance.ID: {ID: "1", Up: true, Eligible: true}}
		v, err := m.view(c, 1, []cloud.Instance{instance}, nil, nomadView{known: true, nodes: nodes}, noon)
		must.NoError(t, err)
		for i := range v.Choices {
			v.Choices[i].UpSince = noon.Add(-time.Hour)
		}
		actions := Decide(c, v).Actions
		must.Len(t, 1, actions)
		must.Eq(t, urgent, strings.Contains(actions[0].Reason, "its price passes its maximum within the hour"), must.Sprint(actions))
	}
}

// Nothing is moved to where the price may pass the maximum soon, and not at once when that is over.
func TestPrices_return(t *testing.T) {
	c := bidConfig()
	swings := func(hour int) float64 { return 0.9 * math.Pow(2, float64(hour%2)) } // 0.9 and 1.8, and the maximum is 1.5
	v := watch(t, c, nil, series(49, swings)...)
	must.Greater(t, 0.4, v.Choices[0].Outbid)
	must.True(t, v.Choices[0].usable(noon))
	must.True(t, v.Choices[0].UpSince.IsZero())
	calm := watch(t, c, nil, series(49, func(int) float64 { return 0.9 })...)
	must.Eq(t, noon.Add(-48*time.Hour), calm.Choices[0].UpSince)
}
