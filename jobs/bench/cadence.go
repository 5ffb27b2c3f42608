package main

import (
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"text/tabwriter"
	"time"

	"nomad-spotter/autoscaler-plugin/hazard"
	"nomad-spotter/checkpointer/cadence"
)

// What is asked of the cadence in every row: at most so much more waste than the best fixed interval in hindsight, and less
// than with Young's and Daly's.
const cadenceSlack = 1.02

// cadenceMarkets are the recordings, each pooled over its zones.
var cadenceMarkets = []string{"aws-2023-02", "aws-2022-10"}

// lives are the up-times of a market, split: the first half of each zone's is learned from, the second half is played.
type lives struct {
	name         string
	tick         time.Duration
	spread       bool // each ends at any time of its last tick, not at the end of it
	first, other []time.Duration

	mean  time.Duration  // of the first half
	fit   hazard.Weibull // to it
	table lifeTable      // of it
	known map[cadence.Terms]pair
}

// pair are the schedules for the two hazards.
type pair struct{ weibull, table *cadence.Schedule }

// cadenceSection scores the schedules on up-times that they were not fitted to.
func cadenceSection(w io.Writer, data string) error {
	var tables [][]*lives
	for _, spread := range []bool{false, true} {
		var all []*lives
		for _, name := range cadenceMarkets {
			l, err := readLives(filepath.Join(data, "availability", name), spread)
			if err != nil {
				return err
			}
			if l == nil {
				_, err := fmt.Fprintf(w, "skipped: no traces of %s in %q\n", name, data)
				return err
			}
			all = append(all, l)
		}
		tables = append(tables, all)
		for _, l := range all {
			tables = append(tables, []*lives{l})
		}
	}
	for _, t := range tables {
		if err := cadenceTable(w, t); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, `
Waste: stalls, lost work and final checkpoints (each as long as a stall, counted with the probability p that a notice comes in
time for one), as a share of the up-time. In up-times as recorded every instance ends exactly at a tick of the recording, which
intervals that end just before one profit from; spread: it ends at any time of that tick, eight of them for each instance. best
fixed: the least of all intervals from 10 s to 200 h in steps of 1 %%, of all that end at one of the first 400 ticks, and of no
checkpoint, in hindsight. Young, Daly: with the mean up-time of the market's first half, and p. moment: sqrt(2C/((1-p)h)) at each
age, h as in Weibull. Weibull, life table: cadence.New with a hazard fitted to the first half of the market's up-times. The life
table's bands and weights were chosen by two-fold validation within the first halves. / best: the life table's waste over that of
the best fixed interval, and ± one standard deviation of that, by bootstrap over instances.
`)
	return err
}

// readLives reads the zones of a market; nil if there are none. An up-time that the recording cuts off, at its beginning or at
// its end, is left out.
func readLives(dir string, spread bool) (*lives, error) {
	_, traces, err := readZoneTraces(dir)
	if err != nil || len(traces) == 0 {
		return nil, err
	}
	l := &lives{name: filepath.Base(dir), spread: spread, known: map[cadence.Terms]pair{}}
	for _, trace := range traces {
		var whole []time.Duration
		for _, l := range hazard.Lifetimes(trace) {
			if !l.Censored {
				whole = append(whole, l.Duration)
			}
		}
		l.tick = trace.Tick
		l.first = append(l.first, whole[:len(whole)/2]...)
		l.other = append(l.other, whole[len(whole)/2:]...)
	}
	return l, l.learn()
}

// learn fits what is known of the first half.
func (l *lives) learn() error {
	first := l.first
	if l.spread {
		first, l.other = spreadOut(first, l.tick), spreadOut(l.other, l.tick)
	}
	sample := make([]hazard.Lifetime, len(first))
	for i, d := range first {
		sample[i].Duration = d
		l.mean += d / time.Duration(len(first))
	}
	var err error
	l.fit, err = hazard.FitWeibull(sample)
	l.table = newLifeTable(l.first, l.tick, l.fit)
	return err
}

// plan computes the schedules for terms, once.
func (l *lives) plan(terms cadence.Terms) error {
	if _, ok := l.known[terms]; ok {
		return nil
	}
	width := time.Second
	if l.spread {
		width = l.tick
	}
	risks, jumps := l.table.hazard(width)
	weibull, err := cadence.New(terms, cadence.Weibull(l.fit.Shape, l.fit.Scale))
	if err != nil {
		return err
	}
	table, err := cadence.New(terms, risks, jumps...)
	l.known[terms] = pair{weibull, table}
	return err
}

// when is a schedule: how long after an age the next checkpoint comes, if one does.
type when func(age time.Duration) (interval time.Duration, worth bool)

// cadenceTable prints the rows of markets that are pooled.
func cadenceTable(w io.Writer, markets []*lives) error {
	title := "as recorded"
	if markets[0].spread {
		title = "spread over their last tick"
	}
	_, _ = fmt.Fprintf(w, "\nup-times %s:\n", title)
	for _, l := range markets {
		n := len(l.other)
		if l.spread {
			n /= parts
		}
		_, _ = fmt.Fprintf(w, "  %s: fitted to %d (mean %s, Weibull %.3f, %s), scored on %d\n", l.name, len(l.first),
			l.mean.Round(time.Minute), l.fit.Shape, l.fit.Scale.Round(time.Minute), n)
	}
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(t, "p\tstall\tbest fixed\tevery\tYoung\tDaly\tmoment\tWeibull\tlife table\t/ best\t±\t\t")
	for _, p := range []float64{0, 0.7} {
		for _, stall := range []time.Duration{5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute} {
			terms := cadence.Terms{Stall: stall, NoticeSuccess: p, Final: stall}
			waste := func(of func(*lives) when) float64 { return played(markets, terms, of, nil) }
			for _, l := range markets {
				if err := l.plan(terms); err != nil {
					return err
				}
			}
			best, every := bestFixed(markets, stall, waste)
			spread := deviation(markets, terms, func(l *lives) when { return l.known[terms].table.Interval }, fixed(every))
			young := waste(func(l *lives) when { return fixed(cadence.Young(terms.Equivalent(), l.mean)) })
			daly := waste(func(l *lives) when { return fixed(cadence.Daly(terms.Equivalent(), l.mean)) })
			moment := waste(func(l *lives) when {
				return func(age time.Duration) (time.Duration, bool) {
					return cadence.Young(terms.Equivalent(), time.Duration(float64(time.Hour)/l.fit.Rate(age))), true
				}
			})
			weibull := waste(func(l *lives) when { return l.known[terms].weibull.Interval })
			ours := waste(func(l *lives) when { return l.known[terms].table.Interval })
			verdict := "reached"
			if ours > cadenceSlack*best || ours >= young || ours >= daly {
				verdict = "MISSED"
			}
			_, _ = fmt.Fprintf(t, "%.1f\t%s\t%.4f\t%s\t%.4f\t%.4f\t%.4f\t%.4f\t%.4f\t%.3f\t%.3f\t%s\t\n", p, stall, best,
				every.Round(time.Second), young, daly, moment, weibull, ours, ours/best, spread, verdict)
		}
	}
	return t.Flush()
}

// played is the share that the second halves waste with a schedule. each is told of every instance, if it is not nil.
func played(markets []*lives, terms cadence.Terms, of func(*lives) when, each func(wasted float64)) float64 {
	var sum cadence.Tally
	for _, l := range markets {
		next, n := of(l), 1
		if l.spread {
			n = parts
		}
		for some := range slices.Chunk(l.other, n) {
			var y cadence.Tally
			for _, up := range some {
				y.Add(up, terms, next)
			}
			if each != nil {
				each(y.Waste() * y.Up.Hours())
			}
			sum.Up += y.Up
			sum.Stalled, sum.Lost = sum.Stalled+y.Stalled, sum.Lost+y.Lost
			sum.Restarted, sum.Final = sum.Restarted+y.Restarted, sum.Final+y.Final
		}
	}
	return sum.Waste()
}

// deviation is the standard deviation of what one schedule wastes over what another does, had other instances of the kind been
// recorded: over samples of as many instances, drawn with replacement (Efron's bootstrap).
func deviation(markets []*lives, terms cadence.Terms, one func(*lives) when, other when) float64 {
	var a, b []float64
	played(markets, terms, one, func(wasted float64) { a = append(a, wasted) })
	played(markets, terms, func(*lives) when { return other }, func(wasted float64) { b = append(b, wasted) })
	const samples = 400
	random := rand.New(rand.NewPCG(1, 2))
	var sum, squares float64
	for range samples {
		var x, y float64
		for range a {
			i := random.IntN(len(a))
			x, y = x+a[i], y+b[i]
		}
		sum, squares = sum+x/y, squares+x/y*x/y
	}
	mean := sum / samples
	return math.Sqrt(max(squares/samples-mean*mean, 0))
}

// parts are the ends that stand for one that was seen in a tick.
const parts = 8

// spreadOut puts several ends into the tick in which an up-time was seen to end, in the place of its last moment.
func spreadOut(ups []time.Duration, tick time.Duration) []time.Duration {
	out := make([]time.Duration, 0, parts*len(ups))
	for _, up := range ups {
		for i := range parts {
			out = append(out, up-tick*time.Duration(2*i+1)/(2*parts))
		}
	}
	return out
}

func fixed(d time.Duration) when {
	return func(time.Duration) (time.Duration, bool) { return d, true }
}

// bestFixed is the least waste of any fixed interval, and that interval.
func bestFixed(markets []*lives, stall time.Duration, waste func(func(*lives) when) float64) (float64, time.Duration) {
	score := func(next when) float64 { return waste(func(*lives) when { return next }) }
	best, every := math.Inf(1), time.Duration(0)
	try := func(d time.Duration) {
		if got := score(fixed(d)); got < best {
			best, every = got, d
		}
	}
	try(math.MaxInt64) // never
	for d := 10 * time.Second; d < 200*time.Hour; d += d / 100 {
		try(d)
	}
	for _, l := range markets {
		for end, n := l.tick, 0; n < 400; end, n = end+l.tick, n+1 {
			if end > stall {
				try(end - stall)
			}
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
