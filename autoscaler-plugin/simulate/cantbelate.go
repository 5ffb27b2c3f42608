package simulate

import (
	"time"
)

// Mode is what a job of the Can't-Be-Late setup runs on for a tick.
type Mode uint8

// Modes of a job.
const (
	Idle Mode = iota
	OnSpot
	OnDemand
)

// Setup is one cell of the Can't-Be-Late experiment (Wu et al., "Can't Be Late: Optimizing Spot Instance Savings under
// Deadlines", NSDI '24): one job, one offering of spot that is there or not at each tick, and on-demand that always is.
// Whole ticks are billed, and every change to another mode but Idle costs the changeover before work goes on.
type Setup struct {
	Tick       time.Duration // length of a tick of the trace
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
	Mode      Mode          // of the tick before; Idle also if spot was taken away
	Up        bool          // spot can be had in this tick
}

// Left is the time to the deadline.
func (p Progress) Left() time.Duration { return p.Deadline - p.Elapsed }

// Late tells whether on-demand must be taken now, counted in whole ticks, for the deadline to be met. Whoever already
// works on spot may stay as long as it is there: a tick of work leaves as much slack as there was.
func (p Progress) Late() bool {
	need := (p.Remaining + p.Changeover + p.Tick - 1) / p.Tick
	return need >= p.Left()/p.Tick && !(p.Mode == OnSpot && p.Up && p.Overhead == 0)
}

// Policy decides what a job runs on, tick by tick. One value serves one job.
type Policy interface{ Next(Progress) Mode }

// Outcome is what a job cost and whether it was late.
type Outcome struct {
	Cost   float64 // as a share of what the task's hours cost on demand
	Missed bool
	Ticks  [3]int // billed ticks by mode
}

// Run plays one job on a trace, which begins at its start and reaches to its deadline at least.
func (s Setup) Run(up []bool, policy Policy) Outcome {
	p := Progress{Setup: s, Remaining: s.Task}
	var o Outcome
	for t := 0; p.Remaining > 0 && t < len(up) && p.Elapsed+s.Tick <= s.Deadline; t++ {
		p.Up = up[t]
		if p.Mode == OnSpot && !p.Up {
			p.Mode, p.Overhead = Idle, 0
		}
		next := policy.Next(p)
		if next == OnSpot && !p.Up {
			next = Idle
		}
		if next != p.Mode {
			p.Mode, p.Overhead = next, 0
			if next != Idle {
				p.Overhead = s.Changeover
			}
		}
		o.Ticks[next]++
		if next != Idle {
			paid := min(p.Overhead, s.Tick)
			p.Overhead -= paid
			p.Remaining -= s.Tick - paid
		}
		p.Elapsed += s.Tick
	}
	o.Missed = p.Remaining > 0
	o.Cost = s.cost(o.Ticks[OnSpot], o.Ticks[OnDemand])
	return o
}

// cost is the price of billed ticks as a share of the task's hours on demand.
func (s Setup) cost(spot, onDemand int) float64 {
	return (float64(spot) + s.PriceRatio*float64(onDemand)) * float64(s.Tick) / (s.PriceRatio * float64(s.Task))
}

// Greedy takes spot whenever it is there and waits otherwise, until only on-demand meets the deadline; then it stays
// there to the end.
type Greedy struct{ forced bool }

// Next implements Policy.
func (g *Greedy) Next(p Progress) Mode {
	switch g.forced = g.forced || p.Late(); {
	case g.forced:
		return OnDemand
	case p.Up:
		return OnSpot
	}
	return Idle
}

// UniformProgress is the policy of the paper as its public code has it: a job that is behind the straight line from its
// start to its deadline takes on-demand, until it is two changeovers ahead of the line; spot is taken whenever it is there.
type UniformProgress struct{}

// Next implements Policy.
func (UniformProgress) Next(p Progress) Mode {
	line := func(t time.Duration) time.Duration {
		return time.Duration(float64(t) * float64(p.Task) / float64(p.Deadline))
	}
	done := p.Task - p.Remaining
	switch {
	case p.Late():
		return OnDemand
	case p.Up:
		return OnSpot
	case p.Mode == OnDemand && done < line(p.Elapsed+2*p.Changeover):
		return OnDemand
	case done < line(p.Elapsed):
		return OnDemand
	}
	return Idle
}
