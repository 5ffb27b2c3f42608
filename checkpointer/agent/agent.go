// Package agent keeps the checkpoints of one task safe: it notices those that are finished, stages them, publishes them
// in a store, asks the task for one when somebody needs it, and restores the newest before the task starts.
//
// It is a process of its own and outlives whoever started it. All that it must know after a kill -9 is in its state
// file, in its stage and in the checkpoint directory.
//
// Goroutines, all owned by Run: one keeps a store open (connect.go), one looks for finished checkpoints (watch.go), one
// publishes (publish.go), one watches the task's process (process.go), one minds deadlines (request.go), two serve the
// sockets (serve.go), and, if the configuration asks for it, one makes checkpoints durable on the node (level.go), one
// replicates them (replicate.go), and one computes when to ask for the next (pace.go).
package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"nomad-spotter/checkpointer/api"
	"nomad-spotter/checkpointer/detect"
	"nomad-spotter/checkpointer/discovery"
	"nomad-spotter/checkpointer/repository"
	"nomad-spotter/checkpointer/stage"
	"nomad-spotter/checkpointer/store/sealed"
)

// niceness of the agent: training goes first.
const niceness = 10

// farewell is how long the agent still answers after its work is done, so that everybody hears the outcome.
const farewell = 2 * time.Second

// Agent is one running agent.
type Agent struct {
	conf   api.AgentConfig
	log    hclog.Logger
	finder finder
	// regions lists the stores for replicas.
	regions func(ctx context.Context) ([]discovery.Store, error)
	key     *sealed.Key // of encrypted stores
	now     func() time.Time
	since   time.Time // when the instance was launched, as far as is known
	meter   *meter
	ctx     context.Context //nolint:containedctx // the agent's life, for the watchers of the task's process
	quit    context.CancelFunc

	watchers sync.WaitGroup
	scanning sync.Mutex           // one look at the directory at a time; taken before mu
	retryAt  map[string]time.Time // names that could not be staged; guarded by scanning
	lock     *os.File             // held for the agent's life: one agent per state directory

	mu       sync.Mutex
	changed  chan struct{} // closed and replaced at every change of what follows
	state    state
	detector *detect.Detector
	stage    *stage.Stage
	queue    []*stage.Staged // oldest first
	busy     *stage.Staged   // being published
	work     *work           // how far that is; nil until it has begun
	hard     *stage.Staged   // being made durable on this node
	soft     map[uint64]bool // numbers of those in the stage for which that failed
	copying  context.CancelCauseFunc
	unfit    map[string]bool // URLs of stores that can never hold a replica
	toldFew  bool            // that there are too few regions
	lastly   time.Time       // since when only replicas are waited for
	plan     *plan           // of an automatic interval; nil before there is one
	held     *stage.Staged   // durable, see kept
	repo     *repository.Repository
	noStore  error  // why there is none
	storeURL string // as configured or registered, the key of state.Epochs
	single   bool   // that store was registered as one for a single writer per lineage
	writer   *repository.Writer
	ready    bool // restored, or the task was attached: the directory may be watched
	task     *process
	gone     bool // the task's process has ended
	finish   *api.FinishRequest
	swept    bool // after the end, everything in the directory was looked at
	super    bool // a newer epoch exists
	lastPoll time.Time
	polls    int // long polls open on the task socket
	events   []api.Event
	stepless bool // the warning about names without a step was given
}

// Run is the agent's life. It returns nil when its work is done, when it was told to quit, or when ctx is done.
func Run(ctx context.Context, conf api.AgentConfig, log hclog.Logger) error {
	if err := Validate(conf); err != nil {
		return err
	}
	a, err := open(conf, log)
	if err != nil {
		return err
	}
	defer a.lock.Close()
	defer bound(conf)()
	if err := lowerPriority(); err != nil {
		log.Debug("cannot lower the priority", "error", err)
	}
	a.ctx, a.quit = context.WithCancel(ctx)
	ctx = a.ctx
	var wg sync.WaitGroup
	defer func() {
		a.quit()
		wg.Wait()
		a.watchers.Wait()
	}()
	if err := a.serve(ctx, &wg); err != nil {
		return err
	}
	a.reattach()
	a.renewRequestFile()
	a.mu.Lock()
	staged := len(a.queue)
	a.mu.Unlock()
	for _, loop := range []func(context.Context){a.connect, a.watch, a.publishLoop, a.deadlines} {
		wg.Go(func() { loop(ctx) })
	}
	if level(conf) == api.DurabilityLocal {
		wg.Go(func() { a.harden(ctx) })
	}
	if conf.Replicas > 0 {
		wg.Go(func() { a.replicate(ctx) })
	}
	if conf.Interval.Auto {
		wg.Go(func() { a.pacing(ctx) })
	}
	log.Info("agent started", "lineage", conf.Lineage, "checkpoint_dir", conf.CheckpointDir, "staged", staged)
	<-ctx.Done()
	return nil
}

func open(conf api.AgentConfig, log hclog.Logger) (*Agent, error) {
	if err := os.MkdirAll(conf.StateDir, 0o700); err != nil {
		return nil, fmt.Errorf("state_dir: %w", err)
	}
	lock, err := lockDir(conf.StateDir)
	if err != nil {
		return nil, err
	}
	a, err := load(conf, log)
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	a.lock = lock
	return a, nil
}

// lockDir takes the state directory for this process. Two agents on one directory would take each other's stage apart.
func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("state_dir: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("state_dir: another agent uses %s: %w", dir, err), f.Close())
	}
	return f, nil
}

func load(conf api.AgentConfig, log hclog.Logger) (*Agent, error) {
	st, err := loadState(conf.StateDir)
	if err != nil {
		return nil, err
	}
	sg, queue, err := stage.Open(conf.StateDir + "/stage")
	if err != nil {
		return nil, err
	}
	find, regions, err := newFinder(conf)
	if err != nil {
		return nil, err
	}
	key, err := sealed.LoadKey(conf.KeyFile, os.Getenv)
	if err != nil {
		return nil, err
	}
	queue, held := st.Kept.hold(queue)
	return &Agent{
		held: held, meter: &meter{now: time.Now}, conf: conf, log: log, finder: find, regions: regions, key: key, now: time.Now, changed: make(chan struct{}), state: st, retryAt: map[string]time.Time{},
		detector: detect.New(conf.Pattern, st.Done), stage: sg, queue: queue,
		soft: map[uint64]bool{}, unfit: map[string]bool{}, since: launched(conf), ready: st.Ready, finish: st.Finish, gone: st.Finish != nil,
	}, nil
}

// bump wakes everybody who waits for a change. The caller holds mu.
func (a *Agent) bump() {
	close(a.changed)
	a.changed = make(chan struct{})
}

// maxAwait is a wait without end, for await.
const maxAwait = time.Hour

// await waits until ok (called with mu held) is true, or until ctx is done or wait is over; it returns what ok said last.
func (a *Agent) await(ctx context.Context, wait time.Duration, ok func() bool) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		a.mu.Lock()
		done, changed := ok(), a.changed
		a.mu.Unlock()
		if done {
			return true
		}
		select {
		case <-changed:
		case <-timer.C:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// save writes the state file. The caller holds mu. Failing to do so is an error that a person must see, but no reason to
// stop saving checkpoints.
func (a *Agent) save() {
	a.state.Done = a.detector.Done()
	if err := a.state.save(a.conf.StateDir); err != nil {
		a.log.Error("cannot write the state file", "error", err)
	}
}

// maxEvents bounds what is kept for those who ask.
const maxEvents = 1000

// event records an event. The caller holds mu.
func (a *Agent) event(kind api.EventKind, cp *api.Checkpoint, format string, args ...any) {
	a.state.Events++
	e := api.Event{Seq: a.state.Events, At: a.now(), Kind: kind, Message: fmt.Sprintf(format, args...), Checkpoint: cp}
	a.events = append(a.events, e)
	if len(a.events) > maxEvents {
		a.events = a.events[1:]
	}
	a.log.Info(e.Message, "event", string(kind))
	a.bump()
}

// status is called with mu held.
func (a *Agent) status() *api.Status {
	s := &api.Status{
		Lineage: a.conf.Lineage, Resumed: a.state.Resumed, Last: a.state.Last, Durable: a.state.Durable,
		Pending: a.pending(), PID: os.Getpid(), Replicas: a.replicas(), Cadence: a.cadence(),
	}
	if a.repo != nil {
		s.Store = a.repo.URL()
	}
	if a.writer != nil {
		s.Epoch = a.writer.Epoch
	}
	if r := a.state.Request; r != nil && r.visible() {
		s.Request = &r.Request
	}
	return s
}

// pending counts what is finished and not in the store, or waits there for replicas. The caller holds mu.
func (a *Agent) pending() int {
	n := len(a.queue) + len(a.state.Waiting)
	if a.busy != nil {
		n++
	}
	return n
}

// endIfDone ends the agent once the task has ended and nothing is left to save. The caller holds mu.
func (a *Agent) endIfDone() {
	if !a.settled() {
		return
	}
	if a.lagging() {
		// Nobody waits for these replicas, so that they are not waited for without end.
		if a.lastly.IsZero() {
			a.lastly = a.now()
			time.AfterFunc(replicaPatience, func() {
				a.mu.Lock()
				defer a.mu.Unlock()
				a.endIfDone()
			})
		}
		if a.now().Sub(a.lastly) < replicaPatience {
			return
		}
	}
	time.AfterFunc(farewell, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.settled() {
			a.quit()
		}
	})
}

// settled tells whether the task has ended and nothing of it is left to save. The caller holds mu.
func (a *Agent) settled() bool {
	return a.finish != nil && a.swept && (a.pending() == 0 || a.super)
}

// sleep waits, and tells whether it may go on.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// megabytes formats a size for people.
func megabytes(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/1e6) }
