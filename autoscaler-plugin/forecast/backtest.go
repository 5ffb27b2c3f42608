package forecast

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"nomad-spotter/autoscaler-plugin/market"
)

// Score is how forecasts of one horizon did, beside persistence: the last price and the quantiles of the past changes at
// that horizon, of an expanding window. Losses are the mean pinball loss over Levels, as a share of the on-demand price.
type Score struct {
	Group           string  `json:"group"`     // type/region, or "all" or "moving" series
	Part            string  `json:"part"`      // "all", or in the overall scores also the "first 60%" or "last 40%" of the time
	Horizon         float64 `json:"horizon_h"` // hours
	Windows         int     `json:"n"`         // forecasts judged; all have at least one past change to go by
	Persistence     float64 `json:"persistence"`
	Spotter         float64 `json:"spotter"`
	Coverage90      float64 `json:"coverage90"`       // share of the outcomes within the 90 % interval
	Coverage90Moved float64 `json:"coverage90_moved"` // the same of the windows in which the price moved; 0 without any
	Moved           float64 `json:"moved"`            // share of the windows in which the price moved
	Width90         float64 `json:"width90"`          // mean width of the interval, as a share of the on-demand price
	ByPersistence   float64 `json:"by_persistence"`   // share of the windows for which persistence was chosen

	covered, coveredMoved, moved, chosen float64
}

// Report is a back-test.
type Report struct {
	Groups  []Score `json:"groups"`
	Overall []Score `json:"overall"`
}

// Split is the share of the time in the first part of the overall scores.
const Split = .6

// Backtest forecasts from every time of the record and judges by what came. OnDemand is a price in $/h at a time; a series
// without one (0 or NaN) fails.
func Backtest(series []market.Series, onDemand func(market.Key, time.Time) float64, horizons []time.Duration) (Report, error) {
	p, err := NewPanel(series, horizons)
	if err != nil {
		return Report{}, err
	}
	unit := make([][]float64, len(p.series))
	for i, s := range p.series {
		unit[i] = make([]float64, len(p.grid.times))
		for k, t := range p.grid.times {
			if unit[i][k] = onDemand(s.Key, t); !math.IsNaN(p.values[i][k]) && !(unit[i][k] > 0) {
				return Report{}, fmt.Errorf("back-test: on-demand price of %s is %v at %s; give one above 0",
					s.Key, unit[i][k], t.Format(time.RFC3339))
			}
		}
	}
	moving := make([]bool, len(p.series))
	for i, s := range p.series {
		moving[i] = moves(s)
	}
	first := p.grid.times[0]
	split := first.Add(time.Duration(Split * float64(p.grid.times[len(p.grid.times)-1].Sub(first))))
	scores := map[Score]*Score{}
	p.run(func(w window) {
		key := p.series[w.series].Key
		score := Score{Horizon: p.horizons[w.horizon].length.Hours()}
		part := "last 40%"
		if p.grid.times[w.origin].Before(split) {
			part = "first 60%"
		}
		add := func(group, part string) {
			score.Group, score.Part = group, part
			if scores[score] == nil {
				scores[score] = &Score{Group: group, Part: part, Horizon: score.Horizon}
			}
			scores[score].add(&w, unit[w.series][w.origin])
		}
		add(key.Type+"/"+key.Region, "all")
		add("all", "all")
		add("all", part)
		if moving[w.series] {
			add("moving", "all")
			add("moving", part)
		}
	})
	if len(scores) == 0 {
		return Report{}, errors.New("back-test: the record is too short to judge a forecast: a horizon must pass before one is made " +
			"and once more before it is judged; give a longer record or shorter horizons")
	}
	r := Report{Groups: []Score{}, Overall: []Score{}}
	for _, s := range scores {
		s.finish()
		if s.Group == "all" || s.Group == "moving" {
			r.Overall = append(r.Overall, *s)
		} else {
			r.Groups = append(r.Groups, *s)
		}
	}
	for _, list := range [][]Score{r.Groups, r.Overall} {
		slices.SortFunc(list, func(a, b Score) int {
			return cmp.Or(cmp.Compare(a.Horizon, b.Horizon), cmp.Compare(a.Group, b.Group), cmp.Compare(a.Part, b.Part))
		})
	}
	return r, nil
}

// moves says whether a series has two prices.
func moves(s market.Series) bool {
	seen := math.NaN()
	for _, p := range s.Points {
		if !math.IsNaN(seen) && !math.IsNaN(p.Value) && p.Value != seen {
			return true
		}
		if !math.IsNaN(p.Value) {
			seen = p.Value
		}
	}
	return false
}

func (s *Score) add(w *window, unit float64) {
	s.Windows++
	s.Persistence += w.persistence / unit
	s.Spotter += w.loss / unit
	s.Width90 += (w.high - w.low) / unit
	in := within(w.outcome, w.low, w.high)
	if in {
		s.covered++
	}
	if w.outcome != w.price {
		s.moved++
		if in {
			s.coveredMoved++
		}
	}
	if w.chosen == persistence {
		s.chosen++
	}
}

func (s *Score) finish() {
	n := float64(s.Windows)
	s.Persistence /= n
	s.Spotter /= n
	s.Width90 /= n
	s.Coverage90, s.Moved, s.ByPersistence = s.covered/n, s.moved/n, s.chosen/n
	if s.moved > 0 {
		s.Coverage90Moved = s.coveredMoved / s.moved
	}
}
