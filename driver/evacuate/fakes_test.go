package evacuate

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/shoenig/test/must"

	"nomad-spotter/driver/nomad"
	"nomad-spotter/driver/notice"
)

// journal records what happened and when, in seconds since its start.
type journal struct {
	mu    sync.Mutex
	start time.Time
	lines []string
}

func (j *journal) add(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	at := time.Since(j.start).Round(100 * time.Millisecond).Seconds()
	j.lines = append(j.lines, fmt.Sprintf("%.1f ", at)+fmt.Sprintf(format, args...))
}

// when returns the time of the first line that holds what, or -1.
func (j *journal) when(what string) float64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, l := range j.lines {
		if strings.Contains(l, what) {
			var at float64
			_, _ = fmt.Sscanf(l, "%f", &at)
			return at
		}
	}
	return -1
}

func (j *journal) count(what string) (n int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, l := range j.lines {
		if strings.Contains(l, what) {
			n++
		}
	}
	return n
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Join(j.lines, "\n")
}

// fakeTask is a Task whose checkpoints behave as told.
type fakeTask struct {
	j  *journal
	mu sync.Mutex
	st TaskState
	// takes is how long a checkpoint takes; negative means that it never comes.
	takes time.Duration
	// fails is how many asks fail before one works.
	fails int
	// endHangs makes End hang until its context ends, that many times.
	endHangs int
}

func (f *fakeTask) State() TaskState {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.st
}

func (f *fakeTask) change(fn func(*TaskState)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fn(&f.st)
}

func (f *fakeTask) Checkpoint(ctx context.Context, ask Ask) (Outcome, error) {
	f.j.add("ask %s final=%t", f.st.ID, ask.Final)
	f.mu.Lock()
	takes := f.takes
	if f.fails > 0 {
		f.fails--
		f.mu.Unlock()
		return Outcome{}, errors.New("ask checkpoint agent: connection refused")
	}
	if ask.Final {
		f.st.Final = FinalOpen
	}
	f.mu.Unlock()
	if takes < 0 || takes > time.Until(ask.Deadline) {
		if !wait(ctx, time.Until(ask.Deadline)) {
			return Outcome{}, ctx.Err()
		}
		return Outcome{Error: "the task did not answer"}, nil
	}
	if !wait(ctx, takes) {
		return Outcome{}, ctx.Err()
	}
	f.change(func(s *TaskState) {
		s.Durable, s.Step = true, s.Step+100
		if ask.Final {
			s.Final = FinalDurable
		}
	})
	f.j.add("durable %s", f.st.ID)
	return Outcome{Durable: true, HasStep: true, Step: f.State().Step}, nil
}

func (f *fakeTask) Withdraw(context.Context) error {
	f.j.add("withdraw %s", f.st.ID)
	f.change(func(s *TaskState) { s.Final = FinalNone })
	return nil
}

func (f *fakeTask) End(ctx context.Context, end End) error {
	f.mu.Lock()
	hang := f.endHangs > 0
	f.endHangs--
	f.mu.Unlock()
	f.j.add("end %s", f.st.ID)
	if hang {
		<-ctx.Done()
		return ctx.Err()
	}
	f.change(func(s *TaskState) { s.Running = false })
	f.j.add("gone %s %.0f s before the deadline", f.st.ID, time.Until(end.Deadline).Seconds())
	return nil
}

func (f *fakeTask) Event(message string) { f.j.add("event %s: %s", f.st.ID, message) }

func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// refusalError is an error that an operator can repair.
type refusalError string

func (r refusalError) Error() string { return "HTTP 403" }
func (r refusalError) Refused() bool { return true }
func (r refusalError) Hint() string  { return string(r) }

// fakeCluster is a Cluster whose calls behave as told: nil works, else the error is the answer.
type fakeCluster struct {
	j          *journal
	mu         sync.Mutex
	mark, stop func(ctx context.Context) error
	already    bool // ineligible already
	drains     chan nomad.Drain
	stopped    func(allocID string)
}

func (c *fakeCluster) MarkIneligible(ctx context.Context) (bool, error) {
	c.j.add("mark ineligible")
	if c.mark != nil {
		if err := c.mark(ctx); err != nil {
			return false, err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	took := !c.already
	c.already = true
	return took, nil
}

func (c *fakeCluster) MarkEligible(context.Context) error {
	c.j.add("mark eligible")
	c.mu.Lock()
	defer c.mu.Unlock()
	c.already = false
	return nil
}

func (c *fakeCluster) StopAlloc(ctx context.Context, namespace, allocID string) error {
	c.j.add("stop %s/%s", namespace, allocID)
	if c.stop != nil {
		if err := c.stop(ctx); err != nil {
			return err
		}
	}
	if c.stopped != nil {
		c.stopped(allocID)
	}
	return nil
}

func (c *fakeCluster) WatchDrain(ctx context.Context, emit func(nomad.Drain)) {
	for {
		select {
		case d := <-c.drains:
			emit(d)
		case <-ctx.Done():
			return
		}
	}
}

// fakeSource emits what the test sends.
type fakeSource struct{ events chan notice.Event }

func (s *fakeSource) Name() string          { return "fake" }
func (s *fakeSource) Health() notice.Health { return notice.Health{Watching: true} }
func (s *fakeSource) Watch(ctx context.Context, emit func(notice.Event)) {
	for {
		select {
		case e := <-s.events:
			emit(e)
		case <-ctx.Done():
			return
		}
	}
}

// bench is one runner among fakes, in a bubble with a clock of its own.
type bench struct {
	*journal
	t       *testing.T
	runner  *Runner
	source  *fakeSource
	cluster *fakeCluster
	state   string // state file

	mu    sync.Mutex
	tasks []*fakeTask
	stop  func()
}

func (b *bench) list() (out []Task) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, t := range b.tasks {
		out = append(out, t)
	}
	return out
}

// add makes a running batch task with checkpoints.
func (b *bench) add(id, alloc string, change func(*fakeTask)) *fakeTask {
	t := &fakeTask{j: b.journal, takes: 3 * time.Second}
	t.st = TaskState{ID: id, AllocID: alloc, Namespace: "ns", JobType: "batch", Running: true, Checkpoints: true, Durable: true, Step: 1200}
	if change != nil {
		change(t)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tasks = append(b.tasks, t)
	return t
}

// obey has an accepted stop end the allocation's tasks, as Nomad does through StopTask.
func (b *bench) obey(allocID string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tasks = slices.DeleteFunc(b.tasks, func(t *fakeTask) bool {
		if t.State().AllocID != allocID {
			return false
		}
		t.change(func(s *TaskState) { s.Running = false })
		return true
	})
}

// start runs the runner; it ends with the test or with stop.
func (b *bench) start() {
	b.runner = New(Options{
		Limits:    limits,
		StateFile: b.state,
		Log:       hclog.NewNullLogger(),
		Source:    b.source,
		Tasks:     b.list,
		Node:      func(id string) Cluster { b.journal.add("node %s", id); return b.cluster },
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		b.runner.Run(ctx)
	}()
	b.stop = func() {
		cancel()
		<-ended
	}
}

func (b *bench) join() { b.runner.Join("n1") }

func (b *bench) sleep(d time.Duration) {
	time.Sleep(d) // the bubble's clock: this takes no time
	synctest.Wait()
}

func (b *bench) notice(left time.Duration) {
	now := time.Now()
	b.source.events <- notice.Event{Kind: notice.KindInterruption, Action: "terminate", Seen: now, Deadline: now.Add(left)}
	synctest.Wait()
}

func (b *bench) watching() {
	b.source.events <- notice.Event{Kind: notice.KindHealth, Health: notice.Health{Watching: true}}
	synctest.Wait()
}

func (b *bench) withdrawn() {
	b.source.events <- notice.Event{Kind: notice.KindWithdrawn}
	synctest.Wait()
}

// expect fails with the whole journal unless what happened first at seconds, or never when seconds is negative.
func (b *bench) expect(what string, seconds float64) {
	b.t.Helper()
	must.Eq(b.t, seconds, b.when(what), must.Sprintf("when: %s\n%s", what, b.journal))
}

func inBubble(t *testing.T, f func(b *bench)) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		j := &journal{start: time.Now()}
		b := &bench{
			journal: j,
			t:       t,
			source:  &fakeSource{events: make(chan notice.Event)},
			cluster: &fakeCluster{j: j, drains: make(chan nomad.Drain)},
			state:   filepath.Join(dir, "evacuate.json"),
		}
		b.cluster.stopped = b.obey
		b.start()
		defer func() { b.stop() }()
		f(b)
	})
}
