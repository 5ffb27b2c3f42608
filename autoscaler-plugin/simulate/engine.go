package simulate

import (
	"cmp"
	"errors"
	"io"
	"math"
	"slices"
	"time"

	"nomad-spotter/autoscaler-plugin/cost"
	"nomad-spotter/autoscaler-plugin/market"
)

// engine is one simulation in progress.
type engine struct {
	Config
	m         Market
	result    Result
	schedules map[scheduleKey]*schedule
	agenda    agenda
	live      []*run // in the order in which they are served
	due       []*run
	others    []int
	state     State
	serial    int

	change  market.Change // the next one; at forever after the last
	job     Job           // the next one
	more    bool          // there is a next job
	first   time.Duration // the first arrival
	checked *Spec         // the last one that was found without fault
	freed   bool          // capacity was given back in this moment
}

// Run simulates until all jobs have ended, or until nothing can happen any more. After the last change of the market it
// stands still as it was. The same config with the same seed gives the same result.
func Run(c Config) (Result, error) {
	if err := c.check(); err != nil {
		return Result{}, err
	}
	e := &engine{Config: c, schedules: map[scheduleKey]*schedule{}}
	e.m = Market{Offerings: c.Offerings, states: make([]offeringState, len(c.Offerings)), cheapest: Nowhere}
	e.m.schedule = e.schedule
	e.result.Offerings = make([]Used, len(c.Offerings))
	for i, o := range c.Offerings {
		e.m.limited = e.m.limited || o.Capacity > 0
		e.m.states[i] = offeringState{up: true, price: o.Price, lowest: math.Inf(1)}
	}
	if err := e.feed(); err != nil {
		return Result{}, err
	}
	if err := e.arrival(); err != nil {
		return Result{}, err
	}
	e.first = e.job.Arrive
	for {
		now := min(e.agenda.first(), e.arrives())
		if len(e.agenda) > 0 || e.more {
			now = min(now, e.change.At)
		}
		if now == forever {
			break
		}
		if err := e.moment(now); err != nil {
			return Result{}, err
		}
	}
	for len(e.live) > 0 {
		e.end(e.live[0].job, nil)
	}
	return e.result, nil
}

func (e *engine) arrives() time.Duration {
	if !e.more {
		return forever
	}
	return e.job.Arrive
}

// feed reads the next change of the market.
func (e *engine) feed() error {
	c, err := e.Market.Next()
	switch {
	case errors.Is(err, io.EOF):
		e.change.At = forever
		return nil
	case err != nil:
		return err
	}
	if err := e.checkChange(c); err != nil {
		return err
	}
	e.change = c
	return nil
}

// arrival reads the next job.
func (e *engine) arrival() error {
	last := e.job.Arrive
	e.job, e.more = e.Jobs.Next()
	if !e.more {
		return nil
	}
	e.result.Jobs++
	return e.checkJob(e.job, last)
}

// moment carries out all that happens at one time: what is finished, then the market, then arrivals, then decisions.
func (e *engine) moment(now time.Duration) error {
	e.m.Now = now
	e.freed = false
	for e.agenda.first() <= now {
		r := e.agenda[0]
		if r.finish <= now {
			e.end(r.job, r)
			continue
		}
		r.review = forever
		e.ask(r)
		r.plan()
		e.agenda.fix(r)
	}
	better := false
	for e.change.At <= now {
		better = e.apply(e.change) || better
		if err := e.feed(); err != nil {
			return err
		}
	}
	if c := e.m.least(); c != e.m.cheapest {
		e.m.cheapest, better = c, true
	}
	for e.more && e.job.Arrive <= now {
		e.admit(e.job)
		if err := e.arrival(); err != nil {
			return err
		}
	}
	e.decide(better || e.freed)
	if e.freed {
		e.freed = false
		e.decide(true)
	}
	return nil
}

// ask puts a run on the list of those that are decided on in this moment.
func (e *engine) ask(r *run) {
	if !r.due {
		r.due = true
		e.due = append(e.due, r)
	}
}

// least is the cheapest offering that is up.
func (m *Market) least() int {
	best, least := Nowhere, math.Inf(1)
	for i := range m.states {
		if p := m.states[i].price / m.speed(i); m.states[i].up && p < least {
			best, least = i, p
		}
	}
	return best
}

// apply makes a change of the market happen. It reports whether an offering came up.
func (e *engine) apply(c market.Change) bool {
	now, st := e.m.Now, &e.m.states[c.Offering]
	e.result.Changes++
	e.result.Market = now
	st.paid, st.paidAt = st.spent(now), now
	if !math.IsNaN(c.Price) {
		st.price = c.Price
	}
	if e.Observe != nil {
		e.Observe(&e.m, c)
	}
	came := c.Up && !st.up
	if c.Up != st.up {
		if st.up {
			st.upFor += now - st.since
		}
		st.up, st.since = c.Up, now
	}
	switch {
	case !st.up && e.Offerings[c.Offering].Kind == cost.Spot:
		for len(st.runs) > 0 {
			e.interrupt(st.runs[len(st.runs)-1])
		}
		st.lowest = math.Inf(1)
	case st.price > st.lowest:
		st.lowest = math.Inf(1)
		for i := len(st.runs) - 1; i >= 0; i-- {
			if r := st.runs[i]; r.maxPrice < st.price {
				e.interrupt(r)
			}
		}
		for _, r := range st.runs {
			st.lowest = min(st.lowest, r.maxPrice)
		}
	}
	return came
}

func (e *engine) interrupt(r *run) {
	e.leave(r, Interrupted)
	r.review = forever
	e.reschedule(r)
	e.ask(r)
}

func (e *engine) reschedule(r *run) {
	r.plan()
	e.agenda.fix(r)
}

// admit takes a job in.
func (e *engine) admit(j Job) {
	a := &active{Ended: Ended{Job: j}, placer: e.Place(j, &e.m)}
	a.rng.Seed(e.Seed, uint64(j.ID))
	for i := range j.replicas() {
		r := &run{
			job: a, replica: i, serial: e.serial, at: Nowhere, since: e.m.Now, left: j.Work, finish: forever, review: forever,
			next: forever, firstSave: forever, origin: Nowhere, maxPrice: math.Inf(1),
		}
		e.serial++
		a.runs = append(a.runs, r)
		e.agenda.add(r)
		i, _ := slices.BinarySearchFunc(e.live, r, serve)
		e.live = slices.Insert(e.live, i, r)
		e.ask(r)
	}
}

// serve is the order in which runs are decided on: by priority, then first come, first served.
func serve(a, b *run) int {
	return cmp.Or(cmp.Compare(b.job.Priority, a.job.Priority), cmp.Compare(a.serial, b.serial))
}

// end ends a job: by the replica that finished it, or without one.
func (e *engine) end(a *active, winner *run) {
	now := e.m.Now
	for _, r := range a.runs {
		how := Stopped
		switch {
		case r == winner:
			how = Finished
			a.Untouched = !r.touched
		case winner == nil:
			how = Unfinished
		}
		e.leave(r, how)
		if r.saves > 0 {
			a.Usage.Storage.ByteHours += a.Checkpoint.Kept(r.saves) * (now - r.firstSave).Hours()
		}
		e.agenda.remove(r)
		i, _ := slices.BinarySearchFunc(e.live, r, serve)
		e.live = slices.Delete(e.live, i, i+1)
	}
	a.At, a.Finished = now, winner != nil
	a.Late = !a.Finished || a.Deadline > 0 && now > a.Arrive+a.Deadline
	a.Usage.Interruptions = float64(a.Interruptions)
	a.Usage.OnDemandHours = (a.Work + a.Changeover).Hours() * float64(a.ranks())
	e.result.Makespan = now - e.first
	e.result.add(&a.Ended)
	if e.Done != nil {
		e.Done(a.Ended)
	}
	e.due = slices.DeleteFunc(e.due, func(r *run) bool { return r.job == a })
}

// decide asks the placers of the runs that are due, and of all that watch when the market got better.
func (e *engine) decide(all bool) {
	if all {
		for _, r := range e.live {
			if r.watch || r.due {
				e.place(r)
			}
		}
	} else {
		slices.SortFunc(e.due, serve)
		for _, r := range e.due {
			e.place(r)
		}
	}
	e.due = e.due[:0]
}

// place asks a run's placer and does what it says.
func (e *engine) place(r *run) {
	r.due = false
	now := e.m.Now
	e.result.Decisions++
	s := &e.state
	*s = State{Job: r.job.Job, Replica: r.replica, Offering: r.at, Since: r.since, Left: r.left}
	if r.at != Nowhere {
		age, speed := r.age(now), e.m.speed(r.at)
		worked := r.table.worked(age)
		s.Left = max(r.left-scaled(worked, speed), 0)
		s.Safe = forever
		if e.Offerings[r.at].Kind == cost.Spot {
			risk, safe := r.table.risk(age)
			s.Risk = r.job.Work
			if risk < forever {
				s.Risk, s.Safe = min(scaled(risk, speed), r.job.Work), r.since+safe
			}
		}
		s.Start = max(r.table.start-age, 0)
	}
	e.others = e.others[:0]
	for _, o := range r.job.runs {
		if o != r && o.at != Nowhere {
			e.others = append(e.others, o.at)
		}
	}
	s.Others = e.others
	p := r.job.placer.Place(s, &e.m)
	r.watch, r.review = p.Watch, forever
	if p.Review > now {
		r.review = p.Review
	}
	limit := e.limit(r, p)
	if p.Offering != Nowhere && (!e.m.Usable(p.Offering, s) || e.m.Price(p.Offering) > limit) {
		p.Offering, r.watch = Nowhere, true
	}
	if p.Offering == Nowhere && r.since == now {
		r.reason = p.Reason
	}
	if p.Offering != r.at {
		how := Moved
		if r.at == Nowhere {
			how = Started
		}
		e.leave(r, how)
		r.maxPrice, r.reason = limit, p.Reason
		if p.Offering != Nowhere {
			e.launch(r, p.Offering)
		}
	}
	e.reschedule(r)
}

// limit is the price above which a run loses its instances.
func (e *engine) limit(r *run, p Placement) float64 {
	limit := cmp.Or(p.MaxPrice, r.job.MaxPrice)
	if limit == 0 || p.Offering == Nowhere || e.Offerings[p.Offering].Kind != cost.Spot {
		return math.Inf(1)
	}
	return limit
}
