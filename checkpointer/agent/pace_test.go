package agent

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/shoenig/test/must"

	"nomad-spotter/checkpointer/api"
	"nomad-spotter/checkpointer/stage"
)

// paced is an agent with an automatic interval on an instance of an age, whose task has just started.
func paced(age time.Duration, change func(*api.CadenceConfig)) (*Agent, time.Time) {
	now := time.Date(2025, 3, 1, 12, 0, 0, 0, time.UTC)
	conf := api.AgentConfig{Interval: api.Interval{Auto: true}, Cadence: &api.CadenceConfig{LaunchedAt: now.Add(-age)}}
	if change != nil {
		change(conf.Cadence)
	}
	a := &Agent{
		conf: conf, log: hclog.NewNullLogger(), now: func() time.Time { return now }, since: launched(conf), task: &process{attached: now},
	}
	a.replan()
	return a, now
}

func TestCadence_dueAndWhy(t *testing.T) {
	a, now := paced(time.Hour, func(c *api.CadenceConfig) { c.SpotUSD, c.ReworkUSD = 0.9, 3 })
	c := a.cadence()
	must.NotNil(t, c)
	for _, want := range []string{"wastes the least", "30.0 s (assumed)", "1h0m0s old", "an hour costs 0.9 $, 3 $ to do it again"} {
		must.StrContains(t, c.Why, want)
	}
	interval := c.DueAt.Sub(now)
	must.Between(t, 2*time.Minute, interval, 20*time.Minute)
	_, due := a.due(now.Add(interval - time.Second))
	must.False(t, due)
	answer, due := a.due(now.Add(interval + time.Second))
	must.True(t, due)
	must.Eq(t, interval.Round(time.Second), answer.Round(time.Second))

	older, _ := paced(20*time.Hour, func(c *api.CadenceConfig) { c.SpotUSD, c.ReworkUSD = 0.9, 3 })
	must.Greater(t, c.IntervalS, older.cadence().IntervalS) // what has been up for long stays up
	steady, _ := paced(20*time.Hour, func(c *api.CadenceConfig) { c.HazardShape = 1 })
	must.InDelta(t, math.Sqrt(2*30*defaultMTBF.Seconds()), steady.cadence().IntervalS, 40)
	rare, _ := paced(time.Hour, func(c *api.CadenceConfig) { c.MTBF = api.Duration(8760 * time.Hour) })
	must.Greater(t, time.Hour.Seconds(), rare.cadence().IntervalS)
	capped, _ := paced(time.Hour, func(c *api.CadenceConfig) { c.MaxInterval = api.Duration(time.Minute) })
	must.Eq(t, 60, capped.cadence().IntervalS)
}

// An open request, a fixed interval, none, and no task.
func TestCadence_states(t *testing.T) {
	a, now := paced(time.Hour, nil)
	a.state.Request = &request{Request: api.Request{ID: 3, At: now}}
	must.StrHasPrefix(t, "Request 3 is open. ", a.cadence().Why)
	must.True(t, a.cadence().DueAt.IsZero())
	_, due := a.due(now.Add(100 * time.Hour))
	must.False(t, due)
	a.state.Request.Closed = true
	_, due = a.due(now.Add(100 * time.Hour))
	must.True(t, due)

	a.conf.Interval = api.Interval{Every: time.Minute}
	must.Eq(t, &api.Cadence{DueAt: now.Add(time.Minute), IntervalS: 60, Why: "The interval is fixed."}, a.cadence())
	a.super = true // a newer run has taken over: nothing of this one is stored
	must.Nil(t, a.cadence())
	_, due = a.due(now.Add(100 * time.Hour))
	must.False(t, due)
	a.super, a.gone = false, true
	must.Nil(t, a.cadence())
	a.gone, a.conf.Interval = false, api.Interval{}
	must.Nil(t, a.cadence())
}

// Where no checkpoint is worth its time, or none can be computed, the longest interval holds; without one there is none.
func TestCadence_longest(t *testing.T) {
	for most, want := range map[time.Duration]float64{0: 0, 20 * time.Minute: 1200} {
		a, now := paced(0, func(c *api.CadenceConfig) {
			c.MTBF, c.HazardShape, c.MaxInterval = api.Duration(time.Minute), 1, api.Duration(most)
		})
		a.state.Pace.Stalls = []time.Duration{time.Hour}
		a.replan()
		must.Eq(t, want, a.cadence().IntervalS)
		must.StrHasPrefix(t, "No checkpoint is worth its time: ", a.cadence().Why)
		must.Eq(t, most > 0, strings.Contains(a.cadence().Why, "none is more than 20m0s after the one before"))
		_, due := a.due(now.Add(time.Hour))
		must.Eq(t, most > 0, due)

		a.conf.Cadence.NoticeSuccess = 2 // such as only a fault of another program could make it
		a.plan = nil
		a.replan()
		must.Eq(t, want, a.cadence().IntervalS)
		must.StrContains(t, a.cadence().Why, "NoticeSuccess: 2")
	}
	ages, _ := paced(time.Hour, func(c *api.CadenceConfig) { c.MTBF, c.HazardShape = math.MaxInt64, 1 })
	must.Greater(t, 24*time.Hour.Seconds(), ages.cadence().IntervalS)
}

// A clock that has gone back by days does not hold up the next checkpoint until it has caught up.
func TestCadence_clockWentBack(t *testing.T) {
	a, now := paced(time.Hour, nil)
	usual := time.Duration(a.cadence().IntervalS * float64(time.Second))
	a.state.Last = &api.Checkpoint{FinishedAt: now.Add(48 * time.Hour)}
	a.state.Request = &request{Request: api.Request{ID: 1, At: now.Add(47 * time.Hour)}, Closed: true}
	must.Eq(t, now.Add(usual).Round(time.Second), a.cadence().DueAt.Round(time.Second))
	_, due := a.due(now.Add(usual + time.Second))
	must.True(t, due)
	a.state.Last.FinishedAt = now.Add(clockSkew - 1) // a file server's clock
	must.True(t, a.cadence().DueAt.After(now.Add(usual)))
}

// What the agent measures: the quickest of the last answers, and whether there was one.
func TestPace(t *testing.T) {
	at := time.Date(2025, 3, 1, 12, 0, 0, 0, time.UTC)
	asked := func(id uint64) *request {
		return &request{Request: api.Request{ID: id, Reason: api.ReasonInterval, At: at}}
	}
	done := func(after time.Duration, answers uint64) stage.Meta {
		return stage.Meta{FinishedAt: at.Add(after), Request: answers}
	}
	var p pace
	p.finished(nil, done(0, 0), false)
	p.finished(asked(1), done(-time.Second, 0), false) // older than the request
	p.finished(asked(1), done(time.Second, 0), true)   // the task listens, and did not say that it is the answer
	must.SliceEmpty(t, p.Stalls)
	p.finished(asked(1), done(9*time.Second, 1), true)
	p.finished(asked(1), done(60*time.Second, 0), false) // answered already
	must.Eq(t, []time.Duration{9 * time.Second}, p.Stalls)
	for id, d := range map[uint64]time.Duration{2: 5 * time.Second, 3: 7 * time.Second} {
		p.Timed = 0
		p.finished(asked(id), done(d, 0), false)
	}
	must.Eq(t, 5*time.Second, least(p.Stalls, 0))
	p.Timed = 3
	p.finished(asked(4), done(20*time.Second, 0), false)
	must.Len(t, remembered, p.Stalls)

	p.overdue(asked(4)) // it was answered
	must.Zero(t, p.Missed)
	for id := uint64(5); id < 15; id++ {
		p.overdue(asked(id))
	}
	must.Eq(t, mostDoubled, p.Missed)
	p.finished(asked(15), done(time.Second, 0), false)
	must.Zero(t, p.Missed)
}

// A task that does not answer is asked less and less often.
func TestCadence_backsOff(t *testing.T) {
	a, _ := paced(time.Hour, nil)
	usual := a.cadence().IntervalS
	a.state.Pace.Missed = 3
	must.InDelta(t, 8*usual, a.cadence().IntervalS, 0.001)
	must.StrContains(t, a.cadence().Why, "8 times as long, since 3 requests were left without an answer")
}

// What was measured makes a new plan, and how fast the store is bounds it.
func TestCadence_replans(t *testing.T) {
	a, now := paced(time.Hour, nil)
	first := a.plan
	a.replan()
	must.True(t, first == a.plan)
	a.state.Pace.Stalls = []time.Duration{4 * time.Second}
	a.replan()
	must.Less(t, first.terms.Stall, a.plan.terms.Stall)
	must.StrContains(t, a.cadence().Why, "4.0 s (measured)")
	a.state.Last = &api.Checkpoint{RawBytes: 100e9, FinishedAt: now}
	a.state.Rates = Rates{Link: 10e6}
	a.replan()
	must.Greater(t, time.Hour.Seconds(), a.cadence().IntervalS) // 84 GB by 10 MB/s
}

func TestCadenceFaults(t *testing.T) {
	err := Validate(api.AgentConfig{Interval: api.Interval{Every: time.Minute}, Cadence: &api.CadenceConfig{
		MTBF: 5, HazardShape: math.NaN(), NoticeSuccess: 1, MaxInterval: -1, ReworkUSD: 3, StorageUSDOfGB: -1,
	}})
	must.Error(t, err)
	for _, want := range []string{
		`cadence: is given with the interval "1m0s"`, `cadence.mtbf: "5ns"`, "cadence.hazard_shape: NaN", "cadence.notice_success: 1",
		`cadence.max_interval: "-1ns"`,
		"cadence.spot_usd_per_hour, cadence.rework_usd_per_hour: 0 and 3", "cadence.storage_usd_per_gb: -1 is no price",
	} {
		must.True(t, strings.Contains(err.Error(), want), must.Sprintf("%q in %v", want, err))
	}
}
