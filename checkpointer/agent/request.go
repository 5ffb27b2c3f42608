package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"nomad-spotter/checkpointer/api"
)

// listenGrace is how long after its last long poll a task still counts as one that listens on the socket.
const listenGrace = 5 * time.Second

// deadlinePeriod is how often deadlines and the cadence are looked at.
const deadlinePeriod = 100 * time.Millisecond

// request is the last request and how far it is.
type request struct {
	api.Request
	Closed    bool   `json:"closed"` // nothing more will happen
	Durable   bool   `json:"durable"`
	Error     string `json:"error,omitempty"`
	Withdrawn bool   `json:"withdrawn,omitempty"`
}

// visible tells whether the task still sees the request. A final one stays, so that the task does not train on.
func (r *request) visible() bool { return !r.Withdrawn && (r.Final || !r.Closed) }

// ask opens a request or joins the open one.
func (a *Agent) ask(c api.CheckpointRequest) (*api.Request, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if cur := a.state.Request; cur != nil && cur.visible() && (cur.Final || !c.Final) {
		if cur.Durable || !cur.Closed {
			if !c.Deadline.IsZero() && (cur.Deadline.IsZero() || c.Deadline.Before(cur.Deadline)) {
				cur.Deadline = c.Deadline
			}
			a.save()
			a.bump()
			out := cur.Request
			return &out, nil
		}
	}
	a.state.Requests++
	r := &request{Request: api.Request{ID: a.state.Requests, Reason: c.Reason, At: fileTime(a.now()), Deadline: c.Deadline, Final: c.Final}}
	a.state.Request = r
	a.save()
	a.log.Info("checkpoint requested", "request", r.ID, "reason", string(r.Reason), "deadline", r.Deadline, "final", r.Final)
	if err := a.writeRequestFile(r.Request); err != nil {
		a.log.Warn("cannot write the request file", "error", err)
	}
	a.signalTask()
	a.resolve()
	a.bump()
	out := r.Request
	return &out, nil
}

// withdraw closes a request whose reason is gone.
func (a *Agent) withdraw(id uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.state.Request
	if r == nil || r.ID != id || r.Withdrawn {
		return
	}
	r.Withdrawn = true
	if !r.Closed {
		r.Closed, r.Error = true, "withdrawn"
	}
	a.closed()
}

// fileTime is the time that a file written now would get: the kernel stamps files with the clock as of its last tick, some
// milliseconds ago. A request with a later time would not know the answer of a quick task from an older checkpoint.
func fileTime(now time.Time) time.Time {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &ts); err != nil {
		return now
	}
	return time.Unix(ts.Unix())
}

// closed follows every change of the last request to closed. The caller holds mu.
func (a *Agent) closed() {
	a.save()
	if !a.state.Request.visible() {
		a.removeRequestFile()
	}
	a.bump()
}

// listening tells whether the task listens on the socket, so that it says which request it answers. The caller holds mu.
func (a *Agent) listening() bool { return a.polls > 0 || a.now().Sub(a.lastPoll) < listenGrace }

// resolve closes the open request once it is fulfilled or cannot be any more. The caller holds mu.
func (a *Agent) resolve() {
	r := a.state.Request
	if r == nil || r.Closed {
		return
	}
	durable, answered := a.basis(r)
	fulfilled := durable != nil && !durable.FinishedAt.Before(r.At)
	if fulfilled && !a.gone && a.listening() {
		fulfilled = answered >= r.ID
	}
	switch {
	case fulfilled && (!a.gone || a.swept && a.pending() == 0):
		r.Closed, r.Durable = true, true
	case a.super:
		r.Closed, r.Error = true, "a newer run of this task has taken over"
	case a.gone && a.swept && a.pending() == 0:
		r.Closed, r.Error = true, "the task ended without a further checkpoint"
	default:
		return
	}
	a.closed()
}

// deadlines closes requests whose time is over, and asks for a checkpoint when the cadence says so.
func (a *Agent) deadlines(ctx context.Context) {
	for sleep(ctx, deadlinePeriod) {
		a.mu.Lock()
		now := a.now()
		r := a.state.Request
		a.resolve()
		a.reconsider()
		if r != nil && !r.Closed && !r.Deadline.IsZero() && !now.Before(r.Deadline) {
			r.Closed = true
			r.Error = fmt.Sprintf("no checkpoint was finished within %s", seconds(r.Deadline.Sub(r.At)))
			if a.pending() > 0 {
				r.Error = fmt.Sprintf("the checkpoint was not in the store within %s", seconds(r.Deadline.Sub(r.At)))
			}
			a.state.Pace.overdue(r)
			a.closed()
		}
		answer, due := a.due(now)
		a.mu.Unlock()
		if due {
			if _, err := a.ask(api.CheckpointRequest{Reason: api.ReasonInterval, Deadline: now.Add(answer)}); err != nil {
				a.log.Warn("cannot ask for a checkpoint", "error", err)
			}
		}
	}
}

// outcome is called with mu held.
func (a *Agent) outcome() *api.Outcome {
	r := a.state.Request
	cp, _ := a.basis(r)
	return &api.Outcome{Done: r.Closed, Durable: r.Durable, Checkpoint: cp, Pending: a.pending(), Error: r.Error}
}

// writeRequestFile shows the request in the checkpoint directory.
func (a *Agent) writeRequestFile(r api.Request) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return a.writeForTask(api.RequestFile, b)
}

// renewRequestFile makes the request file say what the state says: an earlier run of the task may have left one, and this
// agent may have been killed before it wrote or removed its own.
func (a *Agent) renewRequestFile() {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.state.Request
	if r == nil || !r.visible() {
		a.removeRequestFile()
		return
	}
	if err := a.writeRequestFile(r.Request); err != nil {
		a.log.Warn("cannot write the request file", "error", err)
	}
}

func (a *Agent) removeRequestFile() {
	root, err := os.OpenRoot(a.conf.CheckpointDir)
	if err == nil {
		err = errors.Join(root.Remove(api.RequestFile), root.Close())
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		a.log.Warn("cannot remove the request file", "error", err)
	}
}
