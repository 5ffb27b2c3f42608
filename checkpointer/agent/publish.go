package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"nomad-spotter/checkpointer/api"
	"nomad-spotter/checkpointer/delta"
	"nomad-spotter/checkpointer/repository"
	"nomad-spotter/checkpointer/stage"
)

// publishLoop uploads what is queued, one checkpoint at a time, oldest first.
func (a *Agent) publishLoop(ctx context.Context) {
	wait, failing := minRetry, false
	for ctx.Err() == nil {
		if !a.await(ctx, time.Hour, func() bool { return len(a.queue) > 0 && a.repo != nil && !a.super }) {
			continue
		}
		a.mu.Lock()
		if len(a.queue) == 0 {
			a.mu.Unlock()
			continue
		}
		st := a.queue[0]
		a.queue, a.busy = slices.Delete(a.queue, 0, 1), st
		a.mu.Unlock()

		repo, p, effort, err := a.publish(ctx, st)

		a.mu.Lock()
		a.busy = nil
		switch {
		case err == nil:
			wait, failing = minRetry, false
			a.durable(st, p, effort)
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

func (a *Agent) publish(ctx context.Context, st *stage.Staged) (*repository.Repository, repository.Published, delta.Effort, error) {
	repo, w, err := a.claim(ctx)
	if err != nil {
		return repo, repository.Published{}, 0, err
	}
	ctx, k := a.begin(ctx, st)
	w.Options.Effort = k.effort
	w.Options.Progress = func(n int64) { k.progress(a.now, n) }
	p, err := w.Publish(ctx, st.Step, st.Source(), a.now())
	if err != nil && errors.Is(context.Cause(ctx), errAbandoned) {
		err = errAbandoned
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil {
		a.end(k, nil)
		return repo, p, k.effort, err
	}
	a.end(k, &p)
	return repo, p, k.effort, nil
}

// durable records a checkpoint that is in the store. The caller holds mu.
func (a *Agent) durable(st *stage.Staged, p repository.Published, effort delta.Effort) {
	cp := checkpoint(st)
	cp.Effort = effortName(effort)
	cp.Snapshot, cp.StoredBytes, cp.DurableAt = p.ID, p.StoredBytes, a.now()
	a.state.Durable = cp
	a.state.Answered = max(a.state.Answered, st.Request)
	a.keep(st, p.ID)
	a.save()
	a.event(api.EventDurable, cp, "Checkpoint %d durable in %s (%s, %s new)", cp.Step,
		seconds(cp.DurableAt.Sub(cp.FinishedAt)), megabytes(cp.RawBytes), megabytes(cp.StoredBytes))
}

// drop removes a checkpoint from the stage. The caller holds mu.
func (a *Agent) drop(st *stage.Staged) {
	if err := a.stage.Remove(st); err != nil {
		a.log.Warn("cannot clean the stage", "error", err)
	}
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
