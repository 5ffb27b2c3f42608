package main

import (
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"text/tabwriter"
	"time"

	"nomad-spotter/autoscaler-plugin/cost"
	"nomad-spotter/autoscaler-plugin/market"
	"nomad-spotter/checkpointer/cadence"
)

// costSection prints what the cost model says of intervals, beside the rules of thumb, and whether the average price that
// the worked example's last step assumes is earned by choosing zones.
func costSection(w io.Writer, data string) error {
	if err := costIntervals(w); err != nil {
		return err
	}
	return costPaid(w, filepath.Join(data, "prices", "aws-2019-12-to-2020-02-15.csv.gz"))
}

// costIntervals compares intervals by what all but the training costs, over the least of a fine grid.
func costIntervals(w io.Writer) error {
	prices := cost.Prices{Currency: "USD", OnDemand: 3.06, Storage: 0.023, Writes: 0.005}
	job := func(stall, mtbf, full, increment, success float64) cost.Plan {
		const hours, now = 1000, 0.5
		return cost.Plan{
			Hours: hours, Nodes: 1, SpotPrice: 0.95, Interruptions: hours / mtbf,
			RestartHours: 0.1, RecoveryHours: 0.1 + cost.Loss(now, 0, success),
			Checkpoints: cost.Checkpoints{
				IntervalHours: now, StallHours: stall / 3600, FullBytes: full * cost.GiB,
				IncrementBytes: increment * cost.GiB, RetentionHours: 30 * 24, Writes: 100,
			},
		}
	}
	cases := []struct {
		name                  string
		stall, mtbf, success  float64 // s, h
		fullGiB, incrementGiB float64
	}{
		{"small, short stall", 5, 2.73, 0, 1.2, 0.3},
		{"small, notices succeed", 5, 2.73, 0.7, 1.2, 0.3},
		{"large, incremental", 30, 2.73, 0, 84, 25},
		{"large, full each time", 30, 2.73, 0, 0, 84},
		{"large, rare interruptions", 120, 24, 0.7, 84, 25},
	}
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "1000 h, overhead over the least\thourly\tten minutes\tYoung, stall alone\tours\tour interval")
	for _, c := range cases {
		p := job(c.stall, c.mtbf, c.fullGiB, c.incrementGiB, c.success)
		overhead := func(interval float64) float64 { return p.Every(interval).Cost(prices).Overhead() }
		least := math.Inf(1)
		for tau := 1.0 / 3600; tau < 1000; tau *= 1.001 {
			least = min(least, overhead(tau))
		}
		ours, ok := p.Optimum(prices)
		if !ok {
			return fmt.Errorf("%s: no optimum", c.name)
		}
		young := cadence.Young(time.Duration(c.stall*float64(time.Second)), time.Duration(c.mtbf*float64(time.Hour))).Hours()
		_, _ = fmt.Fprintf(t, "%s\t%.3f\t%.3f\t%.3f\t%.5f\t%.0f s\n",
			c.name, overhead(1)/least, overhead(1.0/6)/least, overhead(young)/least, overhead(ours)/least, ours*3600)
	}
	return t.Flush()
}

// costPaid compares what an hour costs on recorded prices: in the mean of all zones, in the zone that was cheapest at the
// start, and in the cheapest zone of each moment, over 1000 h from every day on. Only price counts here: whether an
// instance could be had was not recorded.
func costPaid(w io.Writer, file string) error {
	if absent(w, file) {
		return nil
	}
	prices, err := readPrices(file)
	if err != nil {
		return err
	}
	types := map[string][]market.Series{}
	for _, s := range prices.Spot {
		types[s.Key.Type] = append(types[s.Key.Type], s)
	}
	const assumed = 0.744 / 0.8
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	_, _ = fmt.Fprintf(t, "\n$/h over 1000 h; the worked example's last step needs %.3f\tzones\tstarts\tmean of zones\tcheapest at start\t"+
		"cheapest always\tstart / mean\talways / mean\n", assumed)
	names := make([]string, 0, len(types))
	for name := range types {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		p := pay(types[name])
		_, _ = fmt.Fprintf(t, "%s\t%d\t%d\t%.4f\t%.4f\t%.4f\t%.3f\t%.3f\n", name, len(types[name]), p.starts,
			p.mean, p.kept, p.followed, p.kept/p.mean, p.followed/p.mean)
	}
	return t.Flush()
}

// paid is an average price per hour by how zones are chosen, over many starts.
type paid struct {
	starts               int
	mean, kept, followed float64
}

func pay(zones []market.Series) paid {
	const length = 1000 * time.Hour
	var out paid
	first, last := span(zones)
	least := cheapest(zones)
	for start := first; !start.Add(length).After(last); start = start.Add(24 * time.Hour) {
		end := start.Add(length)
		var mean, kept cost.Bought
		lowest := math.Inf(1)
		for _, z := range zones {
			var b cost.Bought
			b.BuySpan(z, start, end)
			if b.Unpriced > 0 {
				continue // it had no price all through
			}
			mean.Add(b)
			if price, _ := z.At(start); price < lowest {
				lowest, kept = price, b
			}
		}
		var followed cost.Bought
		followed.BuySpan(least, start, end)
		if kept.Hours == 0 || followed.Unpriced > 0 {
			continue
		}
		out.starts++
		out.mean += mean.Cost / mean.Hours
		out.kept += kept.Cost / kept.Hours
		out.followed += followed.Cost / followed.Hours
	}
	n := float64(out.starts)
	out.mean, out.kept, out.followed = out.mean/n, out.kept/n, out.followed/n
	return out
}

// span is from the first price of any zone to the last.
func span(zones []market.Series) (first, last time.Time) {
	first = zones[0].Points[0].At
	for _, z := range zones {
		if at := z.Points[0].At; at.Before(first) {
			first = at
		}
		if at := z.Points[len(z.Points)-1].At; at.After(last) {
			last = at
		}
	}
	return first, last
}

// cheapest is the lowest price of all zones at each moment.
func cheapest(zones []market.Series) market.Series {
	var times []time.Time
	for _, z := range zones {
		for _, p := range z.Points {
			times = append(times, p.At)
		}
	}
	slices.SortFunc(times, time.Time.Compare)
	var out market.Series
	for _, at := range slices.CompactFunc(times, time.Time.Equal) {
		lowest := math.NaN()
		for _, z := range zones {
			if price, ok := z.At(at); ok && !(price >= lowest) {
				lowest = price
			}
		}
		out.Points = append(out.Points, market.Point{At: at, Value: lowest})
	}
	return out
}
