package simulate

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-spotter/autoscaler-plugin/allocate"
	"nomad-spotter/autoscaler-plugin/market"
)

// ticks reads a trace of one character a tick: 1 = up.
func ticks(s string) []bool {
	up := make([]bool, len(s))
	for i := range s {
		up[i] = s[i] == '1'
	}
	return up
}

// script is a policy that was written down before.
type script struct {
	places []Place
	at     int
}

func (s *script) Next(Progress) Place {
	s.at++
	return s.places[s.at-1]
}

func TestTrial(t *testing.T) {
	setup := Setup{Tick: 10 * time.Minute, Task: 30 * time.Minute, Deadline: 80 * time.Minute, Changeover: 4 * time.Minute, PriceRatio: 3}
	for _, c := range []struct {
		name         string
		zone         string
		places       []Place
		spot, demand int
		missed       bool
	}{
		{"on-demand: 4 ticks for 34 minutes", "00000000", []Place{-1, -1, -1, -1}, 0, 4, false},
		{"spot all the way", "11111111", []Place{0, 0, 0, 0}, 4, 0, false},
		{"a wait costs nothing, a second start its changeover", "10111111", []Place{0, -2, 0, 0, 0}, 4, 0, false},
		{"spot that was taken away takes its changeover along", "10111111", []Place{0, 0, 0, 0, 0}, 4, 0, false},
		{"a move to on-demand", "11000000", []Place{0, 0, -1, -1}, 2, 2, false},
		{"too late", "00000000", []Place{-2, -2, -2, -2, -2, -1, -1, -1}, 0, 3, true},
	} {
		trial := NewTrial(setup, 0, &script{places: append(c.places, make([]Place, 8)...)})
		Play([][]bool{ticks(c.zone)}, nil, []*Trial{trial})
		must.Eq(t, c.spot, trial.spot, must.Sprint(c.name))
		must.Eq(t, c.demand, trial.onDemand, must.Sprint(c.name))
		must.Eq(t, c.missed, trial.Missed(), must.Sprint(c.name))
		must.InDelta(t, float64(c.spot+3*c.demand)/9, trial.Cost(), 1e-12)
	}
}

// Nothing beats the optimum, and trying every schedule finds the same.
func TestOptimal_bruteForce(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	for range 60 {
		zones := [][]bool{make([]bool, 7), make([]bool, 7)}[:1+random.IntN(2)]
		for z := range zones {
			for i := range zones[z] {
				zones[z][i] = random.IntN(3) > 0
			}
		}
		setup := Setup{
			Tick: 10 * time.Minute, Task: 25 * time.Minute, Deadline: 70 * time.Minute,
			Changeover: time.Duration(random.IntN(15)) * time.Minute, PriceRatio: 1 + 3*random.Float64(),
		}
		best := math.Inf(1)
		places := make([]Place, 7)
		var try func(i int)
		try = func(i int) {
			if i == len(places) {
				trial := NewTrial(setup, 0, &script{places: places})
				Play(zones, nil, []*Trial{trial})
				if !trial.Missed() {
					best = min(best, trial.Cost())
				}
				return
			}
			for p := Waiting; int(p) < len(zones); p++ {
				places[i] = p
				try(i + 1)
			}
		}
		try(0)
		got := Optimal(zones, []Setup{setup})
		must.InDelta(t, best, got[0], 1e-9, must.Sprintf("%+v %v", setup, zones))
	}
}

// No policy of ours misses a deadline that on-demand can meet, however spot comes and goes, in one zone or several.
func TestPlanner_neverLate(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 7))
	for i := range 12 {
		zones := make([][]bool, 1+random.IntN(3))
		for z := range zones {
			zones[z] = make([]bool, 400)
			up := false
			for k := range zones[z] {
				if random.Float64() < []float64{.02, .2, .9}[i%3] {
					up = !up
				}
				zones[z][k] = up
			}
		}
		tick := []time.Duration{195 * time.Second, 10 * time.Minute}[i%2]
		e := Experiment{
			Tick: tick, Task: 6*time.Hour + time.Duration(random.IntN(3600))*time.Second, PriceRatio: 1 + 3*random.Float64(),
			Prior: allocate.Prior2022,
		}
		for _, c := range []time.Duration{0, time.Duration(random.IntN(3000)) * time.Second} {
			e.Changeovers = []time.Duration{c}
			earliest := time.Duration(Setup{Tick: tick, Task: e.Task, Changeover: c}.ticks(1)) * tick
			e.Deadlines = []time.Duration{earliest, earliest + tick, earliest + 3*tick, earliest + 2*time.Hour}
			e.Starts = []int{0, 3, 100}
			must.NoError(t, e.Validate(400))
			for k, s := range e.Spotter(zones, c) {
				must.Zero(t, s.Misses, must.Sprintf("tick %v, %v of work, changeover %v, deadline %v", tick, e.Task, c, e.Deadlines[k]))
			}
		}
	}
}

func TestExperiment_Validate(t *testing.T) {
	e := Experiment{
		Tick: 10 * time.Minute, Task: 48 * time.Hour, PriceRatio: 0, Starts: []int{0, 900},
		Deadlines: []time.Duration{48 * time.Hour, 60 * time.Hour}, Changeovers: []time.Duration{12 * time.Minute, -1},
	}
	err := e.Validate(1000)
	for _, want := range []string{
		"price ratio: 0 is outside 1e-06 to 1e+06",
		"changeover: -1ns is negative",
		"deadline: 48h0m0s is too early for 48h0m0s of work after a changeover of 12m0s, even on demand; the earliest is 48h20m0s",
		"deadline: 60h0m0s from tick 900 on takes 360 ticks, but the traces have 1000",
	} {
		must.ErrorContains(t, err, want)
	}
}

func TestExperiment_Validate_bounds(t *testing.T) {
	fine := Experiment{
		Tick: time.Second, Task: time.Hour, PriceRatio: 3, Starts: []int{0},
		Deadlines: []time.Duration{2 * time.Hour}, Changeovers: []time.Duration{time.Minute},
	}
	must.NoError(t, fine.Validate(20_000))
	for want, spoil := range map[string]func(*Experiment){
		"task: 300ns is below 1s":                                                 func(e *Experiment) { e.Task = 300 },
		"task: 2562047h0m0s does not fit the traces":                              func(e *Experiment) { e.Task = 2562047 * time.Hour },
		"changeover: 2000000h0m0s does not fit the traces":                        func(e *Experiment) { e.Changeovers[0] = 2000000 * time.Hour },
		"price ratio: +Inf is outside 1e-06 to 1e+06":                             func(e *Experiment) { e.PriceRatio = math.Inf(1) },
		"price ratio: 1e+308 is outside":                                          func(e *Experiment) { e.PriceRatio = 1e308 },
		"price ratio: NaN is outside":                                             func(e *Experiment) { e.PriceRatio = math.NaN() },
		"from tick 9223372036854775807 on takes 7200 ticks":                       func(e *Experiment) { e.Starts[0] = math.MaxInt },
		"deadline: 5h0m0s is 18000 ticks of the traces, which is more than 16383": func(e *Experiment) { e.Deadlines[0] = 5 * time.Hour },
	} {
		e := fine
		e.Starts, e.Deadlines, e.Changeovers = slices.Clone(e.Starts), slices.Clone(e.Deadlines), slices.Clone(e.Changeovers)
		spoil(&e)
		must.ErrorContains(t, e.Validate(20_000), want)
	}
}

// A plan for a long time and many zones is coarser, not larger, and what the figures are computed with is as it was.
func TestNewPlanner_bounded(t *testing.T) {
	for _, c := range []struct {
		setup   Setup
		zones   int
		longest time.Duration
		tick    time.Duration // of the plan
	}{
		{Setup{Tick: 10 * time.Minute, Task: 48 * time.Hour, Changeover: 24 * time.Minute}, 1, 92 * time.Hour, 10 * time.Minute},
		{Setup{Tick: 195 * time.Second, Task: 24 * time.Hour, Changeover: 12 * time.Minute}, 9, 48 * time.Hour, 3 * 195 * time.Second},
		{Setup{Tick: 195 * time.Second, Task: 24 * time.Hour, Changeover: 12 * time.Minute}, 9, 545 * time.Hour, 0},
		{Setup{Tick: 10 * time.Minute, Task: time.Hour, Changeover: 60 * time.Hour}, 1, 90 * time.Hour, 0},
		{Setup{Tick: time.Millisecond, Task: time.Second, Changeover: time.Millisecond}, 3, 2 * time.Second, 10 * time.Minute},
	} {
		p := NewPlanner(c.setup, c.zones, c.longest, allocate.Prior2022)
		if c.tick > 0 {
			must.Eq(t, c.tick, p.deadlines.Tick)
		}
		must.LessEq(t, planCells, p.deadlines.Cells()*float64(c.zones))
	}
}

// The published means of the baselines come out, on the slices that they were computed on (Wu et al., NSDI '24, by the
// re-implementation that the recorded slices were checked with).
func TestCantBeLate_published(t *testing.T) {
	dir := os.Getenv("SPOTTER_DATA")
	if dir == "" {
		t.Skip("SPOTTER_DATA is not set: no recorded traces to run on")
	}
	dir = filepath.Join(dir, "availability", "aws-2022-10")
	var s struct{ Starts []int }
	data, err := os.ReadFile(filepath.Join(dir, "slices.json"))
	must.NoError(t, err)
	must.NoError(t, json.Unmarshal(data, &s))
	files, err := filepath.Glob(filepath.Join(dir, "us-*.json"))
	must.NoError(t, err)
	must.Len(t, 4, files)
	hour := time.Hour
	e := Experiment{
		Task: 48 * hour, PriceRatio: PaperPriceRatio, Deadlines: []time.Duration{52 * hour, 56 * hour, 60 * hour, 72 * hour, 92 * hour},
		Changeovers: []time.Duration{72 * time.Second, 6 * time.Minute, 12 * time.Minute, 24 * time.Minute}, Starts: s.Starts,
	}
	greedy := make([]float64, 20)
	uniform := make([]float64, 20)
	for _, f := range files {
		data, err := os.ReadFile(f)
		must.NoError(t, err)
		trace, err := market.ParseTrace(data)
		must.NoError(t, err)
		e.Tick = trace.Tick
		g, u := e.Baselines([][]bool{trace.Up})
		for i := range g {
			must.Zero(t, g[i].Misses+u[i].Misses)
			greedy[i] += g[i].Cost / 1200
			uniform[i] += u[i].Cost / 1200
		}
	}
	published := []string{
		"0.874/0.651", "0.803/0.628", "0.763/0.611", "0.624/0.572", "0.491/0.526",
		"0.888/0.725", "0.827/0.677", "0.785/0.660", "0.663/0.623", "0.515/0.583",
		"0.909/0.847", "0.853/0.750", "0.810/0.717", "0.708/0.678", "0.552/0.632",
		"0.940/0.940", "0.891/0.877", "0.855/0.825", "0.764/0.765", "0.612/0.728",
	}
	for i, want := range published {
		must.Eq(t, want, fmt.Sprintf("%.3f/%.3f", greedy[i], uniform[i]))
	}
}

func TestSpotHedge(t *testing.T) {
	h := &SpotHedge{}
	setup := Setup{Tick: 10 * time.Minute, Task: 10 * time.Hour, Deadline: 40 * time.Hour, Changeover: time.Minute, PriceRatio: 3}
	at := func(on Place, up string) Place {
		return h.Next(Progress{Setup: setup, Remaining: setup.Task, On: on, Up: ticks(up)})
	}
	must.Eq(t, Place(0), at(Waiting, "1111"))
	must.Eq(t, Place(1), at(Waiting, "0111")) // 0 was lost
	must.Eq(t, Place(2), at(Waiting, "1011")) // 0 is up, and shunned
	must.Eq(t, Place(2), at(2, "1111"))
	must.Eq(t, OnDemand, at(Waiting, "0000"))
}
