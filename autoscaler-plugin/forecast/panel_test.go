package forecast

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-spotter/autoscaler-plugin/market"
)

var begin = time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)

// stepwise makes series that move every 5 to 7 hours, in steps that mostly go on in their direction, and still ones.
func stepwise(seed uint64, n, days int) []market.Series {
	r := rand.New(rand.NewPCG(seed, 7))
	var all []market.Series
	for i := range n {
		s := market.Series{Key: market.Key{Provider: "test", Region: "r", Zone: string(rune('a' + i)), Type: "t"}}
		at, price, step := begin.Add(time.Duration(r.Float64()*6*float64(time.Hour))), 1.0, .002
		for at.Before(begin.AddDate(0, 0, days)) {
			s.Points = append(s.Points, market.Point{At: at, Value: price})
			at = at.Add(5*time.Hour + time.Duration(r.Float64()*2*float64(time.Hour)))
			step = .7*step + .002*r.NormFloat64()
			if i != n-1 { // the last stands still
				price *= math.Exp(step)
			}
		}
		s.End = at
		all = append(all, s)
	}
	return all
}

func unit(market.Key, time.Time) float64 { return 1 }

func overall(t *testing.T, r Report, group, part string, hours float64) Score {
	t.Helper()
	i := slices.IndexFunc(r.Overall, func(s Score) bool { return s.Group == group && s.Part == part && s.Horizon == hours })
	must.GreaterEq(t, 0, i)
	return r.Overall[i]
}

func TestBacktestBeatsPersistenceOnRhythm(t *testing.T) {
	report, err := Backtest(stepwise(1, 5, 30), unit, []time.Duration{time.Hour, 24 * time.Hour})
	must.NoError(t, err)
	for hours, ratio := range map[float64]float64{1: .85, 24: .85} {
		s := overall(t, report, "moving", "all", hours)
		must.Less(t, ratio*s.Persistence, s.Spotter)
		must.Between(t, .87, s.Coverage90, .95)
		first, last := overall(t, report, "all", "first 60%", hours), overall(t, report, "all", "last 40%", hours)
		must.Eq(t, overall(t, report, "all", "all", hours).Windows, first.Windows+last.Windows)
	}
	must.Len(t, 2, report.Groups)
}

// A price that jumps at random by random amounts leaves nothing to forecast: persistence must not be beaten by much, and
// above all not lost to.
func TestBacktestNoWorseThanPersistenceOnARandomWalk(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 8))
	var series []market.Series
	for i := range 3 {
		s := market.Series{Key: market.Key{Zone: string(rune('a' + i)), Type: "t"}}
		price := 1.0
		for h := range 24 * 25 {
			price *= math.Exp(.01 * r.NormFloat64())
			s.Points = append(s.Points, market.Point{At: begin.Add(time.Duration(h)*time.Hour + 5*time.Minute), Value: price})
		}
		series = append(series, s)
	}
	report, err := Backtest(series, unit, []time.Duration{time.Hour, 6 * time.Hour})
	must.NoError(t, err)
	for _, hours := range []float64{1, 6} {
		s := overall(t, report, "all", "all", hours)
		must.Less(t, 1.02*s.Persistence, s.Spotter)
		must.Between(t, .87, s.Coverage90, .93)
	}
}

// The forecasts of a record must not depend on what comes after them.
func TestNoLookAhead(t *testing.T) {
	horizons := []time.Duration{time.Hour, 24 * time.Hour}
	series := stepwise(2, 4, 20)
	cut := begin.AddDate(0, 0, 14)
	windows := func(series []market.Series) map[[3]int]window {
		p, err := NewPanel(series, horizons)
		must.NoError(t, err)
		out := map[[3]int]window{}
		p.run(func(w window) {
			if !p.grid.times[w.origin].Add(horizons[w.horizon]).After(cut) {
				out[[3]int{w.series, w.horizon, w.origin}] = w
			}
		})
		return out
	}
	want := windows(series)
	for i := range series {
		for j := range series[i].Points {
			if series[i].Points[j].At.After(cut) {
				series[i].Points[j].Value *= 1.5 + float64(j%7)
			}
		}
	}
	got := windows(series)
	must.MapLen(t, len(want), got)
	must.Greater(t, 1000, len(want))
	for k, w := range want {
		must.True(t, w == got[k], must.Sprintf("window %v: %v became %v", k, w, got[k]))
	}
}

func TestBaselineIsTheEmpiricalQuantilesOfPastChanges(t *testing.T) {
	series := stepwise(3, 1, 10)
	// stepwise leaves the last series still; let this one climb by .01 every 6 hours.
	for j := range series[0].Points {
		series[0].Points[j] = market.Point{At: begin.Add(time.Duration(6*j) * time.Hour), Value: 1 + .01*float64(j)}
	}
	series[0].End = series[0].Points[len(series[0].Points)-1].At.Add(time.Second)
	p, err := NewPanel(series, []time.Duration{24 * time.Hour})
	must.NoError(t, err)
	n := 0
	p.run(func(w window) { // every 24 hours bring .04, so from the first known change on the baseline is exact
		n++
		near(t, "loss of persistence", w.persistence, 0, 0, 1e-12)
	})
	must.Greater(t, 100, n)
}

func TestSnapshotsAreJudgedAtTheDateAtOrBefore(t *testing.T) {
	day := func(d int) time.Time { return begin.AddDate(0, 0, d) }
	s := market.Series{Key: market.Key{Region: "r", Type: "t"}}
	for _, d := range []int{0, 7, 12, 21, 28, 29, 36} {
		s.Points = append(s.Points, market.Point{At: day(d), Value: 1})
	}
	g, err := newGrid([]market.Series{s}, []time.Duration{7 * 24 * time.Hour})
	must.NoError(t, err)
	// 0→7; 7→14, 12 is two days before; 12→19, 12 itself is none; 21→28; 28→35, 29 is six days off; 29→36; 36: none after
	must.Eq(t, []int{1, 2, -1, 4, -1, 6, -1}, g.target[0])
	_, err = newGrid([]market.Series{s}, []time.Duration{time.Hour})
	must.ErrorContains(t, err, "snapshots of days")
}

func TestPanelRefuses(t *testing.T) {
	series := stepwise(4, 2, 2)
	for name, c := range map[string]struct {
		series   []market.Series
		horizons []time.Duration
		want     string
	}{
		"nothing":     {nil, []time.Duration{time.Hour}, "no series with two points"},
		"no horizon":  {series, nil, "horizons: none"},
		"too short":   {series, []time.Duration{240 * time.Hour}, "shorter than every horizon"},
		"bad horizon": {series, []time.Duration{-time.Hour, 9000 * time.Hour}, "horizon 9000h0m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := NewPanel(c.series, c.horizons)
			must.ErrorContains(t, err, c.want)
		})
	}
	_, err := Backtest(series, func(market.Key, time.Time) float64 { return 0 }, []time.Duration{time.Hour})
	must.ErrorContains(t, err, "on-demand price of a/t is 0")
	_, err = Backtest(stepwise(4, 2, 2), unit, []time.Duration{40 * time.Hour}) // of 45
	must.ErrorContains(t, err, "the record is too short to judge a forecast")
}

func TestGapsAreNoMoves(t *testing.T) {
	series := stepwise(5, 3, 20)
	points := series[0].Points
	for j := 20; j < 40; j++ {
		points[j].Value = math.NaN()
	}
	points[50].Value = 0 // a price of nothing is none
	report, err := Backtest(series, unit, []time.Duration{time.Hour})
	must.NoError(t, err)
	s := overall(t, report, "all", "all", 1)
	must.False(t, math.IsNaN(s.Spotter) || math.IsInf(s.Spotter, 0))
}

func TestPredict(t *testing.T) {
	series := stepwise(6, 4, 24)
	all, err := Predict(series, []time.Duration{time.Hour, 24 * time.Hour})
	must.NoError(t, err)
	must.Len(t, 8, all)
	for _, p := range all {
		must.True(t, slices.IsSorted(p.Quantiles[:]), must.Sprint(p.Key))
		must.LessEq(t, p.High, p.Low)
		must.Greater(t, 0, p.Quantiles[0])
		if p.Key.Zone == "d" { // stands still
			must.Eq(t, Models[persistence], p.Model)
			must.StrContains(t, p.Why, "persistence is best here")
			must.Eq(t, p.Price, p.Quantiles[0])
		}
	}
	must.StrContains(t, all[1].Why, "of persistence's loss")
	again, err := Predict(stepwise(6, 4, 24), []time.Duration{time.Hour, 24 * time.Hour})
	must.NoError(t, err)
	must.Eq(t, all, again)
}

func TestPinball(t *testing.T) {
	var q [len(Levels)]float64
	must.Eq(t, 0, Pinball(&q, 0))
	near(t, "above", Pinball(&q, 2), 1, 0, 1e-12) // the mean level is ½
	near(t, "below", Pinball(&q, -2), 1, 0, 1e-12)
}

func TestDistributionQuantiles(t *testing.T) {
	// Stays with .8, else ±1 % by the pool's sizes.
	d := hurdle(.2, 100, nil, []float64{-1, 1}, 0, .01, 1)
	var q [5]float64
	d.quantiles([]float64{.05, .1, .5, .9, .95}, q[:])
	near(t, "q05", q[0], 100*math.Exp(-.01), 0, 1e-9)
	near(t, "q10", q[1], 100*math.Exp(-.01), 0, 1e-9)
	near(t, "q50", q[2], 100, 0, 1e-9)
	near(t, "q90", q[3], 100, 0, 1e-9)
	near(t, "q95", q[4], 100*math.Exp(.01), 0, 1e-9)
}

func TestListPrice(t *testing.T) {
	near(t, "p3.16xlarge", ListPrice(market.Key{Provider: "aws", Region: "us-west-2", Type: "p3.16xlarge"}), 24.48, 0, 1e-9)
	near(t, "p2.8xlarge", ListPrice(market.Key{Provider: "aws", Region: "eu-west-1", Type: "p2.8xlarge"}), 7.776, 0, 1e-9)
	for _, k := range []market.Key{
		{Provider: "aws", Region: "us-west-2", Type: "g5.xlarge"},
		{Provider: "aws", Region: "eu-west-2", Type: "p2.xlarge"},
		{Provider: "gcp", Region: "us-west-2", Type: "p3.2xlarge"},
	} {
		must.True(t, math.IsNaN(ListPrice(k)))
	}
}
