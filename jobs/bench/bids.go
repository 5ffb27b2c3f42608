package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"text/tabwriter"

	"nomad-spotter/autoscaler-plugin/bid"
	"nomad-spotter/autoscaler-plugin/market"
	"nomad-spotter/jobs/cli"
)

// bidsSection compares a learned policy of bids with others on auctions that it was not learned from, and says whether a
// bid matters on the recorded prices.
func bidsSection(w io.Writer, data string) error {
	// Features, steps and prices of delay were chosen on other seeds.
	training := cli.BidTraining{Seed: 2016, Episodes: 150, HeldOut: 60, Days: 30, Jobs: 25}
	if err := bidsTable(w, "other seeds and parameters, of the same ranges", training); err != nil {
		return err
	}
	training.Learn = func(a market.Auction) bool { return a.Above <= 0.09 }
	training.Judge = func(a market.Auction) bool { return a.Above > 0.09 }
	err := bidsTable(w, "parameters out of range: above on-demand 9 to 15 % of the time, learned from 5 to 9 %", training)
	if err != nil {
		return err
	}
	for _, name := range []string{"aws-2019-12-to-2020-02-15.csv.gz", "gcp-2023-05-to-2025-06-30.csv.gz"} {
		if err := bidsMatter(w, filepath.Join(data, "prices", name)); err != nil {
			return err
		}
	}
	return nil
}

func bidsTable(w io.Writer, what string, training cli.BidTraining) error {
	policy, err := cli.TrainBids(context.Background(), training, io.Discard)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(w, "\nauctions, held out: %s;\nbaselines with the parameters that are best on these jobs\n", what)
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "baseline\tat the finish of\tjobs\tmissed\tfinish/work\tcost/on-demand\tbaseline\tsaved\t95 % interval")
	for _, r := range policy.Training.HeldOut {
		_, _ = fmt.Fprintln(t, cli.ResultRow(r))
	}
	return t.Flush()
}

// bidsMatter counts the series of a file on which a bid matters.
func bidsMatter(w io.Writer, path string) error {
	if absent(w, path) {
		return nil
	}
	prices, err := readPrices(path)
	if err != nil {
		return err
	}
	matters, unknown, most, where := 0, 0, 0.0, ""
	for _, s := range prices.Spot {
		v := bid.Matters(s, cli.PriceList(nil).Of(s.Key, prices))
		switch {
		case v.Matters:
			matters++
		case math.IsNaN(v.Waiting):
			unknown++
		case v.Waiting > most:
			most, where = v.Waiting, s.Key.String()
		}
	}
	_, err = fmt.Fprintf(w, "\n%s: a bid matters on %d of %d series (%d too short to tell);\n"+
		"waiting saves at most %.2f %% on the others, in hindsight (%s)\n",
		filepath.Base(path), matters, len(prices.Spot), unknown, 100*most, where)
	return err
}
