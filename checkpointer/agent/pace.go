package agent

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"time"

	"nomad-spotter/checkpointer/api"
	"nomad-spotter/checkpointer/cadence"
	"nomad-spotter/checkpointer/stage"
)

// What is taken for granted of an instance and a task before more is known.
const (
	defaultMTBF  = 140 * time.Minute // of the GPU instances of AWS that were recorded in October 2022 and in February 2023
	defaultShape = 0.62              // of their up-times: what has been up for long stays up
	assumedStall = 30 * time.Second
	leastStall   = time.Second // a stall below this is not told from the time in which the task looks for requests
	leastAnswer  = time.Minute // that an automatic request stays open
	remembered   = 3           // measurements: the least of them counts
	drift        = 1.2         // factor by which what was measured may change before a new plan is made
	planPeriod   = time.Second // between two looks at what was measured
	mostDoubled  = 6           // a task that never answers is asked after 64 intervals at last
	clockSkew    = time.Minute // by which files may be ahead of the clock; what is more was written before it went back

	longestMTBF = 100 * 365 * 24 * time.Hour // a schedule looks two months ahead: what is longer is the same
)

// pace is what was measured of a task's checkpoints.
type pace struct {
	Stalls []time.Duration `json:"stalls,omitempty"` // from a request to the checkpoint that answered it, the last ones
	Lags   []time.Duration `json:"lags,omitempty"`   // from a finished checkpoint until it was stored, the last ones
	Timed  uint64          `json:"timed,omitempty"`  // number of the last request that was answered
	Missed int             `json:"missed,omitempty"` // automatic requests without an answer since then
}

// finished takes note of a checkpoint, which may be the answer to the last request. A task that listens says so itself.
func (p *pace) finished(r *request, m stage.Meta, listening bool) {
	if r == nil || r.ID <= p.Timed || !r.answers(m) || listening && m.Request < r.ID {
		return
	}
	p.Timed, p.Missed = r.ID, 0
	p.Stalls = remember(p.Stalls, m.FinishedAt.Sub(r.At))
}

// stored takes note of a checkpoint that has come into the store.
func (p *pace) stored(lag time.Duration) { p.Lags = remember(p.Lags, lag) }

// overdue takes note of a request whose time is over.
func (p *pace) overdue(r *request) {
	if r.Reason == api.ReasonInterval && r.ID > p.Timed {
		p.Missed = min(p.Missed+1, mostDoubled)
	}
}

// remember returns a new list: an old one may be in an answer that is being encoded.
func remember(list []time.Duration, d time.Duration) []time.Duration {
	out := append(append([]time.Duration(nil), list...), max(d, 0))
	return out[max(0, len(out)-remembered):]
}

// least is the least of what was measured, since all that disturbs a measurement makes it longer; otherwise if there is none.
func least(list []time.Duration, otherwise time.Duration) time.Duration {
	if len(list) == 0 {
		return otherwise
	}
	out := list[0]
	for _, d := range list {
		out = min(out, d)
	}
	return out
}

// plan is a schedule and what it was made for.
type plan struct {
	terms    cadence.Terms
	hazard   cadence.Hazard
	schedule *cadence.Schedule // nil: there is none
	err      error             // why
}

// launched is when the instance was launched: at the latest when its machine was booted, and that when this agent was started.
func launched(c api.AgentConfig) time.Time {
	if c.Cadence != nil && !c.Cadence.LaunchedAt.IsZero() {
		return c.Cadence.LaunchedAt
	}
	boot, err := bootTime()
	if err != nil {
		return time.Time{}
	}
	return boot
}

// age of the instance at a time.
func (a *Agent) age(t time.Time) time.Duration {
	if a.since.IsZero() {
		return 0
	}
	return max(0, t.Sub(a.since))
}

// facts are those that a configuration gives, with defaults.
func facts(c api.AgentConfig) api.CadenceConfig {
	var k api.CadenceConfig
	if c.Cadence != nil {
		k = *c.Cadence
	}
	k.MTBF = cmp.Or(k.MTBF, api.Duration(defaultMTBF))
	k.HazardShape = cmp.Or(k.HazardShape, defaultShape)
	return k
}

// hazard is a Weibull distribution with the mean and the shape of the configuration: its mean is λ·Γ(1+1/k).
func hazard(k api.CadenceConfig) cadence.Hazard {
	mtbf := min(time.Duration(k.MTBF), longestMTBF)
	return cadence.Weibull(k.HazardShape, time.Duration(float64(mtbf)/math.Gamma(1+1/k.HazardShape)))
}

// terms are what an interval is weighed by at the moment. The caller holds mu.
func (a *Agent) terms() cadence.Terms {
	k, p := facts(a.conf), &a.state.Pace
	t := cadence.Terms{
		Stall: max(least(p.Stalls, assumedStall), leastStall), Lag: least(p.Lags, 0), Most: time.Duration(k.MaxInterval),
		NoticeSuccess: k.NoticeSuccess, SpotUSDPerHour: k.SpotUSD, ReworkUSDPerHour: k.ReworkUSD,
	}
	if last := a.state.Last; last != nil {
		t.Least = a.state.Rates.Predict(Work{Effort: a.usual(), Raw: last.RawBytes})
	}
	if s := a.state.Stored; s != nil {
		t.StorageUSD = float64(s.Checkpoint.StoredBytes) / 1e9 * k.StorageUSDOfGB
	}
	if t.Most > 0 { // a store that is slower than the longest interval allows for
		t.Most = max(t.Most, t.Least)
	}
	return t
}

// drifted tells whether terms have become so different that another schedule may be worth its while.
func drifted(a, b cadence.Terms) bool {
	far := func(x, y, slack float64) bool {
		return max(x, y) > drift*min(x, y)+slack
	}
	return far(a.Stall.Seconds(), b.Stall.Seconds(), 0) || far(a.Lag.Seconds(), b.Lag.Seconds(), 1) ||
		far(a.Least.Seconds(), b.Least.Seconds(), 1) || far(a.StorageUSD, b.StorageUSD, 0)
}

// pacing keeps the schedule of an automatic interval as what was measured asks for.
func (a *Agent) pacing(ctx context.Context) {
	a.replan()
	for sleep(ctx, planPeriod) {
		a.replan()
	}
}

// replan makes a new schedule when what was measured has changed. Only pacing calls it; it computes without mu.
func (a *Agent) replan() {
	a.mu.Lock()
	t, old := a.terms(), a.plan
	a.mu.Unlock()
	if old != nil && !drifted(old.terms, t) {
		return
	}
	next := &plan{terms: t, hazard: hazard(facts(a.conf))}
	next.schedule, next.err = cadence.New(t, next.hazard)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.plan = next
	if next.err != nil {
		a.log.Warn("no automatic interval", "error", next.err)
		return
	}
	if a.asking() {
		since := a.last()
		a.log.Info("new cadence", "interval", a.interval(since), "why", a.why(since))
	}
}

// asking tells whether the agent asks for checkpoints by itself at the moment. The caller holds mu.
func (a *Agent) asking() bool {
	return (a.conf.Interval.Auto || a.conf.Interval.Every > 0) && a.task != nil && !a.gone && !a.super
}

// last is when the task was last heard of or asked, from which an interval counts. Times to come, from before the clock went
// back, would hold up the next request until they are over. The caller holds mu.
func (a *Agent) last() time.Time {
	since, end := a.task.attached, a.now().Add(clockSkew)
	if l := a.state.Last; l != nil && l.FinishedAt.After(since) && l.FinishedAt.Before(end) {
		since = l.FinishedAt
	}
	if r := a.state.Request; r != nil && r.At.After(since) && r.At.Before(end) {
		since = r.At
	}
	return since
}

// interval is how long after a time the next checkpoint is due; 0 for never. The caller holds mu.
func (a *Agent) interval(since time.Time) time.Duration {
	if every := a.conf.Interval.Every; every > 0 {
		return every
	}
	if a.plan == nil {
		return 0
	}
	interval := a.plan.terms.Most // where no checkpoint is worth its time, by values that may be wrong; 0: none
	if s := a.plan.schedule; s != nil {
		if best, worth := s.Interval(a.age(since)); worth {
			interval = best
		}
	}
	return min(interval, math.MaxInt64>>(mostDoubled+1)) << a.state.Pace.Missed
}

// due tells whether to ask for a checkpoint, and for how long the request stays open. The caller holds mu.
func (a *Agent) due(now time.Time) (answer time.Duration, due bool) {
	if r := a.state.Request; !a.asking() || r != nil && r.visible() {
		return 0, false
	}
	since := a.last()
	interval := a.interval(since)
	if interval <= 0 || now.Sub(since) < interval {
		return 0, false
	}
	if a.conf.Interval.Auto {
		return max(interval, leastAnswer), true
	}
	return interval, true
}

// cadence is when the next checkpoint is asked for, and why then; nil where the agent never asks by itself. The caller holds
// mu.
func (a *Agent) cadence() *api.Cadence {
	if !a.asking() {
		return nil
	}
	since := a.last()
	interval := a.interval(since)
	c := &api.Cadence{IntervalS: interval.Seconds(), Why: a.why(since)}
	switch r := a.state.Request; {
	case r != nil && r.visible():
		c.Why = fmt.Sprintf("Request %d is open. %s", r.ID, c.Why)
	case interval > 0:
		c.DueAt = since.Add(interval)
	}
	return c
}

// why says what an interval comes from. The caller holds mu.
func (a *Agent) why(since time.Time) string {
	p := a.plan
	switch {
	case !a.conf.Interval.Auto:
		return "The interval is fixed."
	case p == nil:
		return "The interval is being computed."
	case p.schedule == nil && p.terms.Most > 0:
		return fmt.Sprintf("The longest interval is used: %v.", p.err)
	case p.schedule == nil:
		return fmt.Sprintf("There is no interval: %v.", p.err)
	}
	age, t, how := a.age(since), p.terms, "assumed"
	if len(a.state.Pace.Stalls) > 0 {
		how = "measured"
	}
	out := fmt.Sprintf("a checkpoint takes %s (%s) and is stored %s later; they are %s apart at least; an instance %s old is "+
		"interrupted %.3g times an hour, with time for a final checkpoint in %.3g %%", seconds(t.Stall), how, seconds(t.Lag), seconds(t.Least),
		age.Round(time.Second), p.hazard(age), 100*t.NoticeSuccess)
	if t.SpotUSDPerHour > 0 {
		out += fmt.Sprintf("; an hour costs %.4g $, %.4g $ to do it again, and storing a checkpoint %.2g $",
			t.SpotUSDPerHour, t.ReworkUSDPerHour, t.StorageUSD)
	}
	if n := a.state.Pace.Missed; n > 0 {
		out += fmt.Sprintf("; %d times as long, since %d requests were left without an answer", 1<<n, n)
	}
	if _, worth := p.schedule.Interval(age); !worth {
		if t.Most > 0 {
			out += fmt.Sprintf("; still, none is more than %s after the one before", t.Most)
		}
		return "No checkpoint is worth its time: " + out + "."
	}
	return "This wastes the least: " + out + "."
}

// cadenceFaults are the faults of what an automatic interval goes by.
func cadenceFaults(c api.AgentConfig) (errs []error) {
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Cadence == nil {
		return nil
	}
	if !c.Interval.Auto {
		fault(`cadence: is given with the interval %q, which is fixed: use "auto", or remove cadence`, c.Interval.Every)
	}
	k := *c.Cadence
	if k.MTBF < 0 || k.MTBF > 0 && time.Duration(k.MTBF) < time.Minute {
		fault("cadence.mtbf: %q is too short: give at least 1m, or 0s for %s", time.Duration(k.MTBF), defaultMTBF)
	}
	if k.HazardShape != 0 && !(k.HazardShape >= 0.2 && k.HazardShape <= 5) {
		fault("cadence.hazard_shape: %v is not from 0.2 to 5: give what a fit of up-times says, 1 for a hazard that does not "+
			"change with age, or 0 for %v", k.HazardShape, defaultShape)
	}
	if !(k.NoticeSuccess >= 0 && k.NoticeSuccess < 1) {
		fault("cadence.notice_success: %v is not from 0 to below 1: give the part of interruptions with time for a final "+
			"checkpoint, such as 0.7", k.NoticeSuccess)
	}
	if k.MaxInterval < 0 {
		fault("cadence.max_interval: %q is negative: give a duration, or 0s for none", time.Duration(k.MaxInterval))
	}
	for _, p := range []struct {
		name  string
		value float64
	}{{"spot_usd_per_hour", k.SpotUSD}, {"rework_usd_per_hour", k.ReworkUSD}, {"storage_usd_per_gb", k.StorageUSDOfGB}} {
		if !(p.value >= 0) || math.IsInf(p.value, 0) {
			fault("cadence.%s: %v is no price: give 0 or more", p.name, p.value)
		}
	}
	if (k.SpotUSD == 0) != (k.ReworkUSD == 0) {
		fault("cadence.spot_usd_per_hour, cadence.rework_usd_per_hour: %v and %v: give both, or neither", k.SpotUSD, k.ReworkUSD)
	}
	if k.StorageUSDOfGB > 0 && k.SpotUSD == 0 {
		fault("cadence.storage_usd_per_gb: %v without spot_usd_per_hour: give the price of the instance that it is weighed against",
			k.StorageUSDOfGB)
	}
	return errs
}
