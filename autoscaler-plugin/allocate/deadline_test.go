package allocate

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-spotter/autoscaler-plugin/hazard"
)

func even(chance float64) Ends {
	var e Ends
	for c := range e {
		e[c] = chance
	}
	return e
}

// brute is the least expected cost by trying everything, where hazards do not depend on age.
type brute struct {
	change, end, back, spot, onDemand float64
}

func (b brute) cost(t int, up bool, mode, run int, r float64) float64 {
	if r <= 1e-9 {
		return 0
	}
	if t == 0 {
		return math.Inf(1)
	}
	after := func(mode, run int, r float64) float64 {
		chance := b.back
		if up {
			chance = b.end
		}
		mean := 0.0
		for _, next := range []struct {
			up bool
			p  float64
		}{{!up, chance}, {up, 1 - chance}} {
			if next.p == 0 {
				continue
			}
			m, n := mode, run
			if m == modeSpot && !next.up {
				m, n = modeWaiting, 0
			}
			mean += next.p * b.cost(t-1, next.up, m, n, r)
		}
		return mean
	}
	left := r
	if mode != modeOnDemand {
		left += b.change
	}
	least := b.onDemand + after(modeOnDemand, 0, left-1)
	least = min(least, after(modeWaiting, 0, r))
	if up {
		if mode != modeSpot {
			run = 0
		}
		work := 1 - min(1, max(0, b.change-float64(run)))
		least = min(least, b.spot+after(modeSpot, run+1, r-work))
	}
	return least
}

// The table holds what trying everything finds, where a changeover is a whole number of ticks, so that nothing is
// interpolated.
func TestTable_bruteForce(t *testing.T) {
	const ticks, work = 9, 5
	for _, b := range []brute{
		{change: 1, end: .3, back: .2, spot: 1, onDemand: 3},
		{change: 2, end: .1, back: .5, spot: 1, onDemand: 3},
		{change: 1, end: .6, back: .6, spot: 2, onDemand: 3},
		{change: 0, end: .4, back: .3, spot: 1, onDemand: 4},
	} {
		g := newTable(Grid{Tick: time.Minute, Changeover: time.Duration(b.change) * time.Minute, Ticks: ticks, Work: work})
		g.solve(Market{OnDemand: b.onDemand, Gap: even(b.back)}, Zone{Price: b.spot, Ends: even(b.end)}, g)
		for left := 1; left <= ticks; left++ {
			for r := 1; r <= work; r++ {
				for _, up := range []bool{true, false} {
					for mode := range modeSpot {
						want := b.cost(left, up, mode, 0, float64(r))
						if math.IsInf(want, 1) {
							continue
						}
						state := g.down(0, mode)
						if up {
							state = g.up(0, mode)
						}
						got := float64(g.row(left, state)[r])
						must.InDelta(t, want, got, 1e-4*want, must.Sprintf("%+v: %d ticks, %d of work, up %v, mode %d", b, left, r, up, mode))
						c := g.costs(left, up, 1, mode, float64(r))
						must.InDelta(t, got, min(c.waiting, c.spot, c.onDemand), 1e-4*want)
					}
				}
			}
		}
	}
}

// More work never costs less, and more time never costs more, as long as the work can be done.
func TestTable_monotone(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 5 {
		m := Market{OnDemand: 1 + 3*random.Float64(), Gap: even(random.Float64())}
		g := newTable(Grid{Tick: 10 * time.Minute, Changeover: time.Duration(random.IntN(3000)) * time.Second, Ticks: 40, Work: 20})
		g.solve(m, Zone{Price: 1, Ends: even(.9 * random.Float64())}, g)
		for left := 2; left <= 40; left++ {
			for s := range g.states() {
				row, before := g.row(left, s), g.row(left-1, s)
				for r := 1; r < len(row) && float64(r)+g.change <= float64(left-2); r++ {
					must.LessEq(t, float64(row[r])*(1+1e-5)+1e-5, float64(row[r-1]))
					must.LessEq(t, float64(before[r])*(1+1e-5)+1e-5, float64(row[r]))
				}
			}
		}
	}
}

func TestDeadlines_Choose(t *testing.T) {
	d := NewDeadlines(Grid{Tick: 10 * time.Minute, Changeover: 12 * time.Minute, Ticks: 120, Work: 60})
	m := Market{OnDemand: 3, Gap: even(.1), Zones: []Zone{
		{Price: 1, Ends: even(.2), Elsewhere: .5}, {Price: 1, Ends: even(.02), Elsewhere: .5},
	}}
	d.Solve(m)
	age := []int{5, 5}
	hour := time.Hour
	for _, c := range []struct {
		name string
		job  Job
		up   []bool
		want int
	}{
		{"the zone that lasts", Job{Left: 20 * hour, Work: 10 * hour, On: Waiting}, []bool{true, true}, 1},
		{"the zone that is there", Job{Left: 11 * hour, Work: 10 * hour, On: Waiting}, []bool{false, true}, 1},
		{"a zone that does not last, and little time", Job{Left: 11 * hour, Work: 10 * hour, On: Waiting}, []bool{true, false}, OnDemand},
		{"none, and time", Job{Left: 20 * hour, Work: 10 * hour, On: Waiting}, []bool{false, false}, Waiting},
		{"none, and no time", Job{Left: 10*hour + 20*time.Minute, Work: 10 * hour, On: Waiting}, []bool{false, false}, OnDemand},
		{"a run on spot stays", Job{Left: 20 * hour, Work: 10 * hour, On: 0}, []bool{true, true}, 0},
		{"too late for a try of spot", Job{Left: 10*hour + 12*time.Minute, Work: 10 * hour, On: Waiting}, []bool{true, true}, OnDemand},
		{"over", Job{Left: 5 * time.Minute, Work: 10 * hour, On: Waiting}, []bool{true, true}, OnDemand},
	} {
		got := d.Choose(c.job, View{Up: c.up, Age: age, Gap: 5})
		must.Eq(t, c.want, got.On, must.Sprintf("%s: %s", c.name, got.Reason()))
	}
	must.StrContains(t, d.Choose(Job{Left: 10*hour + 20*time.Minute, Work: 10 * hour, On: Waiting}, View{Up: []bool{false, false}, Age: age, Gap: 5}).Reason(),
		"on-demand, or the deadline would be missed")
}

func TestEndsOf(t *testing.T) {
	e := EndsOf(hazard.Weibull{Shape: 1, Scale: time.Hour}, 10*time.Minute)
	for _, got := range e {
		must.InDelta(t, 1-math.Exp(-1./6), got, 1e-9)
	}
	falling := EndsOf(hazard.Weibull{Shape: .6, Scale: time.Hour}, 10*time.Minute)
	for c := 1; c < Classes; c++ {
		must.Less(t, falling[c-1], falling[c])
	}
}

func TestSteps(t *testing.T) {
	s := Prior2022.Up.(Steps)
	must.InDelta(t, math.Exp(-s[0]/6), s.SurvivalFrom(0, 10*time.Minute), 1e-12)
	must.InDelta(t, math.Exp(-(s[0]+s[1]+s[2])/6), s.SurvivalFrom(0, 30*time.Minute), 1e-12)
	for range 100 {
		a, b, c := time.Duration(rand.Int64N(1e14)), time.Duration(rand.Int64N(1e14)), time.Duration(rand.Int64N(1e14))
		must.InDelta(t, s.SurvivalFrom(a, b+c), s.SurvivalFrom(a, b)*s.SurvivalFrom(a+b, c), 1e-9)
	}
}

// A watch finds the chances that a trace was made with, whatever its prior.
func TestWatch(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	w := NewWatch(10*time.Minute, 10*time.Minute, 2, Prior2022)
	w.Memory = math.MaxInt64
	up := []bool{true, false}
	ends, back := []float64{.05, .3}, []float64{.2, .02}
	for range 100_000 {
		for z := range up {
			chance := back[z]
			if up[z] {
				chance = ends[z]
			}
			if random.Float64() < chance {
				up[z] = !up[z]
			}
		}
		w.Observe(up)
	}
	m := w.Market(3, []float64{1, 1.5})
	for z, zone := range m.Zones {
		for c := range 6 {
			must.InDelta(t, ends[z], zone.Ends[c], .15*ends[z])
		}
	}
	must.Eq(t, 1.5, m.Zones[1].Price)
	share := .2 / .25 // of the time that zone 0 is up
	must.InDelta(t, share, m.Zones[1].Elsewhere, .05)
	must.InDelta(t, 1-(1-.2)*(1-.02), m.Gap[0], .05)
}

// Ages count ticks of the plan, in the middle of one as well.
func TestWatch_ages(t *testing.T) {
	w := NewWatch(200*time.Second, 10*time.Minute, 1, Prior2022)
	must.Eq(t, 10*time.Minute, w.Tick())
	var got []int
	for _, up := range []bool{true, true, true, true, true, false, false, false, false, false, true} {
		w.Observe([]bool{up})
		got = append(got, w.View().Age[0])
	}
	must.Eq(t, []int{1, 1, 1, 2, 2, 1, 1, 1, 1, 2, 1}, got)
}
