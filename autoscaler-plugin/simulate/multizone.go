package simulate

import (
	"math"
	"slices"
)

// MultiZoneCell is one deadline and changeover of the experiment in which a job may move between zones.
type MultiZoneCell struct {
	DeadlineHours     float64 `json:"deadline_h"`
	ChangeoverHours   float64 `json:"changeover_h"`
	Starts            int     `json:"starts"`
	Seed              uint64  `json:"seed"`
	BestSingleZone    Score   `json:"best_single_zone"`
	CheapestAvailable Score   `json:"cheapest_available"`
	SpotHedge         Score   `json:"spothedge"`
	Optimal           Score   `json:"optimal"`
	Spotter           Score   `json:"spotter"`
}

// Availability is what a policy knows of the past: for how long each zone has been up.
type Availability struct {
	up    []int
	ticks int
}

// Watch implements Watcher.
func (a *Availability) Watch(up []bool) {
	if a.up == nil {
		a.up = make([]int, len(up))
	}
	a.ticks++
	for z, u := range up {
		if u {
			a.up[z]++
		}
	}
}

// CheapestAvailable takes the zone that is up and was up for most of the past, where all prices are the same; else
// on-demand. It stays where it is while that is up.
type CheapestAvailable struct{ Past *Availability }

// Next implements Policy.
func (c CheapestAvailable) Next(p Progress) Place {
	if p.OnSpot() && (p.Overhead == 0 || !p.Late()) {
		return p.On
	}
	if p.Late() {
		return OnDemand
	}
	best := OnDemand
	for z, up := range p.Up {
		if up && (best < 0 || c.Past.up[z] > c.Past.up[best]) {
			best = Place(z)
		}
	}
	return best
}

// SpotHedge places by SkyServe's rule (Mao et al., "SkyServe: Serving AI Models across Regions and Clouds with Spot
// Instances", EuroSys '25), for one replica: zones that took spot away, or had none when asked, are left alone as long as
// others are not; when fewer than two of those are left, all are tried again. While there is no spot, on-demand stands in.
type SpotHedge struct {
	shunned []bool
	last    Place
}

// Next implements Policy.
func (h *SpotHedge) Next(p Progress) Place {
	if h.shunned == nil {
		h.shunned, h.last = make([]bool, len(p.Up)), Waiting
	}
	if h.last >= 0 && p.On != h.last {
		h.shun(h.last)
	}
	h.last = h.place(p)
	return h.last
}

func (h *SpotHedge) place(p Progress) Place {
	switch {
	case p.OnSpot() && (p.Overhead == 0 || !p.Late()):
		return p.On
	case p.Late():
		return OnDemand
	}
	for range 2 { // what is shunned may be all that is up
		for z, up := range p.Up {
			switch {
			case h.shunned[z]:
			case up:
				return Place(z)
			default:
				h.shun(Place(z))
			}
		}
	}
	return OnDemand
}

func (h *SpotHedge) shun(z Place) {
	h.shunned[z] = true
	free := 0
	for _, s := range h.shunned {
		if !s {
			free++
		}
	}
	if free < 2 {
		clear(h.shunned)
		h.shunned[z] = true
	}
}

// MultiZone runs the experiment on zones from its starts, without the optimum, which Optimum gives start by start. The
// cells are by deadline within changeover, sums over the starts.
func (e Experiment) MultiZone(zones [][]bool) []MultiZoneCell {
	setups := e.setups(e.Changeovers...)
	cells := make([]MultiZoneCell, len(setups))
	single := make([]Score, len(setups))
	for i := range single {
		single[i].Cost = math.Inf(1)
	}
	for z := range zones {
		for i, s := range e.Contend(zones[z:z+1], setups, nil, func(Setup) Policy { return UniformProgress{} }) {
			if s.Cost < single[i].Cost {
				single[i] = s
			}
		}
	}
	past := &Availability{}
	cheapest := e.Contend(zones, setups, past, func(Setup) Policy { return CheapestAvailable{past} })
	hedge := e.Contend(zones, setups, nil, func(Setup) Policy { return &SpotHedge{} })
	var own []Score
	for _, c := range e.Changeovers {
		own = append(own, e.Spotter(zones, c)...)
	}
	for i, s := range setups {
		cells[i] = MultiZoneCell{
			DeadlineHours: s.Deadline.Hours(), ChangeoverHours: s.Changeover.Hours(), Starts: len(e.Starts),
			BestSingleZone: single[i], CheapestAvailable: cheapest[i], SpotHedge: hedge[i], Spotter: own[i],
		}
	}
	return cells
}

// Feasible are the starts that leave time for the latest deadline.
func (e Experiment) Feasible(ticks int) int {
	return max(0, ticks-int((e.longest()+e.Tick-1)/e.Tick)+1)
}

// Aligned cuts zones to the length of the shortest, so that all have the same ticks.
func Aligned(zones [][]bool) [][]bool {
	shortest := math.MaxInt
	for _, z := range zones {
		shortest = min(shortest, len(z))
	}
	cut := slices.Clone(zones)
	for i := range cut {
		cut[i] = cut[i][:shortest]
	}
	return cut
}
