// Package target is the shell that nomad-autoscaler talks to: the target plugin "spotter-pool". It answers from memory
// and records what it is told; all work is done by the loops of package pool, which it starts, replaces and stops. It
// never calls a provider or Nomad itself.
package target

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad-autoscaler/plugins/base"
	"github.com/hashicorp/nomad-autoscaler/plugins/target"
	"github.com/hashicorp/nomad-autoscaler/sdk"
	nomadhelper "github.com/hashicorp/nomad-autoscaler/sdk/helper/nomad"
	nomad "github.com/hashicorp/nomad/api"

	"nomad-spotter/autoscaler-plugin/pool"
)

// Keys of the plugin's configuration and of a policy's target block.
const (
	configPoolFile = "pool_file" // plugin: path of the pool file
	configPool     = "pool"      // target: which pool of it
)

// scaleTimeout bounds a Scale, for which nomad-autoscaler sets no deadline.
const scaleTimeout = 10 * time.Second

// Loader reads a pool file.
type Loader func(path string) ([]pool.Pool, error)

// Plugin is the target plugin. Its methods may be called at any time and together.
type Plugin struct {
	ctx  context.Context //nolint:containedctx // a plugin's calls bring none: this root ends when the process is to end
	name string
	load Loader
	log  hclog.Logger

	configure sync.Mutex // one SetConfig or Close at a time

	mu    sync.Mutex
	term  *term // nil until configured
	ended bool
}

// term is one configuration at work.
type term struct {
	config map[string]string
	pools  []pool.Pool
	loops  map[string]*pool.Loop
	cancel context.CancelFunc
	done   sync.WaitGroup
}

var _ target.Target = (*Plugin)(nil)

// New makes a plugin that works until ctx ends. Its name must be that of the executable.
func New(ctx context.Context, name string, load Loader, log hclog.Logger) *Plugin {
	return &Plugin{ctx: ctx, name: name, load: load, log: log}
}

// PluginInfo tells nomad-autoscaler what it started.
func (p *Plugin) PluginInfo() (*base.PluginInfo, error) {
	return &base.PluginInfo{Name: p.name, PluginType: sdk.PluginTypeTarget}, nil
}

// SetConfig reads the pool file and starts a loop per pool. It is called again on SIGHUP: what has not changed goes on
// undisturbed, a faulty file changes nothing, and a changed one replaces the loops after they have stopped.
func (p *Plugin) SetConfig(config map[string]string) (err error) {
	defer p.rescue("set config", &err)
	p.configure.Lock()
	defer p.configure.Unlock()
	path := config[configPoolFile]
	if path == "" {
		return fmt.Errorf("config.%s: missing; give the path of the pool file, as in config = { pool_file = \"/etc/spotter/pool.hcl\" }", configPoolFile)
	}
	pools, err := p.load(path)
	if err != nil {
		return err
	}
	p.mu.Lock()
	last, ended := p.term, p.ended
	p.mu.Unlock()
	if ended {
		return errors.New("the plugin is ending")
	}
	if last != nil && maps.Equal(last.config, config) && slices.Equal(last.sources(), sources(pools)) {
		return nil
	}
	next := &term{config: maps.Clone(config), pools: pools, loops: map[string]*pool.Loop{}}
	nomadCfg := nomadConfig(config)
	for _, pl := range pools {
		if next.loops[pl.Name], err = pool.NewLoop(pl, nomadCfg, p.log); err != nil {
			return fmt.Errorf("pool %q: %w", pl.Name, err)
		}
	}
	if last != nil {
		last.stop()
	}
	ctx, cancel := context.WithCancel(p.ctx)
	next.cancel = cancel
	for _, loop := range next.loops {
		next.done.Go(func() { loop.Run(ctx) })
	}
	p.mu.Lock()
	p.term = next
	p.mu.Unlock()
	p.log.Info("configured", "pool_file", path, "pools", len(pools))
	return nil
}

// sources are the texts that pools were read from.
func sources(pools []pool.Pool) []string {
	var texts []string
	for _, p := range pools {
		texts = append(texts, p.Name, p.Source)
	}
	return texts
}

func (t *term) sources() []string { return sources(t.pools) }

// nomadConfig is what the agent handed over; nil without an address.
func nomadConfig(config map[string]string) *nomad.Config {
	cfg := nomadhelper.ConfigFromNamespacedMap(config)
	if cfg.Address == "" {
		return nil
	}
	return cfg
}

func (t *term) stop() {
	t.cancel()
	t.done.Wait()
}

// Close stops the loops and waits for them, so that leases are free for a successor at once.
func (p *Plugin) Close() {
	p.configure.Lock()
	defer p.configure.Unlock()
	p.mu.Lock()
	p.ended = true
	last := p.term
	p.mu.Unlock()
	if last != nil {
		last.stop()
	}
}

// Status reports the desired count, never what happens to run: a reclaimed instance must not look like a scale-in. The
// last event is the last change of the count; rebalancing is none, or it would hold policies in their cooldown.
func (p *Plugin) Status(config map[string]string) (status *sdk.TargetStatus, err error) {
	defer p.rescue("status", &err)
	loop, err := p.find(config)
	if err != nil {
		return nil, err
	}
	h := loop.Health()
	if !h.Ready {
		p.log.Debug("pool is not ready", "pool", config[configPool], "reason", h.Why)
	}
	status = &sdk.TargetStatus{Ready: h.Ready, Count: int64(h.Desired.Count), Meta: map[string]string{}}
	if at := h.Desired.ChangedAt; !at.IsZero() {
		status.Meta[sdk.TargetStatusMetaKeyLastEvent] = strconv.FormatInt(at.UnixNano(), 10)
	}
	return status, nil
}

// Scale records the count durably and returns; the loop does the work.
func (p *Plugin) Scale(action sdk.ScalingAction, config map[string]string) (err error) {
	defer p.rescue("scale", &err)
	loop, err := p.find(config)
	if err != nil {
		return err
	}
	if action.Count == sdk.StrategyActionMetaValueDryRunCount {
		p.log.Info("dry run: nothing is changed", "pool", config[configPool], "count", action.Meta["nomad_autoscaler.dry_run.count"])
		return nil
	}
	if action.Count < 0 || action.Count > pool.MostNodes {
		return fmt.Errorf("scale pool %q: count %d is outside 0 to %d", config[configPool], action.Count, pool.MostNodes)
	}
	ctx, cancel := context.WithTimeout(p.ctx, scaleTimeout)
	defer cancel()
	return loop.SetDesired(ctx, int(action.Count))
}

// find picks the loop that a policy's target block names.
func (p *Plugin) find(config map[string]string) (*pool.Loop, error) {
	p.mu.Lock()
	t := p.term
	p.mu.Unlock()
	if t == nil {
		return nil, errors.New("the plugin has no configuration yet")
	}
	name := config[configPool]
	if loop := t.loops[name]; loop != nil {
		return loop, nil
	}
	return nil, fmt.Errorf("target.%s: %q is not in the pool file; it has %s", configPool, name, strings.Join(slices.Sorted(maps.Keys(t.loops)), ", "))
}

// rescue turns a panic of a handler into its error: a plugin that dies is never started again.
func (p *Plugin) rescue(what string, err *error) {
	if r := recover(); r != nil {
		p.log.Error("handler panicked", "handler", what, "panic", fmt.Sprint(r), "stack", string(debug.Stack()))
		*err = fmt.Errorf("%s: internal error: %v", what, r)
	}
}
