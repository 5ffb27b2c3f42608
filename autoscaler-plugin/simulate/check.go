package simulate

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"nomad-spotter/autoscaler-plugin/cost"
	"nomad-spotter/autoscaler-plugin/market"
)

// check reports all faults of a config at once.
func (c *Config) check() error {
	var faults []error
	if c.Market == nil || c.Jobs == nil || c.Place == nil {
		faults = append(faults, errors.New("market, jobs and place must be given"))
	}
	faults = append(faults, CheckOfferings(c.Offerings)...)
	if len(faults) > 0 {
		return fmt.Errorf("simulate: %w", errors.Join(faults...))
	}
	return nil
}

// Bounds of what can be computed: more was mistyped, or fills the memory.
const (
	MostPrice       = 1e6 // $/h of one instance
	mostCheckpoints = 1_000_000
)

// CheckOfferings returns the faults of a pool, each with its field.
func CheckOfferings(offerings []Offering) []error {
	var faults []error
	add := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if len(offerings) == 0 {
		add("offering: none given; a pool needs at least one")
	}
	for _, o := range offerings {
		at := fmt.Sprintf("offering %q", o.Name)
		if !(o.Price >= 0 && o.Price <= MostPrice) {
			add("%s: price: %v is outside 0 to %v; give $/h of one instance", at, o.Price, float64(MostPrice))
		}
		if !(o.Speed >= 0) || math.IsInf(o.Speed, 0) {
			add("%s: speed: %v is no speed; give a number above 0, or leave it out for 1", at, o.Speed)
		}
		if o.Capacity < 0 {
			add("%s: capacity: %d is negative; give 1 or more, or leave it out for any number", at, o.Capacity)
		}
		if !slices.Contains([]cost.Kind{cost.Spot, cost.OnDemand, cost.Reserved}, o.Kind) {
			add("%s: kind: %q is unknown; give %q, %q or %q", at, o.Kind, cost.Spot, cost.OnDemand, cost.Reserved)
		}
		if o.Kind == cost.Reserved && o.Capacity == 0 {
			add("%s: capacity: missing; say how many instances are reserved", at)
		}
	}
	return faults
}

// Check returns the faults of a kind of job on a pool, each with its field, the value found and what to do. A deadline that
// cannot be met is told with the earliest one that can.
func (s *Spec) Check(offerings []Offering) []error {
	var faults []error
	add := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf("job %q: "+format, append([]any{s.Name}, args...)...))
	}
	if s.Work <= 0 {
		add("work: %v is not above 0; give the hours of training, such as \"48h\"", s.Work)
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"deadline", s.Deadline}, {"changeover", s.Changeover}, {"stall", s.Checkpoint.Stall}, {"interval", s.Checkpoint.Interval}} {
		if d.value < 0 {
			add("%s: %v is negative; give 0 or more", d.name, d.value)
		}
	}
	c := s.Checkpoint
	switch n := s.Work / max(c.Interval, minInterval); {
	case c.Interval > 0 && c.Interval < minInterval:
		add("interval: %v is below %v; give a longer one", c.Interval, minInterval)
	case c.Interval > 0 && n > mostCheckpoints:
		add("interval: %v makes %d checkpoints of %v of work, which is more than %d; give at least %v", c.Interval, n, s.Work,
			mostCheckpoints, (s.Work/mostCheckpoints).Round(time.Second)+time.Second)
	}
	for _, v := range []struct {
		name  string
		value float64
		most  float64
	}{
		{"checkpoint size", c.Bytes, math.MaxFloat64},
		{"incremental share", c.Share, 1},
		{"bandwidth", c.Bandwidth, math.MaxFloat64},
		{"notice_success", c.Notice, 1},
		{"max_price_usd_per_hour", s.MaxPrice, math.MaxFloat64},
	} {
		if !(v.value >= 0 && v.value <= v.most) {
			add("%s: %v is outside 0 to %.4g", v.name, v.value, v.most)
		}
	}
	if c.Keep < 0 || s.Ranks < 0 || s.Replicas < 0 {
		add("keep, ranks, replicas: %d, %d, %d: none may be negative; leave them out for 1", c.Keep, s.Ranks, s.Replicas)
	}
	if len(faults) > 0 {
		return faults
	}
	if at, ok := s.Earliest(offerings); !ok {
		add("ranks: no offering may have %d instances; raise a capacity or lower ranks", s.ranks())
	} else if s.Deadline > 0 && s.Deadline < at {
		add("deadline: %v cannot be met: the work takes %v even if it starts at once and is never interrupted; give at least %v",
			s.Deadline, at, at)
	}
	if places := s.domains(offerings); places < s.replicas() {
		add("replicas: %d need as many places of their own, the pool has %d; lower replicas or add offerings", s.replicas(), places)
	}
	return faults
}

// Earliest is when a job can be finished at best, after its arrival: on the fastest offering, if that is there at once and
// stays; false if no offering has room for it. Checkpoints count where the job has an interval of its own.
func (s *Spec) Earliest(offerings []Offering) (time.Duration, bool) {
	earliest, found := forever, false
	for i, o := range offerings {
		if o.Capacity > 0 && o.Capacity < s.ranks() {
			continue
		}
		t := (&engine{schedules: map[scheduleKey]*schedule{}}).schedule(s, i)
		m := Market{Offerings: offerings}
		earliest, found = min(earliest, t.finish(needed(s.Work, m.speed(i)))), true
	}
	return earliest, found
}

// domains is how many places there are that replicas may have for themselves.
func (s *Spec) domains(offerings []Offering) int {
	seen := map[market.Key]bool{}
	for _, o := range offerings {
		k := market.Key{Region: o.Key.Region}
		if s.Apart == ByZone {
			k.Zone = o.Key.Zone
		}
		seen[k] = true
	}
	return len(seen)
}

// checkChange refuses what no market does.
func (e *engine) checkChange(c market.Change) error {
	switch {
	case c.Offering < 0 || c.Offering >= len(e.Offerings):
		return fmt.Errorf("simulate: market: offering %d at %v, but there are %d; the feed must have those of the pool, in their order",
			c.Offering, c.At, len(e.Offerings))
	case c.At < e.change.At:
		return fmt.Errorf("simulate: market: offering %q: %v comes after %v; changes must be in the order of their times",
			e.Offerings[c.Offering].Name, c.At, e.change.At)
	case c.Price < 0 || math.IsInf(c.Price, 0):
		return fmt.Errorf("simulate: market: offering %q at %v: price %v is no price; give 0 or more",
			e.Offerings[c.Offering].Name, c.At, c.Price)
	}
	return nil
}

// checkJob refuses a job that cannot be run. after is the arrival of the job before it.
func (e *engine) checkJob(j Job, after time.Duration) error {
	if j.Arrive < after {
		return fmt.Errorf("simulate: job %q: it arrives at %v, after one that arrives at %v; sort the jobs", j.Name, j.Arrive, after)
	}
	if j.Spec == e.checked {
		return nil
	}
	e.checked = j.Spec
	if faults := j.Check(e.Offerings); len(faults) > 0 {
		return fmt.Errorf("simulate: %w", errors.Join(faults...))
	}
	return nil
}
