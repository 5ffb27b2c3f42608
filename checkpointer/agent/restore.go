package agent

import (
	"cmp"
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
			a.mu.Lock()
			last = cmp.Or(last, a.noStore, errors.New("none was found"))
			a.mu.Unlock()
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
	from := repo.URL()
	if local == nil || (len(list) > 0 && list[0].Step >= local.Step) {
		m, from, damaged, err = a.fetch(ctx, repo, list)
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
		a.state.Resumed = &api.Checkpoint{Step: m.Step, Path: m.Name, Snapshot: m.ID(), RawBytes: m.RawBytes, Precision: m.Precision.String(), FinishedAt: m.Created, StoredAt: m.Created, DurableAt: m.Created}
		a.state.Durable = a.state.Resumed
		a.state.Stored = &saved{Checkpoint: a.state.Resumed, Epoch: m.Epoch}
		a.event(api.EventRestored, a.state.Resumed, "Restored step %d from %s (%s%s)", m.Step, from, megabytes(m.RawBytes), m.Precision.Remark())
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
	r.Store, r.Epoch = from, w.Epoch
	return r, nil
}

// fetch restores the newest snapshot of a list, and says from which store. One that is damaged is restored from another
// store that has it, else the one before is. The task does not run yet: its cores may be used.
func (a *Agent) fetch(ctx context.Context, repo *repository.Repository, list []repository.Snapshot) (*repository.Manifest, string, []api.Damage, error) {
	n := restoring(a.conf)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(n))
	target := repository.Target{
		Dir: a.conf.CheckpointDir, UID: a.conf.UID, GID: a.conf.GID, Workers: n, Rank: a.conf.Rank, Ranks: a.conf.Ranks,
	}
	if a.conf.Ranks > 1 { // what all ranks restore must not depend on what one of them sees elsewhere
		m, damaged, err := repo.Newest(ctx, a.conf.Lineage, target)
		return m, repo.URL(), damaged, err
	}
	var damaged []api.Damage
	for _, s := range list {
		m, err := repo.Restore(ctx, s, target)
		var d *repository.DamageError
		if !errors.As(err, &d) {
			return m, repo.URL(), damaged, err
		}
		if m, url := a.elsewhere(ctx, repo, s, target); m != nil {
			a.log.Warn("the snapshot is damaged in its store and was restored from another", "store", repo.URL(), "error", err)
			return m, url, damaged, nil
		}
		damaged = append(damaged, d.Damage)
	}
	if len(damaged) > 0 {
		return nil, "", damaged, fmt.Errorf("restore %s: all %d snapshots are damaged: %w", a.conf.Lineage, len(damaged), repository.ErrNoSnapshot)
	}
	return nil, "", nil, nil
}

// elsewhere restores a snapshot from a replica; nil if there is none that can be reached and is intact.
func (a *Agent) elsewhere(ctx context.Context, home *repository.Repository, s repository.Snapshot, target repository.Target) (*repository.Manifest, string) {
	origin, err := home.Standing(ctx, s.Lineage)
	if err != nil {
		return nil, ""
	}
	find, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	list, err := a.finder(find)
	if err != nil {
		return nil, ""
	}
	for _, other := range list {
		repo, err := a.openRepository(ctx, other.URL, false)
		if err != nil || repo.ID() == home.ID() {
			continue
		}
		if at, err := repo.Standing(ctx, s.Lineage); err != nil || at.Origin != origin.Origin {
			continue // what is called the same there is not the same
		}
		if m, err := repo.Restore(ctx, s, target); err == nil {
			return m, repo.URL()
		}
	}
	return nil, ""
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
