package simulate

import (
	"slices"
	"time"
)

// maxRuns bounds how often the omniscient schedule changes its mode. More than two runs for each hour of work never pay
// off with changeovers of a minute or more.
const maxRuns = 72

// unreached marks what no schedule leads to.
const unreached = -1 << 14

// Optimal is the least cost of a job for somebody who knows the whole trace of every zone, for each of several setups that
// share tick, task and price ratio.
//
// A schedule of runs with no pause inside is worth ticks*tick - runs*changeover of work, so it need only be known how many
// ticks of spot a schedule of so many runs and so many billed ticks can have at most: neither deadline nor changeover
// changes that. A dynamic program over the traces finds it for all setups together.
func Optimal(zones [][]bool, setups []Setup) []float64 {
	longest, widest := 0, 0
	for _, s := range setups {
		longest = max(longest, int(s.Deadline/s.Tick))
	}
	for _, z := range zones {
		longest = min(longest, len(z))
	}
	for _, s := range setups {
		widest = max(widest, s.ticks(maxRuns))
	}
	widest = min(widest, longest)
	best := make([]float64, len(setups))
	f := newSchedules(len(zones)+1, widest)
	up := make([]bool, len(zones))
	for t := 0; ; t++ {
		for i, s := range setups {
			if int(s.Deadline/s.Tick) == t {
				best[i] = f.least(s)
			}
		}
		if t >= longest {
			return best
		}
		for z := range zones {
			up[z] = zones[z][t]
		}
		f.step(up, min(t+1, widest))
	}
}

// ticks is how many billed ticks do the task in so many runs.
func (s Setup) ticks(runs int) int {
	work := s.Task + time.Duration(runs)*s.Changeover
	return int((work + s.Tick - 1) / s.Tick)
}

// schedules holds the most ticks of spot that a schedule can have, by number of runs and of billed ticks: over all
// schedules, and over those that are on one lane in the last tick. Lane 0 is on-demand, the others are the zones.
type schedules struct {
	best  [][]int16
	lanes [][][]int16
}

func newSchedules(lanes, widest int) *schedules {
	grid := func() [][]int16 {
		rows := make([][]int16, maxRuns+1)
		for r := range rows {
			rows[r] = slices.Repeat([]int16{unreached}, widest+1)
		}
		return rows
	}
	f := &schedules{best: grid(), lanes: make([][][]int16, lanes)}
	for l := range f.lanes {
		f.lanes[l] = grid()
	}
	f.best[0][0] = 0
	return f
}

// step goes on by one tick, in place: from many runs and ticks down to few, so that what is read is of the tick before.
func (f *schedules) step(up []bool, reach int) {
	for runs := min(len(f.best)-1, reach); runs > 0; runs-- {
		before, best := f.best[runs-1][:reach], f.best[runs][1:reach+1]
		for l, lane := range f.lanes {
			row := lane[runs]
			if l > 0 && !up[l-1] {
				for n := range row[:reach+1] {
					row[n] = unreached
				}
				continue
			}
			gain := int16(min(l, 1))
			for n := len(before) - 1; n >= 0; n-- {
				row[n+1] = max(row[n], before[n]) + gain
			}
			row[0] = unreached
			for n, v := range row[1 : reach+1] {
				best[n] = max(best[n], v)
			}
		}
	}
}

// least is the least cost of what has been reached.
func (f *schedules) least(s Setup) float64 {
	cost := s.cost(0, s.ticks(1))
	for runs := 1; runs < len(f.best); runs++ {
		ticks := s.ticks(runs)
		if ticks >= len(f.best[runs]) {
			break
		}
		if spot := int(f.best[runs][ticks]); spot >= 0 {
			cost = min(cost, s.cost(spot, ticks-spot))
		}
	}
	return cost
}
