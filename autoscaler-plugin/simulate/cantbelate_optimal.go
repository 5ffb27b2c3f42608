package simulate

import "time"

// maxRuns bounds how often the omniscient schedule changes its mode. More than two runs for each hour of work never pay
// off with changeovers of a minute or more.
const maxRuns = 72

// unreached marks states that no schedule leads to.
const unreached = -1 << 14

// Optimal is the least cost of a job for somebody who knows the whole trace, for each deadline and changeover; the
// deadlines of the result are those of the setups, which must share tick, task and price ratio.
//
// A schedule of runs with no pause inside is worth ticks*tick - runs*changeover of work, so it need only be known how many
// ticks of spot a schedule of so many runs and so many billed ticks can have at most: neither deadline nor changeover
// changes that. A dynamic program over the trace finds it for all of them together.
func Optimal(up []bool, setups []Setup) []float64 {
	widest, longest := 0, 0
	need := func(s Setup, runs int) int {
		work := s.Task + time.Duration(runs)*s.Changeover
		return int((work + s.Tick - 1) / s.Tick)
	}
	for _, s := range setups {
		longest = max(longest, int(s.Deadline/s.Tick))
		widest = max(widest, need(s, maxRuns))
	}
	longest = min(longest, len(up))
	widest = min(widest, longest)
	best := make([]float64, len(setups))
	f := newSchedules(widest)
	for t := 0; ; t++ {
		for i, s := range setups {
			if int(s.Deadline/s.Tick) != t {
				continue
			}
			best[i] = s.cost(0, need(s, 1))
			for runs := 1; runs <= maxRuns; runs++ {
				ticks := need(s, runs)
				if ticks > widest {
					break
				}
				if spot := int(f.most(runs, ticks)); spot >= 0 {
					best[i] = min(best[i], s.cost(spot, ticks-spot))
				}
			}
		}
		if t >= longest {
			return best
		}
		f.step(up[t], min(t+1, widest))
	}
}

// schedules holds, for each mode of the last tick, number of runs and number of billed ticks, the most ticks of spot.
type schedules struct {
	width int
	at    [3][][]int16 // mode, runs, ticks
}

func newSchedules(widest int) *schedules {
	f := &schedules{width: widest + 1}
	for m := range f.at {
		f.at[m] = make([][]int16, maxRuns+1)
		for r := range f.at[m] {
			f.at[m][r] = make([]int16, f.width)
			for n := range f.at[m][r] {
				f.at[m][r][n] = unreached
			}
		}
	}
	f.at[Idle][0][0] = 0
	return f
}

func (f *schedules) most(runs, ticks int) int16 {
	return max(f.at[Idle][runs][ticks], f.at[OnSpot][runs][ticks], f.at[OnDemand][runs][ticks])
}

// step goes on by one tick, in place: from many runs and ticks down to few, so that what is read is still of the tick
// before.
func (f *schedules) step(up bool, reach int) {
	for runs := min(maxRuns, reach); runs >= 0; runs-- {
		idle, spot, demand := f.at[Idle][runs], f.at[OnSpot][runs], f.at[OnDemand][runs]
		var idle1, spot1, demand1 []int16
		if runs > 0 {
			idle1, spot1, demand1 = f.at[Idle][runs-1], f.at[OnSpot][runs-1], f.at[OnDemand][runs-1]
		}
		for n := reach; n >= 0; n-- {
			idle[n] = max(idle[n], spot[n], demand[n])
			if n == 0 || runs == 0 {
				spot[n], demand[n] = unreached, unreached
				continue
			}
			fresh := idle1[n-1]
			toDemand := max(demand[n-1], fresh, spot1[n-1])
			if up {
				spot[n] = max(spot[n-1], fresh, demand1[n-1]) + 1
			} else {
				spot[n] = unreached
			}
			demand[n] = toDemand
		}
	}
}
