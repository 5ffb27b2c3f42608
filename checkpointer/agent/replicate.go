package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"nomad-spotter/checkpointer/api"
	"nomad-spotter/checkpointer/discovery"
	"nomad-spotter/checkpointer/repository"
	"nomad-spotter/checkpointer/stage"
)

const (
	// maxReplicaRetry is the longest pause between attempts to replicate.
	maxReplicaRetry = time.Minute
	// stall is how long a copy may make no progress.
	stall = 2 * time.Minute
	// replicaPatience is how long after the task's end the agent stays for replicas that are not there yet, if nobody waits
	// for them.
	replicaPatience = 15 * time.Minute
)

// errStalled ends a copy that makes no progress.
var errStalled = fmt.Errorf("no progress for %s", stall)

// replica is what is known of the lineage in another store.
type replica struct {
	Region   string    `json:"region,omitempty"`
	Snapshot string    `json:"snapshot,omitempty"` // the newest that was copied there; "": none yet
	Epoch    uint64    `json:"epoch,omitempty"`
	Step     int64     `json:"step,omitempty"`
	At       time.Time `json:"at,omitzero"`
	Error    string    `json:"error,omitempty"` // of the last attempt
}

// holds tells whether the replica makes sure of a saved checkpoint.
func (r *replica) holds(s saved) bool { return r.Snapshot != "" && s.covered(r.Epoch, r.Step) }

// targets chooses at most n stores for replicas: each in another region than home and than the others, those that have a
// replica first, and then in the order of the list. A store of no known region is a region of its own.
func targets(list []discovery.Store, home string, n int, has, unfit func(url string) bool) []discovery.Store {
	region := func(s discovery.Store) string {
		if s.Region == "" {
			return "store " + s.URL
		}
		return "region " + s.Region
	}
	taken := map[string]bool{}
	for _, s := range list {
		if s.URL == home {
			taken[region(s)] = true
		}
	}
	var out []discovery.Store
	for _, known := range []bool{true, false} {
		for _, s := range list {
			if len(out) < n && s.URL != home && has(s.URL) == known && !unfit(s.URL) && !taken[region(s)] {
				taken[region(s)] = true
				out = append(out, s)
			}
		}
	}
	return out
}

// copies counts the replicas that make sure of a saved checkpoint. The caller holds mu.
func (a *Agent) copies(s saved) (n int) {
	for _, r := range a.state.Replicas {
		if r.holds(s) {
			n++
		}
	}
	return n
}

// lagging tells whether the newest stored checkpoint has too few replicas. The caller holds mu.
func (a *Agent) lagging() bool {
	return a.conf.Replicas > 0 && a.state.Stored != nil && !a.super && a.copies(*a.state.Stored) < a.conf.Replicas
}

// yields tells whether replicas must wait: an urgent request waits for what is not even in one store, and that needs the
// link. The caller holds mu.
func (a *Agent) yields() bool {
	r := a.urgent()
	if r == nil || len(a.queue) == 0 && a.busy == nil {
		return false
	}
	s := a.state.Stored
	return s == nil || !r.answers(stage.Meta{Request: s.Request, FinishedAt: s.Checkpoint.FinishedAt})
}

// replicate copies the newest stored checkpoint to other regions, again and again until there are as many replicas as there
// should be.
func (a *Agent) replicate(ctx context.Context) {
	wait := minRetry
	for ctx.Err() == nil {
		if !a.await(ctx, maxAwait, func() bool { return a.repo != nil && a.lagging() && !a.yields() }) {
			continue
		}
		err := a.round(ctx)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			wait = minRetry
			continue
		}
		a.log.Debug("replicas are behind", "error", err, "retry_in", wait)
		if !sleep(ctx, wait) {
			return
		}
		wait = min(2*wait, maxReplicaRetry)
	}
}

// round makes one attempt at every replica that is behind.
func (a *Agent) round(ctx context.Context) error {
	find, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	list, err := a.regions(find)
	if err != nil {
		return err
	}
	a.mu.Lock()
	repo, home, newest := a.repo, a.storeURL, a.state.Stored
	if repo == nil || newest == nil {
		a.mu.Unlock()
		return errors.New("the store is not reachable")
	}
	line := a.line(home)
	has := func(url string) bool { return a.state.Replicas[url] != nil && a.state.Replicas[url].Snapshot != "" }
	chosen := targets(list, home, a.conf.Replicas, has, func(url string) bool { return a.unfit[url] })
	var errs []error
	if len(chosen) < a.conf.Replicas {
		errs = append(errs, fmt.Errorf("%d of %d other regions have a store", len(chosen), a.conf.Replicas))
		if !a.toldFew {
			a.toldFew = true
			a.event(api.EventWarning, nil, "Checkpoints are to have %d replicas in other regions, and only %d of them have a healthy store", a.conf.Replicas, len(chosen))
		}
	} else {
		a.toldFew = false
	}
	known := map[string]bool{}
	chosen = slices.DeleteFunc(chosen, func(s discovery.Store) bool {
		r := a.state.Replicas[s.URL]
		known[s.URL] = has(s.URL)
		return r != nil && r.holds(*newest)
	})
	a.mu.Unlock()
	for _, t := range chosen {
		began := a.now()
		s, c, err := a.copyTo(ctx, repo, line, t, known[t.URL])
		if ctx.Err() != nil {
			return ctx.Err()
		}
		a.mu.Lock()
		a.copied(t, s, c, began, err)
		a.mu.Unlock()
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// copyTo copies the newest complete snapshot of a lineage. Of several ranks the first one copies for all; the others look
// whether it is there.
func (a *Agent) copyTo(ctx context.Context, from *repository.Repository, line string, t discovery.Store, known bool) (s repository.Snapshot, c repository.Copied, err error) {
	list, err := from.Snapshots(ctx, line)
	if err != nil {
		return s, c, err
	}
	if len(list) == 0 {
		return s, c, errors.New("no snapshot is complete yet")
	}
	s = list[0]
	to, err := a.openRepository(ctx, t.URL, !known)
	if err != nil {
		return s, c, err
	}
	if a.conf.Rank > 0 {
		c, err = repository.Missing(ctx, from, to, s)
		if err == nil && !c.There {
			err = errors.New("the first rank has not copied it yet")
		}
		return s, c, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(stall, func() { cancel(errStalled) })
	defer timer.Stop()
	a.mu.Lock()
	a.copying = cancel
	a.mu.Unlock()
	c, err = repository.Copy(ctx, from, to, s, repository.CopyOptions{Progress: func(int64) { timer.Reset(stall) }})
	a.mu.Lock()
	a.copying = nil
	a.mu.Unlock()
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = errors.Join(cause, err)
	}
	return s, c, err
}

// copied takes note of an attempt. The caller holds mu.
func (a *Agent) copied(t discovery.Store, s repository.Snapshot, c repository.Copied, began time.Time, err error) {
	r := &replica{}
	if old := a.state.Replicas[t.URL]; old != nil {
		*r = *old
	}
	told := r.Error != ""
	r.Region, r.Error = t.Region, ""
	if a.state.Replicas == nil {
		a.state.Replicas = map[string]*replica{}
	}
	a.state.Replicas[t.URL] = r
	if err != nil {
		r.Error = err.Error()
		if errors.Is(err, repository.ErrFork) {
			a.unfit[t.URL] = true
		}
		if !told && !errors.Is(err, errAbandoned) {
			a.event(api.EventWarning, nil, "Replica in %s is behind: %v", t.URL, err)
		}
		a.bump()
		return
	}
	r.Snapshot, r.Epoch, r.Step, r.At = s.ID, s.Epoch, s.Step, a.now()
	cp := &api.Checkpoint{Step: s.Step, Snapshot: s.ID}
	if n := a.state.Stored; n != nil && n.Epoch == s.Epoch && n.Checkpoint.Step == s.Step {
		cp = n.Checkpoint
	}
	a.event(api.EventReplicated, cp, "Checkpoint %d replicated to %s in %s (%s new)", s.Step, t.URL, seconds(r.At.Sub(began)), megabytes(c.Bytes))
	for len(a.state.Waiting) > 0 && a.copies(a.state.Waiting[0]) >= a.conf.Replicas {
		w := a.state.Waiting[0]
		a.state.Waiting = slices.Clone(a.state.Waiting[1:])
		done := *w.Checkpoint
		done.DurableAt = a.now()
		a.reached(&done, w.Request)
		a.event(api.EventDurable, &done, "Checkpoint %d durable in %d stores in %s (%s)", done.Step, a.conf.Replicas+1, seconds(done.DurableAt.Sub(done.FinishedAt)), megabytes(done.RawBytes))
	}
	a.save()
	a.resolve()
	a.endIfDone()
}

// replicas is called with mu held.
func (a *Agent) replicas() []api.Replica {
	var out []api.Replica
	for url, r := range a.state.Replicas {
		v := api.Replica{Store: url, Region: r.Region, Snapshot: r.Snapshot, Step: r.Step, At: r.At, Error: r.Error}
		if s := a.state.Stored; s != nil && !r.holds(*s) {
			v.LagSeconds = a.now().Sub(s.Checkpoint.StoredAt).Seconds()
			v.LagSteps = s.Checkpoint.Step - r.Step
		}
		out = append(out, v)
	}
	slices.SortFunc(out, func(x, y api.Replica) int { return cmp.Compare(x.Store, y.Store) })
	return out
}
