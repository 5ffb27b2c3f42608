package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"nomad-spotter/checkpointer/api"
	"nomad-spotter/checkpointer/detect"
	"nomad-spotter/checkpointer/stage"
)

// scanPeriod is how often the checkpoint directory is looked at.
const scanPeriod = 100 * time.Millisecond

// stageRetry is the pause before a checkpoint that could not be staged is tried again.
const stageRetry = time.Second

// watch looks for finished checkpoints as long as the agent lives.
func (a *Agent) watch(ctx context.Context) {
	failing := false
	for sleep(ctx, scanPeriod) {
		a.mu.Lock()
		ready, gone, swept := a.ready, a.gone, a.swept
		a.mu.Unlock()
		// Once the task has ended, what it left is judged a single time: a file that its end cut short looks quiet later.
		if !ready && !gone || gone && swept {
			continue
		}
		err := a.scan(gone)
		if err != nil && !failing {
			a.log.Warn("cannot look for checkpoints", "error", err)
		}
		if err == nil && failing {
			a.log.Info("looking for checkpoints works again")
		}
		failing = err != nil
		if gone && errors.Is(err, fs.ErrNotExist) {
			// The directory is gone with its task: there is nothing more to find. Any other trouble passes.
			a.mu.Lock()
			a.swept = true
			a.resolve()
			a.bump()
			a.endIfDone()
			a.mu.Unlock()
		}
	}
}

// list looks at the candidates; only those still to be dealt with are probed for writers.
func (a *Agent) list() ([]detect.Entry, error) {
	none := func(string) bool { return false }
	all, err := detect.List(a.conf.CheckpointDir, a.detector.Candidate, none)
	if err != nil {
		return nil, err
	}
	pending := map[string]bool{}
	for _, e := range all {
		if a.detector.Pending(e) {
			pending[e.Name] = true
		}
	}
	if len(pending) == 0 {
		return all, nil
	}
	want := func(name string) bool { return pending[name] }
	probed, err := detect.List(a.conf.CheckpointDir, want, want)
	if err != nil {
		return nil, err
	}
	for _, e := range all {
		if !pending[e.Name] {
			probed = append(probed, e)
		}
	}
	return probed, nil
}

// scan takes what has become finished; with last, what the ended task left.
func (a *Agent) scan(last bool) error {
	a.scanning.Lock()
	defer a.scanning.Unlock()
	list, err := a.list()
	if err != nil {
		return err
	}
	if !last && a.ended() {
		return nil // what looks idle may only have lost its writer: the next look judges what the task left
	}
	a.mu.Lock()
	var finished []detect.Entry
	if last {
		finished = a.detector.Left(list, a.finish != nil && a.finish.Clean)
	} else {
		finished = a.detector.Finished(a.now(), list)
	}
	a.mu.Unlock()
	later := false
	for _, e := range finished {
		if a.now().Before(a.retryAt[e.Name]) {
			later = true
			continue
		}
		step, ok := detect.Step(e.Name)
		if !ok {
			step = a.nextStep(e.Name)
		}
		if err := a.take(e, stage.Meta{Step: step, FinishedAt: e.Changed}); err != nil {
			later = a.refused(e, err) || later
		} else {
			delete(a.retryAt, e.Name)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if last && !later {
		for _, e := range list {
			if e.Torn != "" && a.detector.Pending(e) {
				a.event(api.EventWarning, nil, "Checkpoint %q was cut short and is not saved: %s", e.Name, e.Torn)
			}
		}
		a.swept = true
		a.bump()
	}
	a.resolve()
	a.endIfDone()
	return nil
}

// nextStep makes up a step for a checkpoint whose name has none and of which the task said nothing.
func (a *Agent) nextStep(name string) int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.stepless {
		a.stepless = true
		a.event(api.EventWarning, nil, "Checkpoint %q has no step number in its name: it is counted on from the last one", name)
	}
	step := int64(1)
	for _, c := range []*api.Checkpoint{a.state.Last, a.state.Resumed} {
		if c != nil {
			step = max(step, c.Step+1)
		}
	}
	return step
}

// refused reports a checkpoint that could not be staged, once, and tells whether it is tried again. Only what can never
// be staged is given up: a full disk or a want of memory passes. The caller holds scanning.
func (a *Agent) refused(e detect.Entry, err error) (again bool) {
	if errors.Is(err, stage.ErrChanged) {
		a.log.Debug("checkpoint changed while it was staged; it is looked at again", "name", e.Name, "error", err)
		return true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if errors.Is(err, stage.ErrUnfit) {
		a.detector.Handled(e.Name, e.Signature)
		a.event(api.EventFailed, nil, "Checkpoint %q cannot be saved: %v", e.Name, err)
		return false
	}
	a.letGo() // it may be room that is wanted
	if _, told := a.retryAt[e.Name]; !told {
		a.event(api.EventFailed, nil, "Checkpoint %q is not saved yet, trying again: %v", e.Name, err)
	}
	a.retryAt[e.Name] = a.now().Add(stageRetry)
	return true
}

// take stages one finished checkpoint and queues it. The caller holds scanning.
func (a *Agent) take(e detect.Entry, m stage.Meta) error {
	tree, err := stage.Scan(a.conf.CheckpointDir, e.Name)
	if err != nil {
		return err
	}
	st, err := a.stage.Add(tree, m)
	if err != nil {
		return err
	}
	if err := a.unchanged(e); err != nil {
		return errors.Join(err, a.stage.Remove(st))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.detector.Handled(e.Name, e.Signature)
	a.state.Last = checkpoint(st)
	a.state.Pace.finished(a.state.Request, st.Meta, a.listening())
	a.queue = append(a.queue, st)
	a.trim()
	a.reconsider()
	a.save()
	a.bump()
	a.log.Debug("checkpoint finished", "step", st.Step, "name", st.Name, "size_bytes", st.RawBytes)
	return nil
}

// unchanged fails unless an entry is what it was when it was judged.
func (a *Agent) unchanged(e detect.Entry) error {
	now, err := detect.List(a.conf.CheckpointDir, func(n string) bool { return n == e.Name }, func(string) bool { return false })
	if err != nil {
		return err
	}
	if len(now) != 1 || now[0].Signature != e.Signature {
		return fmt.Errorf("%w: %s", stage.ErrChanged, e.Name)
	}
	return nil
}

// trim skips checkpoints that were overtaken before they could be uploaded. The caller holds mu.
func (a *Agent) trim() {
	kept := a.queue[:0]
	hard := a.newestHard()
	for i, over := range overtaken(a.queue, a.urgent()) {
		st := a.queue[i]
		if !over || st == a.hard || st == hard {
			kept = append(kept, st)
			continue
		}
		a.log.Info("checkpoint skipped, a newer one is finished", "step", st.Step)
		if err := a.stage.Remove(st); err != nil {
			a.log.Warn("cannot clean the stage", "error", err)
		}
	}
	a.queue = kept
}

// newestHard is the newest checkpoint in the queue that is durable on this node: it stays until a newer one is. The caller
// holds mu.
func (a *Agent) newestHard() *stage.Staged {
	for _, st := range slices.Backward(a.queue) {
		if st.Synced {
			return st
		}
	}
	return nil
}

// overtaken tells of each checkpoint of a queue, oldest first, whether it need not be uploaded any more: all but the newest,
// those that the task made in answer to a request, and the first that an urgent request may be waiting for: the next one
// may come too late.
func overtaken(queue []*stage.Staged, r *request) []bool {
	out := make([]bool, len(queue))
	first := true
	for i, st := range queue {
		awaited := r != nil && r.answers(st.Meta)
		out[i] = i < len(queue)-1 && st.Request == 0 && (!awaited || !first)
		first = first && !awaited
	}
	return out
}

// announced takes a checkpoint that the task says is finished.
func (a *Agent) announced(f api.Finished) error {
	name := a.entry(f.Path)
	if err := a.fits(f, name); err != nil {
		return err
	}
	a.scanning.Lock()
	defer a.scanning.Unlock()
	only := func(n string) bool { return n == name }
	list, err := detect.List(a.conf.CheckpointDir, only, only)
	if err != nil {
		return err
	}
	if len(list) == 0 {
		return fmt.Errorf("path: there is no file or directory %q in %s: announce a checkpoint once it has its final name", name, a.taskDir())
	}
	if torn := list[0].Torn; torn != "" {
		return fmt.Errorf("path: %q is not whole: %s; announce a checkpoint once it is written and closed", f.Path, torn)
	}
	return a.take(list[0], stage.Meta{Step: f.Step, Request: f.Request, FinishedAt: a.now()})
}

// taskDir is the checkpoint directory by the name that the task knows.
func (a *Agent) taskDir() string { return cmp.Or(a.conf.TaskCheckpointDir, a.conf.CheckpointDir) }

// entry is the name in the checkpoint directory of a path that the task gave.
func (a *Agent) entry(path string) string {
	for _, dir := range []string{a.conf.TaskCheckpointDir, a.conf.CheckpointDir} {
		if rel, err := filepath.Rel(dir, path); dir != "" && filepath.IsAbs(path) && err == nil && !strings.HasPrefix(rel, "..") {
			return rel
		}
	}
	return path
}

// fits reports all that is wrong with an announcement.
func (a *Agent) fits(f api.Finished, name string) error {
	var errs []error
	if f.Step < 0 {
		errs = append(errs, fmt.Errorf("step: %d is negative: give the number of training steps that were done", f.Step))
	}
	if name == "" || strings.Contains(name, "/") || strings.HasPrefix(name, ".") {
		errs = append(errs, fmt.Errorf("path: %q is not directly in %s: give the name of a file or directory there, without a dot in front, or its absolute path", f.Path, a.taskDir()))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if last := a.state.Requests; f.Request > last {
		errs = append(errs, fmt.Errorf("request: there is no request %d, the last one is %d: give the id of the request that the checkpoint answers, 0 for none", f.Request, last))
	}
	return errors.Join(errs...)
}

func checkpoint(st *stage.Staged) *api.Checkpoint {
	return &api.Checkpoint{Step: st.Step, Path: st.Name, RawBytes: st.RawBytes, FinishedAt: st.FinishedAt}
}
