package forecast

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-spotter/autoscaler-plugin/market"
)

// recorded reads a file of prices of the recorded markets.
func recorded(t *testing.T, name string) market.Prices {
	t.Helper()
	dir := os.Getenv("SPOTTER_DATA")
	if dir == "" {
		t.Skip("SPOTTER_DATA is not set: no recorded markets")
	}
	f, err := os.Open(filepath.Join(dir, "prices", name))
	must.NoError(t, err)
	defer f.Close()
	prices, err := market.ReadPrices(f)
	must.NoError(t, err)
	return prices
}

// The whole figure is `make bench-policy SECTION=forecast`; this is one group of it.
func TestRecordedAWS(t *testing.T) {
	prices := recorded(t, "aws-2019-12-to-2020-02-15.csv.gz")
	series := slices.DeleteFunc(prices.Spot, func(s market.Series) bool {
		return s.Key.Type != "p3.2xlarge" || s.Key.Region != "us-west-2"
	})
	report, err := Backtest(series, func(k market.Key, _ time.Time) float64 { return ListPrice(k) }, []time.Duration{24 * time.Hour})
	must.NoError(t, err)
	for _, part := range []string{"all", "first 60%", "last 40%"} {
		s := overall(t, report, "moving", part, 24)
		must.Less(t, s.Persistence, s.Spotter)
	}
	for _, s := range report.Groups {
		must.Less(t, 1.02*s.Persistence+1e-4, s.Spotter, must.Sprint(s.Group))
		must.GreaterEq(t, .88, s.Coverage90, must.Sprint(s.Group))
	}
}

func TestRecordedGCP(t *testing.T) {
	prices := recorded(t, "gcp-2023-05-to-2025-06-30.csv.gz")
	series := slices.DeleteFunc(prices.Spot, func(s market.Series) bool {
		return s.Key.Type != "a2-highgpu-1g" && s.Key.Type != "g2-standard-4"
	})
	report, err := Backtest(series, func(market.Key, time.Time) float64 { return 1 }, []time.Duration{672 * time.Hour})
	must.NoError(t, err)
	s := overall(t, report, "all", "all", 672)
	must.Less(t, s.Persistence, s.Spotter)
}
