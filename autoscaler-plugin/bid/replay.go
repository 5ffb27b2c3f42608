package bid

import (
	"fmt"
	"math"
	"time"
)

// Job is work with a deadline. Its checkpoints are what is left of an instance's work when it is lost.
type Job struct {
	Work       time.Duration
	Deadline   time.Duration // from the start
	Changeover time.Duration // from the launch of an instance until it makes progress; it is paid for
	Checkpoint time.Duration // work between two checkpoints
	Notice     bool          // a reclaim comes with a notice that is long enough for one more checkpoint
	DelayPrice float64       // see Situation
}

// Validate reports what is wrong with a job, and a deadline that on-demand cannot meet with the earliest that it can.
func (j Job) Validate() error {
	switch {
	case j.Work <= 0 || j.Changeover < 0 || j.Checkpoint < 0:
		return fmt.Errorf("job: work %v must be above 0, changeover %v and checkpoint %v at least 0",
			j.Work, j.Changeover, j.Checkpoint)
	case j.Deadline < j.Work+j.Changeover:
		return fmt.Errorf("job: %v of work and a changeover of %v cannot be done in %v; the earliest deadline is %v",
			j.Work, j.Changeover, j.Deadline, j.Work+j.Changeover)
	}
	return nil
}

// rework is the work that losing an instance costs on average.
func (j Job) rework() time.Duration {
	if j.Notice {
		return 0
	}
	return j.Checkpoint / 2
}

// Outcome is what came of a job.
type Outcome struct {
	Cost     float64       // in hours of on-demand
	Finish   time.Duration // from the start
	Reclaims int           // instances lost because the price rose above the bid
	Lost     time.Duration // work done again
	OnDemand time.Duration // time paid for on on-demand
	Spot     time.Duration // time paid for on spot
	Missed   bool          // the deadline was not met
}

// run is a job in progress. Times are in hours.
type run struct {
	job                                    Job
	work, deadline, changeover, checkpoint float64
	left                                   float64 // work
	mode                                   Verb
	bid                                    float64
	starting                               float64 // of the changeover that is left
	fresh                                  float64 // work since the last checkpoint
	out                                    Outcome
	spot, onDemand, lost                   float64
}

// Run replays a job that starts at a tick of a history. The strategy is asked at every tick at which the job is not on
// spot. A spot instance costs the market's price until it is reclaimed, or the job is done, or the deadline is at stake:
// no choice may make it impossible to finish in time on on-demand, whatever the price does and however much work is
// lost; then on-demand is taken whatever the strategy chooses (the safety net of Can't-Be-Late, NSDI'24, with lost work).
// Instances are billed by the second. Where the price is not known, there is no spot.
func (h *History) Run(start int, j Job, s Strategy) Outcome {
	r := run{
		job: j, work: j.Work.Hours(), deadline: j.Deadline.Hours(), changeover: j.Changeover.Hours(),
		checkpoint: j.Checkpoint.Hours(), left: j.Work.Hours(),
	}
	at := start
	situation := Situation{
		DelayPrice: j.DelayPrice, Changeover: j.Changeover, Rework: j.rework(),
		Forecast: func(horizon time.Duration, q float64) float64 { return h.forecast(at, horizon, q) },
	}
	tick := Tick.Hours()
	for now := 0.0; r.left > 0; at, now = at+1, float64(at+1-start)*tick {
		price := math.Inf(1)
		if at < len(h.prices) && !math.IsNaN(h.prices[at]) {
			price = h.prices[at]
		}
		if r.mode == Spot && price > r.bid {
			r.reclaim()
		}
		slack := r.deadline - now - r.left
		switch {
		case r.mode == Spot:
			if !r.safeOnSpot(slack, tick) {
				r.enter(OnDemand, 0)
			}
		case !r.safe(slack - tick):
			r.enter(OnDemand, 0)
		default:
			situation.Price, situation.OnDemand = price, r.mode == OnDemand
			situation.Done, situation.Work = hours(r.work-r.left), hours(r.left)
			situation.Elapsed, situation.Slack = hours(now), hours(slack)
			r.follow(s.Choose(situation), price)
		}
		r.pass(tick, now, price)
	}
	r.out.Lost, r.out.Spot, r.out.OnDemand = hours(r.lost), hours(r.spot), hours(r.onDemand)
	r.out.Missed = r.out.Finish > j.Deadline+time.Second
	return r.out
}

func hours(h float64) time.Duration { return time.Duration(h * float64(time.Hour)) }

// epsilon is what hours are rounded by.
const epsilon = 1e-9

// safe reports whether on-demand can still meet the deadline when so much slack is left.
func (r *run) safe(slack float64) bool { return slack >= r.changeover-epsilon }

// safeOnSpot reports whether the instance may be kept for one more tick, at whose end it may be lost.
func (r *run) safeOnSpot(slack, tick float64) bool {
	progress := max(0, tick-r.starting)
	if progress >= r.left {
		return true
	}
	slack -= tick - progress
	if !r.job.Notice {
		slack -= r.afterwards(progress)
	}
	return r.safe(slack)
}

// afterwards is the work since the last checkpoint after some more of it.
func (r *run) afterwards(progress float64) float64 {
	fresh := r.fresh + progress
	if fresh < r.checkpoint {
		return fresh
	}
	if r.checkpoint < epsilon {
		return 0
	}
	return math.Mod(fresh, r.checkpoint)
}

// follow does what a strategy chose, as far as the market lets it.
func (r *run) follow(a Action, price float64) {
	switch a.Verb {
	case OnDemand:
		r.enter(OnDemand, 0)
	case Wait:
		r.mode = Wait
	case Spot:
		if price <= a.Max { // else the request is not filled, and on-demand is kept where the job runs on it
			r.enter(Spot, a.Max)
		}
	}
}

// enter moves the job to another kind of instance. What it leaves is checkpointed before it ends.
func (r *run) enter(mode Verb, bid float64) {
	if mode == OnDemand && r.mode == OnDemand {
		return
	}
	r.mode, r.bid, r.starting, r.fresh = mode, bid, r.changeover, 0
}

// reclaim ends the spot instance.
func (r *run) reclaim() {
	if !r.job.Notice {
		r.left += r.fresh
		r.lost += r.fresh
	}
	r.mode, r.fresh = Wait, 0
	r.out.Reclaims++
}

// pass lets a tick pass, or what of it the job needs.
func (r *run) pass(tick, now, price float64) {
	if r.mode == Wait {
		return
	}
	used := tick
	if r.starting+r.left < tick {
		used = r.starting + r.left
	}
	overhead := min(r.starting, used)
	progress := used - overhead
	r.starting -= overhead
	r.fresh = r.afterwards(progress)
	r.left -= progress
	if r.left < epsilon {
		r.left = 0
		r.out.Finish = hours(now + used)
	}
	if r.mode == Spot {
		r.spot += used
		r.out.Cost += used * price
	} else {
		r.onDemand += used
		r.out.Cost += used
	}
}
