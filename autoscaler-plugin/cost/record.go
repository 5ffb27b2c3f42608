package cost

import (
	"cmp"
	"slices"
	"time"

	"nomad-spotter/autoscaler-plugin/market"
)

// Record is what is known of a job, or of a pool, that runs or has ended.
type Record struct {
	Instances   []Instance
	Checkpoints []Checkpoint // in any order
	// InStep says that the instances train as one: a checkpoint is of all of them, and an interruption of one sets back
	// all that run, and makes them wait for its replacement. Else a checkpoint is of the instance that it names, and an
	// interruption sets back that instance.
	InStep bool
}

// Instance is the record of one machine.
type Instance struct {
	ID          string
	Kind        Kind
	Price       market.Series // per hour
	Launched    time.Time
	Ready       time.Time // training began or went on; zero: not known, or not yet
	Ended       time.Time // zero: it still runs
	Replaces    string    // ID of the interrupted one that it was launched for: the time until it is ready is recovery
	Interrupted bool      // it was taken away
}

// end is the time up to which an instance is paid for.
func (i Instance) end(now time.Time) time.Time {
	if i.Ended.IsZero() || i.Ended.After(now) {
		return now
	}
	return i.Ended
}

// Bought is what an instance has cost until now.
func (i Instance) Bought(now time.Time) Bought {
	var b Bought
	b.BuySpan(i.Price, i.Launched, i.end(now))
	return b
}

// Checkpoint is the record of one checkpoint.
type Checkpoint struct {
	Instance    string        // whose it is; not read where instances train in step
	At          time.Time     // of the training state that it holds: what was trained later is lost without a newer one
	Stall       time.Duration // that training stood still from At on
	Bytes       float64       // that it added to the store
	Stored      time.Time     // durable, and paid for, since; zero: never, or not yet
	Removed     time.Time     // zero: it is kept
	Writes      float64       // requests
	Reads       float64       // requests of the restores from it
	EgressBytes float64       // sent to where it is paid for
}

// span is a time on an instance.
type span struct{ from, to time.Time }

// Usage is what the record has used until now. Every paid hour counts once: as recovery where an interruption undid it or a
// replacement was starting, else as stall, else as work. The work is measured against the same hours on demand. Where no
// checkpoint was durable at an interruption, all that an instance trained is lost.
func (r Record) Usage(now time.Time) Usage {
	var u Usage
	for n, i := range r.Instances {
		if i.interrupted(now) {
			u.Interruptions++
		}
		whole := i.Bought(now)
		recovery := r.recovery(n, now)
		var undone, still Bought
		for _, s := range recovery {
			undone.BuySpan(i.Price, s.from, s.to)
		}
		for _, s := range subtract(r.stalls(n, now), recovery) {
			still.BuySpan(i.Price, s.from, s.to)
		}
		u.Recovery.Of(i.Kind).Add(undone)
		u.Stall.Of(i.Kind).Add(still)
		work := Bought{
			Hours:    whole.Hours - undone.Hours - still.Hours,
			Cost:     whole.Cost - undone.Cost - still.Cost,
			Unpriced: whole.Unpriced - undone.Unpriced - still.Unpriced,
		}
		u.Work.Of(i.Kind).Add(work)
		u.OnDemandHours += work.Hours
	}
	for _, c := range r.Checkpoints {
		if c.Stored.IsZero() || c.Stored.After(now) {
			continue
		}
		end := now
		if !c.Removed.IsZero() && c.Removed.Before(now) {
			end = c.Removed
		}
		u.Storage.Add(Storage{
			ByteHours: c.Bytes * max(0, end.Sub(c.Stored).Hours()),
			Writes:    c.Writes, Reads: c.Reads, EgressBytes: c.EgressBytes,
		})
	}
	return u
}

// recovery returns the spans of an instance that interruptions cost.
func (r Record) recovery(n int, now time.Time) []span {
	i := r.Instances[n]
	end := i.end(now)
	var spans []span
	start := i.Launched // of the training
	if !i.Ready.IsZero() {
		start = i.Ready
	}
	if i.Replaces != "" {
		spans = append(spans, span{i.Launched, i.goesOn(now)})
	}
	for m, o := range r.Instances {
		if !o.interrupted(now) || (m != n && !r.InStep) || o.Ended.Before(i.Launched) || o.Ended.After(end) {
			continue
		}
		lost := start
		for _, c := range r.Checkpoints {
			durable := !c.Stored.IsZero() && !c.Stored.After(o.Ended)
			if durable && (r.InStep || c.Instance == i.ID) && c.At.After(lost) {
				lost = c.At
			}
		}
		spans = append(spans, span{lost, r.goesOn(o, now)})
	}
	return union(clip(spans, i.Launched, end))
}

// interrupted says whether an instance has been taken away by now.
func (i Instance) interrupted(now time.Time) bool {
	return i.Interrupted && !i.Ended.IsZero() && !i.Ended.After(now)
}

// goesOn is when training begins on an instance; now, if it has not yet.
func (i Instance) goesOn(now time.Time) time.Time {
	if i.Ready.IsZero() {
		return i.end(now)
	}
	return i.Ready
}

// goesOn is when training goes on after an interruption: at once, or when the replacement is ready if that is later.
func (r Record) goesOn(o Instance, now time.Time) time.Time {
	at := o.Ended
	for _, i := range r.Instances {
		if i.Replaces == o.ID && i.goesOn(now).After(at) {
			at = i.goesOn(now)
		}
	}
	return at
}

// stalls returns the spans for which an instance's training stood still.
func (r Record) stalls(n int, now time.Time) []span {
	i := r.Instances[n]
	var spans []span
	for _, c := range r.Checkpoints {
		if c.Stall > 0 && (r.InStep || c.Instance == i.ID) {
			spans = append(spans, span{c.At, c.At.Add(c.Stall)})
		}
	}
	return union(clip(spans, i.Launched, i.end(now)))
}

// clip returns what of spans lies between two times.
func clip(spans []span, from, to time.Time) []span {
	var out []span
	for _, s := range spans {
		if s.from.Before(from) {
			s.from = from
		}
		if s.to.After(to) {
			s.to = to
		}
		if s.from.Before(s.to) {
			out = append(out, s)
		}
	}
	return out
}

// union joins spans that overlap and orders them.
func union(spans []span) []span {
	slices.SortFunc(spans, func(a, b span) int { return cmp.Or(a.from.Compare(b.from), a.to.Compare(b.to)) })
	var out []span
	for _, s := range spans {
		if last := len(out) - 1; last >= 0 && !s.from.After(out[last].to) {
			if s.to.After(out[last].to) {
				out[last].to = s.to
			}
			continue
		}
		out = append(out, s)
	}
	return out
}

// subtract returns what of one union lies outside another.
func subtract(spans, holes []span) []span {
	var out []span
	for _, s := range spans {
		for _, h := range holes {
			if !h.to.After(s.from) || !h.from.Before(s.to) {
				continue
			}
			if s.from.Before(h.from) {
				out = append(out, span{s.from, h.from})
			}
			s.from = h.to
		}
		if s.from.Before(s.to) {
			out = append(out, s)
		}
	}
	return out
}
