package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"path"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad/plugins/drivers"

	"nomad-spotter/checkpointer/api"
	"nomad-spotter/driver/containerd"
	"nomad-spotter/driver/evacuate"
	"nomad-spotter/driver/nomad"
)

// Task is one task of the driver: a container and, if it makes checkpoints, an agent.
type Task struct {
	m   *Manager
	log hclog.Logger
	st  State
	// agent is nil without checkpoints.
	agent *agent

	exited chan struct{} // closed when the container has ended
	done   chan struct{} // closed when the result is published
	gone   chan struct{} // closed when the task is destroyed: its goroutines end

	saving sync.Mutex // held while the ledger is written, so that an older one never replaces a newer

	mu         sync.Mutex
	led        ledger
	result     *drivers.ExitResult // set when done is closed
	finishBy   time.Time           // when the result must be published; zero: the finish timeout after the end
	stop       *stopRun            // the running or last StopTask
	finishing  bool                // the agent was told that the task has ended
	durable    *api.Checkpoint     // newest known to be durable
	facts      nomad.Facts
	factsKnown bool
	misfit     bool // it was said that checkpoints do not fit into kill_timeout
}

var _ evacuate.Task = (*Task)(nil)

func newTask(m *Manager, st State, led ledger) *Task {
	t := &Task{
		m: m, st: st, led: led,
		log:    m.log.With("alloc_id", st.AllocID, "task", st.Name),
		exited: make(chan struct{}),
		done:   make(chan struct{}),
		gone:   make(chan struct{}),
	}
	if st.Config.Checkpoint != nil {
		t.agent = m.newAgent(st.Dir, led.Agent, t.agentStarted)
	}
	return t
}

func (m *Manager) newAgent(dir string, p process, changed func(process)) *agent {
	return &agent{
		dir: dir, command: m.opts.AgentCommand, cgroup: m.agentCgroup(dir),
		client: api.NewClient(controlSocket(dir)), log: m.log.Named("agent").With("dir", dir), changed: changed, proc: p,
		patience: agentStartTime,
	}
}

func (m *Manager) agentCgroup(dir string) string {
	return m.cfg.Containerd.CgroupParent + "-agents/" + path.Base(dir)
}

func (t *Task) agentStarted(p process) {
	t.change(func(l *ledger) { l.Agent = p })
}

// change alters the ledger and writes it. What cannot be written is logged: the task goes on, and a restart of the
// plugin may then know less.
func (t *Task) change(f func(*ledger)) {
	t.saving.Lock()
	defer t.saving.Unlock()
	t.mu.Lock()
	f(&t.led)
	l := t.led
	t.mu.Unlock()
	if err := writeLedger(t.st.Dir, l); err != nil {
		t.log.Error("remember the state of a task", "error", err)
	}
}

func (t *Task) ledger() ledger {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.led
}

// Event implements evacuate.Task.
func (t *Task) Event(message string) {
	t.log.Info("task event", "message", message)
	t.m.emit(t.st.TaskID, t.st.AllocID, t.st.Name, message, nil)
}

func (m *Manager) emit(taskID, allocID, name, message string, annotations map[string]string) {
	m.opts.Event(&drivers.TaskEvent{
		TaskID: taskID, AllocID: allocID, TaskName: name, Timestamp: time.Now(), Message: message, Annotations: annotations,
	})
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Wait returns the task's result once it is published. An error means that ctx ended first.
func (t *Task) Wait(ctx context.Context) (*drivers.ExitResult, error) {
	select {
	case <-t.done:
		t.mu.Lock()
		defer t.mu.Unlock()
		return t.result.Copy(), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// setDurable notes the newest durable checkpoint; nil says nothing new.
func (t *Task) setDurable(c *api.Checkpoint) {
	if c == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.durable = c
}

// Exited is closed when the container has ended.
func (t *Task) Exited() <-chan struct{} { return t.exited }

// Running says whether the container has not ended.
func (t *Task) Running() bool { return !closed(t.exited) }

// Status is the task as Nomad wants to see it.
func (t *Task) Status() *drivers.TaskStatus {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := &drivers.TaskStatus{
		ID: t.st.TaskID, Name: t.st.Name, State: drivers.TaskStateRunning, StartedAt: t.st.StartedAt,
		DriverAttributes: map[string]string{
			"container_id": t.st.ContainerID,
			"pid":          fmt.Sprint(t.st.PID),
		},
	}
	if t.st.Lineage != "" {
		s.DriverAttributes["lineage"] = t.st.Lineage
	}
	if t.durable != nil {
		s.DriverAttributes["durable_step"] = fmt.Sprint(t.durable.Step)
	}
	if closed(t.done) {
		s.State, s.ExitResult, s.CompletedAt = drivers.TaskStateExited, t.result.Copy(), t.led.Exit.At
	}
	return s
}

// Stats reads the container's figures.
func (t *Task) Stats(ctx context.Context) (containerd.Usage, error) {
	return t.m.opts.Runtime.Stats(ctx, t.st.ContainerID)
}

// ErrNotRunning is the answer to what only a running task can do.
var ErrNotRunning = errors.New("the task is not running")

// Exec runs a further process in the container and returns its exit code.
func (t *Task) Exec(ctx context.Context, r containerd.ExecRequest) (int, error) {
	if !t.Running() {
		return 0, ErrNotRunning
	}
	return t.m.opts.Runtime.Exec(ctx, t.st.ContainerID, r)
}
