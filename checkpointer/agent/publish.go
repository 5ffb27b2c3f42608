package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"nomad-spotter/checkpointer/api"
	"nomad-spotter/checkpointer/repository"
	"nomad-spotter/checkpointer/stage"
)

// publishLoop uploads what is queued, one checkpoint at a time, oldest first.
func (a *Agent) publishLoop(ctx context.Context) {
	wait, failing := minRetry, false
	for ctx.Err() == nil {
		if !a.await(ctx, maxAwait, func() bool { return a.publishable() >= 0 && a.repo != nil && !a.super }) {
			continue
		}
		a.mu.Lock()
		i := a.publishable()
		if i < 0 {
			a.mu.Unlock()
			continue
		}
		st := a.queue[i]
		a.queue, a.busy = slices.Delete(a.queue, i, i+1), st
		a.mu.Unlock()

		repo, p, k, err := a.publish(ctx, st)

		a.mu.Lock()
		a.busy = nil
		switch {
		case err == nil:
			wait, failing = minRetry, false
			a.published(st, p, k.effort, k.epoch)
		case errors.Is(err, repository.ErrSuperseded):
			a.super = true
			a.queue = slices.Insert(a.queue, 0, st)
			a.event(api.EventSuperseded, nil, "A newer run of this task has taken over: %v", err)
		case a.conf.Epoch > 0 && (errors.Is(err, repository.ErrConflict) || errors.Is(err, repository.ErrRanks)):
			a.event(api.EventFailed, checkpoint(st), "Checkpoint %d is given up, it does not fit what is stored of that step: %v", st.Step, err)
			a.drop(st)
		case errors.Is(err, repository.ErrConflict):
			// The same step with other bytes is a checkpoint of its own: it goes into an epoch of its own.
			a.queue = slices.Insert(a.queue, 0, st)
			if a.repo == repo {
				a.writer = nil
				a.state.Epochs[a.storeURL] = 0
			}
		case errors.Is(err, errAbandoned):
			a.event(api.EventWarning, checkpoint(st), "Checkpoint %d is given up: with it, the one that is asked for would not be in the store in time", st.Step)
			a.drop(st)
		case errors.Is(err, stage.ErrChanged):
			a.event(api.EventFailed, checkpoint(st), "Checkpoint %d was overwritten before it was saved", st.Step)
			a.drop(st)
		default:
			a.queue = slices.Insert(a.queue, 0, st)
			a.trim()
			if !failing && ctx.Err() == nil {
				a.event(api.EventFailed, checkpoint(st), "Checkpoint %d is not saved yet, trying again: %v", st.Step, err)
			}
			failing = true
			a.disconnect(repo)
		}
		a.resolve()
		a.bump()
		a.endIfDone()
		a.mu.Unlock()
		if failing {
			if !sleep(ctx, wait) {
				return
			}
			wait = min(2*wait, maxRetry)
		}
	}
}

func (a *Agent) publish(ctx context.Context, st *stage.Staged) (*repository.Repository, repository.Published, *work, error) {
	repo, w, err := a.claim(ctx)
	if err != nil {
		return repo, repository.Published{}, nil, err
	}
	ctx, k := a.begin(ctx, st, w.Epoch)
	w.Options.Effort = k.effort
	w.Options.Progress = func(n int64) { k.progress(a.now, n) }
	p, err := w.Publish(ctx, st.Step, st.Source(), a.now())
	a.mu.Lock()
	defer a.mu.Unlock()
	if err == nil {
		a.end(k, &p)
		return repo, p, k, nil
	}
	if errors.Is(context.Cause(ctx), errAbandoned) {
		err = errAbandoned
	}
	a.end(k, nil)
	return repo, p, k, err
}

// drop removes a checkpoint from the stage. The caller holds mu.
func (a *Agent) drop(st *stage.Staged) {
	if err := a.stage.Remove(st); err != nil {
		a.log.Warn("cannot clean the stage", "error", err)
	}
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
