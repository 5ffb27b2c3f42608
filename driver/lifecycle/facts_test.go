package lifecycle

import (
	"context"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-spotter/driver/nomad"
)

// The owner of a job whose own reschedule block would end it after a move is told so at the task's start.
func TestLearnFacts_warnsOfTheJobsOwnBlock(t *testing.T) {
	for limited, words := range map[bool]int{true: 1, false: 0} {
		task, said := quiet(t)
		task.agent = &agent{} // a task with checkpoints
		task.m.opts.Facts = func(context.Context, string, string, string) (nomad.Facts, error) {
			f := nomad.Facts{JobType: "batch", KillTimeout: time.Minute}
			f.Reschedule = nomad.Reschedule{Attempts: 1, Interval: 24 * time.Hour, Unlimited: !limited}
			return f, nil
		}
		task.learnFacts(t.Context())
		got := 0
		for _, m := range *said {
			if strings.Contains(m, "unlimited") {
				got++
			}
		}
		must.Eq(t, words, got, must.Sprintf("limited %t: %q", limited, *said))
		kill, known := task.killTimeout()
		must.True(t, known)
		must.Eq(t, time.Minute, kill)
	}
}

// killer is a runtime whose container ends when it is killed.
type killer struct {
	Runtime
	task *Task
}

func (k *killer) Kill(context.Context, string, syscall.Signal, bool) error {
	close(k.task.exited)
	return nil
}

// Where Nomad's API is off, kill_timeout is learnt from the first stop of such a task, and known to the next one.
func TestStop_teachesTheTimeout(t *testing.T) {
	task, said := quiet(t)
	task.m.opts.Runtime = &killer{task: task}
	_, known := task.killTimeout()
	must.False(t, known)
	must.NoError(t, task.Stop(t.Context(), 5*time.Second, ""))

	next := newTask(task.m, task.st, ledger{})
	kill, known := next.killTimeout()
	must.True(t, known)
	must.Eq(t, 5*time.Second, kill)
	next.checkFit(saved(time.Minute))
	must.Len(t, 1, *said)
	must.StrContains(t, (*said)[0], "kill_timeout 5s")
}
