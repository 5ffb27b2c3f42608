//go:build e2e

package scenario

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-spotter/e2e/cluster"
)

// durableLimit bounds the wait for a checkpoint of the program's own rhythm.
const durableLimit = 30 * time.Second

// Parts of a node that may die while a task goes on.
var parts = []struct {
	name  string
	match func(command string) bool
}{
	{"plugin", func(c string) bool {
		return program(c) == "nomad-driver-spotter" && !strings.Contains(c, " agent ")
	}},
	{"agent", func(c string) bool {
		return program(c) == "nomad-driver-spotter" && strings.Contains(c, " agent ")
	}},
	{"client", func(c string) bool { return program(c) == "nomad" && strings.Contains(c, " agent ") }},
}

// program returns the base name of a command's program.
func program(command string) string {
	p, _, _ := strings.Cut(command, " ")
	return p[strings.LastIndexByte(p, '/')+1:]
}

// The driver plugin, the checkpoint agent and the Nomad client are killed one after the other. The task does not
// notice: the container goes on, its log goes on, checkpoints become durable, and a reclaim afterwards loses nothing.
func TestPartsKilled(t *testing.T) {
	for _, p := range parts {
		t.Run(p.name, func(t *testing.T) {
			s := begin(t, 2)
			jobs := s.pair()
			for _, victim := range s.processes(jobs[0].host(), p.match) {
				t.Logf("kill -9 %d: %s", victim.PID, victim.Command)
				must.NoError(t, syscall.Kill(victim.PID, syscall.SIGKILL))
			}
			killed := time.Now()
			marks := []int64{jobs[0].Last().Step, jobs[1].Last().Step}
			for i, j := range jobs {
				j.trains(marks[i] + 10)
				s.eventually(durableLimit, j.ID+": a checkpoint of after the kill is durable", func() bool {
					events, err := j.Events(s.ctx)
					must.NoError(t, err)
					for _, e := range events {
						if e.At.After(killed) && durableStep(e) > marks[i] {
							return true
						}
					}
					return false
				})
				must.Len(t, 1, j.Runs(), must.Sprint("the program was not started again"))
			}
			must.NoError(t, shared.Reclaim(s.ctx, jobs[0].host().ID, 30*time.Second))
			for _, j := range jobs {
				j.movedWithoutLoss(1)
				j.identical(2)
			}
		})
	}
}

// processes waits until an instance has processes that match, and returns them.
func (s *story) processes(i cluster.Instance, match func(string) bool) (found []cluster.Process) {
	s.Helper()
	s.eventually(10*time.Second, "processes on "+i.ID, func() bool {
		var err error
		found, err = shared.Processes(i, match)
		return err == nil && len(found) > 0
	})
	return found
}
