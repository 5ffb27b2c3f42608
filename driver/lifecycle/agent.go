package lifecycle

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"

	"nomad-spotter/checkpointer/api"
	"nomad-spotter/driver/atomicfile"
)

// process names a process beyond the reuse of its pid.
type process struct {
	PID   int    `json:"pid,omitempty"`
	Start uint64 `json:"start,omitempty"` // clock ticks since boot, field 22 of /proc/PID/stat
}

// startOf reads when a process was started; 0 when it does not exist or is a zombie.
func startOf(pid int) uint64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// The name in parentheses may hold anything; the rest is numbers.
	i := bytes.LastIndexByte(b, ')')
	if i < 0 {
		return 0
	}
	fields := strings.Fields(string(b[i+1:]))
	if len(fields) < 20 || fields[0] == "Z" || fields[0] == "X" {
		return 0
	}
	n, err := strconv.ParseUint(fields[19], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// alive tells whether this very process still runs.
func (p process) alive() bool { return p.PID > 0 && p.Start > 0 && startOf(p.PID) == p.Start }

const (
	agentStartTime = 20 * time.Second // for an agent to answer on its socket
	agentStopTime  = 5 * time.Second
	callTimeout    = 5 * time.Second
)

// agent is the checkpoint agent of one task: a process of its own, in a session and a cgroup of its own, which lives on
// when this process ends.
type agent struct {
	dir      string
	command  []string
	cgroup   string // below the cgroup root
	client   *api.Client
	log      hclog.Logger
	changed  func(process) // called with every process that was started or found
	patience time.Duration // for it to answer

	mu   sync.Mutex // held while it is looked at or started
	proc process
}

func agentConfigFile(dir string) string { return filepath.Join(dir, "agent.json") }
func controlSocket(dir string) string   { return filepath.Join(dir, "c.sock") }
func socketDir(dir string) string       { return filepath.Join(dir, "s") }
func taskSocket(dir string) string      { return filepath.Join(socketDir(dir), "task.sock") }
func agentState(dir string) string      { return filepath.Join(dir, "agent") }

// writeAgentConfig puts the agent's configuration where it is told to look. It may hold a token.
func writeAgentConfig(dir string, c api.AgentConfig) error {
	b, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return fmt.Errorf("encode configuration of checkpoint agent: %w", err)
	}
	return atomicfile.WriteFile(agentConfigFile(dir), b, 0o600)
}

// ensure starts the agent unless it runs and answers. started tells whether it had to.
func (a *agent) ensure(ctx context.Context) (started bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p := findAgent(ctx, a.client, a.proc); p.alive() {
		if p != a.proc {
			a.proc = p
			a.changed(p)
		}
		err := a.answer(ctx, p)
		if err == nil || ctx.Err() != nil {
			return false, err
		}
		a.log.Error("checkpoint agent lives but does not answer; it is killed and started again", "pid", p.PID, "error", err)
		if err := p.kill(ctx); err != nil {
			return false, err
		}
	}
	proc, err := a.start()
	if err != nil {
		return false, err
	}
	a.proc = proc
	a.changed(proc)
	return true, a.answer(ctx, proc)
}

// findAgent returns the process of the agent behind a socket: the known one, or else the one that answers. This process
// may have been killed between starting an agent and writing down which it is.
func findAgent(ctx context.Context, c *api.Client, known process) process {
	if known.alive() {
		return known
	}
	cctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	st, err := c.Status(cctx, 0, 0)
	if err != nil || st.PID <= 0 {
		return known
	}
	return process{PID: st.PID, Start: startOf(st.PID)}
}

// kill ends the process and waits until it is gone.
func (p process) kill(ctx context.Context) error {
	if p.alive() {
		_ = syscall.Kill(p.PID, syscall.SIGKILL)
	}
	if p.gone(ctx, agentStopTime) {
		return nil
	}
	return fmt.Errorf("checkpoint agent %d does not end", p.PID)
}

// answer waits until the agent answers on its control socket.
func (a *agent) answer(ctx context.Context, p process) error {
	ctx, cancel := context.WithTimeout(ctx, a.patience)
	defer cancel()
	for {
		cctx, ccancel := context.WithTimeout(ctx, callTimeout)
		_, err := a.client.Status(cctx, 0, 0)
		ccancel()
		if err == nil {
			return nil
		}
		if !p.alive() {
			return fmt.Errorf("checkpoint agent ended at once; the end of %s: %s", a.logFile(), a.logTail())
		}
		if !pause(ctx, 50*time.Millisecond) {
			return fmt.Errorf("checkpoint agent does not answer: %w; the end of %s: %s", err, a.logFile(), a.logTail())
		}
	}
}

func (a *agent) logFile() string { return filepath.Join(a.dir, "agent.log") }

func (a *agent) logTail() string {
	const size = 512
	f, err := os.Open(a.logFile())
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > size {
		_, _ = f.Seek(-size, io.SeekEnd)
	}
	b, _ := io.ReadAll(io.LimitReader(f, size))
	return string(bytes.TrimSpace(b))
}

// start runs the agent in a session of its own. Its end is reaped in the background, for as long as this process lives.
func (a *agent) start() (process, error) {
	log, err := os.OpenFile(a.logFile(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return process{}, fmt.Errorf("open log of checkpoint agent: %w", err)
	}
	defer log.Close()
	args := append(append([]string(nil), a.command[1:]...), agentConfigFile(a.dir))
	cmd := exec.Command(a.command[0], args...) //nolint:noctx // the agent outlives this process
	cmd.Env = agentEnv(os.Environ())
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return process{}, fmt.Errorf("start checkpoint agent: %w", err)
	}
	pid := cmd.Process.Pid
	p := process{PID: pid, Start: startOf(pid)}
	if err := enterCgroups(a.cgroup, pid); err != nil {
		a.log.Debug("give checkpoint agent a cgroup of its own", "error", err)
	}
	go func() { _ = cmd.Wait() }() // ends with the agent, or with this process
	a.log.Info("checkpoint agent started", "pid", pid)
	return p, nil
}

// agentEnv leaves out what is meant for a plugin of Nomad.
func agentEnv(env []string) []string {
	var out []string
	for _, e := range env {
		if !strings.HasPrefix(e, "NOMAD_PLUGIN_") && !strings.HasPrefix(e, "PLUGIN_") {
			out = append(out, e)
		}
	}
	return out
}

// stop ends the agent without saving.
func (a *agent) stop(ctx context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	err := stopAgent(ctx, a.client, a.proc)
	if err == nil {
		removeCgroups(ctx, a.cgroup)
	}
	return err
}

func stopAgent(ctx context.Context, c *api.Client, p process) error {
	if p = findAgent(ctx, c, p); !p.alive() {
		return nil
	}
	cctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_ = c.Quit(cctx)
	if p.gone(ctx, agentStopTime) {
		return nil
	}
	_ = syscall.Kill(p.PID, syscall.SIGTERM)
	if p.gone(ctx, agentStopTime) {
		return nil
	}
	return p.kill(ctx)
}

// gone waits until the process has ended.
func (p process) gone(ctx context.Context, limit time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for p.alive() {
		if !pause(ctx, 20*time.Millisecond) {
			return !p.alive()
		}
	}
	return true
}

// pause waits, and tells whether ctx still lives.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
