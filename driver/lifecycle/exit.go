package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/nomad/plugins/drivers"

	"nomad-spotter/driver/containerd"
	"nomad-spotter/driver/evacuate"
)

// retryWait is the pause before containerd is asked again.
const retryWait = time.Second

// run starts the goroutines of a task; they end with ctx, or when the task is destroyed.
func (t *Task) run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	t.m.wg.Go(func() {
		defer cancel()
		select {
		case <-t.gone:
		case <-ctx.Done():
		}
	})
	t.m.wg.Go(func() { t.watch(ctx) })
	if t.agent != nil {
		t.m.wg.Go(func() { t.supervise(ctx) })
	}
	if t.m.opts.Facts != nil {
		t.m.wg.Go(func() { t.learnFacts(ctx) })
	}
}

// watch waits for the end of the container, has the agent save the rest, and publishes the result. When ctx ends first
// nothing is published: a later plugin recovers the task.
func (t *Task) watch(ctx context.Context) {
	exit := t.ledger().Exit
	if exit == nil {
		if exit = t.awaitExit(ctx); exit == nil {
			return
		}
		t.change(func(l *ledger) { l.Exit = exit })
	}
	t.log.Info("container ended", "exit_code", exit.Code, "oom_killed", exit.OOM, "error", exit.Err)
	close(t.exited)
	if t.agent != nil && !t.finish(ctx) {
		return
	}
	t.publish()
}

// awaitExit returns how the container ended, or nil when ctx ended first. While containerd does not answer, the container
// is taken to live.
func (t *Task) awaitExit(ctx context.Context) *exitRecord {
	rt, id, told := t.m.opts.Runtime, t.st.ContainerID, false
	for {
		st, err := rt.Wait(ctx, id)
		if ctx.Err() != nil {
			return nil
		}
		switch {
		case err == nil:
			e := &exitRecord{Code: st.ExitCode, At: st.ExitedAt}
			if kills, err := containerd.OOMKills(t.st.CgroupPath); err != nil {
				t.log.Debug("look for kills for want of memory", "error", err)
			} else if kills > 0 && st.ExitCode != 0 {
				e.OOM = true
			}
			return e
		case containerd.IsNotFound(err):
			return &exitRecord{Code: -1, At: time.Now(), Err: "the container was removed by somebody else; its exit code is not known"}
		case !told:
			told = true
			t.log.Warn("containerd does not answer, asking again until it does", "error", err)
		}
		if !pause(ctx, retryWait) {
			return nil
		}
	}
}

// minFinish is what the agent gets at the least to save what is left, even if the deadline has come.
const minFinish = time.Second

// finish has the agent save what the task left. It returns false when ctx ended first.
func (t *Task) finish(ctx context.Context) bool {
	t.mu.Lock()
	by, clean := t.finishBy, t.led.Exit.Err == "" && t.led.Exit.Code == 0
	t.finishing = true
	t.mu.Unlock()
	now := time.Now()
	if by.IsZero() {
		by = now.Add(t.m.cfg.Checkpoint.FinishTimeout)
	}
	if least := now.Add(minFinish); by.Before(least) {
		by = least
	}
	for {
		_, err := t.agent.ensure(ctx)
		if err == nil {
			cctx, cancel := context.WithDeadline(ctx, by.Add(callTimeout))
			out, ferr := t.agent.client.Finish(cctx, by, clean)
			cancel()
			if err = ferr; err == nil {
				t.setDurable(out.Checkpoint)
				if !out.Done || out.Pending > 0 {
					t.Event(fmt.Sprintf("%d checkpoints are not in the store yet; they are saved in the background: %s", out.Pending, out.Error))
				}
				return true
			}
		}
		if ctx.Err() != nil {
			return false
		}
		if !time.Now().Add(retryWait).Before(by) {
			t.Event("The last checkpoints may not be in the store: " + err.Error())
			return true
		}
		t.log.Warn("checkpoint agent cannot save the rest, trying again", "error", err)
		if !pause(ctx, retryWait) {
			return false
		}
	}
}

// publish makes the result known.
func (t *Task) publish() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.result = resultOf(t.led)
	close(t.done)
}

// resultOf decides what Nomad is told. A task that was asked for its last checkpoint because its node goes away must not
// look complete, so that it is rescheduled: its exit code is evacuate.ExitCode whatever it was.
func resultOf(l ledger) *drivers.ExitResult {
	e := l.Exit
	r := &drivers.ExitResult{ExitCode: e.Code, OOMKilled: e.OOM}
	switch {
	case l.Superseded != "":
		r.ExitCode = evacuate.ExitCode
		r.Err = errors.New(l.Superseded)
	case l.Ended || l.Final != finalNone:
		r.ExitCode, r.OOMKilled = evacuate.ExitCode, false
	case e.Err != "":
		r.Err = errors.New(e.Err)
	case e.Code > 128 && e.Code < 128+65:
		r.Signal = e.Code - 128
	}
	return r
}
