package pool

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	nomad "github.com/hashicorp/nomad/api"

	"nomad-spotter/autoscaler-plugin/cloud"
)

// nodes is the pool's hand on Nomad.
type nodes interface {
	list(ctx context.Context) (map[string]NomadNode, error)
	drain(ctx context.Context, nodeID, reason string) error
	undrain(ctx context.Context, nodeID string) error
	stopWork(ctx context.Context, nodeID string) error
	purge(ctx context.Context, nodeID string) error
}

// restartPause is how long the loop waits after a failure before it takes the lease again.
const restartPause = 2 * time.Second

// minHealthy is how old the last tick that went well may be before the pool reports that it is not ready. A tick may
// wait for launches and for the end of instances.
const minHealthy = time.Minute

// Loop runs one pool: it owns the lease, the desired count and every change to the instances. Run is called once; the
// other methods may be called at any time.
type Loop struct {
	pool  Pool
	store Store
	nodes nodes // nil: the pool works without Nomad
	log   hclog.Logger
	now   func() time.Time
	wake  chan struct{}

	scale   sync.Mutex // one SetDesired at a time
	nomadUp bool       // false: its failure has been logged; only Run touches it
	missing string     // why nodes were missing at the last tick; only Run touches it

	mu      sync.Mutex
	lease   Lease // nil while not held
	loaded  bool
	desired Desired
	ticked  time.Time // last tick that went well
	why     string    // why the pool is not ready, or what went wrong last
}

// NewLoop makes the loop of a pool. nomadCfg is what the autoscaler agent uses; the pool file's nomad block overrides
// it. Without an address in either, the pool works without Nomad: nothing is drained, and a running instance counts as a
// ready node.
func NewLoop(p Pool, nomadCfg *nomad.Config, log hclog.Logger) (*Loop, error) {
	store, err := OpenStore(p.Config)
	if err != nil {
		return nil, err
	}
	l := &Loop{
		pool: p, store: store, log: log.Named("pool").With("pool", p.Name), now: time.Now,
		wake: make(chan struct{}, 1), why: "starting", nomadUp: true,
	}
	if cfg := mergeNomad(nomadCfg, p.Nomad); cfg.Address != "" {
		if l.nodes, err = newNomadNodes(cfg, p.Name); err != nil {
			return nil, err
		}
	} else {
		l.log.Info("works without Nomad: no address is configured; nodes are not drained before they are ended")
	}
	return l, nil
}

func mergeNomad(base *nomad.Config, over NomadConfig) *nomad.Config {
	cfg := nomad.Config{}
	if base != nil {
		cfg = *base
	}
	if over.Address != "" {
		cfg.Address = over.Address
	}
	if over.Token != "" {
		cfg.SecretID = over.Token
	}
	if over.Region != "" {
		cfg.Region = over.Region
	}
	if over.CAFile != "" {
		tls := nomad.TLSConfig{}
		if cfg.TLSConfig != nil {
			tls = *cfg.TLSConfig
		}
		tls.CACert = over.CAFile
		cfg.TLSConfig = &tls
	}
	return &cfg
}

// Health is what a pool says of itself without asking anybody.
type Health struct {
	Ready   bool
	Why     string // not ready: why
	Desired Desired
}

// Health answers from memory.
func (l *Loop) Health() Health {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := Health{Desired: l.desired, Ready: l.loaded, Why: l.why}
	if limit := max(minHealthy, 3*l.pool.Interval); l.loaded && l.now().Sub(l.ticked) > limit {
		h.Ready, h.Why = false, fmt.Sprintf("no tick went well for %v: %s", l.now().Sub(l.ticked).Round(time.Second), l.why)
	}
	return h
}

// SetDesired records the count durably and wakes the loop. It fails while this process does not hold the pool's lease.
func (l *Loop) SetDesired(ctx context.Context, count int) error {
	if count < 0 {
		return fmt.Errorf("scale pool %q: %d nodes are less than none", l.pool.Name, count)
	}
	l.scale.Lock()
	defer l.scale.Unlock()
	l.mu.Lock()
	lease, was, why := l.lease, l.desired, l.why
	l.mu.Unlock()
	if lease == nil {
		return fmt.Errorf("scale pool %q: not ready: %s", l.pool.Name, why)
	}
	if count == was.Count {
		return nil
	}
	next := Desired{Count: count, ChangedAt: l.now().UTC()}
	if err := lease.Save(ctx, next); err != nil {
		return fmt.Errorf("scale pool %q: %w", l.pool.Name, err)
	}
	l.log.Info("desired count changed", "from", was.Count, "to", count)
	l.mu.Lock()
	l.desired = next
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
	return nil
}

// Run keeps the pool until the context ends. Failures and panics end a term of the lease, never Run.
func (l *Loop) Run(ctx context.Context) {
	for ctx.Err() == nil {
		err := l.term(ctx)
		if ctx.Err() != nil {
			return
		}
		l.log.Error("pool stopped, starting again", "error", err, "pause", restartPause)
		_ = pause(ctx, restartPause)
	}
}

// term holds the lease once, until it is lost or something fails.
func (l *Loop) term(ctx context.Context) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
		if err != nil {
			l.unready(err.Error())
		}
	}()
	l.unready("waiting for the pool's lease, which another process holds")
	lease, err := l.store.Acquire(ctx)
	if err != nil {
		return err
	}
	l.log.Info("lease acquired")
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watched := make(chan struct{})
	go func() { // ends with the lease or with ctx, and ends ctx with the lease
		defer close(watched)
		select {
		case <-lease.Lost():
			cancel()
		case <-ctx.Done():
		}
	}()
	defer func() {
		cancel()
		<-watched
		l.unready("stopped")
		if err := lease.Release(context.WithoutCancel(ctx)); err != nil {
			l.log.Warn("lease not released, it will expire", "error", err)
		}
	}()
	if err := l.load(ctx, lease); err != nil {
		return err
	}
	m, err := newMemory(l.pool.Config)
	if err != nil {
		return err
	}
	for {
		l.tick(ctx, m)
		timer := time.NewTimer(l.pool.Interval)
		select {
		case <-ctx.Done():
			timer.Stop()
			select {
			case <-lease.Lost():
				return ErrLeaseLost
			default:
				return ctx.Err()
			}
		case <-timer.C:
		case <-l.wake:
			timer.Stop()
		}
	}
}

// load reads the desired count. Where none was ever saved it is the number of instances that live.
func (l *Loop) load(ctx context.Context, lease Lease) error {
	desired, known, err := l.store.Load(ctx)
	if err != nil {
		return err
	}
	if !known {
		instances, err := l.pool.List(ctx)
		if err != nil {
			return fmt.Errorf("count instances for a first desired count: %w", err)
		}
		for _, i := range instances {
			if i.State == cloud.Running {
				desired.Count++
			}
		}
		if err := lease.Save(ctx, desired); err != nil {
			return err
		}
		l.log.Info("no desired count was saved; taking the number of running instances", "desired", desired.Count)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lease, l.loaded, l.desired, l.ticked, l.why = lease, true, desired, l.now(), ""
	return nil
}

func (l *Loop) unready(why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lease, l.loaded, l.why = nil, false, why
}

// tick looks at the world once and changes what is wrong with it.
func (l *Loop) tick(ctx context.Context, m *memory) {
	err := l.reconcile(ctx, m)
	if ctx.Err() != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err == nil && l.why != "":
		l.log.Info("pool is well again")
		fallthrough
	case err == nil:
		l.ticked, l.why = l.now(), ""
	case l.why != err.Error():
		l.log.Error("tick failed", "error", err)
		l.why = err.Error()
	}
}

func (l *Loop) reconcile(ctx context.Context, m *memory) error {
	instances, err := l.pool.List(ctx)
	if err != nil {
		return err
	}
	offers, err := l.pool.offers(ctx)
	if err != nil {
		return err
	}
	nv := l.nomad(ctx)
	v, err := m.view(l.pool.Config, l.Health().Desired.Count, instances, offers, nv, l.now())
	if err != nil {
		return err
	}
	decision := Decide(l.pool.Config, v)
	l.short(decision.Short)
	err = l.act(ctx, m, nv, decision.Actions)
	l.purge(ctx, instances, nv)
	return err
}

// short logs when nodes begin or cease to be missing that cannot be had.
func (l *Loop) short(why string) {
	switch {
	case why != "" && l.missing == "":
		l.log.Warn("nodes are missing that cannot be had", "reason", why)
	case why == "" && l.missing != "":
		l.log.Info("no node is missing any more that cannot be had")
	}
	l.missing = why
}

// nomad asks Nomad for the nodes. Its failure is no failure of the tick: launches go on without it.
func (l *Loop) nomad(ctx context.Context) nomadView {
	if l.nodes == nil {
		return nomadView{off: true, known: true}
	}
	nodes, err := l.nodes.list(ctx)
	if err != nil {
		if l.nomadUp {
			l.log.Warn("Nomad does not answer; launching goes on, draining and ending waits", "error", err)
		}
		l.nomadUp = false
		return nomadView{}
	}
	if !l.nomadUp {
		l.log.Info("Nomad answers again")
	}
	l.nomadUp = true
	return nomadView{known: true, nodes: nodes}
}
