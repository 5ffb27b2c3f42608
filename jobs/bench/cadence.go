package main

import (
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"text/tabwriter"
	"time"

	"nomad-spotter/autoscaler-plugin/hazard"
	"nomad-spotter/autoscaler-plugin/market"
	"nomad-spotter/checkpointer/cadence"
)

// What is asked of the cadence in every row: at most so much more waste than the best fixed interval in hindsight, and less
// than with Young's and Daly's.
const cadenceSlack = 1.02

// cadenceMarkets are the recordings, each pooled over its zones.
var cadenceMarkets = []string{"aws-2023-02", "aws-2022-10"}

// lives are the up-times of a market, split: the first half of each zone's is learned from, the second half is played.
type lives struct {
	tick         time.Duration
	first, other []time.Duration
}

// cadenceSection scores the schedules on up-times that they were not fitted to.
func cadenceSection(w io.Writer, data string) error {
	for _, name := range cadenceMarkets {
		l, err := readLives(filepath.Join(data, "availability", name))
		if err != nil {
			return err
		}
		for _, spread := range []bool{false, true} {
			if err := cadenceTable(w, name, l, spread); err != nil {
				return err
			}
		}
	}
	_, err := fmt.Fprintf(w, `
Waste: stalls, lost work and final checkpoints (each as long as a stall, counted with the probability p that a notice comes in
time for one), as a share of the up-time. In up-times as recorded every instance ends exactly at a tick of the recording, which
intervals that end just before one profit from; spread: it ends at any time of that tick, eight of them for each instance. best
fixed: the least of all intervals from 10 s to 200 h in steps of 1 %%, of all that end at one of the first 400 ticks, and of no
checkpoint, in hindsight. Young, Daly: with the mean up-time of the first half, and p. moment: sqrt(2C/((1-p)h)) at each age,
h as in Weibull. Weibull, life table: cadence.New with a hazard fitted to the first half. The life table's bands and weights were
chosen by two-fold validation within the first halves.
`)
	return err
}

// readLives reads the zones of a market. An up-time that the recording cuts off, at its beginning or at its end, is left out.
func readLives(dir string) (lives, error) {
	var out lives
	files, err := filepath.Glob(filepath.Join(dir, "*_[0-9].json"))
	if err != nil || len(files) == 0 {
		return out, fmt.Errorf("no traces in %s: give --data the directory with availability/ and prices/", dir)
	}
	slices.Sort(files)
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			return out, err
		}
		trace, err := market.ParseTrace(b)
		if err != nil {
			return out, fmt.Errorf("%s: %w", name, err)
		}
		var whole []time.Duration
		for _, l := range hazard.Lifetimes(trace) {
			if !l.Censored {
				whole = append(whole, l.Duration)
			}
		}
		out.tick = trace.Tick
		out.first = append(out.first, whole[:len(whole)/2]...)
		out.other = append(out.other, whole[len(whole)/2:]...)
	}
	return out, nil
}

// cadenceTable prints one market's rows.
func cadenceTable(w io.Writer, name string, l lives, spread bool) error {
	title, width := "as recorded", time.Second
	first, other := l.first, l.other
	if spread {
		title, width = "spread over their last tick", l.tick
		first, other = spreadOut(first, l.tick), spreadOut(other, l.tick)
	}
	sample := make([]hazard.Lifetime, len(first))
	var mean time.Duration
	for i, d := range first {
		sample[i].Duration = d
		mean += d / time.Duration(len(first))
	}
	fit, err := hazard.FitWeibull(sample)
	if err != nil {
		return err
	}
	table, jumps := newLifeTable(l.first, l.tick, fit).hazard(width)
	_, _ = fmt.Fprintf(w, "\n%s, up-times %s: %d to fit (mean %s, Weibull %.3f, %s), %d to score\n", name, title, len(l.first),
		mean.Round(time.Minute), fit.Shape, fit.Scale.Round(time.Minute), len(l.other))
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(t, "p\tstall\tbest fixed\tevery\tYoung\tDaly\tmoment\tWeibull\tlife table\t/ best\t\t")
	for _, p := range []float64{0, 0.7} {
		for _, stall := range []time.Duration{5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute} {
			terms := cadence.Terms{Stall: stall, NoticeSuccess: p, Final: stall}
			waste := func(next func(time.Duration) (time.Duration, bool)) float64 {
				var y cadence.Tally
				for _, up := range other {
					y.Add(up, terms, next)
				}
				return y.Waste()
			}
			best, every := bestFixed(l.tick, stall, waste)
			young := waste(fixed(cadence.Young(terms.Equivalent(), mean)))
			daly := waste(fixed(cadence.Daly(terms.Equivalent(), mean)))
			moment := waste(func(age time.Duration) (time.Duration, bool) {
				return cadence.Young(terms.Equivalent(), time.Duration(float64(time.Hour)/fit.Rate(age))), true
			})
			weibull, err := cadence.New(terms, cadence.Weibull(fit.Shape, fit.Scale))
			if err != nil {
				return err
			}
			ours, err := cadence.New(terms, table, jumps...)
			if err != nil {
				return err
			}
			got := waste(ours.Interval)
			verdict := "reached"
			if got > cadenceSlack*best || got >= young || got >= daly {
				verdict = "MISSED"
			}
			_, _ = fmt.Fprintf(t, "%.1f\t%s\t%.4f\t%s\t%.4f\t%.4f\t%.4f\t%.4f\t%.4f\t%.3f\t%s\t\n", p, stall, best, every, young, daly, moment,
				waste(weibull.Interval), got, got/best, verdict)
		}
	}
	return t.Flush()
}

// spreadOut puts several ends into the tick in which an up-time was seen to end, in the place of its last moment.
func spreadOut(ups []time.Duration, tick time.Duration) []time.Duration {
	const parts = 8
	out := make([]time.Duration, 0, parts*len(ups))
	for _, up := range ups {
		for i := range parts {
			out = append(out, up-tick*time.Duration(2*i+1)/(2*parts))
		}
	}
	return out
}

func fixed(d time.Duration) func(time.Duration) (time.Duration, bool) {
	return func(time.Duration) (time.Duration, bool) { return d, true }
}

// bestFixed is the least waste of any fixed interval, and that interval.
func bestFixed(tick, stall time.Duration, waste func(func(time.Duration) (time.Duration, bool)) float64) (float64, string) {
	best, every := waste(func(time.Duration) (time.Duration, bool) { return 0, false }), "never"
	try := func(d time.Duration) {
		if got := waste(fixed(d)); d > 0 && got < best {
			best, every = got, d.Round(time.Second).String()
		}
	}
	for d := 10 * time.Second; d < 200*time.Hour; d += d / 100 {
		try(d)
	}
	for end, n := tick, 0; n < 400; end, n = end+tick, n+1 {
		if end > stall {
			try(end - stall)
		}
	}
	return best, every
}

// lifeTable is a hazard as a life table has it: how many of those that reached a tick of the recording ended in it. A tick in
// which little was seen is drawn towards its band of ages, and a band towards the Weibull distribution.
type lifeTable struct {
	tick time.Duration
	risk []float64 // hazard of the tick that ends at (i+1)·tick, integrated over it
	rest float64   // per hour, after the last
}

// Chosen within the first halves: each fitted on a half of those, scored on the other.
const (
	firstBand  = 700 * time.Second
	widening   = 3.0 // of each band over the one before
	bandEvents = 2.0 // that the Weibull distribution counts as, in a band
	tickEvents = 4.0 // that a band counts as, in a tick
	tableAge   = 130 * time.Hour
)

func newLifeTable(ups []time.Duration, tick time.Duration, prior hazard.Weibull) lifeTable {
	n := int(tableAge / tick)
	ended, reached := make([]float64, n), make([]float64, n)
	for _, up := range ups {
		last := int(math.Round(float64(up)/float64(tick))) - 1
		for i := range min(last+1, n) {
			reached[i]++
		}
		if last < n {
			ended[last]++
		}
	}
	l := lifeTable{tick: tick, risk: make([]float64, n)}
	from, edge := 0, firstBand
	for from < n {
		to := min(max(int(edge/tick), from+1), n)
		var events, exposure float64 // in ticks
		for i := from; i < to; i++ {
			events, exposure = events+ended[i], exposure+reached[i]
		}
		expected := prior.Cumulative(time.Duration(to)*tick) - prior.Cumulative(time.Duration(from)*tick)
		rate := (events + bandEvents) / (exposure + bandEvents*float64(to-from)/expected)
		for i := from; i < to; i++ {
			p := (ended[i] + tickEvents) / (reached[i] + tickEvents/rate)
			l.risk[i] = -math.Log1p(-min(p, 0.99))
		}
		l.rest = rate / tick.Hours()
		from, edge = to, time.Duration(float64(edge)*widening)
	}
	return l
}

// hazard is the table as a function of age, with the ages at which it jumps. The risk of a tick lies in the end of it, as
// wide as width.
func (l lifeTable) hazard(width time.Duration) (cadence.Hazard, []time.Duration) {
	jumps := make([]time.Duration, 0, 2*len(l.risk))
	for i := range l.risk {
		end := time.Duration(i+1) * l.tick
		jumps = append(jumps, end-width, end)
	}
	return func(age time.Duration) float64 {
		i := int(age / l.tick)
		switch {
		case i >= len(l.risk):
			return l.rest
		case time.Duration(i+1)*l.tick-age > width:
			return 0
		}
		return l.risk[i] / width.Hours()
	}, jumps
}
