package lifecycle

import (
	"context"
	"time"

	"nomad-spotter/checkpointer/api"
	"nomad-spotter/driver/evacuate"
)

// State implements evacuate.Task.
func (t *Task) State() evacuate.TaskState {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := evacuate.TaskState{
		ID: t.st.TaskID, AllocID: t.st.AllocID, Namespace: t.st.Namespace, JobType: t.facts.JobType,
		Running:     !closed(t.exited),
		Stopping:    t.stop != nil,
		Checkpoints: t.agent != nil,
	}
	switch t.led.Final {
	case finalOpen:
		s.Final = evacuate.FinalOpen
	case finalDurable:
		s.Final = evacuate.FinalDurable
	default:
		s.Final = evacuate.FinalNone
	}
	if t.durable != nil {
		s.Durable, s.Step = true, t.durable.Step
	}
	return s
}

// Checkpoint implements evacuate.Task.
func (t *Task) Checkpoint(ctx context.Context, ask evacuate.Ask) (evacuate.Outcome, error) {
	if t.agent == nil {
		return evacuate.Outcome{Error: "the task has no checkpoint block"}, nil
	}
	if ask.Final && t.ledger().Final == finalNone {
		t.change(func(l *ledger) { l.Final = finalOpen })
	}
	out, err := t.ask(ctx, api.CheckpointRequest{Reason: ask.Reason, Deadline: ask.Deadline, Final: ask.Final})
	if err != nil {
		return evacuate.Outcome{}, err
	}
	if ask.Final && out.Durable && t.ledger().Final == finalOpen {
		t.change(func(l *ledger) { l.Final = finalDurable })
	}
	o := evacuate.Outcome{Durable: out.Durable, Error: out.Error}
	if out.Checkpoint != nil {
		t.setDurable(out.Checkpoint)
		o.HasStep, o.Step = true, out.Checkpoint.Step
	}
	return o, nil
}

// Withdraw implements evacuate.Task.
func (t *Task) Withdraw(ctx context.Context) error {
	if t.agent == nil || !t.Running() {
		return nil
	}
	cctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	st, err := t.agent.client.Status(cctx, 0, 0)
	if err != nil {
		return err
	}
	if st.Request != nil {
		if err := t.agent.client.Cancel(cctx, st.Request.ID); err != nil {
			return err
		}
	}
	t.change(func(l *ledger) { l.Final = finalNone })
	return nil
}

// End implements evacuate.Task.
func (t *Task) End(ctx context.Context, end evacuate.End) error {
	if !t.Running() {
		return nil
	}
	t.log.Info("task is ended, to be rescheduled", "reason", end.Reason, "deadline", end.Deadline)
	t.change(func(l *ledger) { l.Ended = true })
	t.setFinishBy(end.Deadline)
	// A second is kept for SIGKILL to do its work.
	return t.terminate(ctx, "", end.Deadline.Add(-min(time.Second, time.Until(end.Deadline)/2)))
}
