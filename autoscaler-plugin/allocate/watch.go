package allocate

import (
	"math"
	"time"
)

// How fast what is seen outweighs the prior: about the best of a coarse grid by the log loss of the next tick on the zones
// of February 2023, whose prior for that purpose was that of October 2022. The loss is flat around them.
const (
	memory      = 100 * time.Hour // an observation counts half after so long
	levelWeight = 5               // so many ends of runs weigh as much as the prior's level
	shapeWeight = 20              // and so many of a class as much as the prior's shape
)

// tally counts, by class of age, how often runs ended and how often they might have.
type tally struct{ ended, seen Ends }

func (t *tally) add(class int, ended bool) {
	t.seen[class]++
	if ended {
		t.ended[class]++
	}
}

func (t *tally) fade(share float64) {
	for c := range t.seen {
		t.seen[c] *= share
		t.ended[c] *= share
	}
}

// ends is the tally's estimate: the prior scaled to the zone's level, and each class moved towards what was seen of it.
// Both are means of gamma distributions, the conjugate prior of a rate.
func (t *tally) ends(prior Ends) Ends {
	ended, expected := float64(levelWeight), float64(levelWeight)
	for c := range prior {
		ended += t.ended[c]
		expected += t.seen[c] * prior[c]
	}
	var e Ends
	for c := range prior {
		base := max(prior[c]*ended/expected, leastEnds)
		e[c] = (shapeWeight + t.ended[c]) / (shapeWeight/base + t.seen[c])
	}
	return e.times(1)
}

// lane is what is known of one zone, or of all of them together.
type lane struct {
	up          bool
	age         int   // ticks since the last turn, from 1; 0: nothing was seen yet
	there, away tally // of the runs in which it was up, and down
}

// observe counts a tick and tells whether it was a turn.
func (l *lane) observe(up bool, fade float64) bool {
	if l.age == 0 {
		l.up, l.age = up, 1
		return false
	}
	l.there.fade(fade)
	l.away.fade(fade)
	turn := up != l.up
	side := &l.away
	if l.up {
		side = &l.there
	}
	side.add(ageClass(l.age), turn)
	l.age++
	if turn {
		l.up, l.age = up, 1
	}
	return turn
}

// Watch learns how spot comes and goes in the zones of a market.
type Watch struct {
	Memory time.Duration // an observation counts half after so long

	step, tick time.Duration
	every, n   int
	up, down   Ends // priors
	zones      []lane
	any        lane // up while any zone is
	lost       []float64
	elsewhere  []float64 // how often another zone was up when this one was lost
	view       View
}

// View is the present of a market, as Choose wants it. Ages are in ticks of the plan, from 1.
type View struct {
	Up  []bool // by zone: spot can be had
	Age []int  // for how long that has been so
	Gap int    // for how long there has been spot in some zone, or in none
}

// NewWatch begins to watch a number of zones, which is told each step what is up; it learns by ticks of a plan, each of
// one step or more.
func NewWatch(step, tick time.Duration, zones int, prior Prior) *Watch {
	w := &Watch{
		Memory: memory, step: step, every: max(1, int(math.Round(float64(tick)/float64(step)))), zones: make([]lane, zones),
		lost: make([]float64, zones), elsewhere: make([]float64, zones),
		view: View{Up: make([]bool, zones), Age: make([]int, zones)},
	}
	w.tick = time.Duration(w.every) * step
	w.up, w.down = EndsOf(prior.Up, w.tick), EndsOf(prior.Down, w.tick)
	return w
}

// Tick is the tick that the watch learns by: a whole number of steps.
func (w *Watch) Tick() time.Duration { return w.tick }

// Observe is told where spot can be had in a step.
func (w *Watch) Observe(up []bool) {
	some := false
	for _, u := range up {
		some = some || u
	}
	if w.n%w.every == 0 {
		fade := math.Pow(.5, float64(w.tick)/float64(w.Memory))
		for z := range w.zones {
			if w.zones[z].observe(up[z], fade) && !up[z] {
				w.lost[z]++
				if some {
					w.elsewhere[z]++
				}
			}
		}
		w.any.observe(some, fade)
	}
	w.n++
	for z := range w.zones {
		w.view.Up[z], w.view.Age[z] = up[z], w.age(&w.zones[z], up[z])
	}
	w.view.Gap = w.age(&w.any, some)
}

// age of a lane in ticks; a turn between two ticks has just been.
func (w *Watch) age(l *lane, up bool) int {
	if up != l.up {
		return 1
	}
	return l.age
}

// View is the present. It is valid until the next Observe.
func (w *Watch) View() View { return w.view }

// Market is what has been learned, at given prices of spot by zone.
func (w *Watch) Market(onDemand float64, spot []float64) Market {
	m := Market{OnDemand: onDemand, Gap: w.any.away.ends(w.down), Zones: make([]Zone, len(w.zones))}
	for z := range w.zones {
		m.Zones[z] = Zone{Price: spot[z], Ends: w.zones[z].there.ends(w.up)}
		if len(w.zones) > 1 {
			m.Zones[z].Elsewhere = (w.elsewhere[z] + 1) / (w.lost[z] + 2)
		}
	}
	return m
}
