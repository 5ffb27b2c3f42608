package cli

import (
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"time"

	"nomad-spotter/autoscaler-plugin/forecast"
	"nomad-spotter/autoscaler-plugin/market"
)

// readPrices reads a file of prices, which may be compressed by gzip.
func readPrices(path string) (market.Prices, error) {
	f, err := os.Open(path)
	if err != nil {
		return market.Prices{}, fmt.Errorf("--prices: %w", err)
	}
	defer f.Close()
	prices, err := market.ReadPrices(f)
	if err != nil {
		return market.Prices{}, fmt.Errorf("%s: %w", path, err)
	}
	return prices, nil
}

// parseHorizons reads a list of durations.
func parseHorizons(list string) ([]time.Duration, error) {
	var horizons []time.Duration
	seen := map[time.Duration]bool{}
	for s := range strings.SplitSeq(list, ",") {
		d, err := time.ParseDuration(strings.TrimSpace(s))
		if err != nil || d <= 0 {
			return nil, usageError{fmt.Errorf("--horizon: %q is no time above 0; give a list like 1h,24h", s)}
		}
		if !seen[d] {
			horizons = append(horizons, d)
		}
		seen[d] = true
	}
	return horizons, nil
}

// onDemand finds the on-demand price of an offering at a time: the file's own, or AWS's list price of 2019, or else the
// highest spot price in the file, of which it warns.
func onDemand(prices market.Prices, warn io.Writer) func(market.Key, time.Time) float64 {
	listed := map[market.Key]market.Series{}
	for _, s := range prices.OnDemand {
		listed[s.Key] = s
	}
	fixed := map[market.Key]float64{}
	for _, s := range prices.Spot {
		if _, ok := listed[s.Key]; ok {
			continue
		}
		v := forecast.ListPrice(s.Key)
		if math.IsNaN(v) {
			for _, p := range s.Points {
				v = math.Max(p.Value, orZero(v))
			}
			_, _ = fmt.Fprintf(warn, "%s: on-demand price of %s is not known; its highest spot price, %.4g $/h, stands in\n",
				Name, s.Key, v)
		}
		fixed[s.Key] = v
	}
	return func(key market.Key, at time.Time) float64 {
		if s, ok := listed[key]; ok {
			v, known := s.At(at)
			if !known {
				return math.NaN()
			}
			return v
		}
		return fixed[key]
	}
}

func orZero(v float64) float64 {
	if math.IsNaN(v) {
		return 0
	}
	return v
}

// Backtest runs the back-test of a file of prices: what `spotter backtest` prints.
func Backtest(path string, horizons []time.Duration, warn io.Writer) (forecast.Report, error) {
	prices, err := readPrices(path)
	if err != nil {
		return forecast.Report{}, err
	}
	return forecast.Backtest(prices.Spot, onDemand(prices, warn), horizons)
}
