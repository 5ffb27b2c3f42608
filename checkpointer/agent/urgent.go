package agent

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"nomad-spotter/checkpointer/api"
	"nomad-spotter/checkpointer/delta"
	"nomad-spotter/checkpointer/repository"
	"nomad-spotter/checkpointer/stage"
)

// errAbandoned ends the publication of a checkpoint in favour of a newer one.
var errAbandoned = errors.New("given up for a newer checkpoint")

// work is a checkpoint that is being published.
type work struct {
	st     *stage.Staged
	epoch  uint64
	effort delta.Effort
	start  time.Time
	before reading // of the meter
	cpu    time.Duration
	done   atomic.Int64 // raw bytes coded
	coded  atomic.Int64 // nanoseconds from the start until the last of them was
	cancel context.CancelCauseFunc
}

// begin prepares the publication of a staged checkpoint, and says in which context it runs.
func (a *Agent) begin(ctx context.Context, st *stage.Staged, epoch uint64) (context.Context, *work) {
	k := &work{st: st, epoch: epoch, start: a.now(), before: a.meter.read(), cpu: cpuTime()}
	ctx, k.cancel = context.WithCancelCause(ctx)
	a.mu.Lock()
	defer a.mu.Unlock()
	k.effort = a.effort(st)
	a.work = k
	return ctx, k
}

// progress is repository.Options.Progress, called by several goroutines.
func (k *work) progress(now func() time.Time, n int64) {
	for old := k.done.Load(); n > old; old = k.done.Load() {
		if k.done.CompareAndSwap(old, n) {
			k.coded.Store(int64(now().Sub(k.start)))
		}
	}
}

// end learns from a publication that succeeded. The caller holds mu.
func (a *Agent) end(k *work, p *repository.Published) {
	k.cancel(nil)
	if a.work == k {
		a.work = nil
	}
	if p == nil {
		return
	}
	link := a.meter.read().minus(k.before)
	code := time.Duration(k.coded.Load())
	// Where the link is what everything waits for, coding waited too: what it would have taken is what it computed.
	if wall := a.now().Sub(k.start); link.sending > wall*7/10 {
		code = min(code, (cpuTime()-k.cpu)/time.Duration(cpus(a.conf)))
	}
	a.state.Rates = a.state.Rates.Learn(Sample{
		Effort: k.effort, Raw: p.RawBytes, Stored: p.StoredBytes, Code: code, Sent: link.sent, Sending: link.sending,
	})
}

// cpuTime is what this process has computed so far.
func cpuTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// urgent is the open request that has a deadline, nil if there is none. A request of the cadence has one as well, but
// nothing is lost when that passes. The caller holds mu.
func (a *Agent) urgent() *request {
	r := a.state.Request
	if r == nil || r.Closed || r.Deadline.IsZero() || r.Reason == api.ReasonInterval {
		return nil
	}
	return r
}

// answers tells whether a checkpoint may be what a request waits for.
func (r *request) answers(m stage.Meta) bool {
	if m.Request != 0 {
		return m.Request >= r.ID
	}
	return !m.FinishedAt.Before(r.At)
}

// usual is the effort when there is no hurry. The caller holds mu.
func (a *Agent) usual() delta.Effort {
	if e, fixed, err := ParseEffort(a.conf.Effort); err == nil && fixed {
		return e
	}
	return a.state.Rates.Weigh()
}

// effort chooses the effort for a checkpoint. The caller holds mu.
func (a *Agent) effort(st *stage.Staged) delta.Effort {
	usual := a.usual()
	r := a.urgent()
	if r == nil {
		return usual
	}
	left := r.Deadline.Sub(a.now())
	e := a.state.Rates.Choose(usual, st.RawBytes, left)
	if e != usual {
		a.log.Info("the deadline is near: another effort than usual", "step", st.Step, "effort", effortName(e), "usual", effortName(usual), "left", left)
	}
	return e
}

// reconsider gives up the checkpoint that is being published if it stands in the way of one that answers an urgent request,
// and a copy to a replica as well. The caller holds mu.
func (a *Agent) reconsider() {
	if a.copying != nil && a.yields() {
		a.copying(errAbandoned)
	}
	k, r := a.work, a.urgent()
	if k == nil || r == nil || r.answers(k.st.Meta) {
		return
	}
	for _, st := range a.queue {
		if !r.answers(st.Meta) {
			continue
		}
		link := a.meter.read().minus(k.before)
		rates := a.state.Rates.seen(link)
		w := Work{Effort: k.effort, Raw: k.st.RawBytes, Done: k.done.Load(), Sent: link.sent}
		if left := r.Deadline.Sub(a.now()); rates.Abandon(w, a.usual(), st.RawBytes, left) {
			k.cancel(errAbandoned)
		}
		return
	}
}

// seen corrects the speed of the link by what is seen of it at the moment: it is no faster than if all that is on its way
// were there now.
func (r Rates) seen(link reading) Rates {
	if link.sending < time.Second {
		return r
	}
	most := float64(link.sent+link.flying) / link.sending.Seconds()
	if most < r.link() {
		r.Link = max(most, 1)
	}
	return r
}
