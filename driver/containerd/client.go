// Package containerd runs containers through containerd's client: images, specs, processes, their figures and their
// ends. It is the only package that imports that client. It knows no Nomad, no checkpoints and no agents; what a
// container looks like is said by its callers in values of this package.
package containerd

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/errdefs"
	"github.com/hashicorp/go-hclog"
	"github.com/opencontainers/runtime-spec/specs-go/features"
)

// Options say which containerd to use, and how.
type Options struct {
	Address     string
	Namespace   string
	Snapshotter string
	Runtime     string // such as "io.containerd.runc.v2"
	PullTimeout time.Duration
	FIFODir     string // where the streams of an exec live
	Log         hclog.Logger
}

// Client talks to one containerd. It dials on first use and again whenever the connection is lost, so it outlives
// restarts of containerd. It is safe for concurrent use.
type Client struct {
	opts Options
	log  hclog.Logger
	c    *client.Client

	mu      sync.Mutex
	pulls   map[string]*pull // by reference and user
	imports sync.Mutex       // one archive at a time: they compete for the same disk
	seccomp *bool            // nil: not found out yet
}

// dialTimeout bounds a dial and the pause between two of them.
const dialTimeout = 3 * time.Second

// New makes a client; nothing is dialled yet.
func New(o Options) (*Client, error) {
	address := strings.TrimPrefix(o.Address, "unix://")
	c, err := client.New(address,
		client.WithDefaultNamespace(o.Namespace),
		client.WithDefaultRuntime(o.Runtime),
		client.WithTimeout(dialTimeout),
	)
	if err != nil {
		return nil, fmt.Errorf("make containerd client for %s: %w", address, err)
	}
	return &Client{opts: o, log: o.Log.Named("containerd"), c: c, pulls: map[string]*pull{}}, nil
}

// Close ends the connection. Containers live on.
func (c *Client) Close() error { return c.c.Close() }

// Info is what a node's owner wants to know about containerd.
type Info struct {
	Version string
	Seccomp bool // the runtime can filter system calls
}

// Probe asks containerd for its version and whether the snapshotter works.
func (c *Client) Probe(ctx context.Context) (Info, error) {
	v, err := c.c.Version(ctx)
	if err != nil {
		return Info{}, fmt.Errorf("ask containerd at %s for its version: %w", c.opts.Address, err)
	}
	if _, err := c.c.SnapshotService(c.opts.Snapshotter).Stat(ctx, "spotter-probe"); err != nil && !errdefs.IsNotFound(err) {
		return Info{}, fmt.Errorf("use snapshotter %q: %w; set containerd.snapshotter to one that `ctr plugins ls` shows as ok", c.opts.Snapshotter, err)
	}
	return Info{Version: v.Version, Seccomp: c.seccompWorks(ctx)}, nil
}

// seccompWorks says whether the runtime was built with seccomp: a runc without it refuses every profile. containerd 2
// tells; for an older one the runc on PATH is asked, and a distribution's runc always has it.
func (c *Client) seccompWorks(ctx context.Context) bool {
	c.mu.Lock()
	known := c.seccomp
	c.mu.Unlock()
	if known != nil {
		return *known
	}
	works := true
	if f := c.features(ctx); f != nil {
		works = f.Linux != nil && f.Linux.Seccomp != nil && f.Linux.Seccomp.Enabled != nil && *f.Linux.Seccomp.Enabled
	}
	if ctx.Err() != nil {
		return works
	}
	c.mu.Lock()
	c.seccomp = &works
	c.mu.Unlock()
	return works
}

func (c *Client) features(ctx context.Context) *features.Features {
	if info, err := c.c.RuntimeInfo(ctx, c.opts.Runtime, nil); err == nil {
		if f, ok := info.Features.(*features.Features); ok {
			return f
		}
	}
	if !strings.HasPrefix(c.opts.Runtime, "io.containerd.runc.") {
		return nil
	}
	out, err := exec.CommandContext(ctx, "runc", "features").Output()
	if err != nil {
		return nil
	}
	f := new(features.Features)
	if json.Unmarshal(out, f) != nil {
		return nil
	}
	return f
}

// IsUnavailable tells whether err means that containerd did not answer, as opposed to an answer that says no.
func IsUnavailable(err error) bool {
	return errdefs.IsUnavailable(err) || errdefs.IsDeadlineExceeded(err) || errdefs.IsCanceled(err)
}

// IsNotFound tells whether err means that the container, image or process does not exist.
func IsNotFound(err error) bool { return errdefs.IsNotFound(err) }
