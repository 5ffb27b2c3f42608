//go:build e2e

package scenario

import (
	"strings"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-spotter/e2e/cluster"
)

// The driver's Nomad token may change nothing. A notice still leads to a durable checkpoint and a move without loss,
// and a task event tells the operator what to grant.
func TestWeakToken(t *testing.T) {
	t.Parallel()
	s := alone(t)
	s.take(1, func(n cluster.Node) bool { return n.Offering == weak })
	s.take(1, func(n cluster.Node) bool { return n.Offering != weak })
	jobs := s.pair()
	old := []string{jobs[0].alloc().ID, jobs[1].alloc().ID}
	begun := time.Now()
	must.NoError(t, shared.Reclaim(s.ctx, jobs[0].host().ID, 30*time.Second))
	for i, j := range jobs {
		j.event(old[i], "durable", begun)
		s.eventually(30*time.Second, j.ID+": an event that says what to grant", func() bool {
			events, err := j.Events(s.ctx)
			must.NoError(t, err)
			for _, e := range events {
				if e.Alloc == old[i] && grants(e) {
					return true
				}
			}
			return false
		})
		j.movedWithoutLoss(1)
	}
	for _, j := range jobs {
		j.identical(2)
	}
}

// grants tells whether an event names a rule of a Nomad ACL policy that the driver's token lacks.
func grants(e cluster.Event) bool {
	return strings.Contains(e.Message, "alloc-lifecycle") || strings.Contains(e.Message, "node:write") ||
		strings.Contains(e.Message, `node { policy = "write" }`)
}
