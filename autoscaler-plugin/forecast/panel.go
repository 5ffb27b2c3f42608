package forecast

import (
	"errors"
	"fmt"
	"math"
	"time"

	"nomad-spotter/autoscaler-plugin/market"
)

// baselineShare of every forecast's quantiles is persistence's: a choice among models is made on few independent windows
// and can err; this bounds what an error costs.
const baselineShare = .25

// pending is a forecast whose outcome is not known yet.
type pending struct {
	origin      int
	price       float64
	outlook     outlook
	quantiles   [models][len(Levels)]float64
	tried       [models]bool
	chosen      int
	forecast    [len(Levels)]float64
	low, high   float64
	has         bool // persistence has a past change to go by
	chanceMoves float64
}

// record is what a series did at one horizon.
type record struct {
	changes empirical // of the price over the horizon
	own     ownSteps
	loss    [models]float64 // sum over the windows judged, $/h
	n       float64         // windows judged
	missed  float64         // of them, outside of the 90 % interval
	open    []pending
}

// horizon is what is learnt at one horizon.
type horizon struct {
	length  time.Duration
	overlap float64 // windows that share a moment
	steps   int     // of the grid
	target  []int
	all     steps
	loss    [models]float64 // sum over series and windows, as a share of the price
	n       float64
	records []record
}

// Panel forecasts many series side by side.
type Panel struct {
	grid     *grid
	series   []market.Series
	values   [][]float64 // by series and time of the grid
	horizons []*horizon

	next   []int // by series: point not looked at yet
	last   []float64
	moves  [][]move
	shifts [][]Shift
	detect []*Detector
	fits   []fits
	update time.Time // when many series moved at once
	all    habits
	alive  float64 // series with a known price
}

// window is a judged forecast.
type window struct {
	series, horizon, origin int
	price, outcome          float64
	persistence, loss       float64 // pinball, $/h
	low, high               float64
	chosen                  int
}

// NewPanel prepares series of prices in $/h for forecasts at the horizons. A series of one point says nothing about
// how its price moves and is left out. It fails on horizons that the record cannot answer for, and on a record without series.
func NewPanel(series []market.Series, horizons []time.Duration) (*Panel, error) {
	p := &Panel{}
	for _, s := range series {
		if len(s.Points) > 1 {
			p.series = append(p.series, s)
		}
	}
	if len(p.series) == 0 {
		return nil, errors.New("forecast: no series with two points; give a longer record of prices")
	}
	g, err := newGrid(p.series, horizons)
	if err != nil {
		return nil, fmt.Errorf("forecast: %w", err)
	}
	p.grid, p.update = g, g.times[0]
	for i, length := range horizons {
		p.horizons = append(p.horizons, &horizon{
			length: length, overlap: math.Max(1, float64(length)/float64(g.step)),
			steps: max(1, int(math.Round(float64(length)/float64(g.step)))), target: g.target[i],
			records: make([]record, len(p.series)),
		})
	}
	n := len(p.series)
	p.next, p.moves, p.shifts, p.last = make([]int, n), make([][]move, n), make([][]Shift, n), make([]float64, n)
	p.fits = make([]fits, n)
	for i, s := range p.series {
		p.values = append(p.values, g.look(s))
		p.last[i] = math.NaN()
		p.detect = append(p.detect, NewDetector())
	}
	return p, nil
}

// run goes through the record once. Every forecast is made from what was known at its origin; judged gets each one when
// its outcome is known.
func (p *Panel) run(judged func(window)) {
	for k := range p.grid.times {
		moved, alive := 0.0, 0.0
		for i := range p.series {
			for h := range p.horizons {
				p.judge(h, i, k, judged)
			}
			hasMoved := p.observe(i, k)
			if !math.IsNaN(p.values[i][k]) {
				alive++
				if hasMoved {
					moved++
				}
			}
		}
		p.alive = max(1, alive)
		if moved > updateShare*alive {
			p.update = p.grid.times[k]
		}
		for i := range p.series {
			if math.IsNaN(p.values[i][k]) {
				continue
			}
			s := p.situation(i, k)
			for h := range p.horizons {
				if p.horizons[h].target[k] >= 0 {
					r := &p.horizons[h].records[i]
					r.open = append(r.open, p.forecast(h, i, k, s))
				}
			}
		}
	}
}

func (p *Panel) situation(i, k int) situation {
	return look(p.moves[i], p.series[i].Points[0].At, p.update, p.grid.times[k], p.grid.step, &p.all)
}

// observe takes up the points of a series until a time of the grid and says whether the price moved.
func (p *Panel) observe(i, k int) bool {
	moved := false
	points := p.series[i].Points
	for ; p.next[i] < len(points) && !points[p.next[i]].At.After(p.grid.times[k]); p.next[i]++ {
		at, v := points[p.next[i]].At, points[p.next[i]].Value
		if v <= 0 {
			v = math.NaN()
		}
		if before := p.last[i]; v != before && !math.IsNaN(v) && !math.IsNaN(before) {
			m := move{at: at, size: math.Log(v / before)}
			moved = true
			p.all.moves++
			p.all.size += math.Abs(m.size)
			if n := len(p.moves[i]); n > 0 {
				p.all.pauses++
				p.all.long += math.Log(float64(at.Sub(p.moves[i][n-1].at)))
			}
			p.moves[i] = append(p.moves[i], m)
			if s, ok := p.detect[i].Step(at, m.size); ok {
				p.shifts[i] = append(p.shifts[i], s)
			}
		}
		p.last[i] = v
	}
	p.fits[i].observe(p.values[i], k, len(p.moves[i]))
	return moved
}

// forecast makes the forecast of one window.
func (p *Panel) forecast(hi, i, k int, s situation) pending {
	h := p.horizons[hi]
	r := &h.records[i]
	f := pending{origin: k, price: p.values[i][k], has: len(r.changes) > 0}
	f.outlook = h.all.expect(&r.own, s)
	for j, level := range Levels {
		f.quantiles[persistence][j] = f.price
		if f.has {
			f.quantiles[persistence][j] += r.changes.quantile(level)
		}
	}
	f.tried[persistence] = true
	var d [models]distribution
	for m := rhythm; m <= updatesMomentum; m++ {
		d[m] = h.all.distribution(&r.own, &f.outlook, m, f.price, h.overlap)
	}
	d[arima], d[smoothing] = p.fits[i].ahead(h.steps)
	for m := rhythm; m < models; m++ {
		if d[m] != nil {
			d[m].quantiles(Levels[:], f.quantiles[m][:])
			f.tried[m] = true
		} else {
			f.quantiles[m] = f.quantiles[persistence] // so that records of all models cover the same windows
		}
	}
	f.chosen = h.choose(r, f.price, &f.tried)
	for j := range f.forecast {
		f.forecast[j] = baselineShare*f.quantiles[persistence][j] + (1-baselineShare)*f.quantiles[f.chosen][j]
	}
	f.low, f.high = h.interval(r, &f, &d)
	return f
}

// choose takes the model with the least loss on the series so far, with its record on all series as choicePrior windows.
func (h *horizon) choose(r *record, price float64, tried *[models]bool) int {
	if h.n == 0 || h.loss[persistence] == 0 || r.n >= choicePrior*h.overlap && r.loss[persistence] == 0 {
		return persistence
	}
	w := choicePrior * h.overlap
	typical := (r.loss[persistence] + w*h.loss[persistence]/h.n*price) / (r.n + w)
	best, least := persistence, math.Inf(1)
	for m, ok := range tried {
		if v := r.loss[m] + w*typical*h.loss[m]/h.loss[persistence]; ok && v < least {
			best, least = m, v
		}
	}
	return best
}

const (
	miss        = .1    // share of windows that the 90 % interval may miss
	widest      = .9995 // largest nominal level
	narrowest   = .3
	correction  = 200. // of the level's log-odds, per share of misses: two hundredths too many make 90 % into 99.8 %
	independent = 1.   // windows
	evidence    = 60.  // windows from which on a share of .1 is known to ± .04
)

// interval is the 90 % interval. The nominal level begins with the correction for small samples of conformal prediction,
// (n+1)/n · 90 %, and is steered by the share of past windows that were missed, as adaptive conformal inference does (Gibbs
// and Candès 2021): a forecast with a large chance of no change covers more than its level, so the level is lowered until
// 90 % of all windows are covered, the more the more windows say so. Where a move is less likely than the share that may be
// missed, the level is at least 90 %, so that the interval says something about a move. Persistence cannot reach beyond the
// changes it has seen, so where it is chosen the interval is that of the model that did best besides.
func (h *horizon) interval(r *record, f *pending, d *[models]distribution) (low, high float64) {
	m := f.chosen
	if m == persistence {
		m = rhythm
		for j := rhythm + 1; j <= updatesMomentum; j++ {
			if r.loss[j] < r.loss[m] {
				m = j
			}
		}
	}
	nominal := widest
	if n := r.n / h.overlap; n > 0 {
		nominal = min(widest, (1-miss)*(n+independent)/n)
	}
	odds := math.Log(nominal / (1 - nominal))
	if n := r.n / h.overlap; n > 0 {
		excess := r.missed/r.n - miss
		if excess < 0 {
			excess *= n / (n + evidence)
		}
		odds += correction * excess
	}
	level := max(narrowest, min(widest, 1/(1+math.Exp(-odds))))
	switch f.chanceMoves = 1; m {
	case rhythm, rhythmMomentum:
		f.chanceMoves = f.outlook.byAge
	case updates, updatesMomentum:
		f.chanceMoves = f.outlook.byUpdate
	}
	if f.chanceMoves < miss {
		level = max(level, 1-miss)
	}
	var ends [2]float64
	d[m].quantiles([]float64{(1 - level) / 2, (1 + level) / 2}, ends[:])
	return ends[0], ends[1]
}

// judge scores the forecasts whose outcome is at a time of the grid, and lets the models learn from it.
func (p *Panel) judge(hi, i, k int, judged func(window)) {
	h := p.horizons[hi]
	r := &h.records[i]
	v := p.values[i][k]
	for ; len(r.open) > 0 && h.target[r.open[0].origin] <= k; r.open = r.open[1:] {
		f := &r.open[0]
		if math.IsNaN(v) {
			continue
		}
		if f.has {
			for m := range models {
				loss := Pinball(&f.quantiles[m], v)
				r.loss[m] += loss
				h.loss[m] += loss / f.price
			}
			r.n++
			h.n++
			if !within(v, f.low, f.high) {
				r.missed++
			}
			judged(window{
				series: i, horizon: hi, origin: f.origin, price: f.price, outcome: v, chosen: f.chosen,
				persistence: Pinball(&f.quantiles[persistence], v), loss: Pinball(&f.forecast, v), low: f.low, high: f.high,
			})
		}
		r.changes.add(v - f.price)
		h.all.learn(&r.own, &f.outlook, f.price, v, h.overlap, p.alive)
	}
}

// within says whether a price is in an interval, but for rounding.
func within(v, low, high float64) bool {
	const rounding = 1e-9
	return v >= low*(1-rounding) && v <= high*(1+rounding)
}
