//go:build e2e

package scenario

import (
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-spotter/e2e/cluster"
)

// The pool's plugin and nomad-autoscaler are killed and nomad-autoscaler is started again. Instances live on, none is
// launched or ended for it, and the pool goes on replacing what is lost. Not beside other stories: it watches all nodes.
func TestPool_survivesItsPlugin(t *testing.T) {
	s := alone(t)
	before := living(t)
	must.Len(t, shared.Nodes, before)

	victims := shared.OwnProcesses(func(c string) bool {
		return program(c) == "nomad-autoscaler-spotter" && strings.HasSuffix(c, " target")
	})
	must.Len(t, 1, victims)
	shared.KillAutoscaler()
	s.eventually(15*time.Second, "the orphaned plugin ends by itself", func() bool {
		return syscall.Kill(victims[0].PID, 0) != nil
	})
	must.NoError(t, shared.StartAutoscaler(s.ctx))

	gone := before[0]
	must.NoError(t, shared.Reclaim(s.ctx, gone, 0))
	s.eventually(90*time.Second, "the pool is whole again", func() bool {
		now := living(t)
		return len(now) == shared.Nodes && !slices.Contains(now, gone)
	})
	now := living(t)
	for _, id := range before[1:] {
		must.SliceContains(t, now, id, must.Sprint("no other instance was ended"))
	}
	st, err := shared.PoolStatus(s.ctx)
	must.NoError(t, err)
	must.Eq(t, shared.Nodes, st.Desired)
	must.NoError(t, shared.WaitNodes(s.ctx, shared.Nodes))
}

// living returns the IDs of the instances that run, sorted.
func living(t *testing.T) []string {
	t.Helper()
	all, err := shared.Instances()
	must.NoError(t, err)
	var ids []string
	for _, i := range all {
		if i.State == cluster.Running {
			ids = append(ids, i.ID)
		}
	}
	slices.Sort(ids)
	return ids
}
