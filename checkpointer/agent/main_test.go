package agent_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/shoenig/test/must"

	"nomad-spotter/checkpointer/agent"
	"nomad-spotter/checkpointer/api"
	"nomad-spotter/checkpointer/repository"
	"nomad-spotter/checkpointer/store"
)

// agentEnv makes the test binary an agent, so that a real process can be killed.
const agentEnv = "SPOTTER_TEST_AGENT_CONFIG"

func TestMain(m *testing.M) {
	store.Register("gate", nil, openGate)
	store.Register("replacing", nil, openReplacing)
	if file := os.Getenv(agentEnv); file != "" {
		conf, err := agent.LoadConfig(file)
		if err == nil {
			err = agent.Run(context.Background(), conf, hclog.New(&hclog.LoggerOptions{Output: os.Stderr, Level: hclog.Debug}))
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// node is a place where a task can run: a checkpoint directory, and agents that come and go.
type node struct {
	t    *testing.T
	dir  string
	conf api.AgentConfig
	exe  string // the agent's program; empty: this one
	cmd  *exec.Cmd
	log  *bytes.Buffer
	ctl  *api.Client
	task *api.Client
}

// newNode prepares an agent for a lineage in the store at dir; change may alter its configuration.
func newNode(t *testing.T, storeDir string, change func(*api.AgentConfig)) *node {
	t.Helper()
	dir, err := os.MkdirTemp("", "spa") // short: sockets
	must.NoError(t, err)
	t.Cleanup(func() { must.NoError(t, os.RemoveAll(dir)) })
	n := &node{t: t, dir: dir, log: &bytes.Buffer{}}
	n.conf = api.AgentConfig{
		Lineage: "default/train/main/0", Writer: t.Name(), CheckpointDir: filepath.Join(dir, "ckpt"), TaskCheckpointDir: "/checkpoints",
		StateDir: filepath.Join(dir, "state"), ControlSocket: filepath.Join(dir, "ctl", "c.sock"), TaskSocket: filepath.Join(dir, "task", "t.sock"),
		UID: os.Getuid(), GID: os.Getgid(), Store: "file://" + storeDir,
	}
	must.NoError(t, os.Mkdir(n.conf.CheckpointDir, 0o700))
	if change != nil {
		change(&n.conf)
	}
	n.ctl, n.task = api.NewClient(n.conf.ControlSocket), api.NewClient(n.conf.TaskSocket)
	return n
}

// start runs the agent's process and waits until it answers.
func (n *node) start() {
	n.t.Helper()
	b, err := json.Marshal(n.conf)
	must.NoError(n.t, err)
	file := filepath.Join(n.dir, "agent.json")
	must.NoError(n.t, os.WriteFile(file, b, 0o600))
	exe, args := n.exe, []string{file}
	if exe == "" {
		exe, err = os.Executable()
		must.NoError(n.t, err)
		args = nil
	}
	cmd := exec.Command(exe, args...)
	cmd.Env = append(os.Environ(), agentEnv+"="+file)
	cmd.Stderr = n.log
	must.NoError(n.t, cmd.Start())
	n.cmd = cmd
	n.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if n.t.Failed() {
			n.t.Logf("agent's log:\n%s", n.log.String())
		}
	})
	n.poll(10*time.Second, "the agent answers", func() bool {
		_, err := n.ctl.Status(context.Background(), 0, 0)
		return err == nil
	})
}

func (n *node) kill() {
	n.t.Helper()
	must.NoError(n.t, n.cmd.Process.Kill())
	_ = n.cmd.Wait()
}

// exits waits for the agent to end by itself.
func (n *node) exits(limit time.Duration) {
	n.t.Helper()
	done := make(chan error, 1)
	go func() { done <- n.cmd.Wait() }()
	select {
	case err := <-done:
		must.NoError(n.t, err)
	case <-time.After(limit):
		n.t.Fatalf("the agent did not end within %s", limit)
	}
}

func (n *node) poll(limit time.Duration, what string, ok func() bool) {
	n.t.Helper()
	deadline := time.Now().Add(limit)
	for !ok() {
		if time.Now().After(deadline) {
			n.t.Fatalf("gave up after %s: %s", limit, what)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (n *node) restore() *api.Restored {
	n.t.Helper()
	r, err := n.ctl.Restore(context.Background(), 10*time.Second)
	must.NoError(n.t, err)
	return r
}

// write makes a checkpoint as good code does: under a temporary name, renamed when complete.
func (n *node) write(name, content string) {
	n.t.Helper()
	tmp := filepath.Join(n.conf.CheckpointDir, "."+name+".tmp")
	must.NoError(n.t, os.WriteFile(tmp, []byte(content), 0o600))
	time.Sleep(10 * time.Millisecond) // file times have the clock tick's resolution
	must.NoError(n.t, os.Rename(tmp, filepath.Join(n.conf.CheckpointDir, name)))
}

func (n *node) durable(step int64) *api.Checkpoint {
	n.t.Helper()
	d, err := n.ctl.Durable(context.Background(), step, 20*time.Second)
	must.NoError(n.t, err)
	must.True(n.t, d.Durable, must.Sprintf("step %d did not become durable", step))
	return d.Checkpoint
}

// events returns the messages of a kind.
func (n *node) events(kind api.EventKind) []string {
	n.t.Helper()
	list, err := n.ctl.Events(context.Background(), 0, 0)
	must.NoError(n.t, err)
	var out []string
	for _, e := range list {
		if e.Kind == kind {
			out = append(out, e.Message)
		}
	}
	return out
}

// read returns the content of the newest snapshot of the store, restored to a fresh directory.
func read(t *testing.T, storeDir, lineage string) (step int64, content string) {
	t.Helper()
	ctx := context.Background()
	s, err := store.Open("file://"+storeDir, false)
	must.NoError(t, err)
	r, err := repository.Open(ctx, s, false)
	must.NoError(t, err)
	to := t.TempDir()
	m, damaged, err := r.Newest(ctx, lineage, repository.Target{Dir: to, UID: -1, GID: -1})
	must.NoError(t, err)
	must.SliceEmpty(t, damaged)
	must.NotNil(t, m)
	b, err := os.ReadFile(filepath.Join(to, m.Name))
	must.NoError(t, err)
	return m.Step, string(b)
}

// shell runs a shell as the task and attaches the agent to it.
func (n *node) shell(script string) *exec.Cmd {
	n.t.Helper()
	cmd := exec.Command("/bin/sh", "-c", script)
	cmd.Dir = n.conf.CheckpointDir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	must.NoError(n.t, cmd.Start())
	n.t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	})
	must.NoError(n.t, n.ctl.Attach(context.Background(), cmd.Process.Pid, 0))
	return cmd
}

func (n *node) ask(final bool, limit time.Duration) *api.Request {
	n.t.Helper()
	r, err := n.ctl.Request(context.Background(), api.CheckpointRequest{Reason: api.ReasonNotice, Deadline: time.Now().Add(limit), Final: final})
	must.NoError(n.t, err)
	return r
}

func (n *node) outcome(id uint64) *api.Outcome {
	n.t.Helper()
	o, err := n.ctl.Outcome(context.Background(), id, 20*time.Second)
	must.NoError(n.t, err)
	must.True(n.t, o.Done)
	return o
}

func TestValidate_AllFaultsTogether(t *testing.T) {
	err := agent.Validate(api.AgentConfig{
		Lineage: "a//b", CheckpointDir: "ckpt", StateDir: "/s", ControlSocket: "/" + strings.Repeat("x", 120), TaskSocket: "/t",
		Pattern: "[", Signal: 99, Interval: api.Interval{Every: -1}, Store: "ftp://x",
	})
	must.Error(t, err)
	for _, want := range []string{"lineage:", `checkpoint_dir: "ckpt"`, "control_socket:", "pattern:", "signal: 99", "interval:", `store scheme "ftp"`} {
		must.StrContains(t, err.Error(), want)
	}
}

func TestLoadConfig_Missing(t *testing.T) {
	_, err := agent.LoadConfig(filepath.Join(t.TempDir(), "none.json"))
	must.True(t, errors.Is(err, os.ErrNotExist))
}
