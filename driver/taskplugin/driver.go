package taskplugin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad/drivers/shared/eventer"
	"github.com/hashicorp/nomad/plugins/base"
	"github.com/hashicorp/nomad/plugins/drivers"

	"nomad-spotter/driver/config"
	"nomad-spotter/driver/evacuate"
	"nomad-spotter/driver/lifecycle"
	"nomad-spotter/driver/nomad"
	"nomad-spotter/driver/notice"
)

// API is Nomad's HTTP API as far as the driver uses it.
type API interface {
	Node(id string) evacuate.Cluster
	Facts(ctx context.Context, namespace, allocID, task string) (nomad.Facts, error)
}

// Makers make the parts that depend on the configuration, which arrives after the driver is made. They dial nothing.
type Makers struct {
	Runtime func(*config.Plugin, hclog.Logger) (lifecycle.Runtime, error)
	Notice  func(*config.Plugin, hclog.Logger) (notice.Source, error)
	API     func(*config.Plugin, hclog.Logger) (API, error) // called only when nomad.address is set
	// Agent is the command that starts a checkpoint agent, without the path of its configuration.
	Agent []string
}

// Driver implements drivers.DriverPlugin.
type Driver struct {
	*eventer.Eventer

	ctx context.Context // ends with the plugin
	wg  sync.WaitGroup  // goroutines of the node
	log hclog.Logger
	mk  Makers

	running sync.Once // starts the goroutines of the node
	told    sync.Once // says what is off

	mu      sync.Mutex
	raw     []byte // configuration as it came
	cfg     *config.Plugin
	manager *lifecycle.Manager
	runtime lifecycle.Runtime
	source  notice.Source
	api     API
	runner  *evacuate.Runner
	nodeID  string
}

var (
	_ drivers.DriverPlugin            = (*Driver)(nil)
	_ drivers.ExecTaskStreamingDriver = (*Driver)(nil)
)

// New makes the driver; ctx ends with the plugin.
func New(ctx context.Context, log hclog.Logger, mk Makers) *Driver {
	log = log.Named(Name)
	return &Driver{Eventer: eventer.NewEventer(ctx, log), ctx: ctx, log: log, mk: mk}
}

var errNotConfigured = errors.New("the driver is not configured yet")

// SetConfig implements base.BasePlugin. Nomad calls it in every plugin process, also in one that only checks the
// configuration: nothing is started here, and the same configuration may come again.
func (d *Driver) SetConfig(c *base.Config) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cfg != nil {
		if bytes.Equal(d.raw, c.PluginConfig) {
			return nil
		}
		return errors.New("the configuration changed while the driver runs; restart the Nomad client")
	}
	cfg, err := config.DecodePlugin(func(v any) error {
		if len(c.PluginConfig) == 0 {
			return errors.New("there is no plugin configuration; give the plugin at least an empty block")
		}
		return base.MsgPackDecode(c.PluginConfig, v)
	})
	if err != nil {
		return err
	}
	if err := d.build(cfg); err != nil {
		return err
	}
	d.raw, d.cfg = bytes.Clone(c.PluginConfig), cfg
	return nil
}

// build makes all parts. The caller holds mu.
func (d *Driver) build(cfg *config.Plugin) (err error) {
	if d.runtime, err = d.mk.Runtime(cfg, d.log); err != nil {
		return err
	}
	if d.source, err = d.mk.Notice(cfg, d.log); err != nil {
		return err
	}
	var facts func(context.Context, string, string, string) (nomad.Facts, error)
	var node func(string) evacuate.Cluster
	if cfg.Nomad.Address != "" {
		if d.api, err = d.mk.API(cfg, d.log); err != nil {
			return err
		}
		facts, node = d.api.Facts, d.api.Node
	}
	d.runner = evacuate.New(evacuate.Options{
		Limits:    evacuate.Limits{Margin: cfg.Evacuate.Margin, CheckpointTimeout: cfg.Evacuate.CheckpointTimeout},
		StateFile: filepath.Join(cfg.StateDir, "evacuate.json"),
		Log:       d.log, Source: d.source, Tasks: d.evacuees, Node: node,
	})
	d.manager = lifecycle.NewManager(lifecycle.Options{
		Config: cfg, Runtime: d.runtime, Log: d.log, AgentCommand: d.mk.Agent, Event: d.emit,
		Evacuating: d.runner.Evacuating, Facts: facts,
	})
	return nil
}

func (d *Driver) emit(e *drivers.TaskEvent) {
	// The only error is that the plugin ends, and then nobody listens.
	_ = d.EmitEvent(e)
}

func (d *Driver) evacuees() []evacuate.Task {
	d.mu.Lock()
	m := d.manager
	d.mu.Unlock()
	var out []evacuate.Task
	for _, t := range m.Tasks() {
		if t.Running() {
			out = append(out, t)
		}
	}
	return out
}

// configured returns the manager, and has the node's goroutines started: whoever asks needs a working driver.
func (d *Driver) configured() (*lifecycle.Manager, error) {
	d.mu.Lock()
	m := d.manager
	d.mu.Unlock()
	if m == nil {
		return nil, errNotConfigured
	}
	d.running.Do(func() { d.begin(m) })
	return m, nil
}

// sweepEvery is the pause between two looks at the directories of destroyed tasks.
const sweepEvery = 10 * time.Minute

// begin starts what goes on beside tasks: the evacuation's runner and the sweeper. Both end with the plugin.
func (d *Driver) begin(m *lifecycle.Manager) {
	if err := m.Setup(); err != nil {
		d.log.Error("state_dir cannot be used", "error", err)
	}
	d.wg.Go(func() { d.runner.Run(d.ctx) })
	d.wg.Go(func() {
		tick := time.NewTicker(sweepEvery)
		defer tick.Stop()
		for {
			m.Sweep(d.ctx)
			select {
			case <-tick.C:
			case <-d.ctx.Done():
				return
			}
		}
	})
}

// learnNode is called with every task: the node's ID comes with the first of them only.
func (d *Driver) learnNode(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if id == "" || d.nodeID != "" {
		return
	}
	d.nodeID = id
	d.runner.Join(id)
}

// Shutdown waits until all goroutines of the node and of tasks have ended; ctx of New must be done.
func (d *Driver) Shutdown() {
	d.mu.Lock()
	m, rt := d.manager, d.runtime
	d.mu.Unlock()
	if m == nil {
		return
	}
	d.wg.Wait()
	m.Wait()
	if err := rt.Close(); err != nil {
		d.log.Debug("close the connection to containerd", "error", err)
	}
}

func (d *Driver) task(id string) (*lifecycle.Task, error) {
	m, err := d.configured()
	if err != nil {
		return nil, err
	}
	return m.Task(id)
}

// callTimeout bounds calls that should take no time.
const callTimeout = 10 * time.Second

func (d *Driver) short() (context.Context, context.CancelFunc) {
	return context.WithTimeout(d.ctx, callTimeout)
}

func wrap(verb, id string, err error) error {
	if err == nil || errors.Is(err, drivers.ErrTaskNotFound) {
		return err
	}
	return fmt.Errorf("%s task %s: %w", verb, id, err)
}
