package cadence_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-spotter/checkpointer/cadence"
)

func schedule(t *testing.T, terms cadence.Terms, h cadence.Hazard, jumps ...time.Duration) *cadence.Schedule {
	t.Helper()
	s, err := cadence.New(terms, h, jumps...)
	must.NoError(t, err)
	return s
}

// With a hazard that stays as it is the schedule is the exact interval, at every age.
func TestSchedule_constantHazardIsExact(t *testing.T) {
	for _, c := range []struct{ stall, mtbf time.Duration }{
		{5 * time.Second, 20 * time.Hour},
		{30 * time.Second, 11592 * time.Second},
		{2 * time.Minute, time.Hour},
		{10 * time.Minute, time.Hour},
	} {
		s := schedule(t, cadence.Terms{Stall: c.stall}, cadence.Constant(c.mtbf))
		want := cadence.Exact(c.stall, c.mtbf)
		for _, age := range []time.Duration{0, time.Minute, c.mtbf, 5 * c.mtbf} {
			got, worth := s.Interval(age)
			must.True(t, worth)
			must.InDelta(t, 1, got.Seconds()/want.Seconds(), 0.02, must.Sprintf("%v at %s: %s, not %s", c, age, got, want))
		}
		waste, life := s.Waste()
		must.InDelta(t, c.mtbf.Seconds(), life.Seconds(), 0.001*c.mtbf.Seconds())
		// The share of useful work is τ/M / (e^((τ+C)/M)-1).
		y, x := want.Seconds()/c.mtbf.Seconds(), c.stall.Seconds()/c.mtbf.Seconds()
		must.InDelta(t, 1-y/math.Expm1(x+y), waste.Seconds()/life.Seconds(), 0.001)
	}
}

// quantiles are lives that stand for a Weibull distribution.
func quantiles(shape float64, scale time.Duration, n int) (out []time.Duration) {
	for i := range n {
		p := (float64(i) + 0.5) / float64(n)
		out = append(out, time.Duration(float64(scale)*math.Pow(-math.Log1p(-p), 1/shape)))
	}
	return out
}

func played(lives []time.Duration, terms cadence.Terms, next func(time.Duration) (time.Duration, bool)) cadence.Tally {
	var y cadence.Tally
	for _, up := range lives {
		y.Add(up, terms, next)
	}
	return y
}

func fixed(d time.Duration) func(time.Duration) (time.Duration, bool) {
	return func(time.Duration) (time.Duration, bool) { return d, true }
}

// On lives that follow the hazard: what is wasted is what the schedule expects, and less than with any fixed interval, with
// the interval that suits the hazard of the moment, or with the schedule for a hazard of another shape.
func TestSchedule_bestOnItsHazard(t *testing.T) {
	const shape, scale = 0.617, 5681 * time.Second
	lives := quantiles(shape, scale, 6_000)
	hazard := cadence.Weibull(shape, scale)
	for _, terms := range []cadence.Terms{
		{Stall: 10 * time.Second},
		{Stall: 120 * time.Second},
		{Stall: 600 * time.Second},
		{Stall: 30 * time.Second, NoticeSuccess: 0.7, Final: 30 * time.Second},
		{Stall: 30 * time.Second, Lag: 3 * time.Minute},
		{Stall: 30 * time.Second, Restart: 4 * time.Minute},
		{Stall: 5 * time.Second, Least: 20 * time.Minute},
	} {
		t.Run(fmt.Sprint(terms), func(t *testing.T) {
			s := schedule(t, terms, hazard)
			ours := played(lives, terms, s.Interval).Waste()
			waste, life := s.Waste()
			must.InDelta(t, ours, waste.Seconds()/life.Seconds(), 0.005*ours+0.0005)
			for d := 30 * time.Second; d < 100*time.Hour; d += d / 10 {
				if d < terms.Least {
					continue
				}
				must.Less(t, played(lives, terms, fixed(d)).Waste(), ours, must.Sprintf("every %s", d))
			}
			local := played(lives, terms, func(age time.Duration) (time.Duration, bool) {
				h := hazard(max(age, 300*time.Second)) * (1 - terms.NoticeSuccess)
				return max(terms.Least, terms.Lag-terms.Stall, seconds(math.Sqrt(2*terms.Stall.Seconds()/h*3600))), true
			})
			must.Less(t, local.Waste()*1.001, ours) // for short stalls they are the same but for the grid
			other := schedule(t, terms, cadence.Weibull(1, 2*scale))
			must.Less(t, played(lives, terms, other.Interval).Waste(), ours*0.9999)
		})
	}
}

// A young instance that is about to settle is left alone for longer than its present hazard says; one that will not outlive
// the stall is given no checkpoint.
func TestSchedule_youngInstances(t *testing.T) {
	terms := cadence.Terms{Stall: 10 * time.Minute}
	s := schedule(t, terms, cadence.Weibull(0.5, time.Hour))
	young, _ := s.Interval(0)
	must.Greater(t, cadence.Young(terms.Stall, time.Hour/4), young) // the hazard is 4 an hour or more in the first minute
	// Work is mostly saved by the notice, a stall never is.
	terms.NoticeSuccess = 0.9
	_, worth := schedule(t, terms, cadence.Constant(time.Minute)).Interval(0)
	must.False(t, worth)
	_, worth = schedule(t, cadence.Terms{Stall: time.Second}, func(time.Duration) float64 { return 0 }).Interval(time.Hour)
	must.False(t, worth) // nothing is ever lost
}

// A checkpoint ends just before an age at which many instances go away, if that age is told.
func TestSchedule_beforeAJump(t *testing.T) {
	edge := time.Hour
	hazard := func(age time.Duration) float64 {
		if age >= edge && age < edge+time.Minute {
			return 60 // 63 % go within this minute
		}
		return 0.1
	}
	s := schedule(t, cadence.Terms{Stall: 20 * time.Second}, hazard, edge, edge+time.Minute)
	age, found := time.Duration(0), false
	for age < 2*edge {
		d, worth := s.Interval(age)
		must.True(t, worth)
		age += d + 20*time.Second
		found = found || age <= edge && edge-age < 5*time.Second
	}
	must.True(t, found)
}

func TestSchedule_directions(t *testing.T) {
	base := cadence.Terms{Stall: 30 * time.Second, SpotUSDPerHour: 1, ReworkUSDPerHour: 1}
	at := func(change func(*cadence.Terms)) time.Duration {
		terms := base
		change(&terms)
		d, worth := schedule(t, terms, cadence.Weibull(0.62, 96*time.Minute)).Interval(2 * time.Hour)
		must.True(t, worth)
		return d
	}
	now := at(func(*cadence.Terms) {})
	must.Greater(t, now, at(func(x *cadence.Terms) { x.Stall *= 4 }))
	must.Greater(t, now, at(func(x *cadence.Terms) { x.NoticeSuccess = 0.7 }))
	must.Greater(t, now, at(func(x *cadence.Terms) { x.StorageUSD = 0.05 }))
	must.Less(t, now, at(func(x *cadence.Terms) { x.ReworkUSDPerHour = 4 }))
	must.Eq(t, time.Hour, at(func(x *cadence.Terms) { x.Least = time.Hour }))
	must.Eq(t, time.Minute, at(func(x *cadence.Terms) { x.Most = time.Minute }))
	must.Eq(t, time.Hour-30*time.Second, at(func(x *cadence.Terms) { x.Lag = time.Hour }))
}

func TestTerms_AllFaultsTogether(t *testing.T) {
	_, err := cadence.New(cadence.Terms{
		Lag: -1, Most: time.Second, Least: time.Minute, NoticeSuccess: 1, StorageUSD: 1, ReworkUSDPerHour: math.NaN(),
	}, cadence.Constant(time.Hour))
	must.Error(t, err)
	for _, want := range []string{
		"Lag: -1ns", "Stall: 0s", "Most: 1s is shorter than Least, 1m0s",
		"NoticeSuccess: 1 is not", "ReworkUSDPerHour: NaN", "StorageUSD: 1 without",
	} {
		must.True(t, strings.Contains(err.Error(), want), must.Sprintf("%q in %v", want, err))
	}
	for name, h := range map[string]cadence.Hazard{
		"negative": cadence.Constant(-time.Hour),
		"NaN":      func(time.Duration) float64 { return math.NaN() },
		"infinite": func(time.Duration) float64 { return math.Inf(1) },
	} {
		_, err := cadence.New(cadence.Terms{Stall: time.Second}, h)
		must.Error(t, err, must.Sprint(name))
	}
}

// By hand: an instance of 100 s, a checkpoint of 5 s after every 20 s.
func TestTally(t *testing.T) {
	terms := cadence.Terms{Stall: 5 * time.Second}
	lagging, told := terms, terms
	lagging.Lag, told.NoticeSuccess, told.Final = 10*time.Second, 0.5, 4*time.Second
	late := terms
	late.Restart = 10 * time.Second
	const every = 20 * time.Second
	for _, c := range []struct {
		name                   string
		up                     float64
		terms                  cadence.Terms
		stalled, lost, restart float64
		final                  float64
		checkpoints            int
		every                  time.Duration
		worth                  bool
	}{
		{"the end is the end of a stall", 100, terms, 20, 0, 0, 0, 4, every, true},
		{"in the work", 99 - 5, terms, 15, 19, 0, 0, 3, every, true},
		{"in a stall", 97, terms, 17, 20, 0, 0, 3, every, true},
		{"the last one is not durable", 106, lagging, 20, 26, 0, 0, 4, every, true},
		{"none is worth it", 100, terms, 0, 100, 0, 0, 0, 0, false},
		{"a notice half of the time", 94, told, 15, 9.5, 0, 2, 3, every, true},
		{"begun late", 100, late, 15, 15, 10, 0, 3, every, true},
		{"never begun", 8, late, 0, 0, 8, 0, 0, every, true},
	} {
		var y cadence.Tally
		y.Add(seconds(c.up), c.terms, func(time.Duration) (time.Duration, bool) { return c.every, c.worth })
		must.Eq(t, cadence.Tally{
			Up:      seconds(c.up),
			Stalled: seconds(c.stalled), Lost: seconds(c.lost), Restarted: seconds(c.restart), Final: seconds(c.final),
			Checkpoints: c.checkpoints,
		}, y, must.Sprint(c.name))
	}
}
