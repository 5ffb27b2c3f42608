package evacuate

import (
	"context"
	"time"
)

// act starts one action of a plan and records that it is under way.
func (r *Runner) act(ctx context.Context, now time.Time, a Action) {
	switch a.Verb {
	case VerbAsk:
		r.ask(ctx, now, r.tasks[a.TaskID], a.Ask)
	case VerbWithdraw:
		r.withdraw(ctx, r.tasks[a.TaskID])
	case VerbMarkIneligible:
		r.markIneligible(ctx)
	case VerbMarkEligible:
		r.markEligible(ctx)
	case VerbStopAlloc:
		r.stopAlloc(ctx, a.Namespace, a.AllocID)
	case VerbEnd:
		r.end(ctx, now, r.tasks[a.TaskID], a.End)
	}
}

// finish records the outcome of a try.
func finish(a *Attempt, err error) {
	a.InFlight, a.Last = false, time.Now()
	if err == nil {
		a.Done, a.Refused = true, false
		return
	}
	a.Failures++
	a.Refused = refused(err)
}

func (r *Runner) ask(ctx context.Context, now time.Time, rec *taskRecord, ask Ask) {
	if rec.withdrawing {
		return // it might withdraw this one; the plan lists it again
	}
	failures := rec.progress.Ask.Failures
	rec.resetAsk()
	rec.progress.Ask = Attempt{InFlight: true, Failures: failures}
	rec.progress.AskFor = ask.Deadline
	current := rec.ask
	st := rec.progress.TaskState
	log := r.log.With("task_id", st.ID, "alloc_id", st.AllocID)
	log.Info("asking for a checkpoint", "reason", ask.Reason, "final", ask.Final, "deadline", ask.Deadline)

	wctx, stop := context.WithDeadline(ctx, ask.Deadline.Add(maxGrace))
	rec.stopWait = stop
	r.workers.Go(func() {
		defer stop()
		o, err := rec.task.Checkpoint(wctx, ask)
		r.post(ctx, func() {
			if rec.ask != current {
				return // asked anew, withdrawn, or gone
			}
			rec.stopWait = nil
			finish(&rec.progress.Ask, err)
			switch {
			case err != nil:
				log.Warn("asking for a checkpoint failed", "error", err)
				rec.tellOnce(notAsked(err))
			case o.Durable:
				log.Info("checkpoint is durable", "step", o.Step, "seconds", time.Since(now).Seconds())
			default:
				log.Warn("no new checkpoint", "reason", o.Error)
				rec.tellOnce(notDurable(o))
			}
		})
	})
}

func (r *Runner) withdraw(ctx context.Context, rec *taskRecord) {
	if rec.withdrawing {
		return // the plan lists it as long as the task says that a final request is open
	}
	rec.resetAsk()
	rec.withdrawing = true
	r.log.Info("withdrawing the final checkpoint request", "task_id", rec.progress.ID)
	r.work(ctx, callLimit, rec.task.Withdraw, func(err error) {
		rec.withdrawing = false
		if err != nil {
			r.log.Warn("withdrawing failed, trying again", "task_id", rec.progress.ID, "error", err)
		}
	})
}

func (r *Runner) markIneligible(ctx context.Context) {
	if r.nodeBusy {
		return // the two calls must not overtake each other; the plan lists it again
	}
	r.nodeBusy, r.node.Ineligible.InFlight = true, true
	var took bool
	call := func(ctx context.Context) (err error) {
		took, err = r.cluster.MarkIneligible(ctx)
		return err
	}
	r.work(ctx, callLimit, call, func(err error) {
		r.nodeBusy = false
		finish(&r.node.Ineligible, err)
		if err != nil {
			r.log.Error("cannot mark the node ineligible", "error", err, "hint", reason(err))
			r.tellAllOnce(cannotMark(err))
			return
		}
		if took {
			r.remember(true)
		}
		r.log.Info("node marked ineligible", "was_already", !took)
		r.tellAllOnce(msgIneligible)
	})
}

func (r *Runner) markEligible(ctx context.Context) {
	if r.nodeBusy {
		return
	}
	r.nodeBusy, r.node.Eligible.InFlight = true, true
	r.work(ctx, callLimit, r.cluster.MarkEligible, func(err error) {
		r.nodeBusy = false
		finish(&r.node.Eligible, err)
		if err != nil {
			r.log.Error("cannot mark the node eligible again", "error", err, "hint", reason(err))
			return
		}
		r.remember(false)
		r.log.Info("node marked eligible again")
	})
}

func (r *Runner) stopAlloc(ctx context.Context, namespace, id string) {
	m := r.moves[id]
	m.InFlight = true
	r.moves[id] = m
	// Those that are told: they may be gone from the list by the time the answer comes.
	var told []*taskRecord
	for _, rec := range r.tasks {
		if rec.progress.AllocID == id {
			told = append(told, rec)
		}
	}
	call := func(ctx context.Context) error { return r.cluster.StopAlloc(ctx, namespace, id) }
	r.work(ctx, callLimit, call, func(err error) {
		m := r.moves[id]
		finish(&m, err)
		r.moves[id] = m
		if err != nil {
			r.log.Error("cannot stop the allocation", "alloc_id", id, "error", err, "hint", reason(err))
		} else {
			r.log.Info("allocation stop requested", "alloc_id", id)
		}
		for _, rec := range told {
			if err != nil {
				rec.tellOnce(cannotStop(err))
			} else {
				rec.tellOnce(stopRequested(rec.task.State()))
			}
		}
	})
}

func (r *Runner) end(ctx context.Context, now time.Time, rec *taskRecord, end End) {
	rec.progress.End.InFlight = true
	st := rec.task.State()
	rec.tellOnce(endsAsFailed(st, end.Reason))
	r.log.Info("ending the task as failed", "task_id", st.ID, "exit_code", ExitCode, "reason", end.Reason, "deadline", end.Deadline)
	limit := max(time.Second, end.Deadline.Sub(now)) + time.Second
	r.work(ctx, limit, func(ctx context.Context) error { return rec.task.End(ctx, end) }, func(err error) {
		finish(&rec.progress.End, err)
		if err != nil {
			r.log.Error("ending the task failed, trying again", "task_id", st.ID, "error", err)
		}
	})
}

func (r *Runner) tellAllOnce(message string) {
	for _, t := range r.tasks {
		if t.progress.Running {
			t.tellOnce(message)
		}
	}
}
