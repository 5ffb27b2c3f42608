package evacuate

import (
	"time"

	"nomad-spotter/driver/nomad"
)

// Cause is what an evacuation answers to.
type Cause int

// Causes.
const (
	CauseNotice Cause = iota // the cloud takes the instance away
	CauseDrain               // an operator drains the node
)

// Notice is an interruption in force.
type Notice struct {
	Action   string
	Seen     time.Time
	Deadline time.Time // zero: it may begin at any moment
}

// Threat is what the node is evacuated for: a notice, a drain, or both in one.
type Threat struct {
	Cause    Cause
	Action   string    // of a notice
	Since    time.Time // when this driver learned of it
	Deadline time.Time // zero means none known
	Force    bool      // Nomad stops everything by itself, now
	// IgnoreSystemJobs is set by a drain that leaves system jobs alone.
	IgnoreSystemJobs bool
}

// Merge makes one threat of what is in force. A notice outweighs a drain, for the instance goes away with all that is on
// it; the earlier deadline counts. drainSeen is when this driver learned of the drain.
func Merge(n *Notice, d nomad.Drain, drainSeen time.Time) (Threat, bool) {
	switch {
	case n == nil && !d.Active:
		return Threat{}, false
	case n == nil:
		return Threat{
			Cause:            CauseDrain,
			Since:            drainSeen,
			Deadline:         d.Deadline,
			Force:            d.Force,
			IgnoreSystemJobs: d.IgnoreSystemJobs,
		}, true
	}
	t := Threat{Cause: CauseNotice, Action: n.Action, Since: n.Seen, Deadline: n.Deadline}
	if d.Active && !d.Deadline.IsZero() && !t.Deadline.IsZero() && d.Deadline.Before(t.Deadline) {
		t.Deadline = d.Deadline
	}
	return t, true
}

// Limits are the operator's settings.
type Limits struct {
	Margin            time.Duration // containers are stopped this long before the deadline
	CheckpointTimeout time.Duration // budget of a checkpoint when there is no deadline
}

// maxGrace is how long Nomad has, at the most, to stop a task whose allocation was stopped, before the driver does.
const maxGrace = 2 * time.Second

// margin is the operator's margin, but at most a quarter of the time there was when the threat was seen, so that a short
// notice is spent on the checkpoint: with 10 s of margin, a notice of 120 s keeps 10 s, one of 30 s keeps 7.5 s.
func (l Limits) margin(t Threat) time.Duration {
	return max(0, min(l.Margin, t.Deadline.Sub(t.Since)/4))
}

// StopAt is when a task that this evacuation has known since then must be let go. Without a deadline it is given the
// checkpoint timeout.
func (l Limits) StopAt(t Threat, since time.Time) time.Time {
	if t.Deadline.IsZero() {
		return since.Add(l.CheckpointTimeout)
	}
	return t.Deadline.Add(-l.margin(t))
}

// EndAt is when the driver stops a task by itself although Nomad was told to.
func (l Limits) EndAt(t Threat, since time.Time) time.Time {
	grace := maxGrace
	if !t.Deadline.IsZero() {
		grace = min(grace, l.margin(t)/4)
	}
	return l.StopAt(t, since).Add(grace)
}

// askAt is when a task is asked for its final checkpoint: at once. A task of a system job has nowhere to go, so it runs
// as long as its checkpoint can still be made: CheckpointTimeout before the end, or half of the time there is.
func (l Limits) askAt(t Threat, since time.Time, system bool) time.Time {
	if !system {
		return since
	}
	stop := l.StopAt(t, since)
	return stop.Add(-min(l.CheckpointTimeout, stop.Sub(since)/2))
}
