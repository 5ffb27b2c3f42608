package forecast

import (
	"errors"
	"fmt"
	"math"
)

// Limits bound the search for an order, and so the time per series.
type Limits struct {
	MaxP, MaxQ   int // plain terms
	MaxSP, MaxSQ int // seasonal terms
	Fits         int // models tried at most
}

// DefaultLimits try at most 20 models of up to 3 plain and 1 seasonal terms of each kind.
var DefaultLimits = Limits{MaxP: 3, MaxQ: 3, MaxSP: 1, MaxSQ: 1, Fits: 20}

// SelectARIMA finds the order with the least AICc by steps from a few first models, as Hyndman and Khandakar (2008) do:
// the differences by the test of Kwiatkowski, Phillips, Schmidt and Shin and by the strength of the season, then the terms.
// Season is in steps; below 2 there is none.
func SelectARIMA(y []float64, season int, limits Limits) (*ARIMA, error) {
	base := Order{Season: season}
	if season < 2 || len(y) < 3*season {
		base.Season = 0
	}
	if base.Season > 0 && seasonalStrength(y, season) > strongSeason {
		base.SD = 1
	}
	for base.D < 2 && !stationaryLevel(base.difference(y)) {
		base.D++
	}
	base.Mean = base.D+base.SD == 0

	var best *ARIMA
	var faults []error
	tried := map[Order]bool{}
	try := func(o Order) bool {
		if tried[o] || len(tried) >= limits.Fits ||
			min(o.P, o.Q, o.SP, o.SQ) < 0 || o.P > limits.MaxP || o.Q > limits.MaxQ || o.SP > limits.MaxSP || o.SQ > limits.MaxSQ {
			return false
		}
		tried[o] = true
		m, err := FitARIMA(y, o)
		if err != nil {
			faults = append(faults, err)
			return false
		}
		if best == nil || m.AICc < best.AICc {
			best = m
			return true
		}
		return false
	}
	with := func(p, q, sp, sq int) Order {
		o := base
		o.P, o.Q = p, q
		if base.Season > 0 {
			o.SP, o.SQ = sp, sq
		}
		return o
	}
	for _, o := range []Order{with(2, 2, 1, 1), with(0, 0, 0, 0), with(1, 0, 1, 0), with(0, 1, 0, 1)} {
		try(o)
	}
	for better := true; better && best != nil; {
		better = false
		for _, step := range [][4]int{
			{1, 0, 0, 0},
			{-1, 0, 0, 0},
			{0, 1, 0, 0},
			{0, -1, 0, 0},
			{1, 1, 0, 0},
			{-1, -1, 0, 0},
			{0, 0, 1, 0},
			{0, 0, -1, 0},
			{0, 0, 0, 1},
			{0, 0, 0, -1},
		} {
			o := best.Order
			if o.Season == 0 && (step[2] != 0 || step[3] != 0) {
				continue
			}
			o.P, o.Q, o.SP, o.SQ = o.P+step[0], o.Q+step[1], o.SP+step[2], o.SQ+step[3]
			if try(o) {
				better = true
				break
			}
		}
	}
	if best == nil {
		return nil, fmt.Errorf("select an order: none of %d fits: %w", len(tried), errors.Join(faults...))
	}
	return best, nil
}

// kpss5 is the critical value of the KPSS statistic for a level, at 5 % (Kwiatkowski and others 1992, table 1).
const kpss5 = .463

// stationaryLevel is the KPSS test: whether a series may be stationary around a level.
func stationaryLevel(w []float64) bool {
	n := len(w)
	if n < 8 {
		return true
	}
	mean := 0.0
	for _, v := range w {
		mean += v / float64(n)
	}
	lags := int(4 * math.Pow(float64(n)/100, .25))
	variance := 0.0
	for l := 0; l <= lags; l++ {
		c := 0.0
		for t := l; t < n; t++ {
			c += (w[t] - mean) * (w[t-l] - mean)
		}
		if l > 0 {
			c *= 2 * (1 - float64(l)/float64(lags+1))
		}
		variance += c / float64(n)
	}
	if variance <= 0 {
		return true
	}
	sum, statistic := 0.0, 0.0
	for _, v := range w {
		sum += v - mean
		statistic += sum * sum
	}
	return statistic/(float64(n)*float64(n)*variance) < kpss5
}

// strongSeason is the strength of a season above which it is differenced (Wang, Smith and Hyndman 2006).
const strongSeason = .64

// seasonalStrength is the share of the detrended variance that the means of the season's steps explain.
func seasonalStrength(y []float64, season int) float64 {
	half := season / 2
	sum := make([]float64, season)
	count := make([]float64, season)
	detrended := make([]float64, 0, len(y))
	for t := half; t+season-half < len(y); t++ {
		trend := 0.0
		for _, v := range y[t-half : t-half+season] {
			trend += v / float64(season)
		}
		detrended = append(detrended, y[t]-trend)
		sum[t%season] += y[t] - trend
		count[t%season]++
	}
	total, rest := 0.0, 0.0
	for i, v := range detrended {
		k := (i + half) % season
		total += v * v
		rest += (v - sum[k]/count[k]) * (v - sum[k]/count[k])
	}
	if total == 0 {
		return 0
	}
	return max(0, 1-rest/total)
}
