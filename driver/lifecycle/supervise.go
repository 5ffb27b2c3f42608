package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"nomad-spotter/checkpointer/api"
	"nomad-spotter/driver/evacuate"
)

const (
	eventWait    = 20 * time.Second // of one long poll
	firstRestart = time.Second      // pauses between two starts of an agent that dies
	lastRestart  = 30 * time.Second
	factsAgain   = 30 * time.Second // after a failed look-up
	killReserve  = 10               // a tenth of the time is kept for the kill
)

// supervise passes the agent's events on and starts it again when it dies while the task lives.
func (t *Task) supervise(ctx context.Context) {
	delay := firstRestart
	for ctx.Err() == nil {
		cctx, cancel := context.WithTimeout(ctx, eventWait+callTimeout)
		events, err := t.agent.client.Events(cctx, t.eventsAfter(), eventWait)
		cancel()
		if err == nil {
			delay = firstRestart
			for _, e := range events {
				t.onEvent(ctx, e)
			}
			continue
		}
		if ctx.Err() != nil {
			return
		}
		t.mu.Lock()
		over := t.finishing
		t.mu.Unlock()
		if over { // whoever finishes starts it again if need be; afterwards it ends by itself
			if closed(t.done) || !pause(ctx, retryWait) {
				return
			}
			continue
		}
		t.revive(ctx, err)
		if !pause(ctx, delay) {
			return
		}
		delay = min(2*delay, lastRestart)
	}
}

// revive starts a dead agent again and hands the process over to it.
func (t *Task) revive(ctx context.Context, cause error) {
	started, err := t.agent.ensure(ctx)
	if err != nil {
		if ctx.Err() == nil {
			t.log.Error("checkpoint agent cannot be started again", "error", err, "cause", cause)
		}
		return
	}
	if !started {
		return
	}
	t.Event("The checkpoint agent had ended unexpectedly; it was started again")
	t.attach(ctx)
}

func (t *Task) attach(ctx context.Context) {
	cctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := t.agent.client.Attach(cctx, t.st.PID, t.st.PIDStart); err != nil && ctx.Err() == nil && t.Running() {
		t.log.Warn("checkpoint agent does not know the task's process, so it cannot signal it", "pid", t.st.PID, "error", err)
	}
}

// eventsAfter is the last event that was passed on. A new agent counts from 1 again.
func (t *Task) eventsAfter() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.led.EventAgent != t.led.Agent {
		return 0
	}
	return t.led.EventSeq
}

func (t *Task) onEvent(ctx context.Context, e api.Event) {
	t.change(func(l *ledger) { l.EventSeq, l.EventAgent = e.Seq, l.Agent })
	t.Event(e.Message)
	switch e.Kind {
	case api.EventDurable, api.EventRestored:
		t.setDurable(e.Checkpoint)
		if e.Kind == api.EventDurable {
			t.checkFit(e.Checkpoint)
		}
	case api.EventSuperseded:
		t.superseded(ctx, e.Message)
	default: // for people only
	}
}

// superseded stops the task as failed: another writer goes on with its lineage.
func (t *Task) superseded(ctx context.Context, message string) {
	t.change(func(l *ledger) { l.Superseded = message })
	t.Event("The task is stopped: another instance of it goes on with its checkpoints")
	t.m.wg.Go(func() {
		if err := t.terminate(ctx, "", time.Now().Add(minKill)); err != nil && ctx.Err() == nil {
			t.log.Error("stop a superseded task", "error", err)
		}
	})
}

// checkFit tells, once, when saving a checkpoint takes longer than there will be time for at a stop. What the training
// code needs to write one comes on top and is not known.
func (t *Task) checkFit(c *api.Checkpoint) {
	if c == nil || c.DurableAt.IsZero() || c.FinishedAt.IsZero() {
		return
	}
	took := c.DurableAt.Sub(c.FinishedAt)
	kill, ok := t.killTimeout()
	if !ok || took <= checkpointBudget(kill) {
		return
	}
	t.mu.Lock()
	said := t.misfit
	t.misfit = true
	t.mu.Unlock()
	if said {
		return
	}
	need := time.Duration(math.Ceil(took.Seconds()*1.5+1)) * time.Second
	t.Event(fmt.Sprintf("Saving checkpoint %d took %.1f s, but a stop leaves %.1f s for it (kill_timeout %s): set kill_timeout = %q or more, "+
		"and the client's max_kill_timeout likewise", c.Step, took.Seconds(), checkpointBudget(kill).Seconds(), kill, need))
}

// checkpointBudget is the part of a stop's timeout that is for the checkpoint: all but a tenth, and at least a second,
// which is for the kill. A timeout too short for that is halved. For example 27 s of 30 s, 4 s of 5 s, 0.5 s of 1 s.
func checkpointBudget(timeout time.Duration) time.Duration {
	reserve := max(timeout/killReserve, time.Second)
	return timeout - min(reserve, timeout/2)
}

// killTimeout is the time that a stop will leave, as far as it is known: from the first StopTask of such a task, else
// from the job.
func (t *Task) killTimeout() (time.Duration, bool) {
	t.m.mu.Lock()
	d, ok := t.m.learned[t.kind()]
	t.m.mu.Unlock()
	if ok {
		return d, true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.facts.KillTimeout, t.factsKnown && t.facts.KillTimeout > 0
}

// kind names all tasks that share a kill_timeout.
func (t *Task) kind() string {
	return t.st.Namespace + "/" + t.st.JobID + "/" + t.st.Group + "/" + t.st.Name
}

// learnFacts looks up what Nomad does not tell, and says what will not work in the job.
func (t *Task) learnFacts(ctx context.Context) {
	told := false
	for {
		f, err := t.m.opts.Facts(ctx, t.st.Namespace, t.st.AllocID, t.st.Name)
		if err == nil {
			t.mu.Lock()
			t.facts, t.factsKnown = f, true
			t.mu.Unlock()
			if w := evacuate.Warning(f); w != "" && t.agent != nil && !t.ledger().Warned {
				t.change(func(l *ledger) { l.Warned = true })
				t.Event(w)
			}
			return
		}
		if ctx.Err() != nil {
			return
		}
		if !told {
			told = true
			hint := ""
			var r evacuate.Refusal
			if errors.As(err, &r) {
				hint = r.Hint()
			}
			t.log.Warn("cannot read the task's job from Nomad, asking again", "error", err, "hint", hint)
		}
		if !pause(ctx, factsAgain) || !t.Running() {
			return
		}
	}
}
