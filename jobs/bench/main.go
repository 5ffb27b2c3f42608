// Command bench prints what the decisions are measured by, each beside its baselines in the same run, on the recorded
// markets of a data directory. A section whose data is absent says so and is skipped.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
)

// section is one table of the benchmark.
type section struct {
	name string
	what string
	run  func(w io.Writer, data string) error // data is the directory of recorded markets
}

// sections are the tables, in the order in which they are printed.
var sections = []section{
	{"cant-be-late", "one job with a deadline in one zone, beside the Can't-Be-Late policies", cantBeLate},
	{"multi-zone", "one job with a deadline over nine zones", multiZone},
	{"cost", "intervals by the cost model, and prices paid by choice of zone", costSection},
	{"cadence", "wasted share of up-times under checkpoint schedules", cadenceSection},
	{"bids", "learned bids on auctions that were not learned from", bidsSection},
	{"hazard", "probabilities of staying up, beside a constant hazard", hazardSection},
	{"forecast", "price forecasts beside persistence, ARIMA fits beside statsmodels", forecastSection},
	{"regions", "one task in several regions at once", regionsSection},
	{"mission", "1000 GPU-hours under the default policy on recorded prices and availability", missionSection},
	{"speed", "45 days of nine zones with 1000 jobs, on one core", speedSection},
}

func main() {
	data := flag.String("data", "", "directory with availability/ and prices/")
	only := flag.String("only", "", "sections to run, parted by commas; empty: all")
	flag.Parse()
	code := 0
	for _, s := range sections {
		if *only != "" && !strings.Contains(","+*only+",", ","+s.name+",") {
			continue
		}
		fmt.Printf("\n== %s: %s\n", s.name, s.what)
		if err := s.run(os.Stdout, *data); err != nil {
			fmt.Fprintf(os.Stderr, "bench: %s: %v\n", s.name, err)
			code = 1
		}
	}
	os.Exit(code)
}
