package agent

import (
	"context"
	"errors"
	"slices"

	"nomad-spotter/checkpointer/api"
	"nomad-spotter/checkpointer/delta"
	"nomad-spotter/checkpointer/repository"
	"nomad-spotter/checkpointer/stage"
)

// saved is a checkpoint that is in the store that this agent writes to.
type saved struct {
	Checkpoint *api.Checkpoint `json:"checkpoint"`
	Request    uint64          `json:"request,omitempty"` // that it answers
	Epoch      uint64          `json:"epoch"`
}

// covered tells whether a snapshot of this epoch and step, or a later one, makes sure of a saved checkpoint.
func (s saved) covered(epoch uint64, step int64) bool {
	return epoch > s.Epoch || epoch == s.Epoch && step >= s.Checkpoint.Step
}

// level is what a checkpoint must reach to be called durable.
func level(c api.AgentConfig) api.Durability {
	if c.Durability == "" {
		return api.DurabilityStore
	}
	return c.Durability
}

// published records a checkpoint that is in the store. The caller holds mu.
func (a *Agent) published(st *stage.Staged, p repository.Published, effort delta.Effort, epoch uint64) {
	now := a.now()
	cp := checkpoint(st)
	rounds, _ := precision(a.conf) // it was checked
	cp.Effort, cp.Precision, cp.Snapshot, cp.StoredBytes, cp.StoredAt = effortName(effort), rounds.String(), p.ID, p.StoredBytes, now
	s := saved{cp, st.Request, epoch}
	a.state.Stored, a.state.Saved = &s, max(a.state.Saved, st.Request)
	a.state.Pace.stored(now.Sub(cp.FinishedAt))
	a.keep(st, p.ID)
	took, raw, stored := seconds(now.Sub(cp.FinishedAt)), megabytes(cp.RawBytes), megabytes(cp.StoredBytes)
	switch level(a.conf) {
	case api.DurabilityStore:
		cp.DurableAt = now
		a.reached(cp, st.Request)
		a.event(api.EventDurable, cp, "Checkpoint %d durable in %s (%s, %s new)", cp.Step, took, raw, stored)
	case api.DurabilityLocal:
		if d := a.state.Durable; d != nil && d.Step == cp.Step && d.FinishedAt.Equal(cp.FinishedAt) {
			cp.DurableAt = d.DurableAt
		}
		if cp.DurableAt.IsZero() { // it was never in the stage for good
			cp.DurableAt = now
		}
		if d := a.state.Durable; d == nil || !d.FinishedAt.After(cp.FinishedAt) {
			a.reached(cp, st.Request)
		}
		a.event(api.EventStored, cp, "Checkpoint %d stored in %s (%s, %s new)", cp.Step, took, raw, stored)
	case api.DurabilityReplicated:
		a.state.Waiting = append(a.state.Waiting, s)
		a.save()
		a.event(api.EventStored, cp, "Checkpoint %d stored in %s (%s, %s new), to be replicated", cp.Step, took, raw, stored)
	}
}

// reached records a checkpoint that has become durable, as the level says. The caller holds mu.
func (a *Agent) reached(cp *api.Checkpoint, request uint64) {
	a.state.Durable = cp
	a.state.Answered = max(a.state.Answered, request)
	a.save()
}

// basis is the newest checkpoint that counts for a request, and the newest request that one answered. A final request means
// that this node is left, so that what is only on this node does not count for it. The caller holds mu.
func (a *Agent) basis(r *request) (cp *api.Checkpoint, answered uint64) {
	if r.Final && level(a.conf) == api.DurabilityLocal {
		if a.state.Stored == nil {
			return nil, a.state.Saved
		}
		return a.state.Stored.Checkpoint, a.state.Saved
	}
	return a.state.Durable, a.state.Answered
}

// publishable is the index of the queue's first checkpoint that may be published, -1 if there is none. Where checkpoints are
// durable on this node first, those wait for that. The caller holds mu.
func (a *Agent) publishable() int {
	return slices.IndexFunc(a.queue, func(st *stage.Staged) bool {
		return level(a.conf) != api.DurabilityLocal || st.Synced || a.soft[st.Seq]
	})
}

// toHarden is the newest checkpoint of the queue that is still to be made durable on this node. The caller holds mu.
func (a *Agent) toHarden() *stage.Staged {
	for _, st := range slices.Backward(a.queue) {
		if !st.Synced && !a.soft[st.Seq] {
			return st
		}
	}
	return nil
}

// harden makes staged checkpoints durable on this node, where that is what the level asks for.
func (a *Agent) harden(ctx context.Context) {
	for ctx.Err() == nil {
		if !a.await(ctx, maxAwait, func() bool { return a.toHarden() != nil }) {
			continue
		}
		a.mu.Lock()
		st := a.toHarden()
		a.hard = st
		a.mu.Unlock()
		if st == nil {
			continue
		}
		done, err := a.stage.Harden(st)
		a.mu.Lock()
		a.hard = nil
		a.hardened(st, done, err)
		a.mu.Unlock()
	}
}

// hardened takes note of what became of st. The caller holds mu.
func (a *Agent) hardened(st, done *stage.Staged, err error) {
	i := slices.Index(a.queue, st)
	switch {
	case errors.Is(err, stage.ErrChanged):
		a.event(api.EventFailed, checkpoint(st), "Checkpoint %d was overwritten before it was saved", st.Step)
		a.queue = slices.Delete(a.queue, i, i+1)
		a.drop(st)
	case err != nil:
		a.soft[st.Seq] = true
		a.event(api.EventFailed, checkpoint(st), "Checkpoint %d cannot be made durable on this node, only in the store: %v", st.Step, err)
	default:
		a.queue[i] = done
		cp := checkpoint(done)
		cp.DurableAt = a.now()
		a.reached(cp, done.Request)
		a.event(api.EventDurable, cp, "Checkpoint %d durable on this node in %s (%s)", cp.Step, seconds(cp.DurableAt.Sub(cp.FinishedAt)), megabytes(cp.RawBytes))
		a.trim()
	}
	a.resolve()
	a.bump()
	a.endIfDone()
}
