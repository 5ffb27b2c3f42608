package pool

import (
	"cmp"
	"slices"
	"sort"
	"time"

	"nomad-spotter/autoscaler-plugin/bid"
	"nomad-spotter/autoscaler-plugin/forecast"
	"nomad-spotter/autoscaler-plugin/market"
)

// priceHorizon is how far ahead prices are forecast: a node that is to be outbid within the hour can still be replaced
// before.
const priceHorizon = time.Hour

// How often prices are forecast. A forecast of two weeks takes some 20 ms, and a tick must not wait for those of all
// offerings.
const (
	outlookPause   = 10 * time.Minute // after a forecast, before one of a price that moved meanwhile
	outlookAge     = time.Hour        // before one of a price that did not
	outlooksOfTick = 4
)

// outlookRecord is how long a price must have been watched before its forecast is one of package forecast: models are
// chosen by how they did on it. Until then it is said to change as it did so far.
const outlookRecord = 3 * 24 * time.Hour

// outlook is what a price will be in an hour, as multiples of what it is: its quantiles 0, .01 … .99. As multiples they hold
// while the price moves, until the next forecast.
type outlook [outlookSteps]float64

const outlookSteps = 100

// steady is the outlook of a price that never moved.
func steady() (o outlook) {
	for i := range o {
		o[i] = 1
	}
	return o
}

// foresee makes the outlooks that are due, the oldest first, as many as a tick has time for.
func (p prices) foresee(now time.Time) {
	var due []string
	for name, r := range p {
		if r.due(now) {
			due = append(due, name)
		}
	}
	slices.SortFunc(due, func(a, b string) int { return cmp.Or(p[a].made.Compare(p[b].made), cmp.Compare(a, b)) })
	for _, name := range due[:min(len(due), outlooksOfTick)] {
		p[name].foresee(now)
	}
}

func (r *priceRecord) due(now time.Time) bool {
	age := now.Sub(r.made)
	return age < 0 || age >= outlookAge || r.moved && age >= outlookPause
}

func (r *priceRecord) foresee(now time.Time) {
	r.made, r.moved = now, false
	if len(r.Points) < 2 {
		r.outlook = steady()
		return
	}
	persistence := bid.Persistence(r.Series, r.Points[len(r.Points)-1].Value, now)
	multiples, known := r.model(now)
	levels := forecast.Levels[:]
	last := len(levels) - 1
	for i := range r.outlook {
		q := float64(i) / outlookSteps
		switch j := sort.SearchFloat64s(levels, q); {
		case !known:
			r.outlook[i] = persistence(priceHorizon, q)
		case j == 0: // beyond the levels, within which nine prices of ten lie, as far out as it went so far
			r.outlook[i] = min(multiples[0], persistence(priceHorizon, q))
		case j > last:
			r.outlook[i] = max(multiples[last], persistence(priceHorizon, q))
		default:
			part := (q - levels[j-1]) / (levels[j] - levels[j-1])
			r.outlook[i] = multiples[j-1] + part*(multiples[j]-multiples[j-1])
		}
	}
}

// model has package forecast choose a model and say, at its levels, what the price is multiplied with; false where the
// record is too short for one.
func (r *priceRecord) model(now time.Time) (multiples [len(forecast.Levels)]float64, ok bool) {
	if now.Sub(r.Points[0].At) < outlookRecord {
		return multiples, false
	}
	// Prices are looked at on whole hours. Now is made one, so that the forecast starts from the price there is.
	end := now.Truncate(time.Hour).Add(time.Hour)
	s := market.Series{Key: r.Key, Points: make([]market.Point, 0, len(r.Points)+1)}
	for _, p := range append(slices.Clip(r.Points), market.Point{At: now, Value: r.Points[len(r.Points)-1].Value}) {
		if at := end.Add(-now.Sub(p.At)); len(s.Points) == 0 || at.After(s.Points[len(s.Points)-1].At) {
			s.Points = append(s.Points, market.Point{At: at, Value: p.Value})
		}
	}
	found, err := forecast.Predict([]market.Series{s}, []time.Duration{priceHorizon})
	if err != nil || len(found) != 1 || found[0].Windows == 0 {
		return multiples, false
	}
	for j, q := range found[0].Quantiles {
		multiples[j] = q / found[0].Price
	}
	return multiples, true
}
