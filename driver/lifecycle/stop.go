package lifecycle

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"github.com/moby/sys/signal"

	"nomad-spotter/checkpointer/api"
)

const (
	minKill = time.Second // between the kill signal and SIGKILL, where no more time is given
	// killWait is how long a killed container may take to be gone: a process in an uninterruptible wait may never be.
	killWait = 10 * time.Second
	// minAsk is the shortest time in which asking for a checkpoint makes sense.
	minAsk = 200 * time.Millisecond
)

// stopRun is one StopTask, which later calls join.
type stopRun struct {
	done chan struct{}
	err  error
}

// Stop asks for a last checkpoint, then stops the container, all within timeout. A call that comes while another runs
// joins it. It returns once the container is gone; the result is published when the checkpoint is durable, or at the end
// of timeout.
func (t *Task) Stop(ctx context.Context, timeout time.Duration, sig string) error {
	t.mu.Lock()
	run := t.stop
	if run != nil && (!closed(run.done) || run.err == nil) {
		t.mu.Unlock()
		select {
		case <-run.done:
			return run.err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	run = &stopRun{done: make(chan struct{})}
	t.stop = run
	t.mu.Unlock()
	run.err = t.stopNow(ctx, timeout, sig)
	close(run.done)
	return run.err
}

func (t *Task) stopNow(ctx context.Context, timeout time.Duration, sig string) error {
	if !t.Running() {
		return nil
	}
	now := time.Now()
	deadline := now.Add(timeout)
	t.setFinishBy(deadline)
	t.m.mu.Lock()
	t.m.learned[t.kind()] = timeout
	t.m.mu.Unlock()
	if t.agent != nil && t.ledger().Final != finalDurable {
		if budget := checkpointBudget(timeout); budget >= minAsk {
			t.lastCheckpoint(ctx, now.Add(budget))
		}
	}
	return t.terminate(ctx, sig, deadline)
}

// setFinishBy says when the result must be published at the latest; the earliest counts.
func (t *Task) setFinishBy(at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.finishBy.IsZero() || at.Before(t.finishBy) {
		t.finishBy = at
	}
}

// lastCheckpoint asks the task for its last checkpoint and waits until it is durable, the task has ended, or by.
func (t *Task) lastCheckpoint(ctx context.Context, by time.Time) {
	ctx, cancel := context.WithDeadline(ctx, by.Add(time.Second))
	defer cancel()
	start := time.Now()
	out, err := t.ask(ctx, api.CheckpointRequest{Reason: api.ReasonStop, Deadline: by, Final: true})
	switch {
	case err != nil:
		t.Event("No checkpoint before the stop: " + err.Error())
	case out.Durable:
		t.log.Info("checkpoint before the stop is durable", "duration_ms", time.Since(start).Milliseconds())
	case t.Running():
		t.Event("No checkpoint before the stop: " + out.Error)
	}
}

// ask opens a request, or joins the open one, and waits for its outcome. An agent that dies meanwhile is started again by
// the supervisor, and asked again.
func (t *Task) ask(ctx context.Context, r api.CheckpointRequest) (*api.Outcome, error) {
	const wait = 10 * time.Second
	c := t.agent.client
	var id uint64
	for {
		err := ctx.Err()
		if id == 0 && err == nil {
			cctx, cancel := context.WithTimeout(ctx, callTimeout)
			var req *api.Request
			if req, err = c.Request(cctx, r); err == nil {
				id = req.ID
			}
			cancel()
		}
		if id != 0 && err == nil {
			cctx, cancel := context.WithTimeout(ctx, wait+callTimeout)
			var out *api.Outcome
			out, err = c.Outcome(cctx, id, wait)
			cancel()
			if err == nil && out.Done {
				return out, nil
			}
			if err == nil {
				continue
			}
		}
		if ctx.Err() != nil || closed(t.done) {
			return nil, fmt.Errorf("ask for a checkpoint: %w", err)
		}
		id = 0
		if !pause(ctx, 200*time.Millisecond) {
			return nil, fmt.Errorf("ask for a checkpoint: %w", err)
		}
	}
}

// terminate sends the kill signal and, at the deadline, SIGKILL. It returns once the container is gone.
func (t *Task) terminate(ctx context.Context, sig string, deadline time.Time) error {
	rt, id := t.m.opts.Runtime, t.st.ContainerID
	s := t.killSignal(sig)
	if err := bounded(ctx, func(ctx context.Context) error { return rt.Kill(ctx, id, s, false) }); err != nil {
		t.log.Warn("kill signal was not sent", "signal", s, "error", err)
	}
	if t.awaitEnd(ctx, time.Until(deadline)) {
		return nil
	}
	t.log.Info("task did not end in time, it is killed", "signal", s)
	if err := bounded(ctx, func(ctx context.Context) error { return rt.Kill(ctx, id, syscall.SIGKILL, true) }); err != nil {
		return err
	}
	if t.awaitEnd(ctx, killWait) {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return fmt.Errorf("container %s still runs %s after SIGKILL", id, killWait)
}

// bounded gives a call of the runtime a limit: a containerd or a shim that hangs must not keep Nomad waiting for ever.
func bounded(ctx context.Context, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return call(ctx)
}

// awaitEnd waits until the container has ended.
func (t *Task) awaitEnd(ctx context.Context, limit time.Duration) bool {
	timer := time.NewTimer(max(limit, 0))
	defer timer.Stop()
	select {
	case <-t.exited:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return closed(t.exited)
}

// killSignal is the job's kill_signal, else the image's STOPSIGNAL, else SIGTERM.
func (t *Task) killSignal(name string) syscall.Signal {
	for _, n := range []string{name, t.st.StopSignal} {
		if n == "" {
			continue
		}
		s, err := signal.ParseSignal(n)
		if err == nil {
			return s
		}
		t.log.Warn("unknown kill signal is passed over", "signal", n, "error", err)
	}
	return syscall.SIGTERM
}

// Signal sends a signal to the container's first process.
func (t *Task) Signal(ctx context.Context, name string) error {
	s, err := signal.ParseSignal(name)
	if err != nil {
		return fmt.Errorf("signal %q: %w; use a name such as SIGHUP", name, err)
	}
	if !t.Running() {
		return ErrNotRunning
	}
	return t.m.opts.Runtime.Kill(ctx, t.st.ContainerID, s, false)
}
