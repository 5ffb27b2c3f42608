//go:build e2e

package scenario

import (
	"testing"
	"time"

	nomadapi "github.com/hashicorp/nomad/api"
	"github.com/shoenig/test/must"
)

// An operator drains the node, with a deadline: a notice by another name. Nomad alone would leave the batch job until
// the deadline and move the service job by killing it.
func TestDrain_deadline(t *testing.T) { drain(t, 40*time.Second) }

// A drain without a deadline moves the jobs as well, at once.
func TestDrain_noDeadline(t *testing.T) { drain(t, 0) }

func drain(t *testing.T, deadline time.Duration) {
	s := begin(t, 2)
	jobs := s.pair()
	node := jobs[0].alloc().NodeID
	t.Cleanup(func() {
		// The next story may need the node, unless the pool has replaced and purged it.
		_, err := shared.Nomad.Nodes().UpdateDrainOpts(node, &nomadapi.DrainOptions{MarkEligible: true}, nil)
		if err != nil {
			must.ErrorContains(t, err, "node not found")
		}
	})
	begun := time.Now()
	old := []string{jobs[0].alloc().ID, jobs[1].alloc().ID}
	spec := &nomadapi.DrainSpec{Deadline: deadline}
	_, err := shared.Nomad.Nodes().UpdateDrainOpts(node, &nomadapi.DrainOptions{DrainSpec: spec}, nil)
	must.NoError(t, err)
	for i, j := range jobs {
		j.movedWithoutLoss(1)
		j.event(old[i], "durable", begun)
	}
	if deadline > 0 {
		must.Less(t, deadline, time.Since(begun), must.Sprint("moved before the deadline"))
	}
	for _, j := range jobs {
		j.identical(2)
	}
}
