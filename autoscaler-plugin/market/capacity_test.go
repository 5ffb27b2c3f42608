package market

import (
	"math"
	"testing"
	"time"

	"github.com/shoenig/test/must"
)

// sampled plays a market into ticks.
func sampled(t *testing.T, f Feed, offerings int, tick, length time.Duration) []Trace {
	t.Helper()
	changes, err := Collect(f)
	must.NoError(t, err)
	traces := make([]Trace, offerings)
	up := make([]bool, offerings)
	for at := time.Duration(0); at < length; at += tick {
		for len(changes) > 0 && changes[0].At <= at {
			up[changes[0].Offering] = changes[0].Up
			changes = changes[1:]
		}
		for i := range traces {
			traces[i].Tick = tick
			traces[i].Up = append(traces[i].Up, up[i])
		}
	}
	return traces
}

// The nine zones have the statistics of the recordings: shares of time up within .05, correlations of about .4 inside a
// region and .14 across, 90 to 350 changes in 23 days, and about 2.7 h of mean up-time.
func TestNewCapacity_statistics(t *testing.T) {
	const seeds, length = 8, 45 * 24 * time.Hour
	c := NineZones()
	share := make([]float64, len(c.Zones))
	var inside, across, nInside, nAcross, changes, up float64
	for seed := range uint64(seeds) {
		f, err := NewCapacity(seed, length, c)
		must.NoError(t, err)
		traces := sampled(t, f, len(c.Zones), 195*time.Second, length)
		for i, a := range traces {
			share[i] += a.UpShare() / seeds
			changes += float64(flips(a))
			up += a.UpShare() * length.Hours()
			for j, b := range traces[:i] {
				if r := correlation(a.Up, b.Up); c.Zones[i].Key.Region == c.Zones[j].Key.Region {
					inside, nInside = inside+r, nInside+1
				} else {
					across, nAcross = across+r, nAcross+1
				}
			}
		}
	}
	for i, z := range c.Zones {
		want := z.UpMean.Hours() / (z.UpMean + z.DownMean).Hours()
		must.Less(t, 0.05, math.Abs(share[i]-want), must.Sprintf("%s: up %.3f, want %.3f", z.Key, share[i], want))
	}
	t.Logf("correlation %.2f inside, %.2f across; mean up-time %.2f h", inside/nInside, across/nAcross, up/(changes/2))
	must.Between(t, 0.33, inside/nInside, 0.47)
	must.Between(t, 0.07, across/nAcross, 0.21)
	must.Between(t, 2.2, up/(changes/2), 3.2)
}

// Without weather, up-times have the mean that was asked for, and zones are independent.
func TestNewCapacity_plain(t *testing.T) {
	c := NineZones()
	c.Regional, c.World = 0, 0
	length := 2000 * 24 * time.Hour
	f, err := NewCapacity(3, length, c)
	must.NoError(t, err)
	changes, err := Collect(f)
	must.NoError(t, err)
	ups, since := make([]float64, len(c.Zones)), make([]time.Duration, len(c.Zones))
	n := make([]float64, len(c.Zones))
	up := make([]bool, len(c.Zones))
	last := time.Duration(0)
	for _, ch := range changes {
		must.True(t, ch.At >= last && ch.At < length)
		last = ch.At
		i := ch.Offering
		switch {
		case ch.Up && !up[i]:
			since[i] = ch.At
		case !ch.Up && up[i]:
			ups[i] += (ch.At - since[i]).Hours()
			n[i]++
		}
		up[i] = ch.Up
	}
	for i, z := range c.Zones {
		must.Between(t, 0.9, ups[i]/n[i]/z.UpMean.Hours(), 1.1, must.Sprint(z.Key))
	}
}

func TestNewCapacity_seeds(t *testing.T) {
	run := func(seed uint64) []Change {
		f, err := NewCapacity(seed, 100*time.Hour, NineZones())
		must.NoError(t, err)
		changes, err := Collect(f)
		must.NoError(t, err)
		return changes
	}
	must.Eq(t, run(1), run(1))
	must.NotEq(t, run(1), run(2))
	for i := range 9 {
		must.Eq(t, i, run(1)[i].Offering)
		must.Eq(t, 0, run(1)[i].At)
	}
}

// Prices stay near where they belong; every second zone's never moves.
func TestNewCapacity_prices(t *testing.T) {
	f, err := NewCapacity(1, 365*24*time.Hour, NineZones())
	must.NoError(t, err)
	changes, err := Collect(f)
	must.NoError(t, err)
	prices := make([]map[float64]bool, 9)
	for _, c := range changes {
		must.Between(t, 0.8, c.Price/0.918, 1.2)
		if prices[c.Offering] == nil {
			prices[c.Offering] = map[float64]bool{}
		}
		prices[c.Offering][c.Price] = true
	}
	for i, p := range prices {
		must.Eq(t, i%2 == 0, len(p) == 1)
	}
}

func TestCapacity_Validate(t *testing.T) {
	err := Capacity{Regional: -1, Zones: []ZoneCapacity{{UpShape: math.NaN(), DownShape: 1, PriceMove: -1}}}.Validate()
	for _, want := range []string{
		"regional: -1", "zones[0].up_mean: 0", "zones[0].price: 0", "up_shape: NaN", "moves every -1ns",
	} {
		must.ErrorContains(t, err, want)
	}
	must.ErrorContains(t, Capacity{}.Validate(), "zones: none")
	_, err = NewCapacity(1, time.Hour, Capacity{})
	must.Error(t, err)
}

// BenchmarkNewCapacity is the generator's speed over 45 days of nine zones.
func BenchmarkNewCapacity(b *testing.B) {
	for i := range b.N {
		f, err := NewCapacity(uint64(i), 45*24*time.Hour, NineZones())
		must.NoError(b, err)
		for err == nil {
			_, err = f.Next()
		}
	}
}
