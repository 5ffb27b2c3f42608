package bid

import (
	"fmt"
	"math"
	"time"

	"nomad-spotter/autoscaler-plugin/market"
)

// Tick is the time between two prices of a History. Prices of an auction changed about as often.
const Tick = 5 * time.Minute

// warmUp is how much of a price's past must be known before jobs are started in it.
const warmUp = 3 * 24 * time.Hour

// History is the price of one offering at regular ticks.
type History struct {
	prices []float64 // NaN where it is not known
	known  []int     // for each tick the number of ticks until the next gap, itself included
	hourly []float64 // logarithms of the prices at whole hours
	drawn  map[draw][]float64
}

// draw names changes that have been looked for: those known at an hour over a horizon.
type draw struct {
	hour    int
	horizon time.Duration
}

// NewHistory samples a series of prices in $/h. Between two ticks the price counts as that of the first.
func NewHistory(s market.Series, onDemandUSDPerHour float64) (*History, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	if math.IsNaN(onDemandUSDPerHour) || onDemandUSDPerHour <= 0 || math.IsInf(onDemandUSDPerHour, 0) {
		return nil, fmt.Errorf("on-demand price of %s: %v $/h is not above 0; name the one that the bids are compared with",
			s.Key, onDemandUSDPerHour)
	}
	if len(s.Points) == 0 {
		return nil, fmt.Errorf("series %s: it has no prices", s.Key)
	}
	start, end := s.Points[0].At, s.End
	if end.IsZero() {
		end = s.Points[len(s.Points)-1].At.Add(Tick)
	}
	n := int(end.Sub(start) / Tick)
	h := &History{prices: s.Resample(start, Tick, n), known: make([]int, n), drawn: map[draw][]float64{}}
	for i := range h.prices {
		h.prices[i] /= onDemandUSDPerHour
		if h.prices[i] <= 0 { // nothing is sold at no price
			h.prices[i] = math.NaN()
		}
		if time.Duration(i)*Tick%sampling == 0 {
			h.hourly = append(h.hourly, math.Log(h.prices[i]))
		}
	}
	for i := n - 1; i >= 0; i-- {
		switch {
		case math.IsNaN(h.prices[i]):
		case i+1 < n:
			h.known[i] = h.known[i+1] + 1
		default:
			h.known[i] = 1
		}
	}
	return h, nil
}

// Length is the time that the history covers.
func (h *History) Length() time.Duration { return time.Duration(len(h.prices)) * Tick }

// holds reports whether the price is known at n ticks from start on, and enough of the past before them.
func (h *History) holds(start, n int) bool {
	before := start - int(warmUp/Tick)
	return before >= 0 && h.known[before] >= n+start-before
}

// forecast is what Persistence says at a tick, from prices at whole hours.
func (h *History) forecast(tick int, horizon time.Duration, q float64) float64 {
	key := draw{hour: int(time.Duration(tick) * Tick / sampling), horizon: horizon}
	found, ok := h.drawn[key]
	if !ok {
		found = changes(h.hourly[max(0, key.hour-samples):key.hour+1], horizon)
		h.drawn[key] = found
	}
	return quantile(h.prices[tick], found, q)
}
