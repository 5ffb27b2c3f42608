// Package lifecycle owns the driver's tasks, from start to removal: a container, a checkpoint agent beside it, and the
// goroutines that watch both. It reaches containers through Runtime and agents through their control socket.
//
// What must outlive this process is on disk: Nomad keeps a State per task, written once at its start; everything learned
// later is in a ledger file of the task. Containers and agents live on when the plugin ends.
//
//	Start ──► running ──► exited ──────────────► published ──► Destroy
//	             ▲          the container ended,     WaitTask answers
//	Recover ─────┘          the agent saves the rest
package lifecycle

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad/plugins/drivers"
	"github.com/opencontainers/runtime-spec/specs-go"

	"nomad-spotter/driver/config"
	"nomad-spotter/driver/containerd"
	"nomad-spotter/driver/nomad"
)

type images interface {
	Import(ctx context.Context, f *os.File) (*containerd.Image, error)
	Pull(ctx context.Context, r containerd.PullRequest) (*containerd.Image, error)
}

type maker interface {
	Prepare(ctx context.Context, id string, img *containerd.Image) error
	ResolveUser(ctx context.Context, id string, img *containerd.Image, user string, groups []string) (containerd.User, error)
	Start(ctx context.Context, id string, img *containerd.Image, spec *specs.Spec, labels map[string]string, stdout, stderr string, before func(pid int) error) (int, error)
}

type watcher interface {
	Inspect(ctx context.Context, id string) (containerd.State, error)
	Wait(ctx context.Context, id string) (containerd.State, error)
	Stats(ctx context.Context, id string) (containerd.Usage, error)
}

type actor interface {
	Kill(ctx context.Context, id string, sig syscall.Signal, all bool) error
	Exec(ctx context.Context, id string, r containerd.ExecRequest) (int, error)
}

type remover interface {
	Remove(ctx context.Context, id string) error
	List(ctx context.Context, label, value string) ([]string, error)
}

// Runtime runs containers; *containerd.Client is one. Errors answer to containerd.IsNotFound and IsUnavailable.
type Runtime interface {
	images
	maker
	watcher
	actor
	remover
	Probe(ctx context.Context) (containerd.Info, error)
	Close() error
}

// Options are the surroundings of a Manager.
type Options struct {
	Config  *config.Plugin
	Runtime Runtime
	Log     hclog.Logger
	// AgentCommand starts a checkpoint agent; the path of its configuration is appended.
	AgentCommand []string
	// Event puts a sentence before the job's owner.
	Event func(*drivers.TaskEvent)
	// Evacuating says whether the node is being left, until when (zero: no deadline) and why.
	Evacuating func() (until time.Time, reason string, yes bool)
	// Facts looks up what Nomad does not tell a driver; nil where its API is not used.
	Facts func(ctx context.Context, namespace, allocID, task string) (nomad.Facts, error)
}

// Manager holds all tasks of the driver. It is safe for concurrent use.
type Manager struct {
	opts Options
	cfg  *config.Plugin
	log  hclog.Logger

	wg sync.WaitGroup // goroutines of tasks

	mu      sync.Mutex
	tasks   map[string]*Task
	seccomp bool // the runtime can filter system calls
	dirs    map[string]*sync.Mutex
	learned map[string]time.Duration
}

// NewManager makes a Manager without tasks.
func NewManager(o Options) *Manager {
	return &Manager{
		opts: o, cfg: o.Config, log: o.Log.Named("lifecycle"),
		tasks: map[string]*Task{}, dirs: map[string]*sync.Mutex{}, learned: map[string]time.Duration{},
	}
}

// Wait blocks until the goroutines of all tasks have ended, which they do soon after the context given to Start and
// Recover is done.
func (m *Manager) Wait() { m.wg.Wait() }

// SetSeccomp says whether the runtime can filter system calls.
func (m *Manager) SetSeccomp(works bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seccomp = works
}

// Task returns a task by Nomad's ID, or drivers.ErrTaskNotFound.
func (m *Manager) Task(id string) (*Task, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t, ok := m.tasks[id]
	if !ok {
		return nil, drivers.ErrTaskNotFound
	}
	return t, nil
}

// Tasks returns all tasks that have not been destroyed.
func (m *Manager) Tasks() []*Task {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]*Task, 0, len(m.tasks))
	for _, t := range m.tasks {
		out = append(out, t)
	}
	return out
}

func (m *Manager) put(t *Task) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tasks[t.st.TaskID] = t
}

// drop forgets a task.
func (m *Manager) drop(t *Task) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.tasks[t.st.TaskID] == t {
		delete(m.tasks, t.st.TaskID)
	}
}

// dir is where everything about one task of one allocation is kept. Its name is short because sockets are in it.
func (m *Manager) dir(allocID, task string) string {
	return filepath.Join(m.cfg.StateDir, "t", short(allocID+"/"+task, 16))
}

// lock makes sure that a task's directory is made or removed by one goroutine at a time. It returns the unlock.
func (m *Manager) lock(dir string) func() {
	m.mu.Lock()
	l, ok := m.dirs[dir]
	if !ok {
		l = new(sync.Mutex)
		m.dirs[dir] = l
	}
	m.mu.Unlock()
	l.Lock()
	return l.Unlock
}

// short is a name of n hexadecimal digits for s.
func short(s string, n int) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])[:n]
}

// FIFODir is where the streams of an exec live.
func FIFODir(stateDir string) string { return filepath.Join(stateDir, "fifo") }

// Setup makes the directories that all tasks share. Streams of an earlier plugin's execs are of no use any more.
func (m *Manager) Setup() error {
	errs := []error{os.RemoveAll(FIFODir(m.cfg.StateDir))}
	for _, d := range []string{m.cfg.StateDir, filepath.Join(m.cfg.StateDir, "t"), FIFODir(m.cfg.StateDir)} {
		errs = append(errs, os.MkdirAll(d, 0o700))
	}
	return errors.Join(errs...)
}
