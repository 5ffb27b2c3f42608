package forecast

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"nomad-spotter/autoscaler-plugin/market"
)

// MaxOrigins bounds the times at which a panel forecasts; of longer records the last ones are used.
const MaxOrigins = 10000

// nearest is how far before the wanted date the outcome of a forecast of snapshots may lie.
const nearest = 3 * 24 * time.Hour

// grid is the times at which prices are looked at, and of each the time at which a forecast from there is judged.
type grid struct {
	times  []time.Time
	step   time.Duration // usual distance of two times
	target [][]int       // by horizon and time: index of the outcome's time; -1: none
}

// newGrid takes the dates of snapshots as they are: the outcome is then at the date nearest at or before the horizon,
// within three days. Prices that change at any time are looked at every hour, or as often as the shortest horizon.
func newGrid(series []market.Series, horizons []time.Duration) (*grid, error) {
	var first, last time.Time
	dates := map[time.Time]bool{}
	snapshots := true
	for _, s := range series {
		for _, p := range s.Points {
			if first.IsZero() || p.At.Before(first) {
				first = p.At
			}
			if p.At.After(last) {
				last = p.At
			}
			if snapshots = snapshots && p.At.Equal(p.At.Truncate(24*time.Hour)); snapshots {
				dates[p.At] = true
			}
		}
	}
	var faults []error
	if len(horizons) == 0 {
		faults = append(faults, errors.New("horizons: none; give at least one, such as 1h"))
	}
	shortest := time.Hour
	for _, h := range horizons {
		if h < time.Minute || h > 366*24*time.Hour {
			faults = append(faults, fmt.Errorf("horizon %v: outside 1m to 8784h", h))
		} else if snapshots && h < 2*nearest {
			faults = append(faults, fmt.Errorf("horizon %v: the prices are snapshots of days; give at least %v", h, 2*nearest))
		}
		shortest = min(shortest, h)
	}
	if len(faults) == 0 && last.Sub(first) < slices.Min(horizons) {
		faults = append(faults, fmt.Errorf("prices from %s to %s: shorter than every horizon; give a longer record",
			first.Format(time.RFC3339), last.Format(time.RFC3339)))
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	g := &grid{step: shortest}
	off := time.Duration(0)
	if snapshots {
		off = nearest
		for d := range dates {
			g.times = append(g.times, d)
		}
		slices.SortFunc(g.times, time.Time.Compare)
		gaps := make([]time.Duration, 0, len(g.times))
		for i := 1; i < len(g.times); i++ {
			gaps = append(gaps, g.times[i].Sub(g.times[i-1]))
		}
		slices.Sort(gaps)
		g.step = gaps[len(gaps)/2]
	} else {
		for t := first.Truncate(g.step).Add(g.step); !t.After(last); t = t.Add(g.step) {
			g.times = append(g.times, t)
		}
	}
	g.times = g.times[max(0, len(g.times)-MaxOrigins):]
	for _, h := range horizons {
		target := make([]int, len(g.times))
		j := 0
		for k, t := range g.times {
			wanted := t.Add(h)
			for j+1 < len(g.times) && !g.times[j+1].After(wanted) {
				j++
			}
			target[k] = -1
			if j > k && wanted.Sub(g.times[j]) <= off && !wanted.After(g.times[len(g.times)-1]) {
				target[k] = j
			}
		}
		g.target = append(g.target, target)
	}
	return g, nil
}

// look samples a series at the times of the grid; NaN: not known.
func (g *grid) look(s market.Series) []float64 {
	values := make([]float64, len(g.times))
	for k, t := range g.times {
		values[k] = math.NaN()
		if v, ok := s.At(t); ok && v > 0 {
			values[k] = v
		}
	}
	return values
}
