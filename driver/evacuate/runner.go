package evacuate

import (
	"context"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"nomad-spotter/driver/notice"
)

// Options are the settings and surroundings of a Runner.
type Options struct {
	Margin            time.Duration // containers are stopped this long before the deadline
	CheckpointTimeout time.Duration // budget of a checkpoint when there is no deadline
	StateFile         string        // remembers over restarts that the node's eligibility was taken; empty means nowhere

	Log    hclog.Logger
	Source notice.Source
	// Tasks lists the driver's tasks that have not ended; it does not block.
	Tasks func() []Task
	// Health is called with healthy = false and the reason when the driver itself must keep new tasks away, and with
	// healthy = true when that is over. It does not block.
	Health func(healthy bool, reason string)
}

// Runner evacuates the node when its source or a drain says so.
type Runner struct {
	opts Options

	mu     sync.Mutex
	until  time.Time
	reason string
	active bool
	joined chan Cluster
}

// New makes a Runner; Run starts it.
func New(opts Options) *Runner {
	return &Runner{opts: opts, joined: make(chan Cluster, 1)}
}

// Run watches and acts until ctx is done, then returns once all its goroutines have ended.
func (r *Runner) Run(ctx context.Context) {
	<-ctx.Done()
}

// Join hands over Nomad's API once the node's ID is known, which a driver learns from its first task (started, refused
// or recovered). Only the first call has an effect. Never calling it means that no API is configured.
func (r *Runner) Join(c Cluster) {
	select {
	case r.joined <- c:
	default:
	}
}

// Evacuating says whether the node is being evacuated, why, and until when (zero: no deadline). Tasks must not be
// started meanwhile.
func (r *Runner) Evacuating() (until time.Time, reason string, yes bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.until, r.reason, r.active
}
