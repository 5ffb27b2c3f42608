package main

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-spotter/autoscaler-plugin/hazard"
	"nomad-spotter/checkpointer/cadence"
)

// Of 100 instances 40 end in the first tick and the rest in the third: the table says so, drawn a little towards its prior.
func TestLifeTable(t *testing.T) {
	const tick = 10 * time.Minute
	var ups []time.Duration
	for i := range 100 {
		up := 3 * tick
		if i < 40 {
			up = tick
		}
		ups = append(ups, up)
	}
	l := newLifeTable(ups, tick, hazard.Weibull{Shape: 0.7, Scale: time.Hour})
	must.InDelta(t, 0.4, -math.Expm1(-l.risk[0]), 0.03)
	must.Less(t, 0.08, -math.Expm1(-l.risk[1]))
	must.Greater(t, 0.8, -math.Expm1(-l.risk[2]))
	// As a function it has the same risk in each tick, whether that lies at the end of it or is spread.
	for _, width := range []time.Duration{time.Second, tick} {
		h, jumps := l.hazard(width)
		var sum float64
		for s := time.Duration(0); s < tick; s += time.Second {
			sum += h(s+time.Second/2) / 3600
		}
		must.InDelta(t, l.risk[0], sum, 1e-9)
		must.Eq(t, []time.Duration{tick - width, tick}, jumps[:2])
	}
}

// The figure, with some of its rows and fewer fixed intervals.
func TestCadence_figure(t *testing.T) {
	data := os.Getenv("SPOTTER_DATA")
	if data == "" {
		t.Skip("SPOTTER_DATA is not set: recorded markets are needed")
	}
	var all []*lives
	for _, name := range cadenceMarkets {
		l, err := readLives(filepath.Join(data, "availability", name), false)
		must.NoError(t, err)
		all = append(all, l)
	}
	for _, terms := range []cadence.Terms{
		{Stall: 2 * time.Minute},
		{Stall: 2 * time.Minute, NoticeSuccess: 0.7, Final: 2 * time.Minute},
	} {
		for _, l := range all {
			must.NoError(t, l.plan(terms))
		}
		waste := func(of func(*lives) when) float64 { return played(all, terms, of, nil) }
		ours := waste(func(l *lives) when { return l.known[terms].table.Interval })
		for d := 5 * time.Minute; d < 24*time.Hour; d += d / 10 {
			must.LessEq(t, cadenceSlack*waste(func(*lives) when { return fixed(d) }), ours, must.Sprintf("%+v: every %s", terms, d))
		}
		must.Less(t, waste(func(l *lives) when { return fixed(cadence.Young(terms.Equivalent(), l.mean)) }), ours)
		must.Less(t, waste(func(l *lives) when { return fixed(cadence.Daly(terms.Equivalent(), l.mean)) }), ours)
	}
}

func TestCadence_noData(t *testing.T) {
	var out strings.Builder
	must.NoError(t, cadenceSection(&out, t.TempDir()))
	must.StrContains(t, out.String(), "skipped: no traces of aws-2023-02 in ")
}
