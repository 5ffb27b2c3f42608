package simulate

import (
	"math"
	"math/rand/v2"
	"time"

	"nomad-spotter/autoscaler-plugin/cost"
)

// active is a job that has arrived and not ended.
type active struct {
	Ended
	placer Placer
	rng    rand.PCG
	runs   []*run
}

// run is one replica of an active job.
type run struct {
	job     *active
	replica int
	serial  int // order of arrival
	next    time.Duration
	place   int // in the agenda

	at       int // offering; Nowhere: it waits
	since    time.Duration
	left     time.Duration // work left at since
	began    float64       // $ that one instance of the offering had cost up to since
	maxPrice float64       // $/h
	table    *schedule
	finish   time.Duration // forever while it waits
	review   time.Duration
	watch    bool
	due      bool // to be decided on in this moment
	reason   string
	index    int // among the offering's runs

	launches  int
	touched   bool          // it was interrupted
	firstSave time.Duration // when its first checkpoint was complete; forever: never
	saves     int
	origin    int // offering of its newest checkpoint; Nowhere: there is none
}

// chance draws a number from 0 to 1. Draws depend on the seed and the job alone.
func (a *active) chance() float64 { return float64(a.rng.Uint64()>>11) / (1 << 53) }

// plan sets the time of the run's next event.
func (r *run) plan() { r.next = min(r.finish, r.review) }

// age is how long the run has been on its instances.
func (r *run) age(now time.Duration) time.Duration { return now - r.since }

// scaled is a time at a speed.
func scaled(d time.Duration, speed float64) time.Duration {
	if speed == 1 {
		return d
	}
	return time.Duration(float64(d) * speed)
}

// needed is the time that work takes at a speed, rounded up.
func needed(work time.Duration, speed float64) time.Duration {
	if speed == 1 {
		return work
	}
	return time.Duration(math.Ceil(float64(work) / speed))
}

// scheduleKey is what a schedule depends on.
type scheduleKey struct {
	rhythm     *Rhythm
	changeover time.Duration
	checkpoint Checkpoint
}

// schedule returns the checkpoints of a kind of job on an instance of an offering that is launched now.
func (e *engine) schedule(s *Spec, offering int) *schedule {
	key := scheduleKey{changeover: s.Changeover, checkpoint: s.Checkpoint}
	if s.Checkpoint.Interval == 0 && e.Cadence != nil {
		key.rhythm = e.Cadence(s, offering)
	}
	if t := e.schedules[key]; t != nil {
		return t
	}
	t := &schedule{start: s.Changeover, stall: s.Checkpoint.Stall, lag: s.Checkpoint.Lag()}
	switch {
	case s.Checkpoint.Interval > 0:
		t.interval = func(time.Duration) time.Duration { return s.Checkpoint.Interval }
	case key.rhythm != nil:
		t.interval = key.rhythm.Interval
	default:
		t.ended = true
	}
	e.schedules[key] = t
	return t
}

// share is the part of a full checkpoint that one adds.
func (c Checkpoint) share() float64 {
	if c.Share > 0 {
		return c.Share
	}
	return 1
}

// Lag is the time from the end of a checkpoint's stall until it is durable.
func (c Checkpoint) Lag() time.Duration {
	if c.Bandwidth <= 0 {
		return 0
	}
	return time.Duration(c.Bytes * c.share() / c.Bandwidth * float64(time.Second))
}

// Kept is how many bytes are in the store after so many checkpoints: one full one, and what the others add.
func (c Checkpoint) Kept(saves int) float64 {
	n := min(saves, max(c.Keep, 1))
	if n == 0 {
		return 0
	}
	return c.Bytes * (1 + float64(n-1)*c.share())
}

// launch puts a run on an offering.
func (e *engine) launch(r *run, offering int) {
	now := e.m.Now
	st := &e.m.states[offering]
	spec := r.job.Spec
	r.at, r.since, r.began = offering, now, st.spent(now)
	r.table = e.schedule(spec, offering)
	r.finish = now + r.table.finish(needed(r.left, e.m.speed(offering)))
	r.index = len(st.runs)
	st.runs = append(st.runs, r)
	st.used += spec.ranks()
	st.lowest = min(st.lowest, r.maxPrice)
	r.launches++
	r.job.Launches++
	e.result.Offerings[offering].Launches++
	if r.origin != Nowhere {
		r.job.Usage.Storage.Reads++
		if e.m.Offerings[r.origin].Key.Region != e.m.Offerings[offering].Key.Region {
			r.job.Usage.Storage.EgressBytes += spec.Checkpoint.Bytes
		}
	}
}

// leave takes a run off its offering, or out of the queue, and accounts for its stay.
func (e *engine) leave(r *run, end End) {
	now := e.m.Now
	stay := Stay{
		Job: r.job.Name, ID: r.job.ID, Replica: r.replica, Offering: r.at, From: r.since, To: now,
		Work: r.left, Left: r.left, Working: now, Reason: r.reason, End: end,
	}
	if r.at == Nowhere {
		r.job.Waited += now - r.since
	} else {
		e.settle(r, end, &stay)
	}
	r.at, r.since, r.finish = Nowhere, now, forever
	if e.Record != nil && (stay.To > stay.From || end == Finished) {
		e.Record(stay)
	}
}

// settle accounts for the time that a run had an instance.
func (e *engine) settle(r *run, end End, stay *Stay) {
	now, at := e.m.Now, r.at
	st, job := &e.m.states[at], r.job
	ranks := float64(job.ranks())
	age, speed := r.age(now), e.m.speed(at)
	worked := r.table.worked(age)
	kept, saves := worked, r.table.saved(age)
	var extra time.Duration // paid after now: the last checkpoint of a run that is moved
	switch end {
	case Interrupted:
		if n := job.Checkpoint.Notice; n > 0 && job.chance() < n && worked > 0 {
			saves++
		} else {
			kept = r.table.durable(age)
		}
		r.touched = true
		job.Interruptions++
		e.result.Offerings[at].Interruptions++
	case Moved:
		job.Moves++
		if worked > 0 {
			extra = job.Checkpoint.Stall
			saves++
		}
	case Finished:
		kept = needed(r.left, speed)
	case Stopped, Started, Unfinished:
	}
	lost := worked - kept
	first := min(age, r.table.start)
	hours := (age + extra).Hours() * ranks
	paid := (st.spent(now) - r.began + st.price*extra.Hours()) * ranks
	if e.m.Offerings[at].Kind == cost.Reserved {
		paid = 0
	}
	kind := e.m.Offerings[at].Kind
	part := func(h *cost.Hours, told *float64, d time.Duration) {
		if d > 0 {
			share := d.Hours() * ranks / hours
			h.Of(kind).Add(cost.Bought{Hours: share * hours, Cost: share * paid})
			*told += share * paid
		}
	}
	// The first start of a replica is part of its work: on demand it takes as long.
	if r.launches == 1 {
		part(&job.Usage.Work, &stay.Training, first)
	} else {
		part(&job.Usage.Recovery, &stay.Recovery, first)
	}
	part(&job.Usage.Work, &stay.Training, kept)
	part(&job.Usage.Recovery, &stay.Recovery, lost)
	part(&job.Usage.Stall, &stay.Stalls, age-first-worked+extra)
	e.result.Offerings[at].Bought.Add(cost.Bought{Hours: hours, Cost: paid})

	if saves > 0 {
		if r.firstSave == forever {
			r.firstSave = now
			if len(r.table.begins) > 0 {
				r.firstSave = min(now, r.since+r.table.begins[0]+r.table.stall)
			}
		}
		r.saves += saves
		r.origin = at
		job.Usage.Storage.Writes += float64(saves)
	}
	stay.Working, stay.Cost, stay.Lost = r.since+first, paid, scaled(lost, speed)
	job.Lost += stay.Lost
	r.left = max(r.left-scaled(kept, speed), 0)
	if end == Finished {
		r.left = 0
	}
	stay.Left = r.left

	last := len(st.runs) - 1
	st.runs[r.index] = st.runs[last]
	st.runs[r.index].index = r.index
	st.runs[last] = nil
	st.runs = st.runs[:last]
	st.used -= job.ranks()
	if e.m.Offerings[at].Capacity > 0 {
		e.freed = true
	}
}

// replicas is how many replicas a job has.
func (s *Spec) replicas() int { return max(s.Replicas, 1) }

// spent is what one instance would have cost from time 0 to now.
func (s *offeringState) spent(now time.Duration) float64 {
	return s.paid + s.price*(now-s.paidAt).Hours()
}
