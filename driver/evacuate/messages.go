package evacuate

import (
	"errors"
	"fmt"
	"time"

	"nomad-spotter/driver/notice"
)

// The sentences that a job's owner reads as task events.

const (
	msgIneligible = "Node marked ineligible"
	msgWithdrawn  = "Interruption withdrawn: the task goes on"
	msgCancelled  = "Node drain cancelled: the task goes on"
	msgRebalance  = "Rebalance recommendation: a checkpoint is made, the task stays"
	msgNoAPI      = "Cannot mark the node ineligible: Nomad's API is not configured; set nomad { address, token } in the " +
		"plugin's configuration. The driver is unhealthy meanwhile, which keeps its own new tasks away"
)

// announcement says why the node is evacuated and how much time there is.
func announcement(t Threat, now time.Time) string {
	if t.Cause == CauseNotice {
		return "Interruption notice: " + notice.Event{Deadline: t.Deadline}.Left(now)
	}
	switch {
	case t.Force:
		return "Node drain: Nomad stops every task now"
	case t.Deadline.IsZero():
		return "Node drain without a deadline"
	default:
		return "Node drain: " + notice.Event{Deadline: t.Deadline}.Left(now)
	}
}

// description is the short form for a health description or a refused start.
func description(t Threat) string {
	if t.Cause == CauseDrain {
		return "the node is being drained"
	}
	if t.Action == "" {
		return "the instance will be taken away"
	}
	return fmt.Sprintf("the instance will be taken away (%s)", t.Action)
}

// reason is why a call failed, with the next step where an operator can take one.
func reason(err error) string {
	var refusal Refusal
	if errors.As(err, &refusal) && refusal.Refused() {
		return refusal.Hint()
	}
	return err.Error()
}

func refused(err error) bool {
	var refusal Refusal
	return errors.As(err, &refusal) && refusal.Refused()
}

func cannotMark(err error) string {
	return "Cannot mark the node ineligible: " + reason(err) + ". The driver is unhealthy meanwhile, which keeps its own new tasks away"
}

func cannotStop(err error) string {
	return "Cannot stop the allocation: " + reason(err)
}

func notAsked(err error) string {
	return "Cannot ask for a checkpoint, trying again: " + err.Error()
}

func notDurable(o Outcome) string {
	why := o.Error
	if why == "" {
		why = "the task ended"
	}
	return "No new checkpoint: " + why
}

// resumes says from where the replacement goes on.
func resumes(s TaskState) string {
	switch {
	case s.Durable:
		return fmt.Sprintf("the replacement restores step %d", s.Step)
	case s.Checkpoints:
		return "the replacement starts anew, no checkpoint is durable"
	default:
		return "the replacement starts anew, the task has no checkpoint block"
	}
}

func stopRequested(s TaskState) string { return "Allocation stop requested; " + resumes(s) }

func endsAsFailed(s TaskState, why string) string {
	return fmt.Sprintf("Task is ended as failed (exit code %d) so that Nomad reschedules it: %s; %s", ExitCode, why, resumes(s))
}
