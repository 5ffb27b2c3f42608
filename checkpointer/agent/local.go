package agent

import (
	"slices"

	"golang.org/x/sys/unix"

	"nomad-spotter/checkpointer/repository"
	"nomad-spotter/checkpointer/stage"
)

// kept is the last checkpoint that became durable. Its files stay in the stage until the next one is durable, so that the
// next one is coded against them and not against what is read back from the store. Nothing depends on them: the repository
// compares what it reads with the snapshot's sums.
type kept struct {
	Seq      uint64 `json:"seq"` // in the stage
	Snapshot string `json:"snapshot"`
}

// options are how this agent's writers work.
func (a *Agent) options() repository.Options {
	p, _ := precision(a.conf) // it was checked
	return repository.Options{Workers: cpus(a.conf), Links: a.conf.Links, Precision: p, Local: a.local}
}

// local returns the files of a snapshot that are still on this machine, nil if there are none.
func (a *Agent) local(snapshot string) repository.Source {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.state.Kept != nil && a.state.Kept.Snapshot == snapshot && a.held != nil {
		return a.held.Source()
	}
	if r := a.state.Resumed; r != nil && r.Snapshot == snapshot {
		tree, err := stage.Scan(a.conf.CheckpointDir, r.Path)
		if err == nil {
			return tree
		}
		a.log.Debug("the restored checkpoint is gone; the next one is coded against the store", "error", err)
	}
	return nil
}

// keep holds a checkpoint that has become durable, in the place of the one before. The caller holds mu.
func (a *Agent) keep(st *stage.Staged, snapshot string) {
	old := a.held
	a.held, a.state.Kept = st, &kept{Seq: st.Seq, Snapshot: snapshot}
	if old != nil {
		a.drop(old)
	}
	if !a.roomy(st.RawBytes) {
		a.log.Info("the disk is short: the last checkpoint is not kept for the next one", "step", st.Step)
		a.letGo()
	}
}

// letGo removes the checkpoint that is held. The caller holds mu.
func (a *Agent) letGo() {
	if a.held != nil {
		a.drop(a.held)
	}
	a.held, a.state.Kept = nil, nil
}

// roomy tells whether the disk of the stage has room for one more checkpoint of this size.
func (a *Agent) roomy(size int64) bool {
	var fs unix.Statfs_t
	return unix.Statfs(a.conf.StateDir, &fs) == nil && int64(fs.Bavail)*fs.Bsize > size
}

// hold takes the checkpoint that is kept out of what a stage still holds after a restart.
func (k *kept) hold(queue []*stage.Staged) (rest []*stage.Staged, held *stage.Staged) {
	if k == nil {
		return queue, nil
	}
	i := slices.IndexFunc(queue, func(st *stage.Staged) bool { return st.Seq == k.Seq })
	if i < 0 {
		return queue, nil
	}
	held = queue[i]
	return slices.Delete(queue, i, i+1), held
}
