// Package cluster starts and stops everything that Spotter runs on, for the demo and the end-to-end tests: Consul, a
// Nomad server, a store, nomad-autoscaler with our target plugin, and through it instances with a containerd and a Nomad
// client each. All of it listens on loopback, lives below one folder, and is gone after Stop, which says so if not. The
// package drives built binaries and imports none of Spotter's rooms but checkpointer/api.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	consulapi "github.com/hashicorp/consul/api"
	nomadapi "github.com/hashicorp/nomad/api"

	"nomad-spotter/e2e/engines"
	"nomad-spotter/e2e/image"
)

// Config says what cluster is wanted.
type Config struct {
	Bin            Binaries
	Offerings      []Offering
	Nodes          int           // desired count of the pool
	OnDemandBase   int           // how many of them on-demand
	Backoff        time.Duration // how long the pool leaves an offering alone that took an instance back; 0: its default
	Notice         time.Duration // between the market's notice and the end of an instance, on the wall clock
	TimeScale      float64       // market seconds per wall second
	Margin         time.Duration // of the driver: containers are stopped this long before the deadline
	ACL            bool          // Nomad demands tokens
	WeakOffering   string        // the driver on nodes of this offering has a token that may change nothing
	HeartbeatGrace time.Duration // how long a Nomad client may be silent beyond its heartbeat; 0: 2 s
	Progress       func(string)  // told what is being started; may be nil
}

// Offering is one offering of the pool.
type Offering struct {
	Name, Region, Zone, Kind string
	PriceUSDPerHour          float64
	Trace                    []int         // 1 available, 0 not; none: always available
	Tick                     time.Duration // of the trace, in market time
}

// Kinds of offerings.
const (
	Spot     = "spot"
	OnDemand = "on-demand"
)

// StoreService is the name under which stores are found in Consul.
const StoreService = "checkpoint-store"

// Cluster is what Start started.
type Cluster struct {
	Config
	Dir      string // everything is below
	StoreURL string // of the store that is registered in Consul
	ImageURL string // of the training program's image archive
	Nomad    *nomadapi.Client
	Consul   *consulapi.Client

	path   string // PATH of all processes
	ports  ports
	files  *http.Server
	values values
	http   *http.Client

	consul, server, autoscaler *process

	mu        sync.Mutex
	processes []*process
}

// values are what the templates name.
type values struct {
	Config
	Dir, PluginDir, AutoscalerPluginDir                string
	PoolState, Instances                               string // the local provider's folder, and where it keeps instances
	Nomad, Containerd                                  string
	NomadHTTP, NomadRPC, NomadSerf                     int
	ConsulHTTP, ConsulServer, ConsulSerf               int
	AutoscalerHTTP                                     int
	CgroupParent                                       string
	DriverToken, WeakToken, PoolToken, ManagementToken string
	MaxNodes                                           int
	Offerings                                          []offeringValues
}

type offeringValues struct {
	Offering
	TraceFile string
}

// dirPrefix begins the name of every cluster's folder.
const dirPrefix = "spotter-"

// Start starts a cluster. When it fails, what it started is stopped again, and its folder is kept; when ctx is done
// meanwhile, the folder goes as well.
func Start(ctx context.Context, cfg Config) (*Cluster, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("start cluster: containers and mount namespaces need root")
	}
	dir, err := os.MkdirTemp("/tmp", dirPrefix) // short: a unix socket's path has at most 107 bytes
	if err != nil {
		return nil, err
	}
	if cfg.HeartbeatGrace == 0 {
		cfg.HeartbeatGrace = 2 * time.Second
	}
	c := &Cluster{Config: cfg, Dir: dir, path: engines.SearchPath(), http: &http.Client{Timeout: 30 * time.Second}}
	if err := c.startAll(ctx); err != nil {
		stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), StopLimit)
		defer cancel()
		if ctx.Err() != nil {
			return nil, errors.Join(context.Cause(ctx), c.Stop(stopCtx, false))
		}
		return nil, errors.Join(fmt.Errorf("start cluster: %w (logs are in %s)", err, dir), c.stopAll(stopCtx))
	}
	return c, nil
}

func (c *Cluster) progress(format string, args ...any) {
	if c.Progress != nil {
		c.Progress(fmt.Sprintf(format, args...))
	}
}

func (c *Cluster) startAll(ctx context.Context) error {
	// The folder of images is read by Nomad's artifact fetcher, which is not root.
	if err := os.Chmod(c.Dir, 0o755); err != nil {
		return err
	}
	if err := c.prepare(ctx); err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{
		c.startConsul, c.startServer, c.startFiles, c.startAutoscaler,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// prepare makes folders, chooses ports and fills in the values.
func (c *Cluster) prepare(ctx context.Context) error {
	v := &c.values
	*v = values{
		Config: c.Config, Dir: c.Dir, PoolState: filepath.Join(c.Dir, "p"), Instances: filepath.Join(c.Dir, "p", "i"),
		PluginDir: filepath.Join(c.Dir, "plugins"), AutoscalerPluginDir: filepath.Join(c.Dir, "autoscaler-plugins"),
		Nomad: c.Bin.Nomad, Containerd: c.Bin.Containerd,
		CgroupParent: "/" + filepath.Base(c.Dir), MaxNodes: 2*c.Nodes + 2,
	}
	for _, d := range []string{"log", "files", "policies", "store", "p", "plugins", "autoscaler-plugins"} {
		if err := os.MkdirAll(filepath.Join(c.Dir, d), 0o755); err != nil {
			return err
		}
	}
	// Nomad runs every executable of its plugin folder, so each plugin has one of its own.
	if err := os.Symlink(c.Bin.Driver, filepath.Join(v.PluginDir, filepath.Base(c.Bin.Driver))); err != nil {
		return err
	}
	if err := os.Symlink(c.Bin.AutoscalerPlugin, filepath.Join(v.AutoscalerPluginDir, filepath.Base(c.Bin.AutoscalerPlugin))); err != nil {
		return err
	}
	for _, p := range []*int{
		&v.NomadHTTP, &v.NomadRPC, &v.NomadSerf, &v.ConsulHTTP, &v.ConsulServer, &v.ConsulSerf, &v.AutoscalerHTTP,
	} {
		port, err := c.ports.free(ctx)
		if err != nil {
			return err
		}
		*p = port
	}
	for _, o := range c.Offerings {
		ov := offeringValues{Offering: o}
		if len(o.Trace) > 0 {
			ov.TraceFile = filepath.Join(c.Dir, "trace-"+o.Name+".json")
			if err := writeTrace(ov.TraceFile, o); err != nil {
				return err
			}
		}
		v.Offerings = append(v.Offerings, ov)
	}
	c.StoreURL = "file://" + filepath.Join(c.Dir, "store")
	return nil
}

// startConsul starts Consul and registers the store in it.
func (c *Cluster) startConsul(ctx context.Context) error {
	c.progress("starting Consul")
	file, err := c.render("consul.hcl", ".hcl")
	if err != nil {
		return err
	}
	if c.consul, err = c.start("consul", c.Bin.Consul, "agent", "-dev", "-config-file", file); err != nil {
		return err
	}
	c.Consul, err = consulapi.NewClient(&consulapi.Config{Address: fmt.Sprintf("127.0.0.1:%d", c.values.ConsulHTTP)})
	if err != nil {
		return err
	}
	return c.consul.ready(ctx, func(ctx context.Context) error {
		leader, err := c.Consul.Status().LeaderWithQueryOptions((&consulapi.QueryOptions{}).WithContext(ctx))
		if err != nil {
			return err
		}
		if leader == "" {
			return errors.New("no leader yet")
		}
		// Development mode knows its leader a moment before it takes registrations.
		return c.Consul.Agent().ServiceRegisterOpts(&consulapi.AgentServiceRegistration{
			Name: StoreService, Meta: map[string]string{"url": c.StoreURL},
		}, consulapi.ServiceRegisterOpts{}.WithContext(ctx))
	})
}

// startServer starts the Nomad server and, with ACLs, makes the tokens.
func (c *Cluster) startServer(ctx context.Context) error {
	c.progress("starting the Nomad server")
	file, err := c.render("server.hcl", ".hcl")
	if err != nil {
		return err
	}
	if c.server, err = c.start("nomad-server", c.Bin.Nomad, "agent", "-config", file); err != nil {
		return err
	}
	c.Nomad, err = nomadapi.NewClient(&nomadapi.Config{Address: c.NomadAddress()})
	if err != nil {
		return err
	}
	err = c.server.ready(ctx, func(context.Context) error {
		leader, err := c.Nomad.Status().Leader()
		if err == nil && leader == "" {
			err = errors.New("no leader yet")
		}
		return err
	})
	if err != nil || !c.ACL {
		return err
	}
	return c.bootstrapACL(ctx)
}

// NomadAddress is the URL of the Nomad server.
func (c *Cluster) NomadAddress() string {
	return fmt.Sprintf("http://127.0.0.1:%d", c.values.NomadHTTP)
}

// ConsulAddress is the URL of Consul.
func (c *Cluster) ConsulAddress() string {
	return fmt.Sprintf("http://127.0.0.1:%d", c.values.ConsulHTTP)
}

// ManagementToken is Nomad's; empty without ACLs.
func (c *Cluster) ManagementToken() string { return c.values.ManagementToken }

// startFiles serves the folder of images, and builds the training program's there.
func (c *Cluster) startFiles(ctx context.Context) error {
	c.progress("building the training image")
	if err := image.WriteArchive(c.Bin.Trainer, "trainer", filepath.Join(c.Dir, "files", "train.oci.tar")); err != nil {
		return err
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	c.files = &http.Server{Handler: http.FileServer(http.Dir(filepath.Join(c.Dir, "files"))), ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = c.files.Serve(l) }() // ends when stopAll closes the server
	c.ImageURL = "http://" + l.Addr().String() + "/train.oci.tar"
	return nil
}

// startAutoscaler starts nomad-autoscaler, which launches the pool, and waits for its nodes.
func (c *Cluster) startAutoscaler(ctx context.Context) error {
	c.progress("starting nomad-autoscaler and the pool's %d nodes", c.Nodes)
	for _, t := range []string{"client.hcl", "containerd.toml"} {
		if _, err := c.render(t, ".tmpl"); err != nil {
			return err
		}
	}
	if _, err := c.render("pool.hcl", ""); err != nil {
		return err
	}
	if _, err := c.renderTo("policy.hcl", filepath.Join(c.Dir, "policies", "training.hcl")); err != nil {
		return err
	}
	if err := c.StartAutoscaler(ctx); err != nil {
		return err
	}
	return c.WaitNodes(ctx, c.Nodes)
}

// PoolFile is the path of the pool file.
func (c *Cluster) PoolFile() string { return filepath.Join(c.Dir, "pool.hcl") }

// StartAutoscaler starts the nomad-autoscaler agent; it does nothing when one is running.
func (c *Cluster) StartAutoscaler(ctx context.Context) error {
	if c.autoscaler != nil && !c.autoscaler.ended() {
		return nil
	}
	file, err := c.render("autoscaler.hcl", "")
	if err != nil {
		return err
	}
	if c.autoscaler, err = c.start("nomad-autoscaler", c.Bin.Autoscaler, "agent", "-config", file); err != nil {
		return err
	}
	url := fmt.Sprintf("http://127.0.0.1:%d/v1/health", c.values.AutoscalerHTTP)
	return c.autoscaler.ready(ctx, func(ctx context.Context) error {
		_, err := c.get(ctx, url, nil)
		return err
	})
}

// KillAutoscaler ends the agent at once, as kill -9 does, and waits until it is gone. Its plugin may live on.
func (c *Cluster) KillAutoscaler() {
	_ = c.autoscaler.cmd.Process.Kill() // an error means that it is gone
	<-c.autoscaler.done
}
