package containerd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/containerd/containerd/v2/core/remotes/docker/config"
	"github.com/distribution/reference"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// PullRequest names an image of a registry.
type PullRequest struct {
	Reference string
	Username  string
	Password  string
	Force     bool              // ask the registry even if the image is here
	Progress  func(text string) // called now and then; sentences for the task's owner
}

// pull is one download that several tasks may wait for.
type pull struct {
	done chan struct{}
	img  *Image
	err  error

	mu        sync.Mutex
	listeners []func(string)
}

func (p *pull) say(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.listeners {
		f(text)
	}
}

const (
	progressEvery = time.Second      // between two looks at a download
	progressTell  = 20 * time.Second // between two words about it
)

// Pull makes an image of a registry ready. An image that is here is used as it is, unless Force; concurrent pulls of one
// image are one. A pull without progress for the pull timeout fails.
func (c *Client) Pull(ctx context.Context, r PullRequest) (*Image, error) {
	named, err := reference.ParseDockerRef(r.Reference)
	if err != nil {
		return nil, fmt.Errorf("image %q is no valid reference: %w", r.Reference, err)
	}
	ref := named.String()
	if !r.Force {
		if img, err := c.c.GetImage(ctx, ref); err == nil {
			if ready, err := c.ready(ctx, img); err == nil {
				return ready, nil
			}
		}
	}
	key := ref + "\x00" + r.Username + "\x00" + r.Password
	c.mu.Lock()
	p, running := c.pulls[key]
	if !running {
		p = &pull{done: make(chan struct{})}
		c.pulls[key] = p
	}
	c.mu.Unlock()
	p.mu.Lock()
	if r.Progress != nil {
		p.listeners = append(p.listeners, r.Progress)
	}
	p.mu.Unlock()
	if !running {
		p.img, p.err = c.pull(ctx, named, r, p)
		c.mu.Lock()
		delete(c.pulls, key)
		c.mu.Unlock()
		close(p.done)
	}
	select {
	case <-p.done:
		return p.img, p.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

var errNoProgress = errors.New("no progress")

func (c *Client) pull(ctx context.Context, named reference.Named, r PullRequest, p *pull) (*Image, error) {
	ref := named.String()
	ctx, cancel := context.WithCancelCause(ctx)
	t := &transfer{}
	var watch sync.WaitGroup
	watch.Go(func() { c.watchPull(ctx, cancel, ref, t, p) })
	defer watch.Wait()
	defer cancel(nil)
	p.say("Pulling image " + ref)
	start := time.Now()
	img, err := c.c.Pull(ctx, ref,
		client.WithResolver(resolver(ctx, named, r)),
		client.WithPullUnpack,
		client.WithPullSnapshotter(c.opts.Snapshotter),
		client.WithImageHandler(images.HandlerFunc(t.add)),
	)
	if err != nil {
		if errors.Is(context.Cause(ctx), errNoProgress) {
			return nil, fmt.Errorf("pull image %s: no progress for %s (pull_timeout); %s", ref, c.opts.PullTimeout, t.text())
		}
		return nil, fmt.Errorf("pull image %s: %w", ref, err)
	}
	p.say(fmt.Sprintf("Pulled image %s (%s) in %s", ref, Bytes(t.total()), time.Since(start).Round(100*time.Millisecond)))
	return c.ready(ctx, img)
}

// resolver talks plain HTTP to registries on this machine, HTTPS to all others. Credentials go to the image's own
// registry only, wherever that may redirect.
func resolver(ctx context.Context, named reference.Named, r PullRequest) remotes.Resolver {
	o := config.HostOptions{}
	if r.Username != "" {
		domain := reference.Domain(named)
		o.Credentials = func(host string) (string, string, error) {
			if host == domain || (domain == "docker.io" && host == "registry-1.docker.io") {
				return r.Username, r.Password, nil
			}
			return "", "", nil
		}
	}
	return docker.NewResolver(docker.ResolverOptions{Hosts: config.ConfigureHosts(ctx, o)})
}

// transfer follows one download.
type transfer struct {
	mu    sync.Mutex
	descs []ocispec.Descriptor
	done  int64
}

func (t *transfer) add(_ context.Context, d ocispec.Descriptor) ([]ocispec.Descriptor, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, have := range t.descs {
		if have.Digest == d.Digest {
			return nil, nil
		}
	}
	t.descs = append(t.descs, d)
	return nil, nil
}

func (t *transfer) total() (n int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, d := range t.descs {
		n += d.Size
	}
	return n
}

func (t *transfer) text() string {
	total := t.total()
	t.mu.Lock()
	defer t.mu.Unlock()
	return fmt.Sprintf("%s of %s are here", Bytes(t.done), Bytes(total))
}

// watchPull cancels a download that stands still and tells how far one is. Unpacking is local: it ends by itself.
func (c *Client) watchPull(ctx context.Context, cancel context.CancelCauseFunc, ref string, t *transfer, p *pull) {
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	moved, told := time.Now(), time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			done, complete := c.measure(ctx, t)
			t.mu.Lock()
			if done != t.done || complete {
				t.done, moved = done, now
			}
			t.mu.Unlock()
			if now.Sub(moved) > c.opts.PullTimeout {
				cancel(errNoProgress)
				return
			}
			if now.Sub(told) >= progressTell {
				told = now
				word := "Pulling image "
				if complete {
					word = "Unpacking image "
				}
				p.say(word + ref + ": " + t.text())
			}
		}
	}
}

// measure counts the bytes that are here and says whether those are all.
func (c *Client) measure(ctx context.Context, t *transfer) (done int64, complete bool) {
	store := c.c.ContentStore()
	active := map[string]int64{}
	if list, err := store.ListStatuses(ctx); err == nil {
		for _, s := range list {
			active[s.Ref] = s.Offset
		}
	}
	t.mu.Lock()
	descs := append([]ocispec.Descriptor(nil), t.descs...)
	t.mu.Unlock()
	complete = len(descs) > 2 // the manifest and the configuration come first
	for _, d := range descs {
		if off, ok := active[remotes.MakeRefKey(ctx, d)]; ok {
			done += off
			complete = false
		} else if _, err := store.Info(ctx, d.Digest); err == nil {
			done += d.Size
		} else {
			complete = false
		}
	}
	return done, complete
}

// Bytes writes a size for people: "3.2 MB".
func Bytes(n int64) string {
	const unit = 1000
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	div, exp := int64(unit), 0
	for m := n / unit; m >= unit; m /= unit {
		div *= unit
		exp++
	}
	return fmt.Sprintf("%.1f %cB", float64(n)/float64(div), "kMGTPE"[exp])
}
