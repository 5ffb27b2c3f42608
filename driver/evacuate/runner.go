package evacuate

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"nomad-spotter/driver/nomad"
	"nomad-spotter/driver/notice"
)

// Options are the settings and surroundings of a Runner.
type Options struct {
	Limits
	StateFile string // remembers over restarts that the node's eligibility was taken; empty means nowhere

	Log    hclog.Logger
	Source notice.Source
	// Tasks lists the driver's tasks that have not ended; it does not block.
	Tasks func() []Task
	// Node reaches a node through Nomad's API; nil where the API is not configured.
	Node func(id string) Cluster
}

const (
	busyTick = 200 * time.Millisecond // between looks at the tasks while the node is evacuated
	idleTick = time.Second
	// callLimit bounds a call of Cluster or Task that should have a shorter deadline of its own.
	callLimit = 6 * time.Second
	// settleTime is how long after a drain was complete the tasks count as being stopped by Nomad, not as spared.
	settleTime = time.Minute
	// drainPatience is how long the first word about a drain is waited for; a token may lack the right to read it.
	drainPatience = 15 * time.Second
)

// Runner evacuates the node when its source or a drain says so. One goroutine, that of Run, holds all state and decides;
// calls that may take time run in goroutines of their own, which report back to it.
type Runner struct {
	opts Options
	log  hclog.Logger

	mailbox chan func() // what other goroutines have to say, run by the goroutine of Run
	joined  chan string // IDs of the node
	workers sync.WaitGroup

	mu     sync.Mutex // guards what Evacuating answers
	threat *Threat

	// All below belongs to the goroutine of Run.
	cluster     Cluster
	nodeID      string
	leave       context.CancelFunc // ends the watch of cluster
	joinedAt    time.Time
	notice      *Notice
	drain       nomad.Drain
	drainSeen   time.Time
	drainEnded  time.Time // when a drain became complete
	drainKnown  bool
	sourceKnown bool
	rebalance   time.Time
	node        NodeProgress
	nodeBusy    bool // a change of the node's eligibility is under way
	tasks       map[string]*taskRecord
	moves       map[string]Attempt
}

// taskRecord is the progress of one task and what is needed to act on it.
type taskRecord struct {
	task      Task
	progress  TaskProgress
	announced string             // the announcement it got
	told      map[string]bool    // sentences it got already
	stopWait  context.CancelFunc // ends the wait for its outcome; the request stays open
	ask       int                // counts asks, to tell a late outcome from the current one

	withdrawing bool // a Withdraw is under way
}

// New makes a Runner; Run starts it.
func New(opts Options) *Runner {
	return &Runner{
		opts:    opts,
		log:     opts.Log.Named("evacuate"),
		mailbox: make(chan func()),
		joined:  make(chan string, 1),
		tasks:   map[string]*taskRecord{},
		moves:   map[string]Attempt{},
	}
}

// Join tells the node's ID, which a driver learns from its first task (started, refused or recovered); call it before
// Tasks lists that task, and once.
func (r *Runner) Join(nodeID string) {
	select {
	case r.joined <- nodeID:
	default:
	}
}

// Evacuating says whether the node is being evacuated, why, and until when (zero: no deadline). Tasks must not be
// started meanwhile.
func (r *Runner) Evacuating() (until time.Time, reason string, yes bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.threat == nil {
		return time.Time{}, "", false
	}
	return r.threat.Deadline, description(*r.threat), true
}

// Run watches and acts until ctx is done, then returns once all its goroutines have ended. It leaves open what is under
// way, for the next plugin to find.
func (r *Runner) Run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer r.workers.Wait()
	defer cancel() // ends the watch of the node as well

	m, err := loadMemory(r.opts.StateFile)
	if err != nil {
		r.log.Warn("cannot tell whether this driver made the node ineligible", "error", err)
	}
	if r.node.Took = !m.IneligibleSince.IsZero(); r.node.Took && m.NodeID != "" {
		r.onJoin(ctx, m.NodeID) // no task may come to a node that takes none
	}

	r.workers.Go(func() {
		r.opts.Source.Watch(ctx, func(e notice.Event) { r.post(ctx, func() { r.onEvent(e) }) })
	})
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case f := <-r.mailbox:
			f()
		case id := <-r.joined:
			r.onJoin(ctx, id)
		case <-timer.C:
		}
		// What was joined before an event counts for it, whichever the select above took first.
		select {
		case id := <-r.joined:
			r.onJoin(ctx, id)
		default:
		}
		r.step(ctx)
		tick := idleTick
		if r.threat != nil || !r.rebalance.IsZero() {
			tick = busyTick
		}
		timer.Reset(tick)
	}
}

// post hands f to the goroutine of Run.
func (r *Runner) post(ctx context.Context, f func()) {
	select {
	case r.mailbox <- f:
	case <-ctx.Done():
	}
}

// work runs call in a goroutine, bounded by limit, and then done, with its error, in the goroutine of Run.
func (r *Runner) work(ctx context.Context, limit time.Duration, call func(context.Context) error, done func(error)) {
	r.workers.Go(func() {
		cctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		err := call(cctx)
		r.post(ctx, func() { done(err) })
	})
}

func (r *Runner) onJoin(ctx context.Context, id string) {
	if r.opts.Node == nil || id == r.nodeID {
		return
	}
	if r.leave != nil { // the node has another ID than the one remembered: Nomad's client began anew
		r.leave()
		r.remember(false)
	}
	wctx, leave := context.WithCancel(ctx)
	c := r.opts.Node(id)
	r.nodeID, r.cluster, r.leave, r.node.API, r.joinedAt = id, c, leave, true, time.Now()
	r.workers.Go(func() {
		c.WatchDrain(wctx, func(d nomad.Drain) { r.post(wctx, func() { r.onDrain(d) }) })
	})
}

func (r *Runner) onEvent(e notice.Event) {
	switch e.Kind {
	case notice.KindInterruption:
		n := &Notice{Action: e.Action, Seen: e.Seen, Deadline: e.Deadline}
		if r.notice != nil {
			n.Seen = r.notice.Seen
		}
		r.notice, r.sourceKnown = n, true
	case notice.KindWithdrawn:
		r.notice = nil
		if !r.drain.Active {
			r.tellAll(msgWithdrawn)
		}
	case notice.KindRebalance:
		r.rebalance = e.Seen
		for _, t := range r.tasks {
			t.resetAsk()
		}
		if r.threat == nil {
			r.tellAll(msgRebalance)
		}
	case notice.KindHealth:
		r.sourceKnown = e.Health.Watching || e.Health.Off
	}
}

func (r *Runner) onDrain(d nomad.Drain) {
	now := time.Now()
	switch {
	case d.Active && !r.drain.Active:
		r.drainSeen = now
		r.log.Info("the node is being drained", "deadline", d.Deadline, "force", d.Force)
		r.remember(false) // the node's eligibility is the operator's from now on
	case !d.Active && r.drain.Active:
		r.log.Info("the drain of the node is over", "cancelled", d.Cancelled)
		r.drainEnded = now
		if d.Cancelled {
			r.drainEnded = time.Time{}
			r.tellAll(msgCancelled)
		}
	}
	r.drain, r.drainKnown = d, true
}

// step brings the records up to date, plans, and acts.
func (r *Runner) step(ctx context.Context) {
	now := time.Now()
	r.refresh(now)
	if r.threat != nil && r.threat.Cause == CauseNotice && !r.node.API {
		r.tellAllOnce(msgNoAPI)
	}
	s := r.situation(now)
	for _, a := range Plan(now, r.opts.Limits, s) {
		r.act(ctx, now, a)
	}
}

// refresh reads the tasks' states and works out the threat.
func (r *Runner) refresh(now time.Time) {
	before := r.threat
	t, on := Merge(r.notice, r.drain, r.drainSeen)
	r.mu.Lock()
	r.threat = nil
	if on {
		r.threat = &t
	}
	r.mu.Unlock()

	switch {
	case on && before == nil:
		r.rebalance = time.Time{}
		r.node.Ineligible, r.node.Eligible = Attempt{}, Attempt{}
		for _, rec := range r.tasks {
			rec.begin(now)
		}
	case !on && before != nil:
		r.node.Eligible = Attempt{}
		for id, m := range r.moves {
			if !m.Done {
				delete(r.moves, id)
			}
		}
	case on && t.Cause == CauseNotice && before.Cause == CauseDrain:
		r.node.Ineligible = Attempt{}
	}
	if !r.rebalance.IsZero() && !now.Before(r.rebalance.Add(r.opts.CheckpointTimeout)) {
		r.rebalance = time.Time{}
	}
	r.refreshTasks(now)
}

func (r *Runner) refreshTasks(now time.Time) {
	listed := map[string]bool{}
	for _, task := range r.opts.Tasks() {
		st := task.State()
		listed[st.ID] = true
		rec := r.tasks[st.ID]
		if rec == nil {
			rec = &taskRecord{task: task, progress: TaskProgress{Since: now}, told: map[string]bool{}}
			r.tasks[st.ID] = rec
		}
		rec.progress.TaskState = st
		if r.threat != nil && rec.announced == "" && st.Running {
			rec.announced = announcement(*r.threat, now)
			rec.tell(rec.announced)
		}
	}
	live := map[string]bool{}
	for id, rec := range r.tasks {
		if listed[id] {
			live[rec.progress.AllocID] = true
			continue
		}
		rec.resetAsk()
		delete(r.tasks, id)
	}
	for id := range r.moves {
		if !live[id] {
			delete(r.moves, id)
		}
	}
}

func (r *Runner) situation(now time.Time) Situation {
	s := Situation{Threat: r.threat, Rebalance: r.rebalance, Node: r.node, Moves: r.moves}
	drainKnown := r.drainKnown || r.cluster == nil || now.Sub(r.joinedAt) > drainPatience
	s.Calm = r.threat == nil && r.sourceKnown && drainKnown && now.Sub(r.drainEnded) > settleTime
	for _, rec := range r.tasks {
		s.Tasks = append(s.Tasks, rec.progress)
	}
	// A fixed order makes what is done first, and the log, the same every time.
	slices.SortFunc(s.Tasks, func(a, b TaskProgress) int {
		if a.ID < b.ID {
			return -1
		}
		return 1
	})
	return s
}

// remember notes whether the node's ineligibility is this driver's doing.
func (r *Runner) remember(took bool) {
	if took == r.node.Took {
		return
	}
	r.node.Took = took
	var m memory
	if took {
		m.IneligibleSince, m.NodeID = time.Now().UTC(), r.nodeID
	}
	if err := m.save(r.opts.StateFile); err != nil {
		r.log.Warn("the node's eligibility may not be restored after a restart", "error", err)
	}
}

func (r *Runner) tellAll(message string) {
	for _, t := range r.tasks {
		if t.progress.Running {
			t.tell(message)
		}
	}
}

// begin prepares the record for a new evacuation.
func (t *taskRecord) begin(now time.Time) {
	t.resetAsk()
	t.progress.Since, t.progress.End = now, Attempt{}
	t.announced, t.told = "", map[string]bool{}
}

// resetAsk forgets the running ask and its outcome; a request that is open stays open.
func (t *taskRecord) resetAsk() {
	if t.stopWait != nil {
		t.stopWait()
		t.stopWait = nil
	}
	t.ask++
	t.progress.Ask, t.progress.AskFor = Attempt{}, time.Time{}
}

// tell emits message as an event of the task.
func (t *taskRecord) tell(message string) { t.task.Event(message) }

// tellOnce does so unless the task got the same message in this evacuation.
func (t *taskRecord) tellOnce(message string) {
	if !t.told[message] {
		t.told[message] = true
		t.tell(message)
	}
}
