package simulate

import (
	"time"

	"nomad-spotter/autoscaler-plugin/allocate"
	"nomad-spotter/autoscaler-plugin/hazard"
)

// Planner is what the pool's own policy knows and plans for jobs of one kind: it watches the zones, and plans anew from
// time to time by what it has seen.
type Planner struct {
	Every time.Duration // between two plans
	Setup Setup

	watch     *allocate.Watch
	deadlines *allocate.Deadlines
	step      int // ticks of the traces in one of the plan's
	tick      int
	since     []int // ticks of the traces since the last turn of a zone; the last entry is of all zones
	was       []bool
	plans     int
}

// planTick is the grid of plans, as fine as the recorded markets were probed.
const planTick = 10 * time.Minute

// NewPlanner makes the planner of jobs of the setup's kind whose deadlines are at most so far off.
func NewPlanner(s Setup, zones int, longest time.Duration, up, down hazard.Weibull) *Planner {
	step := max(1, int((planTick+s.Tick/2)/s.Tick))
	tick := s.Tick * time.Duration(step)
	return &Planner{
		Every: 24 * time.Hour, Setup: s, step: step,
		watch: allocate.NewWatch(tick, zones, up, down),
		deadlines: allocate.NewDeadlines(allocate.Grid{
			Tick: tick, Changeover: s.Changeover, Ticks: int(longest / tick), Work: int((s.Task + tick - 1) / tick),
		}),
		since: make([]int, zones+1), was: make([]bool, zones+1),
	}
}

// Watch implements Watcher.
func (p *Planner) Watch(up []bool) {
	some := false
	for z, u := range up {
		p.turn(z, u)
		some = some || u
	}
	p.turn(len(up), some)
	if p.tick%p.step == 0 {
		p.watch.Observe(up)
	}
	if time.Duration(p.tick)*p.Setup.Tick >= time.Duration(p.plans)*p.Every {
		p.plans++
		prices := make([]float64, len(up))
		for z := range prices {
			prices[z] = 1
		}
		p.deadlines.Solve(p.watch.Market(p.Setup.PriceRatio, prices))
	}
	p.tick++
}

func (p *Planner) turn(i int, up bool) {
	if p.tick > 0 && up == p.was[i] {
		p.since[i]++
	} else {
		p.since[i] = 1
	}
	p.was[i] = up
}

// age is in ticks of the plan.
func (p *Planner) age(i int) int { return (p.since[i] + p.step - 1) / p.step }

// Next implements Policy, for any number of jobs.
func (p *Planner) Next(j Progress) Place {
	c := p.deadlines.Choose(allocate.Job{Left: j.Left(), Work: j.Remaining, Overhead: j.Overhead, On: int(j.On)}, j.Up, p.age, p.age(len(p.was)-1))
	return Place(c.On)
}
