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
	"nomad-spotter/checkpointer/store"
	"nomad-spotter/checkpointer/store/sealed"
)

// Waits between attempts to reach a store.
const (
	minRetry = 250 * time.Millisecond
	maxRetry = 5 * time.Second
)

// callTimeout bounds one look-up of stores and one claim.
const callTimeout = 30 * time.Second

// finder names the stores to try, preferred first.
type finder func(ctx context.Context) ([]discovery.Store, error)

// newFinder returns what finds the store to write to, and what lists the stores for replicas.
func newFinder(conf api.AgentConfig) (find finder, regions func(context.Context) ([]discovery.Store, error), err error) {
	fixed := func(context.Context) ([]discovery.Store, error) { return []discovery.Store{{URL: conf.Store}}, nil }
	if conf.Consul == nil {
		return fixed, nil, nil
	}
	c, err := discovery.New(*conf.Consul)
	if err != nil {
		return nil, nil, err
	}
	if conf.Store != "" {
		return fixed, c.Stores, nil
	}
	return c.Stores, c.Stores, nil
}

// openRepository opens the repository in a store. With create, one is made where there is none.
func (a *Agent) openRepository(ctx context.Context, url string, create bool) (*repository.Repository, error) {
	s, err := store.Open(url, create)
	if err != nil {
		return nil, err
	}
	if create && a.key != nil {
		s, err = sealed.Create(ctx, s, *a.key)
	} else {
		s, err = sealed.Open(ctx, s, a.key)
	}
	if err != nil {
		return nil, err
	}
	return repository.Open(ctx, metered{s, a.meter}, create)
}

// connect keeps a repository open: whenever there is none, it looks for one until it has it.
func (a *Agent) connect(ctx context.Context) {
	wait, lost := minRetry, false
	for {
		if !a.await(ctx, time.Hour, func() bool { return a.repo == nil && !a.super }) {
			if ctx.Err() != nil {
				return
			}
			continue
		}
		repo, found, err := a.openAny(ctx)
		if ctx.Err() != nil {
			return
		}
		a.mu.Lock()
		a.noStore = err
		if err == nil {
			a.repo, a.writer = repo, nil
			a.storeURL, a.single = found.URL, found.SingleWriter
			if epoch := a.state.Epochs[found.URL]; epoch > 0 && (a.conf.Epoch == 0 || a.conf.Epoch == epoch) {
				a.writer = a.resume(repo, a.line(found.URL), epoch)
			}
			if lost {
				a.event(api.EventStoreFound, nil, "Checkpoint store %s is reachable again", repo.URL())
			}
			lost, wait = false, minRetry
			a.bump()
			a.mu.Unlock()
			continue
		}
		if !lost {
			a.event(api.EventStoreLost, nil, "No checkpoint store is reachable; checkpoints wait on this node: %v", err)
			lost = true
		}
		a.mu.Unlock()
		a.log.Debug("no store", "error", err, "retry_in", wait)
		if !sleep(ctx, wait) {
			return
		}
		wait = min(2*wait, maxRetry)
	}
}

// openAny opens a store: the one that this agent writes to, or, before it has one, the one that holds the newest snapshot of
// the lineage; of several, where the lineage may be written. Where several are as good, the first counts.
func (a *Agent) openAny(ctx context.Context) (*repository.Repository, discovery.Store, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	list, err := a.finder(ctx)
	if err != nil {
		return nil, discovery.Store{}, err
	}
	a.mu.Lock()
	chosen := len(a.state.Epochs) > 0
	// Other stores may be replicas by now: those come after the ones that this agent has written to.
	foreign := func(s discovery.Store) int {
		if _, own := a.state.Epochs[s.URL]; own {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(list, func(x, y discovery.Store) int { return cmp.Compare(foreign(x), foreign(y)) })
	a.mu.Unlock()
	var errs []error
	var best *repository.Repository
	bestIn, bestAt := discovery.Store{}, repository.Standing{}
	for _, s := range list {
		a.mu.Lock()
		// A store that this agent has written to must still be a repository: an empty directory in its place is a mount
		// that went away.
		create := a.state.Epochs[s.URL] == 0
		a.mu.Unlock()
		repo, err := a.openRepository(ctx, s.URL, create)
		if err == nil && (!chosen || a.conf.Epoch > 0) {
			err = a.given(ctx, repo)
		}
		if err == nil && (chosen || len(list) == 1) {
			return repo, s, nil
		}
		var st repository.Standing
		if err == nil {
			st, err = repo.Standing(ctx, a.conf.Lineage)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if best == nil || st.Ahead(bestAt) {
			best, bestIn, bestAt = repo, s, st
		}
	}
	if best != nil {
		for _, err := range errs {
			a.log.Warn("a store is passed over; it may hold newer checkpoints", "error", err)
		}
		return best, bestIn, nil
	}
	return nil, discovery.Store{}, errors.Join(errs...)
}

// disconnect drops a repository that failed, unless another has taken its place. The caller holds mu.
func (a *Agent) disconnect(repo *repository.Repository) {
	if a.repo == repo {
		a.repo, a.writer = nil, nil
		a.bump()
	}
}

// claim makes sure of a writer for the open repository. A claimed epoch is in the state file before it is used.
func (a *Agent) claim(ctx context.Context) (*repository.Repository, *repository.Writer, error) {
	a.mu.Lock()
	repo, writer, url, single := a.repo, a.writer, a.storeURL, a.single
	a.mu.Unlock()
	if repo == nil {
		return nil, nil, errors.New("no checkpoint store is reachable")
	}
	if writer != nil {
		return repo, writer, nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	w, err := a.enter(ctx, repo, single)
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil {
		a.disconnect(repo)
		return nil, nil, fmt.Errorf("claim a writer epoch: %w", err)
	}
	a.state.Epochs[url] = w.Epoch
	if w.Lineage != a.conf.Lineage {
		if a.state.Lines == nil {
			a.state.Lines = map[string]string{}
		}
		a.state.Lines[url] = w.Lineage
		a.event(api.EventWarning, nil, "The store that this lineage is written in is not reachable: it goes on as %s in %s", w.Lineage, repo.URL())
	}
	a.save()
	if err := a.mark(url, w.Epoch); err != nil {
		a.log.Warn("cannot mark the checkpoint directory with its epoch", "error", err)
	}
	if a.repo == repo && a.writer == nil {
		a.writer = w
		a.bump()
	}
	return repo, w, nil
}
