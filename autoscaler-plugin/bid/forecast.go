package bid

import (
	"math"
	"slices"
	"time"

	"nomad-spotter/autoscaler-plugin/market"
)

// Forecast is the quantile q, between 0 and 1, of the price after a horizon.
type Forecast func(horizon time.Duration, q float64) float64

const (
	sampling = time.Hour // between the prices that Persistence looks at
	samples  = 14 * 24   // so many of them, up to now
)

// Persistence forecasts that the price changes over a horizon as it did in the past two weeks: the last price times the
// quantiles of past ratios of prices that lie the horizon apart. The series is in $/h.
func Persistence(s market.Series, onDemandUSDPerHour float64, now time.Time) Forecast {
	past := s.Resample(now.Add(-samples*sampling), sampling, samples+1)
	price := past[samples] / onDemandUSDPerHour
	for i, p := range past {
		past[i] = math.Log(p)
	}
	return func(horizon time.Duration, q float64) float64 { return quantile(price, changes(past, horizon), q) }
}

// changes are the sorted differences of hourly logarithms of prices that lie a horizon apart.
func changes(hourly []float64, horizon time.Duration) []float64 {
	h := max(1, int(horizon/sampling))
	var all []float64
	for i := h; i < len(hourly); i++ {
		if d := hourly[i] - hourly[i-h]; !math.IsNaN(d) && !math.IsInf(d, 0) {
			all = append(all, d)
		}
	}
	slices.Sort(all)
	return all
}

// quantile of the price if the changes of its logarithm are those given, sorted; the price itself if there are none. It
// interpolates linearly between order statistics (type 7 of Hyndman and Fan).
func quantile(price float64, changes []float64, q float64) float64 {
	if len(changes) == 0 {
		return price
	}
	at := min(max(q, 0), 1) * float64(len(changes)-1)
	i := int(at)
	x := changes[i]
	if i+1 < len(changes) {
		x += (at - float64(i)) * (changes[i+1] - x)
	}
	return price * math.Exp(x)
}
