package simulate

import (
	"errors"
	"fmt"
	"time"

	"nomad-spotter/autoscaler-plugin/allocate"
)

// Score is what one policy came to over the runs of a cell.
type Score struct {
	Cost   float64 `json:"cost"` // mean, 1 = the task's hours on demand
	Misses int     `json:"misses"`
}

// Cell is one deadline and changeover of the Can't-Be-Late experiment.
type Cell struct {
	DeadlineHours   float64 `json:"deadline_h"`
	ChangeoverHours float64 `json:"changeover_h"`
	Runs            int     `json:"runs"`
	Greedy          Score   `json:"greedy"`
	UniformProgress Score   `json:"uniform_progress"`
	Optimal         Score   `json:"optimal"`
	Spotter         Score   `json:"spotter"`
}

// Experiment is a job that is run from many starts in each of several zones.
type Experiment struct {
	Tick        time.Duration
	Task        time.Duration
	Deadlines   []time.Duration
	Changeovers []time.Duration
	PriceRatio  float64
	Starts      []int // ticks of the traces
	Prior       allocate.Prior
}

// Bounds of an experiment.
const (
	leastTask      = time.Second
	mostPriceRatio = 1e6
	mostTicks      = -unreached - 1 // to a deadline: the optimum counts with numbers of 16 bits
)

// Validate reports every setup that cannot be run in traces of so many ticks.
func (e Experiment) Validate(ticks int) error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	span := time.Duration(ticks) * e.Tick
	switch {
	case e.Task < leastTask:
		fault("task: %v is below %v; give the hours of work, such as 48h", e.Task, leastTask)
	case e.Task > span:
		fault("task: %v does not fit the traces, which last %v; give less work or longer traces", e.Task, span)
	}
	if !(e.PriceRatio >= 1/mostPriceRatio && e.PriceRatio <= mostPriceRatio) {
		fault("price ratio: %v is outside %g to %g; it is on-demand over spot, such as 3.14", e.PriceRatio, 1/mostPriceRatio, mostPriceRatio)
	}
	var changeovers []time.Duration // that can be
	for _, c := range e.Changeovers {
		switch {
		case c < 0:
			fault("changeover: %v is negative; give 0h or more", c)
		case c > span:
			fault("changeover: %v does not fit the traces, which last %v; give less", c, span)
		default:
			changeovers = append(changeovers, c)
		}
	}
	for _, d := range e.Deadlines {
		if n := int(d / e.Tick); n > mostTicks {
			fault("deadline: %v is %d ticks of the traces, which is more than %d; give an earlier one, or traces of longer ticks", d, n, mostTicks)
			continue
		}
		for _, c := range changeovers {
			s := Setup{Tick: e.Tick, Task: e.Task, Deadline: d, Changeover: c, PriceRatio: e.PriceRatio}
			if earliest := time.Duration(s.ticks(1)) * e.Tick; earliest > d && e.Task <= span {
				fault("deadline: %v is too early for %v of work after a changeover of %v, even on demand; the earliest is %v", d, e.Task, c, earliest)
			}
		}
		for _, start := range e.Starts {
			if n := int(d / e.Tick); start < 0 || start > ticks-n {
				fault("deadline: %v from tick %d on takes %d ticks, but the traces have %d; give a start in the traces or an earlier deadline",
					d, start, n, ticks)
				break
			}
		}
	}
	return errors.Join(faults...)
}

// longest is the latest deadline.
func (e Experiment) longest() time.Duration {
	longest := time.Duration(0)
	for _, d := range e.Deadlines {
		longest = max(longest, d)
	}
	return longest
}

// setups are those of all changeovers or of one, by deadline within changeover.
func (e Experiment) setups(changeovers ...time.Duration) []Setup {
	var all []Setup
	for _, c := range changeovers {
		for _, d := range e.Deadlines {
			all = append(all, Setup{Tick: e.Tick, Task: e.Task, Deadline: d, Changeover: c, PriceRatio: e.PriceRatio})
		}
	}
	return all
}

// Cells are the experiment's empty cells, one for each setup, by deadline within changeover.
func (e Experiment) Cells() []Cell {
	var cells []Cell
	for _, s := range e.setups(e.Changeovers...) {
		cells = append(cells, Cell{DeadlineHours: s.Deadline.Hours(), ChangeoverHours: s.Changeover.Hours()})
	}
	return cells
}

// Optimum is the omniscient cost of the jobs of one start, by setup.
func (e Experiment) Optimum(zones [][]bool, start int) []float64 {
	cut := make([][]bool, len(zones))
	for z := range zones {
		cut[z] = zones[z][start : start+int(e.longest()/e.Tick)]
	}
	return Optimal(cut, e.setups(e.Changeovers...))
}

// Contender makes the policy of one job.
type Contender func(s Setup) Policy

// Contend runs jobs from all starts under one policy and returns the sums of their costs and misses, by setup.
func (e Experiment) Contend(zones [][]bool, setups []Setup, watch Watcher, policy Contender) []Score {
	trials := make([]*Trial, 0, len(setups)*len(e.Starts))
	for _, s := range setups {
		for _, start := range e.Starts {
			trials = append(trials, NewTrial(s, start, policy(s)))
		}
	}
	Play(zones, watch, trials)
	sums := make([]Score, len(setups))
	for i, t := range trials {
		sum := &sums[i/len(e.Starts)]
		sum.Cost += t.Cost()
		if t.Missed() {
			sum.Misses++
		}
	}
	return sums
}

// Spotter runs jobs from all starts under the pool's own policy, one changeover at a time, since plans are made for one.
func (e Experiment) Spotter(zones [][]bool, changeover time.Duration) []Score {
	setups := e.setups(changeover)
	planner := NewPlanner(setups[0], len(zones), e.longest(), e.Prior)
	return e.Contend(zones, setups, planner, func(Setup) Policy { return planner })
}

// Studied is Spotter for somebody who knows the hazards of the whole traces.
func (e Experiment) Studied(zones [][]bool, changeover time.Duration) []Score {
	setups := e.setups(changeover)
	planner := NewPlanner(setups[0], len(zones), e.longest(), e.Prior)
	planner.Study(zones)
	return e.Contend(zones, setups, planner, func(Setup) Policy { return planner })
}

// Baselines runs Greedy and Uniform Progress in every cell of the experiment.
func (e Experiment) Baselines(zones [][]bool) (greedy, uniform []Score) {
	setups := e.setups(e.Changeovers...)
	greedy = e.Contend(zones, setups, nil, func(Setup) Policy { return &Greedy{} })
	uniform = e.Contend(zones, setups, nil, func(Setup) Policy { return UniformProgress{} })
	return greedy, uniform
}
