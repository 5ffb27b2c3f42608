package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// envMark is set in the environment of every process that a cluster starts, to the cluster's folder. What inherits it
// can be told from everything else on the machine.
const envMark = "SPOTTER_CLUSTER_DIR"

// How long a server may take to be ready, and to end.
const (
	startLimit = time.Minute
	stopGrace  = 10 * time.Second
)

// process is a program that the cluster started and owns.
type process struct {
	name string
	log  string // file with its standard output and error
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
	err  error         // how; valid once done is closed
}

// start runs argv with its output in a file of the cluster's log folder. The process is in a group of its own, so that a
// Ctrl-C on the terminal reaches the cluster's owner alone, who stops things in order.
func (c *Cluster) start(name string, argv ...string) (*process, error) {
	p := &process{name: name, log: filepath.Join(c.Dir, "log", name+".log"), done: make(chan struct{})}
	f, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	p.cmd = exec.Command(argv[0], argv[1:]...) //nolint:noctx // ended by stop, in the cluster's order
	p.cmd.Dir = c.Dir
	p.cmd.Env = c.environ()
	p.cmd.Stdout, p.cmd.Stderr = f, f
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	c.mu.Lock()
	c.processes = append(c.processes, p)
	c.mu.Unlock()
	return p, nil
}

// ended tells whether the process is gone.
func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// stop ends the process: SIGTERM, and SIGKILL when it is still there after stopGrace.
func (p *process) stop() {
	if p == nil || p.ended() {
		return
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // an error means that it is gone
	t := time.NewTimer(stopGrace)
	defer t.Stop()
	select {
	case <-p.done:
		return
	case <-t.C:
	}
	_ = p.cmd.Process.Kill()
	<-p.done
}

// ready waits until check succeeds, and fails early when the process ends.
func (p *process) ready(ctx context.Context, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	var last error
	err := Poll(ctx, 50*time.Millisecond, func() bool {
		last = check(ctx)
		return last == nil || p.ended()
	})
	switch {
	case p.ended():
		return fmt.Errorf("%s ended: %w\n%s", p.name, errors.Join(p.err, errEnded), Tail(p.log, 20))
	case err != nil:
		return fmt.Errorf("%s is not ready after %v: %w\n%s", p.name, startLimit, errors.Join(err, last), Tail(p.log, 20))
	}
	return nil
}

var errEnded = errors.New("before it was ready")

// environ is the environment of every process: the engines find each other, and nothing of the caller's Nomad or Consul
// leaks in.
func (c *Cluster) environ() []string {
	var env []string
	for _, v := range os.Environ() {
		if strings.HasPrefix(v, "NOMAD_") || strings.HasPrefix(v, "CONSUL_") || strings.HasPrefix(v, "PATH=") {
			continue
		}
		env = append(env, v)
	}
	return append(env, envMark+"="+c.Dir, "PATH="+c.path)
}

// Poll calls f every so often until it returns true or ctx is done.
func Poll(ctx context.Context, every time.Duration, f func() bool) error {
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		if f() {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-t.C:
		}
	}
}

// Tail returns the last lines of a file, indented, under its name.
func Tail(path string, lines int) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return fmt.Sprintf("--- %s: %v", path, err)
	}
	all := bytes.Split(bytes.TrimRight(b, "\n"), []byte("\n"))
	all = all[max(0, len(all)-lines):]
	return fmt.Sprintf("--- end of %s\n    %s", path, bytes.Join(all, []byte("\n    ")))
}
