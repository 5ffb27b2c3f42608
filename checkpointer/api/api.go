// Package api is the contract between a checkpoint agent and those who talk to it: the training code through the task
// socket, the task driver through the control socket. It holds wire types and a client, imports the standard library
// only, and never touches a checkpoint itself.
//
// Both sockets are Unix stream sockets that speak HTTP/1.1 with JSON bodies. The task socket is mounted into the
// container and answers only what a training process may ask; the control socket is for root on the node.
//
//	GET  /v1/status?after=ID&wait=DUR   task, control   Status; with wait, blocks until a request newer than ID is open
//	POST /v1/finished                   task, control   Finished -> Status: the code says that a checkpoint is complete
//	GET  /v1/durable?step=N&wait=DUR    task, control   Durable; with wait, blocks until that step or a later one is stored
//	POST /v1/attach                     control         Attach: the process to signal and to watch
//	POST /v1/restore                    control         RestoreRequest -> Restored
//	POST /v1/request                    control         CheckpointRequest -> Request: "checkpoint now"
//	GET  /v1/outcome?id=ID&wait=DUR     control         Outcome of a request
//	POST /v1/cancel                     control         CancelRequest: the reason for a request is gone
//	POST /v1/finish                     control         FinishRequest -> Outcome: the task ended, save what it left
//	GET  /v1/events?after=SEQ&wait=DUR  control         []Event
//	POST /v1/quit                       control         the agent ends at once, without saving
//
// Every error is an Error body with a status of 400 or above.
package api

import "time"

// Names of environment variables that a training process finds, and of paths in its container.
const (
	EnvCheckpointDir = "SPOTTER_CHECKPOINT_DIR" // directory to write checkpoints into
	EnvResumeStep    = "SPOTTER_RESUME_STEP"    // step of the restored checkpoint; absent when there is none
	EnvResumePath    = "SPOTTER_RESUME_PATH"    // the restored file or directory; absent when there is none
	EnvSocket        = "SPOTTER_SOCKET"         // the task socket

	// RequestFile is the name of the file that appears in the checkpoint directory while a checkpoint is asked for,
	// for code that can neither take a signal nor open a socket. Its content is a Request.
	RequestFile = ".spotter-checkpoint-request"
)

// Reason says why a checkpoint is asked for.
type Reason string

// Reasons for a checkpoint request.
const (
	ReasonInterval Reason = "interval" // the cadence: training goes on
	ReasonNotice   Reason = "notice"   // the cloud reclaims the instance
	ReasonDrain    Reason = "drain"    // an operator drains the node
	ReasonStop     Reason = "stop"     // Nomad stops the task
)

// Request is one open or past wish for a checkpoint. Training code that sees Final must, once the checkpoint is
// finished, not train any further: it waits until Status.Request is no longer this request (it was withdrawn) or until
// it is stopped, so that no step is done twice.
type Request struct {
	ID       uint64    `json:"id"` // grows by one per request of an agent, from 1
	Reason   Reason    `json:"reason"`
	At       time.Time `json:"at"`
	Deadline time.Time `json:"deadline"` // when the checkpoint must be durable; zero means none
	Final    bool      `json:"final"`
}

// Checkpoint is one file or directory that the training code finished.
type Checkpoint struct {
	Step        int64     `json:"step"`
	Path        string    `json:"path"`               // relative to the checkpoint directory
	Snapshot    string    `json:"snapshot,omitempty"` // its name in the store, once durable
	RawBytes    int64     `json:"raw_bytes"`
	StoredBytes int64     `json:"stored_bytes"`        // new bytes in the store, metadata included
	Effort      string    `json:"effort,omitempty"`    // auto, fast, small or none: what was spent on those
	Precision   string    `json:"precision,omitempty"` // exact or compact: whether its snapshot is rounded; empty before there is one
	FinishedAt  time.Time `json:"finished_at"`
	StoredAt    time.Time `json:"stored_at,omitzero"` // when it was in a store
	DurableAt   time.Time `json:"durable_at,omitzero"`
}

// Status is what an agent knows at the moment.
type Status struct {
	Lineage string      `json:"lineage"`
	Epoch   uint64      `json:"epoch"` // writer epoch; 0 until the store was reached
	Store   string      `json:"store"` // URL in use; empty while none is reachable
	Resumed *Checkpoint `json:"resumed,omitempty"`
	Request *Request    `json:"request,omitempty"` // the open request, if any
	Last    *Checkpoint `json:"last,omitempty"`    // last finished
	Durable *Checkpoint `json:"durable,omitempty"` // last durable
	Pending int         `json:"pending"`           // finished, staged, not yet in the store or not yet durable
	PID     int         `json:"pid"`               // of the agent

	Replicas []Replica `json:"replicas,omitempty"` // in other regions
	Cadence  *Cadence  `json:"cadence,omitempty"`  // when the agent asks next; absent where it does not ask by itself
}

// Cadence is when an agent asks for the next checkpoint, and why then.
type Cadence struct {
	DueAt     time.Time `json:"due_at,omitzero"` // zero: not before something changes
	IntervalS float64   `json:"interval_s"`      // after the last checkpoint; 0: none
	Why       string    `json:"why"`             // one English sentence, with what was measured
}

// Replica is how far a store in another region is.
type Replica struct {
	Store      string    `json:"store"` // URL
	Region     string    `json:"region,omitempty"`
	Snapshot   string    `json:"snapshot,omitempty"` // the newest there; empty: none yet
	Step       int64     `json:"step"`
	At         time.Time `json:"at,omitzero"`     // when it was there
	LagSteps   int64     `json:"lag_steps"`       // of the training, behind the newest in the store; 0: none
	LagSeconds float64   `json:"lag_seconds"`     // for how long the newest in the store has not been there; 0: it is
	Error      string    `json:"error,omitempty"` // of the last attempt
}

// Finished is the training code's word that a checkpoint is complete. Path is absolute (as the container sees it) or
// relative to the checkpoint directory, and names one entry of it. Request is the request that it answers, 0 for none:
// while code listens on the socket, only its answer fulfils a request.
type Finished struct {
	Step    int64  `json:"step"`
	Path    string `json:"path"`
	Request uint64 `json:"request,omitempty"`
}

// Durable answers whether a step, or a later one, can be restored from the store.
type Durable struct {
	Durable    bool        `json:"durable"`
	Checkpoint *Checkpoint `json:"checkpoint,omitempty"`
}

// Attach names the process that gets the configured signal on a request; the agent holds it by a pidfd, so that a
// reused pid is never signalled.
type Attach struct {
	PID     int    `json:"pid"`
	Started uint64 `json:"started,omitempty"` // its start in clock ticks since boot (proc(5), field 22 of stat); 0: not compared
}

// RestoreRequest asks for the newest complete snapshot of the lineage to be put into the checkpoint directory.
type RestoreRequest struct {
	Timeout Duration `json:"timeout"` // how long to wait for a store
}

// Restored tells what was restored. Checkpoint is nil when the lineage has no snapshot.
type Restored struct {
	Checkpoint *Checkpoint `json:"checkpoint,omitempty"`
	Store      string      `json:"store"`
	Epoch      uint64      `json:"epoch"`
	Damaged    []Damage    `json:"damaged,omitempty"` // newer snapshots passed over
}

// Damage is one object that failed verification.
type Damage struct {
	Snapshot string `json:"snapshot"`
	Step     int64  `json:"step"`
	Object   string `json:"object"`
	Reason   string `json:"reason"`
}

// CheckpointRequest asks the task for a checkpoint. While one is open, a further one joins it: the earlier deadline and
// a true Final win.
type CheckpointRequest struct {
	Reason   Reason    `json:"reason"`
	Deadline time.Time `json:"deadline"`
	Final    bool      `json:"final"`
}

// CancelRequest withdraws a request that is still open.
type CancelRequest struct {
	ID uint64 `json:"id"`
}

// FinishRequest says that the task has ended. The agent saves every finished checkpoint that is not yet durable,
// answers at the latest at Deadline, and ends itself when nothing is left to save (it goes on past the deadline).
//
// Clean says that the task ended by itself with exit code 0. Without it a file that was still being written under its
// final name when the task ended is not taken for a checkpoint.
type FinishRequest struct {
	Deadline time.Time `json:"deadline"`
	Clean    bool      `json:"clean"`
}

// Outcome is the state of a request.
type Outcome struct {
	Done       bool        `json:"done"`                 // nothing more will happen
	Durable    bool        `json:"durable"`              // a checkpoint finished after the request is durable
	Checkpoint *Checkpoint `json:"checkpoint,omitempty"` // the newest durable one
	Pending    int         `json:"pending"`
	Error      string      `json:"error,omitempty"` // why it is done but not durable
}

// EventKind classifies an Event.
type EventKind string

// Kinds of events.
const (
	EventRestored   EventKind = "restored"
	EventDurable    EventKind = "durable"    // as the level of durability says
	EventStored     EventKind = "stored"     // in the store, where that is not what durable means
	EventReplicated EventKind = "replicated" // in a store of another region
	EventFailed     EventKind = "failed"     // a checkpoint could not be saved; it is tried again
	EventDamaged    EventKind = "damaged"    // a snapshot failed verification
	EventStoreLost  EventKind = "store-lost" // no store reachable
	EventStoreFound EventKind = "store-found"
	EventSuperseded EventKind = "superseded" // a newer epoch exists: this writer must stop
	EventWarning    EventKind = "warning"
)

// Event is something an operator or the driver wants to know.
type Event struct {
	Seq        uint64      `json:"seq"` // from 1
	At         time.Time   `json:"at"`
	Kind       EventKind   `json:"kind"`
	Message    string      `json:"message"` // one English sentence, fit for a Nomad task event
	Checkpoint *Checkpoint `json:"checkpoint,omitempty"`
}

// Error is the body of every failed call.
type Error struct {
	Message string `json:"error"`
}

// Error implements error.
func (e *Error) Error() string { return e.Message }

// Interval is how often a task is asked for a checkpoint. It travels as "auto" or as a Duration.
type Interval struct {
	Every time.Duration // 0: never
	Auto  bool          // as often as costs the least, see package cadence
}

// automatic is the text of an Interval that is Auto.
const automatic = "auto"

// MarshalText implements encoding.TextMarshaler.
func (i Interval) MarshalText() ([]byte, error) {
	if i.Auto {
		return []byte(automatic), nil
	}
	return Duration(i.Every).MarshalText()
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (i *Interval) UnmarshalText(b []byte) error {
	if string(b) == automatic {
		*i = Interval{Auto: true}
		return nil
	}
	var d Duration
	if err := d.UnmarshalText(b); err != nil {
		return err
	}
	*i = Interval{Every: time.Duration(d)}
	return nil
}

// Duration is a time.Duration that travels as a string such as "1.5s".
type Duration time.Duration

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	if err != nil {
		return err
	}
	*d = Duration(v)
	return nil
}
