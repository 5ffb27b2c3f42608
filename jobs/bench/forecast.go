package main

import (
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"text/tabwriter"
	"time"

	"gonum.org/v1/gonum/stat/combin"

	"nomad-spotter/autoscaler-plugin/forecast"
	"nomad-spotter/jobs/cli"
)

// forecastSets are the recorded prices and the horizons at which they are judged.
var forecastSets = []struct {
	file     string
	horizons []time.Duration
	step     time.Duration // usual distance of two forecasts
}{
	{"aws-2019-12-to-2020-02-15.csv.gz", []time.Duration{time.Hour, 24 * time.Hour}, time.Hour},
	{"gcp-2023-05-to-2025-06-30.csv.gz", []time.Duration{168 * time.Hour, 672 * time.Hour}, 168 * time.Hour},
}

// forecastSection judges the forecasts of recorded prices beside persistence, and the fits of ARIMA beside statsmodels.
func forecastSection(w io.Writer, data string) error {
	for _, set := range forecastSets {
		path := filepath.Join(data, "prices", set.file)
		if _, err := os.Stat(path); err != nil {
			_, _ = fmt.Fprintf(w, "skipped: no %s\n", path)
			continue
		}
		begin := time.Now()
		report, err := cli.Backtest(path, set.horizons, w)
		if err != nil {
			return err
		}
		_, _ = fmt.Fprintf(w, "\n%s, %.1f s; losses in millionths of the on-demand price\n", set.file, time.Since(begin).Seconds())
		if err := forecastTable(w, report); err != nil {
			return err
		}
		for _, h := range set.horizons {
			forecastGroups(w, report, h, math.Max(1, float64(h)/float64(set.step)))
		}
	}
	return forecastFits(w)
}

func forecastTable(w io.Writer, report forecast.Report) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "series\ttime\thorizon\twindows\tpersistence\tours\tratio\tin 90 %\tin 90 %, moved\tmoved\twidth 90 %\t"+
		"persistence chosen")
	for _, s := range report.Overall {
		_, _ = fmt.Fprintf(t, "%s\t%s\t%gh\t%d\t%.2f\t%.2f\t%.3f\t%.3f\t%.3f\t%.3f\t%.5f\t%.2f\n",
			s.Group, s.Part, s.Horizon, s.Windows, s.Persistence*1e6, s.Spotter*1e6, s.Spotter/s.Persistence,
			s.Coverage90, s.Coverage90Moved, s.Moved, s.Width90, s.ByPersistence)
	}
	return t.Flush()
}

// forecastGroups counts the groups that miss the bars, beside how many would miss them with intervals that cover each of
// the windows that do not overlap with a chance of exactly 90 %.
func forecastGroups(w io.Writer, report forecast.Report, horizon time.Duration, overlap float64) {
	var groups, worse, low, moving, outside int
	var lowChance, outsideChance, most float64
	for _, s := range report.Groups {
		if s.Horizon != horizon.Hours() {
			continue
		}
		groups++
		if s.Spotter > 1.02*s.Persistence+1e-4 {
			worse++
		}
		most = math.Max(most, s.Spotter-s.Persistence)
		n := max(1, int(math.Round(float64(s.Windows)/overlap)))
		if s.Moved > .1 { // else any interval covers nine in ten
			lowChance += missing(n, func(covered float64) bool { return covered < .88 })
		}
		if s.Coverage90 < .88 {
			low++
		}
		if s.Moved <= .15 {
			continue
		}
		moving++
		out := func(covered float64) bool { return covered < .87 || covered > .93 }
		outsideChance += missing(n, out)
		if out(s.Coverage90) {
			outside++
		}
	}
	_, _ = fmt.Fprintf(w, "%gh: of %d groups %d are worse than 1.02 of persistence + 1e-4 (at most %.1e above persistence)\n",
		horizon.Hours(), groups, worse, most)
	_, _ = fmt.Fprintf(w, "  %d cover less than 88 %%; of exactly calibrated intervals %.0f would\n", low, lowChance)
	_, _ = fmt.Fprintf(w, "  %d moved in more than 15 %% of the windows; of them %d cover less than 87 %% or more than 93 %%; "+
		"of exactly calibrated intervals %.0f would\n", moving, outside, outsideChance)
}

// missing is the probability that the covered share of n windows, each covered with .9, is one that f picks.
func missing(n int, f func(covered float64) bool) float64 {
	sum := 0.0
	for k := range n + 1 {
		if f(float64(k) / float64(n)) {
			sum += math.Exp(combin.LogGeneralizedBinomial(float64(n), float64(k)) + float64(k)*math.Log(.9) + float64(n-k)*math.Log(.1))
		}
	}
	return sum
}
