package lifecycle

import (
	"context"
	"strings"
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
