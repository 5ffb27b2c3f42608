package taskplugin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/nomad/plugins/drivers"

	"nomad-spotter/driver/containerd"
)

// execOutput bounds what ExecTask keeps of each stream, in bytes: its answer must fit into one message of 4 MiB.
const execOutput = 1 << 20

// ExecTask implements drivers.DriverPlugin.
func (d *Driver) ExecTask(id string, cmd []string, timeout time.Duration) (*drivers.ExecTaskResult, error) {
	t, err := d.task(id)
	if err != nil {
		return nil, err
	}
	ctx := d.ctx
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	var stdout, stderr limited
	code, err := t.Exec(ctx, containerd.ExecRequest{Args: cmd, Stdout: &stdout, Stderr: &stderr})
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, fmt.Errorf("exec in task %s: %q did not end within %s and was killed", id, cmd, timeout)
	}
	if err != nil {
		return nil, wrap("exec in", id, err)
	}
	return &drivers.ExecTaskResult{Stdout: stdout.bytes(), Stderr: stderr.bytes(), ExitResult: exitOf(code)}, nil
}

// ExecTaskStreaming implements drivers.ExecTaskStreamingDriver.
func (d *Driver) ExecTaskStreaming(ctx context.Context, id string, o *drivers.ExecOptions) (*drivers.ExitResult, error) {
	t, err := d.task(id)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(d.ctx, cancel)
	defer stop()
	// Whoever still reads the input for a process that has ended is woken up.
	defer func() { _ = o.Stdin.Close() }()
	resize := make(chan containerd.Size)
	go func() { // ends with ctx
		for {
			select {
			case <-ctx.Done():
				return
			case s, ok := <-o.ResizeCh:
				if !ok {
					return
				}
				select {
				case resize <- containerd.Size{Width: uint32(max(s.Width, 0)), Height: uint32(max(s.Height, 0))}:
				case <-ctx.Done():
					return
				}
			}
		}
	}()
	code, err := t.Exec(ctx, containerd.ExecRequest{
		Args: o.Command, Tty: o.Tty, Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr, Resize: resize,
	})
	if err != nil {
		return nil, wrap("exec in", id, err)
	}
	return exitOf(code), nil
}

func exitOf(code int) *drivers.ExitResult {
	r := &drivers.ExitResult{ExitCode: code}
	if code > 128 && code < 128+65 {
		r.Signal = code - 128
	}
	return r
}

// limited keeps the beginning of what is written.
type limited struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *limited) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buf.Write(p[:min(len(p), execOutput-l.buf.Len())])
	return len(p), nil
}

func (l *limited) bytes() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Clone(l.buf.Bytes())
}
