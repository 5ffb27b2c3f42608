package simulate

import (
	"math"
	"time"

	"nomad-spotter/autoscaler-plugin/allocate"
)

// planTick is the grid of plans, as fine as the recorded markets were probed; planEvery is how often they are made anew;
// planCells is how large they may be for all zones together: some 270 MB, and a second each time.
const (
	planTick  = 10 * time.Minute
	planEvery = 12 * time.Hour
	planCells = 1 << 26
)

// Planner is the pool's own policy for jobs of one kind: it watches the zones, plans anew twice a day by what it has seen,
// and decides for any number of jobs by the plan. It sees each zone's present and past, and nothing else.
type Planner struct {
	setup     Setup
	prior     allocate.Prior
	watch     *allocate.Watch
	deadlines *allocate.Deadlines
	prices    []float64
	now       time.Duration // of the traces
	due       time.Duration // the next plan
}

// NewPlanner makes the planner of jobs of the setup's kind whose deadlines are at most so far off. Where the plan would be
// too large, its grid is coarser.
func NewPlanner(s Setup, zones int, longest time.Duration, prior allocate.Prior) *Planner {
	p := &Planner{setup: s, prior: prior, prices: make([]float64, zones)}
	var grid allocate.Grid
	for tick := planTick; ; tick *= 2 {
		p.watch = allocate.NewWatch(s.Tick, tick, zones, prior)
		grid = allocate.Grid{Tick: p.watch.Tick(), Changeover: s.Changeover}
		grid.Ticks, grid.Work = int(longest/grid.Tick), int((s.Task+grid.Tick-1)/grid.Tick)
		if grid.Cells()*float64(zones) <= planCells || grid.Ticks < 2 {
			break
		}
	}
	p.deadlines = allocate.NewDeadlines(grid)
	for z := range p.prices {
		p.prices[z] = 1
	}
	return p
}

// Watch implements Watcher.
func (p *Planner) Watch(up []bool) {
	p.watch.Observe(up)
	if p.now >= p.due {
		p.due += planEvery
		p.deadlines.Solve(p.watch.Market(p.setup.PriceRatio, p.prices))
	}
	p.now += p.setup.Tick
}

// Next implements Policy.
func (p *Planner) Next(j Progress) Place {
	job := allocate.Job{Left: j.Left(), Work: j.Remaining, Overhead: j.Overhead, On: int(j.On)}
	return Place(p.deadlines.Choose(job, p.watch.View()).On)
}

// Study plans by the whole of the traces, their future included, and never again: a bound on what better knowledge of the
// zones' hazards could gain. It must come before the first Watch.
func (p *Planner) Study(zones [][]bool) {
	all := allocate.NewWatch(p.setup.Tick, p.watch.Tick(), len(zones), p.prior)
	all.Memory = math.MaxInt64
	up := make([]bool, len(zones))
	for t := range zones[0] {
		for z := range zones {
			up[z] = zones[z][t]
		}
		all.Observe(up)
	}
	p.deadlines.Solve(all.Market(p.setup.PriceRatio, p.prices))
	p.due = math.MaxInt64
}
