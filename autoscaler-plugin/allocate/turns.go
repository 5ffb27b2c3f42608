package allocate

import (
	"math"
	"time"

	"nomad-spotter/autoscaler-plugin/hazard"
)

// ageFrom are the classes of how many ticks spot has been there, or away: each class begins at its entry. They widen,
// since hazards fall with age ever more slowly.
var ageFrom = [...]int{1, 2, 3, 4, 6, 9, 14, 21, 32, 50, 80}

// Classes is the number of classes of ages.
const Classes = len(ageFrom)

// Ends is the chance, by class of age, that a run of ticks in which spot is there, or away, ends with the next tick.
type Ends [Classes]float64

func ageClass(ticks int) int {
	class := 0
	for class+1 < Classes && ticks >= ageFrom[class+1] {
		class++
	}
	return class
}

// onward is the chance that a run that lives on for a tick enters the next class.
func onward(class int) float64 {
	if class+1 == Classes {
		return 0
	}
	return 1 / float64(ageFrom[class+1]-ageFrom[class])
}

// EndsOf are the chances of runs whose lengths follow a distribution. A run that is seen for the first time has begun in
// the middle of the tick before, in the mean.
func EndsOf(w hazard.Weibull, tick time.Duration) Ends {
	var e Ends
	for class, from := range ageFrom {
		to := from + from/2 // of the last class, which is open
		if class+1 < Classes {
			to = ageFrom[class+1]
		}
		for age := from; age < to; age++ {
			e[class] += 1 - w.SurvivalFrom(time.Duration(float64(tick)*(float64(age)-.5)), tick)
		}
		e[class] = min(e[class]/float64(to-from), mostEnds)
	}
	return e
}

// The distributions that a zone is taken to have before anything is seen of it: those of the nine zones of AWS in February
// 2023, V100 (957 whole up-times; the lengths of the times between them).
var (
	PriorUp   = hazard.Weibull{Shape: 0.617, Scale: 5681 * time.Second}
	PriorDown = hazard.Weibull{Shape: 0.70, Scale: 6115 * time.Second}
)

// How fast own observations outweigh the prior. They are the best of a coarse grid by the log loss of the next tick on the
// zones of February 2023, whose prior for that purpose came from the zones of October 2022.
const (
	halfLife    = 100 * time.Hour // an observation counts half after so long
	levelWeight = 5               // so many ends of runs weigh as much as the prior's level
	shapeWeight = 20              // and so many of a class as much as the prior's shape
	leastEnds   = 1e-4
	mostEnds    = 0.95
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
		e[c] = min(max((shapeWeight+t.ended[c])/(shapeWeight/base+t.seen[c]), leastEnds), mostEnds)
	}
	return e
}

// lane is what is known of one zone, or of all of them together.
type lane struct {
	up    bool
	age   int // ticks since the last turn, from 1
	there tally
	away  tally
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

// Watch learns how spot comes and goes in the zones of a market, tick by tick.
type Watch struct {
	tick      time.Duration
	up, down  Ends // priors
	zones     []lane
	any       lane      // up while any zone is
	lost      []float64 // by zone: how often spot was taken away
	elsewhere []float64 // and how often another zone was up then
}

// NewWatch begins to watch a number of zones. The priors are the distributions of up and down times that they are taken to
// have at first, such as PriorUp and PriorDown.
func NewWatch(tick time.Duration, zones int, up, down hazard.Weibull) *Watch {
	return &Watch{
		tick: tick, up: EndsOf(up, tick), down: EndsOf(down, tick),
		zones: make([]lane, zones), lost: make([]float64, zones), elsewhere: make([]float64, zones),
	}
}

// Observe counts one tick: where spot could be had in it.
func (w *Watch) Observe(up []bool) {
	fade := math.Pow(.5, float64(w.tick)/float64(halfLife))
	some := 0
	for _, u := range up {
		if u {
			some++
		}
	}
	for z := range w.zones {
		if turn := w.zones[z].observe(up[z], fade); turn && !up[z] {
			w.lost[z]++
			if some > 0 {
				w.elsewhere[z]++
			}
		}
	}
	w.any.observe(some > 0, fade)
}

// Age is for how long a zone has been up or down, in ticks, from 1; 0 before the first observation.
func (w *Watch) Age(zone int) int { return w.zones[zone].age }

// Gap is for how long there has been a zone that is up, or none.
func (w *Watch) Gap() int { return w.any.age }

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
