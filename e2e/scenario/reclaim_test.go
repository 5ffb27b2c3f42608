//go:build e2e

package scenario

import (
	"slices"
	"testing"
	"time"

	nomadapi "github.com/hashicorp/nomad/api"
	"github.com/shoenig/test/must"
)

// The market takes the node back with a notice: every job's checkpoint is made durable before the deadline, and
// training goes on elsewhere without losing a step. The program is asked over the socket.
func TestReclaim(t *testing.T) {
	s := begin(t, 2)
	jobs := s.pair()
	home := jobs[0].host()
	old := []string{jobs[0].alloc().ID, jobs[1].alloc().ID}
	must.NoError(t, shared.Reclaim(s.ctx, home.ID, 30*time.Second))
	for i, j := range jobs {
		j.movedWithoutLoss(1)
		noticed, err := shared.Instance(home.ID)
		must.NoError(t, err)
		seen := j.event(old[i], "Interruption notice", noticed.NoticedAt)
		must.Less(t, 2*time.Second, seen.At.Sub(noticed.NoticedAt), must.Sprint("the driver sees a notice within two seconds"))
		durable := j.event(old[i], "durable", noticed.NoticedAt)
		must.Less(t, noticed.Deadline.UnixNano(), durable.At.UnixNano(), must.Sprint("durable before the deadline"))
		j.event(j.alloc().ID, "Restored step", noticed.NoticedAt)
	}
	for _, j := range jobs {
		j.identical(2)
	}
}

// The same with programs that are asked by the request file, and by a signal. A signal does not say that training must
// stop, so steps after the last checkpoint are done again; the model is the same.
func TestReclaim_askedOtherwise(t *testing.T) {
	s := begin(t, 2)
	file := s.start("batch", withArgs("--ask", "file"))
	signal := s.start("service", withArgs("--ask", "signal"), withCheckpoint("signal", "SIGUSR1"))
	for _, j := range []*job{file, signal} {
		j.trains(settled)
		must.Eq(t, s.nodes[0].Name, j.host().ID)
	}
	begun := time.Now()
	old := signal.alloc().ID
	must.NoError(t, shared.Reclaim(s.ctx, file.host().ID, 30*time.Second))
	file.movedWithoutLoss(1)
	before, after := signal.moved(1)
	must.Greater(t, settled-1, after.Resumed)
	must.LessEq(t, before.Last.Step, after.Resumed)
	signal.event(old, "durable", begun)
	file.identical(2)
	signal.identical(2)
}

// Three reclaims in one job's life, each when the last one's replacement has barely begun.
func TestReclaim_threeTimes(t *testing.T) {
	s := begin(t, 4)
	jobs := s.pair()
	for n := 1; n <= 3; n++ {
		hosts := []string{jobs[0].host().ID, jobs[1].host().ID}
		slices.Sort(hosts)
		for _, id := range slices.Compact(hosts) { // they need not have moved to the same node
			must.NoError(t, shared.Reclaim(s.ctx, id, 30*time.Second))
		}
		for _, j := range jobs {
			j.movedWithoutLoss(n)
		}
	}
	for _, j := range jobs {
		j.identical(4)
	}
}

// withCheckpoint sets an attribute of the checkpoint block.
func withCheckpoint(name, value string) option {
	return func(j *nomadapi.Job) {
		blocks := j.TaskGroups[0].Tasks[0].Config["checkpoint"].([]any)
		blocks[0].(map[string]any)[name] = value
	}
}
