// Package notice watches a cloud's metadata service for the word that this instance will be taken away. Each cloud is
// one file that implements Source; recorded answers are in testdata/<cloud>/.
//
// A Source only tells what the cloud said. It never decides anything, never talks to Nomad and never touches a task:
// package evacuate does.
package notice

import (
	"context"
	"fmt"
	"time"
)

// Kind classifies an Event.
type Kind string

// Kinds of events.
const (
	KindInterruption Kind = "interruption" // the instance will be taken away
	KindWithdrawn    Kind = "withdrawn"    // it will not, after all
	KindRebalance    Kind = "rebalance"    // it is at elevated risk: checkpoint now, do not move
	KindHealth       Kind = "health"       // the watch started, was lost, or works again
)

// Actions of an interruption, as EC2 names them. Other clouds map theirs onto these.
const (
	ActionTerminate = "terminate"
	ActionStop      = "stop"
	ActionHibernate = "hibernate" // starts at once: there is no notice time
)

// Event is one thing that a Source has to tell.
type Event struct {
	Kind   Kind
	Source string // name of the source, such as "ec2"
	Action string // of an interruption: what happens to the instance
	Seen   time.Time
	// Deadline is when the interruption begins, on this machine's clock. Zero means that the cloud gives no time: it may
	// begin at any moment.
	Deadline time.Time
	Health   Health // of a KindHealth event
}

// Health is whether a Source can be relied on.
type Health struct {
	Off      bool      // no source is configured: nothing is watched and nothing can be lost
	Watching bool      // the last poll was answered
	LastOK   time.Time // last answered poll; zero means none yet
	Detail   string    // why it is not watching
}

// String describes the health for an operator, for example "watching, last poll ok" or "not watching: …".
func (h Health) String() string {
	switch {
	case h.Off:
		return "off"
	case h.Watching:
		return "watching, last poll ok"
	case h.Detail != "":
		return "not watching: " + h.Detail
	default:
		return "not watching"
	}
}

// Source watches one metadata service.
type Source interface {
	// Name is the source's name in the configuration.
	Name() string
	// Watch polls until ctx is done and calls emit, from this goroutine only, for every event. An interruption is
	// emitted once (again only when its deadline moves nearer), a withdrawal once. When one poll brings an interruption
	// and the first sign of health, the interruption comes first. emit must not block for long.
	Watch(ctx context.Context, emit func(Event))
	// Health is the state of the watch at this moment; it does not block.
	Health() Health
}

// Left says how much time an interruption leaves at now, for a task event: "118 s left", or that there is no notice.
func (e Event) Left(now time.Time) string {
	if e.Deadline.IsZero() {
		return "no time given, it may begin at any moment"
	}
	return fmt.Sprintf("%d s left", max(0, int64(e.Deadline.Sub(now).Round(time.Second)/time.Second)))
}
