// Package evacuate moves the tasks of this driver off a node that is about to be taken away: it asks every task for a
// last checkpoint, keeps new work away, moves each allocation as soon as its checkpoint is durable, and stops what is
// left before the deadline.
//
// Plan decides, from values; Runner carries the decisions out and owns the goroutines. Neither knows containers, agents
// or HTTP: they reach tasks through Task and Nomad through Cluster.
package evacuate

import (
	"context"
	"time"

	"nomad-spotter/checkpointer/api"
	"nomad-spotter/driver/nomad"
)

// ExitCode is the exit code of a task that is ended so that Nomad reschedules it elsewhere (EX_TEMPFAIL of sysexits.h).
// It must not be 0: a batch task that exits 0 is complete.
const ExitCode = 75

// Final is how far the final checkpoint of a task is.
type Final int

// States of the final checkpoint.
const (
	FinalNone    Final = iota // not asked for, or withdrawn
	FinalOpen                 // asked for, not yet durable
	FinalDurable              // durable, and the task has not trained since
)

// TaskState is what the driver knows about one of its running tasks.
type TaskState struct {
	ID        string // Nomad's task ID, unique per start
	AllocID   string
	Namespace string
	JobType   string // "service", "batch", "system", "sysbatch"; empty when unknown

	Running     bool  // the container runs
	Stopping    bool  // Nomad has called StopTask, which makes the last checkpoint itself
	Checkpoints bool  // the task has a checkpoint block
	Final       Final // kept over a restart of the plugin, so that it is not asked for twice
	Durable     bool  // Step is the step of the newest durable checkpoint
	Step        int64
}

// Ask is a wish for a checkpoint.
type Ask struct {
	Reason   api.Reason
	Deadline time.Time // when it must be durable
	Final    bool      // the task must not train any further afterwards
}

// Outcome is how an Ask ended.
type Outcome struct {
	Durable bool   // a checkpoint finished after the request is durable
	Step    int64  // of the newest durable checkpoint, whether new or not; meaningful when HasStep
	HasStep bool   // there is a durable checkpoint
	Error   string // why it is not durable, in words
}

// End asks for the end of a task.
type End struct {
	Deadline time.Time // the container must be gone by then
	Reason   string    // one sentence for the log
}

// Task is one task of this driver. All methods may be called from several goroutines; those with a context return soon
// after it is done.
type Task interface {
	// State answers from memory; it does not block.
	State() TaskState
	// Checkpoint opens a request, or joins the open one, and waits for its outcome: durable, or given up at the deadline
	// or because the process ended. An error means that the task could not be asked, or that ctx ended first; it may be
	// tried again. When ctx ends the request stays open: a restarted plugin finds it again.
	Checkpoint(ctx context.Context, ask Ask) (Outcome, error)
	// Withdraw closes the open request, if any: the task trains on. State then says FinalNone.
	Withdraw(ctx context.Context) error
	// End stops the container and has the driver publish ExitCode as its result. It returns once the container is gone,
	// or with an error; calling it again is harmless.
	End(ctx context.Context, end End) error
	// Event puts a sentence before the job's owner, as a Nomad task event; it does not block.
	Event(message string)
}

// Cluster is Nomad's API as far as it concerns the node that this driver runs on. Every call has a deadline of its own.
// An error that an operator can repair implements Refusal.
type Cluster interface {
	// MarkIneligible keeps new allocations away. took is false when the node was ineligible already.
	MarkIneligible(ctx context.Context) (took bool, err error)
	// MarkEligible undoes it.
	MarkEligible(ctx context.Context) error
	// StopAlloc stops an allocation so that Nomad places its replacement at once.
	StopAlloc(ctx context.Context, namespace, allocID string) error
	// WatchDrain calls emit for every change of the node's drain until ctx is done.
	WatchDrain(ctx context.Context, emit func(nomad.Drain))
}

// Refusal is an error of a Cluster that stays until an operator does what Hint says.
type Refusal interface {
	error
	Refused() bool
	Hint() string
}

var (
	_ Cluster = (*nomad.Node)(nil)
	_ Refusal = (*nomad.Error)(nil)
)
