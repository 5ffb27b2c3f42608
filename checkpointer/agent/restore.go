package agent

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"nomad-spotter/checkpointer/api"
	"nomad-spotter/checkpointer/detect"
	"nomad-spotter/checkpointer/repository"
)

// restore puts the newest checkpoint of the lineage into the directory, before the task starts. It never starts a
// lineage anew because a store cannot be reached: then it fails.
func (a *Agent) restore(ctx context.Context, timeout time.Duration) (*api.Restored, error) {
	a.mu.Lock()
	if a.state.Ready { // asked again, after a restart of the agent or of the driver
		defer a.mu.Unlock()
		return a.restored(nil), nil
	}
	a.mu.Unlock()
	// The timeout is for reaching a store. What is then downloaded takes the time that it takes.
	reach, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var last error
	left := a.marked()
	for {
		if !a.await(reach, timeout, func() bool { return a.repo != nil }) {
			if last == nil {
				last = errors.New("none was found")
			}
			return nil, fmt.Errorf("no checkpoint store could be reached within %s: %w", timeout, last)
		}
		a.mu.Lock()
		before := left[a.storeURL]
		a.mu.Unlock()
		repo, w, err := a.claim(ctx)
		if err == nil {
			var r *api.Restored
			if r, err = a.restoreFrom(ctx, repo, w, before); err == nil {
				return r, nil
			}
			if lasting(err) {
				return nil, err
			}
			a.mu.Lock()
			a.disconnect(repo)
			a.mu.Unlock()
		}
		if errors.Is(err, repository.ErrSuperseded) {
			return nil, err
		}
		last = err
		a.log.Warn("restore failed; trying again", "error", err)
		if !sleep(reach, minRetry) {
			return nil, fmt.Errorf("restore within %s: %w", timeout, last)
		}
	}
}

// restoreFrom restores from a repository. before is the epoch of the run that left the directory as it is: what is in it
// counts only if nobody else has written the lineage since.
func (a *Agent) restoreFrom(ctx context.Context, repo *repository.Repository, w *repository.Writer, before uint64) (*api.Restored, error) {
	local, entries, err := a.newestLocal()
	if err != nil {
		return nil, err
	}
	if local != nil && a.conf.Ranks > 1 {
		a.log.Info("checkpoints in the directory are passed over: all ranks go on from one step, which only the store knows")
		local = nil
	}
	if local != nil && w.Epoch != before+1 {
		a.log.Info("checkpoints in the directory are passed over: they are not of the lineage's last epoch", "epoch", before, "last_epoch", w.Epoch-1)
		local = nil
	}
	list, err := repo.History(ctx, a.conf.Lineage)
	if err != nil {
		return nil, err
	}
	var m *repository.Manifest
	var damaged []api.Damage
	if local == nil || (len(list) > 0 && list[0].Step >= local.Step) {
		m, damaged, err = a.fetch(ctx, repo)
		if err != nil && (local == nil || !errors.Is(err, repository.ErrNoSnapshot)) {
			return nil, err
		}
		if m != nil {
			if entries, err = a.list(); err != nil {
				return nil, err
			}
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, d := range damaged {
		a.event(api.EventDamaged, nil, "Snapshot %s (step %d) is damaged and was passed over: %s: %s", d.Snapshot, d.Step, d.Object, d.Reason)
	}
	floor := int64(-1) // local checkpoints up to this step are in the store or older than what was restored
	switch {
	case m != nil && (local == nil || m.Step >= local.Step):
		floor = m.Step
		a.state.Resumed = &api.Checkpoint{Step: m.Step, Path: m.Name, Snapshot: m.ID(), RawBytes: m.RawBytes, FinishedAt: m.Created, DurableAt: m.Created}
		a.state.Durable = a.state.Resumed
		a.event(api.EventRestored, a.state.Resumed, "Restored step %d from %s (%s)", m.Step, repo.URL(), megabytes(m.RawBytes))
	case local != nil:
		if len(list) > 0 {
			floor = list[0].Step
		}
		a.state.Resumed = local
		a.event(api.EventRestored, local, "Resuming from step %d, which this node still has and the store does not", local.Step)
	default:
		a.log.Info("the lineage has no checkpoint yet", "lineage", a.conf.Lineage)
	}
	for _, e := range entries {
		if step, ok := detect.Step(e.Name); !ok || local == nil || step <= floor || !e.Renamed || (m != nil && e.Name == m.Name && floor == m.Step) {
			a.detector.Handled(e.Name, e.Signature)
		}
	}
	a.ready, a.state.Ready = true, true
	a.save()
	a.bump()
	r := a.restored(damaged)
	r.Store, r.Epoch = repo.URL(), w.Epoch
	return r, nil
}

// fetch restores the newest snapshot. The task does not run yet: its cores may be used.
func (a *Agent) fetch(ctx context.Context, repo *repository.Repository) (*repository.Manifest, []api.Damage, error) {
	n := restoring(a.conf)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(n))
	return repo.Newest(ctx, a.conf.Lineage, repository.Target{
		Dir: a.conf.CheckpointDir, UID: a.conf.UID, GID: a.conf.GID, Workers: n, Rank: a.conf.Rank, Ranks: a.conf.Ranks,
	})
}

// restored is called with mu held.
func (a *Agent) restored(damaged []api.Damage) *api.Restored {
	s := a.status()
	return &api.Restored{Checkpoint: a.state.Resumed, Store: s.Store, Epoch: s.Epoch, Damaged: damaged}
}

// newestLocal finds the finished checkpoint with the highest step that an earlier run of the task left in the directory.
// Only one that got its name after it was written counts, as the end of that run may have cut short any other, and only
// one of this boot, as nobody knows what of it reached the disk before.
func (a *Agent) newestLocal() (*api.Checkpoint, []detect.Entry, error) {
	a.scanning.Lock()
	defer a.scanning.Unlock()
	entries, err := a.list()
	if err != nil {
		return nil, nil, err
	}
	boot, err := bootTime()
	if err != nil {
		return nil, nil, err
	}
	var best *api.Checkpoint
	for _, e := range entries {
		step, ok := detect.Step(e.Name)
		if ok && e.Renamed && !e.Busy && !e.Partial && e.Torn == "" && e.Changed.After(boot) && (best == nil || step > best.Step) {
			best = &api.Checkpoint{Step: step, Path: e.Name, FinishedAt: e.Changed}
		}
	}
	return best, entries, nil
}
