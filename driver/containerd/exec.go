package containerd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/errdefs"
	"github.com/google/uuid"
)

// ExecRequest is a further process in a container.
type ExecRequest struct {
	Args   []string
	Tty    bool
	Stdin  io.Reader // nil: none
	Stdout io.Writer
	Stderr io.Writer // not used with Tty
	Resize <-chan Size
}

// Size is the size of a terminal in characters.
type Size struct {
	Width  uint32
	Height uint32
}

const (
	// execDrain is how long output is read on after the process has ended: something that it left behind may hold its
	// streams open for ever.
	execDrain = 2 * time.Second
	// execCleanup bounds the calls that follow when the caller's context is over.
	execCleanup = 5 * time.Second
)

// Exec runs a process in a container and returns its exit code. When ctx ends first, the process is killed and the
// error is ctx's.
func (c *Client) Exec(ctx context.Context, id string, r ExecRequest) (int, error) {
	if len(r.Args) == 0 {
		return 0, errors.New("nothing to run: the command is empty")
	}
	task, err := c.task(ctx, id)
	if err != nil {
		return 0, err
	}
	spec, err := task.Spec(ctx)
	if err != nil {
		return 0, fmt.Errorf("read spec of container %s: %w", id, err)
	}
	ps := *spec.Process
	ps.Args, ps.Terminal = r.Args, r.Tty
	if r.Tty && !slices.ContainsFunc(ps.Env, func(e string) bool { return strings.HasPrefix(e, "TERM=") }) {
		ps.Env = append(slices.Clone(ps.Env), "TERM=xterm")
	}
	stdin := &closeNotifier{r: r.Stdin, eof: make(chan struct{})}
	opts := []cio.Opt{cio.WithFIFODir(c.opts.FIFODir), withStreams(stdin, r)}
	if r.Tty {
		opts = append(opts, cio.WithTerminal)
	}
	p, err := task.Exec(ctx, "exec-"+uuid.NewString()[:13], &ps, cio.NewCreator(opts...))
	if err != nil {
		return 0, fmt.Errorf("make process in container %s: %w", id, err)
	}
	defer c.endExec(ctx, p)
	ended, err := p.Wait(context.WithoutCancel(ctx))
	if err != nil {
		return 0, fmt.Errorf("wait for process in container %s: %w", id, err)
	}
	if err := p.Start(ctx); err != nil {
		return 0, fmt.Errorf("start %q in container %s: %w", r.Args[0], id, err)
	}
	helpers, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { serveExec(helpers, p, r, stdin.eof) })
	defer wg.Wait()
	defer stop()
	select {
	case st := <-ended:
		code, _, err := st.Result()
		if err != nil {
			return 0, fmt.Errorf("wait for process in container %s: %w", id, err)
		}
		return int(code), nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

func withStreams(stdin *closeNotifier, r ExecRequest) cio.Opt {
	var in io.Reader
	if r.Stdin != nil {
		in = stdin
	}
	if r.Tty {
		return cio.WithStreams(in, r.Stdout, nil)
	}
	return cio.WithStreams(in, r.Stdout, r.Stderr)
}

// serveExec passes on the terminal's size and the end of the input, until ctx is done.
func serveExec(ctx context.Context, p client.Process, r ExecRequest, eof <-chan struct{}) {
	resize := r.Resize
	for {
		select {
		case <-ctx.Done():
			return
		case <-eof:
			eof = nil
			_ = p.CloseIO(ctx, client.WithStdinCloser)
		case s, ok := <-resize:
			if !ok {
				resize = nil
				continue
			}
			_ = p.Resize(ctx, s.Width, s.Height)
		}
	}
}

// endExec makes sure that the process is gone and its output read, and removes its traces.
func (c *Client) endExec(ctx context.Context, p client.Process) {
	cctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), execCleanup)
	defer cancel()
	if st, err := p.Status(cctx); err == nil && st.Status == client.Running {
		if ended, err := p.Wait(cctx); err == nil {
			_ = p.Kill(cctx, syscall.SIGKILL)
			select {
			case <-ended:
			case <-cctx.Done():
			}
		}
	}
	drained := make(chan struct{})
	go func() { // ends at the latest when the streams are closed below
		p.IO().Wait()
		close(drained)
	}()
	timer := time.NewTimer(execDrain)
	defer timer.Stop()
	select {
	case <-drained:
	case <-timer.C:
	case <-cctx.Done():
	}
	if _, err := p.Delete(cctx); err != nil {
		if !errdefs.IsNotFound(err) {
			c.log.Debug("remove traces of an exec", "exec", p.ID(), "error", err)
		}
		p.IO().Cancel()
		_ = p.IO().Close()
	}
	<-drained
}

// closeNotifier tells when the reader has come to its end.
type closeNotifier struct {
	r    io.Reader
	once sync.Once
	eof  chan struct{}
}

func (n *closeNotifier) Read(b []byte) (int, error) {
	k, err := n.r.Read(b)
	if err != nil {
		n.once.Do(func() { close(n.eof) })
	}
	return k, err
}
