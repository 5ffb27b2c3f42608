package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/nomad/plugins/drivers"
)

// mayStart refuses tasks on a node that is being left: Nomad would otherwise restart a task in place that was ended so
// that it moves. The error is not recoverable, so that Nomad reschedules.
func (m *Manager) mayStart(tc *drivers.TaskConfig) error {
	if _, err := m.Task(tc.ID); err == nil {
		return fmt.Errorf("task %s exists already", tc.ID)
	}
	return m.leaving()
}

// leavingError says that the node is being left. It is not recoverable in Nomad's sense.
type leavingError struct{ reason string }

func (e *leavingError) Error() string {
	return "the task is not started on this node, so that it is placed on another one: " + e.reason
}

// leaving returns a *leavingError while the node is being left.
func (m *Manager) leaving() error {
	until, reason, yes := m.opts.Evacuating()
	if !yes {
		return nil
	}
	if !until.IsZero() {
		reason += " at " + until.Local().Format(time.TimeOnly)
	}
	return &leavingError{reason}
}

// lookEvery is how often a start looks whether the node is being left.
const lookEvery = 200 * time.Millisecond

// whileStaying returns a context that is done once the node is being left: pulling an image and restoring a checkpoint may
// take minutes, and until then nobody else knows of the task. stop ends the watching.
func (m *Manager) whileStaying(ctx context.Context) (staying context.Context, stop func()) {
	staying, cancel := context.WithCancelCause(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		for pause(staying, lookEvery) {
			if err := m.leaving(); err != nil {
				cancel(err)
			}
		}
	}()
	return staying, func() {
		cancel(nil)
		<-watched
	}
}

// orLeaving returns the reason for which a start was broken off, or else err.
func orLeaving(staying context.Context, err error) error {
	if left := (*leavingError)(nil); errors.As(context.Cause(staying), &left) {
		return left
	}
	return err
}
