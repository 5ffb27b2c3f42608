package simulate

import (
	"math"
	"slices"
	"time"

	"nomad-spotter/autoscaler-plugin/cost"
)

// Nowhere is the offering of a replica that waits.
const Nowhere = -1

// State is what a placer knows of the replica that it decides on.
type State struct {
	Job      Job
	Replica  int
	Offering int           // where it runs; Nowhere: it waits
	Since    time.Duration // when that began
	Left     time.Duration // work left at speed 1; what is done since the last checkpoint counts as done
	Risk     time.Duration // work that an interruption without notice could lose, at most, until Safe
	Safe     time.Duration // when the checkpoint after the next one is durable; forever if there is none to come
	Start    time.Duration // changeover that is left before it works
	Others   []int         // offerings where the job's other replicas run
}

// Placement is where a replica is to be from now on.
type Placement struct {
	Offering int           // Nowhere: wait
	MaxPrice float64       // $/h: the instance is taken away when its market rises above; 0: the Spec's
	Review   time.Duration // ask again at this time; 0: no need
	Watch    bool          // ask again when an offering comes up or another one becomes the cheapest
	Reason   string        // in words, for people
}

// Placer decides where one job's replicas run. It is asked when the job arrives, when a replica was interrupted, and when
// its last placement says so. A replica that is moved saves its state first.
type Placer interface {
	Place(s *State, m *Market) Placement
}

// Market is the present state of all offerings, as a placer sees it. The future is not in it.
type Market struct {
	Now       time.Duration
	Offerings []Offering
	states    []offeringState
	schedule  func(s *Spec, offering int) *schedule
	limited   bool // an offering has a capacity
	cheapest  int  // the cheapest that is up, of any kind; Nowhere: none is
}

// offeringState is one offering's present, and what it has cost.
type offeringState struct {
	up     bool
	price  float64 // $/h
	since  time.Duration
	upFor  time.Duration // in total, up to since
	paid   float64       // $: what one instance would have cost from time 0 to paidAt
	paidAt time.Duration
	used   int
	runs   []*run
	lowest float64 // no run here has a lower MaxPrice
}

// Up reports whether instances can be had and are left alone.
func (m *Market) Up(i int) bool { return m.states[i].up }

// Price is the present price in $/h of one instance; the last known one in a gap.
func (m *Market) Price(i int) float64 { return m.states[i].price }

// Since is when the offering last came up or went down.
func (m *Market) Since(i int) time.Duration { return m.states[i].since }

// Availability is the share of the past in which the offering was up; 1 at the start.
func (m *Market) Availability(i int) float64 {
	s := &m.states[i]
	if m.Now == 0 {
		return 1
	}
	up := s.upFor
	if s.up {
		up += m.Now - s.since
	}
	return float64(up) / float64(m.Now)
}

// Free is how many more instances of an offering the pool may have.
func (m *Market) Free(i int) int {
	if m.Offerings[i].Capacity == 0 {
		return math.MaxInt
	}
	return m.Offerings[i].Capacity - m.states[i].used
}

// speed is the work done per hour on an offering.
func (m *Market) speed(i int) float64 {
	if s := m.Offerings[i].Speed; s > 0 {
		return s
	}
	return 1
}

// Usable reports whether a replica could start on an offering now: it is up, there is room, the price is within the job's
// limit, and no other replica of the job is in its region.
func (m *Market) Usable(i int, s *State) bool {
	st := &m.states[i]
	if !st.up || s.Offering != i && m.Free(i) < s.Job.ranks() {
		return false
	}
	if m.Offerings[i].Kind == cost.Spot && s.Job.MaxPrice > 0 && st.price > s.Job.MaxPrice {
		return false
	}
	for _, o := range s.Others {
		a, b := m.Offerings[o].Key, m.Offerings[i].Key
		if a.Region == b.Region && (s.Job.Apart == ByRegion || a.Zone == b.Zone) {
			return false
		}
	}
	return true
}

// has says whether the pool has offerings of a kind at all.
func (m *Market) has(kind cost.Kind) bool {
	return slices.ContainsFunc(m.Offerings, func(o Offering) bool { return o.Kind == kind })
}

// Cheapest is the usable offering of a kind whose work is cheapest; Nowhere if there is none. Ties go to the first.
func (m *Market) Cheapest(kind cost.Kind, s *State) int {
	best, least := Nowhere, math.Inf(1)
	for i := range m.Offerings {
		if m.Offerings[i].Kind != kind || !m.Usable(i, s) {
			continue
		}
		if p := m.states[i].price / m.speed(i); p < least {
			best, least = i, p
		}
	}
	return best
}

// upFor is how long an offering has been up.
func (m *Market) upFor(i int) time.Duration { return m.Now - m.states[i].since }

// oldest is the age of the pool's oldest instance of an offering; 0: it has none.
func (m *Market) oldest(i int) time.Duration {
	age := time.Duration(0)
	for _, r := range m.states[i].runs {
		age = max(age, r.age(m.Now))
	}
	return age
}

// index is the offering of a name.
func (m *Market) index(name string) int {
	return slices.IndexFunc(m.Offerings, func(o Offering) bool { return o.Name == name })
}
