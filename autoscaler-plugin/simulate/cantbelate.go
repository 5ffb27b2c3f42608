package simulate

import "time"

// Place is what a job of the Can't-Be-Late setup runs on for a tick: spot in a zone, by its index, or one of these.
type Place int

// Places other than spot in a zone.
const (
	Waiting  Place = -2
	OnDemand Place = -1
)

// Setup is one cell of the Can't-Be-Late experiment (Wu et al., "Can't Be Late: Optimizing Spot Instance Savings under
// Deadlines", NSDI '24): one job, zones where spot is there or not at each tick, at the same price everywhere, and
// on-demand that always is. Whole ticks are billed, and every change to another place costs the changeover before work
// goes on. No work is lost beside that.
type Setup struct {
	Tick       time.Duration // length of a tick of the traces
	Task       time.Duration // work of the job
	Deadline   time.Duration // from its start
	Changeover time.Duration // from a start or a move until work goes on
	PriceRatio float64       // price of on-demand over price of spot
}

// PaperPriceRatio is 3.06 $/h over 0.9731 $/h: p3.2xlarge in us-west-2, which the paper's simulator takes for all types.
const PaperPriceRatio = 3.06 / 0.9731

// Progress is what a policy may know of its job at the begin of a tick.
type Progress struct {
	Setup
	Elapsed   time.Duration // since the job's start
	Remaining time.Duration // work that is left
	Overhead  time.Duration // of the last changeover, still to be paid before work goes on
	On        Place         // in the tick before; Waiting also if spot was taken away
	Up        []bool        // zones where spot can be had in this tick
}

// Left is the time to the deadline.
func (p Progress) Left() time.Duration { return p.Deadline - p.Elapsed }

// Late tells whether on-demand must be taken now, counted in whole ticks, for the deadline to be met. Whoever already
// works on spot may stay as long as it is there: a tick of work leaves as much slack as there was.
func (p Progress) Late() bool {
	need := (p.Remaining + p.Changeover + p.Tick - 1) / p.Tick
	atWork := p.OnSpot() && p.Overhead == 0
	return need >= p.Left()/p.Tick && !atWork
}

// OnSpot tells whether the job was on spot in the tick before, and still can be.
func (p Progress) OnSpot() bool { return p.On >= 0 }

// SomeUp is the first zone that is up; Waiting if there is none.
func (p Progress) SomeUp() Place {
	for z, up := range p.Up {
		if up {
			return Place(z)
		}
	}
	return Waiting
}

// Policy decides what a job runs on, tick by tick. One value serves one job.
type Policy interface{ Next(Progress) Place }

// Watcher is told what is up in each tick of the traces, from their begin, before policies are asked.
type Watcher interface{ Watch(up []bool) }

// Trial is one job on its way through the traces.
type Trial struct {
	Setup
	Start  int // tick of the traces
	Policy Policy

	progress Progress
	spot     int // billed ticks
	onDemand int
}

// NewTrial is a job that begins with a tick of the traces.
func NewTrial(s Setup, start int, policy Policy) *Trial {
	return &Trial{Setup: s, Start: start, Policy: policy, progress: Progress{Setup: s, Remaining: s.Task, On: Waiting}}
}

// Cost is what the job has cost, as a share of what the task's hours cost on demand.
func (t *Trial) Cost() float64 { return t.cost(t.spot, t.onDemand) }

// Missed tells whether work is left.
func (t *Trial) Missed() bool { return t.progress.Remaining > 0 }

func (s Setup) cost(spot, onDemand int) float64 {
	return (float64(spot) + s.PriceRatio*float64(onDemand)) * float64(s.Tick) / (s.PriceRatio * float64(s.Task))
}

// Play takes jobs through the traces of zones, all of the same length, side by side. The watcher may be nil.
func Play(zones [][]bool, watch Watcher, trials []*Trial) {
	up := make([]bool, len(zones))
	for tick := range zones[0] {
		for z := range zones {
			up[z] = zones[z][tick]
		}
		if watch != nil {
			watch.Watch(up)
		}
		for _, t := range trials {
			if tick >= t.Start {
				t.step(up)
			}
		}
	}
}

func (t *Trial) step(up []bool) {
	p := &t.progress
	if p.Remaining <= 0 || p.Left() < t.Tick {
		return
	}
	p.Up = up
	if p.On >= 0 && !up[p.On] {
		p.On, p.Overhead = Waiting, 0
	}
	next := t.Policy.Next(*p)
	if next >= 0 && !up[next] {
		next = Waiting
	}
	if next != p.On {
		p.On, p.Overhead = next, t.Changeover
	}
	switch next {
	case Waiting:
		p.Overhead = 0
	case OnDemand:
		t.onDemand++
	default:
		t.spot++
	}
	if next != Waiting {
		paid := min(p.Overhead, t.Tick)
		p.Overhead -= paid
		p.Remaining -= t.Tick - paid
	}
	p.Elapsed += t.Tick
}

// Greedy takes spot whenever it is there and waits otherwise, until only on-demand meets the deadline; then it stays
// there to the end.
type Greedy struct{ forced bool }

// Next implements Policy.
func (g *Greedy) Next(p Progress) Place {
	g.forced = g.forced || p.Late()
	if g.forced {
		return OnDemand
	}
	if p.OnSpot() {
		return p.On
	}
	return p.SomeUp()
}

// UniformProgress is the policy of the paper as its public code has it: a job that is behind the straight line from its
// start to its deadline takes on-demand, until it is two changeovers ahead of the line; spot is taken whenever it is there.
type UniformProgress struct{}

// Next implements Policy.
func (UniformProgress) Next(p Progress) Place {
	line := func(t time.Duration) time.Duration {
		return time.Duration(float64(t) * float64(p.Task) / float64(p.Deadline))
	}
	done := p.Task - p.Remaining
	switch spot := p.SomeUp(); {
	case p.Late():
		return OnDemand
	case p.OnSpot():
		return p.On
	case spot >= 0:
		return spot
	case p.On == OnDemand && done < line(p.Elapsed+2*p.Changeover), done < line(p.Elapsed):
		return OnDemand
	}
	return Waiting
}
