package agent_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-spotter/checkpointer/agent"
	"nomad-spotter/checkpointer/api"
	"nomad-spotter/checkpointer/repository"
	"nomad-spotter/checkpointer/store"
)

// claimAll takes an epoch as a coordinator does.
func claimAll(t *testing.T, storeDir string) uint64 {
	t.Helper()
	s, err := store.Open("file://"+storeDir, true)
	must.NoError(t, err)
	r, err := repository.Open(t.Context(), s, true)
	must.NoError(t, err)
	w, err := r.Claim(t.Context(), "default/train/main/0", "coordinator", time.Now())
	must.NoError(t, err)
	return w.Epoch
}

// Two ranks save one checkpoint, go on from it elsewhere in an epoch of their own, and the old ones are superseded.
func TestAgent_Ranks(t *testing.T) {
	t.Parallel()
	st := t.TempDir()
	gang := func(epoch uint64) [2]*node {
		var out [2]*node
		for rank := range out {
			out[rank] = newNode(t, st, func(c *api.AgentConfig) { c.Rank, c.Ranks, c.Epoch = rank, 2, epoch })
			out[rank].start()
		}
		return out
	}
	first := gang(claimAll(t, st))
	for rank, n := range first {
		must.Nil(t, n.restore().Checkpoint)
		n.shell("sleep 60")
		n.write("step-5", []string{"rank 0", "rank 1"}[rank])
		must.StrHasSuffix(t, []string{"_0000of0002", "_0001of0002"}[rank], n.durable(5).Snapshot)
	}
	first[0].write("step-6", "of rank 0 alone")
	first[0].durable(6)

	second := gang(claimAll(t, st))
	for rank, n := range second {
		r := n.restore()
		must.EqOp(t, 5, r.Checkpoint.Step)
		must.EqOp(t, 2, r.Epoch)
		b, err := os.ReadFile(filepath.Join(n.conf.CheckpointDir, "step-5"))
		must.NoError(t, err)
		must.EqOp(t, []string{"rank 0", "rank 1"}[rank], string(b))
	}
	first[1].write("step-6", "too late")
	first[1].poll(10*time.Second, "the old rank learns of the new epoch", func() bool { return len(first[1].events(api.EventSuperseded)) == 1 })

	// A rank with the epoch of the past, or of none, does not start.
	late := newNode(t, st, func(c *api.AgentConfig) { c.Rank, c.Ranks, c.Epoch = 1, 2, 1 })
	late.start()
	_, err := late.ctl.Restore(context.Background(), 20*time.Second)
	must.ErrorContains(t, err, "a newer writer epoch exists: 2, this writer has 1")
	more := newNode(t, st, func(c *api.AgentConfig) { c.Rank, c.Ranks, c.Epoch = 3, 4, 2 })
	more.start()
	_, err = more.ctl.Restore(context.Background(), 20*time.Second)
	must.ErrorContains(t, err, "saved by 2 ranks and cannot be restored by one of 4")
}

func TestValidate_Ranks(t *testing.T) {
	for _, c := range []struct {
		rank, ranks int
		epoch       uint64
		want        string
	}{
		{1, 0, 0, "rank, ranks: rank 1 of 1 ranks: it must be 0 to 0"},
		{2, 2, 1, "rank, ranks: rank 2 of 2 ranks: it must be 0 to 1"},
		{0, -1, 1, "rank, ranks: -1 ranks: 1 to 65536 are possible"},
		{1, 2, 0, "epoch: is 0 with ranks 2"},
	} {
		must.ErrorContains(t, agent.Validate(api.AgentConfig{Rank: c.rank, Ranks: c.ranks, Epoch: c.epoch}), c.want)
	}
}

// The store is dark: a replica restores what it has, and the lineage goes on there as a fork, if that was allowed; after a
// restart too.
func TestAgent_Fork(t *testing.T) {
	t.Parallel()
	home, replica := t.TempDir(), t.TempDir()
	a := newNode(t, home, nil)
	a.start()
	a.restore()
	a.shell("sleep 60")
	a.write("step-1", "one")
	a.durable(1)
	var repos [2]*repository.Repository
	for i, dir := range []string{home, replica} {
		s, err := store.Open("file://"+dir, true)
		must.NoError(t, err)
		repos[i], err = repository.Open(t.Context(), s, true)
		must.NoError(t, err)
	}
	list, err := repos[0].Snapshots(t.Context(), a.conf.Lineage)
	must.NoError(t, err)
	_, err = repository.Copy(t.Context(), repos[0], repos[1], list[0], repository.CopyOptions{})
	must.NoError(t, err)

	b := newNode(t, replica, nil)
	b.start()
	_, err = b.ctl.Restore(context.Background(), time.Second)
	must.ErrorContains(t, err, "reach that one, or go on as a fork")
	c := newNode(t, replica, func(conf *api.AgentConfig) { conf.Fork = true })
	c.start()
	r := c.restore()
	must.EqOp(t, 1, r.Checkpoint.Step)
	must.EqOp(t, 2, r.Epoch)
	must.Len(t, 1, c.events(api.EventWarning))
	c.shell("sleep 60")
	c.write("step-2", "two")
	c.durable(2)
	c.kill()
	c.start()
	c.write("step-3", "three")
	c.durable(3)
	step, content := read(t, replica, c.conf.Lineage)
	must.EqOp(t, 3, step)
	must.EqOp(t, "three", content)
	list, err = repos[1].Snapshots(t.Context(), c.conf.Lineage+"/@forks/"+repos[1].ID())
	must.NoError(t, err)
	must.Len(t, 2, list)
}
