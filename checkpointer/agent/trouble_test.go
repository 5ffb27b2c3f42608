package agent_test

import (
	"context"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-spotter/checkpointer/api"
)

// The timeout of a restore is for finding a store. A download takes as long as it takes: here the manifest is a pipe that
// is fed only after several timeouts.
func TestAgent_RestoreMayTakeLongerThanItsTimeout(t *testing.T) {
	t.Parallel()
	st := t.TempDir()
	a := newNode(t, st, nil)
	a.start()
	a.restore()
	a.write("ckpt_1", "a large checkpoint")
	a.durable(1)
	var object string
	must.NoError(t, filepath.WalkDir(filepath.Join(st, "lineages"), func(p string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && filepath.Base(filepath.Dir(p)) == "@snapshots" {
			object = p
		}
		return err
	}))
	content, err := os.ReadFile(object)
	must.NoError(t, err)
	must.NoError(t, os.Remove(object))
	must.NoError(t, syscall.Mkfifo(object, 0o600))
	const limit = 300 * time.Millisecond
	go func() {
		f, err := os.OpenFile(object, os.O_WRONLY, 0) // once the restore reads
		if err != nil {
			return
		}
		defer f.Close()
		time.Sleep(4 * limit)
		_, _ = f.Write(content)
	}()
	b := newNode(t, st, nil)
	b.start()
	r, err := b.ctl.Restore(context.Background(), limit)
	must.NoError(t, err)
	must.Eq(t, 1, r.Checkpoint.Step)
	must.Eq(t, 2, r.Epoch, must.Sprint("one attempt, one epoch"))
}

// With several stores registered, a task goes on from the newest checkpoint that any of them has, whichever is preferred.
func TestAgent_RestoresTheNewestOfSeveralStores(t *testing.T) {
	t.Parallel()
	preferred, other := t.TempDir(), t.TempDir()
	for dir, step := range map[string]string{preferred: "ckpt_3", other: "ckpt_8"} {
		n := newNode(t, dir, nil)
		n.start()
		n.restore()
		n.write(step, "state of "+step)
		n.durable(3)
	}
	consul := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `[{"Node":{"Node":"a"},"Service":{"Meta":{"url":"file://%s"}}},{"Node":{"Node":"b"},"Service":{"Meta":{"url":"file://%s"}}}]`, preferred, other)
	}))
	t.Cleanup(consul.Close)
	n := newNode(t, "", func(c *api.AgentConfig) {
		c.Store, c.Consul = "", &api.ConsulConfig{Address: consul.URL, Service: "checkpoint-store"}
	})
	n.start()
	r := n.restore()
	must.NotNil(t, r.Checkpoint)
	must.Eq(t, 8, r.Checkpoint.Step)
	must.StrContains(t, r.Store, other)
}

// A store that does not create objects conditionally will do where it was registered for one writer per lineage.
func TestAgent_SingleWriterByRegistration(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	consul := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/v1/health/service/") {
			http.Error(w, "no epochs from here", http.StatusForbidden)
			return
		}
		fmt.Fprintf(w, `[{"Node":{"Node":"a"},"Service":{"Meta":{"url":"replacing://any%s","single_writer":"true"}}}]`, dir)
	}))
	t.Cleanup(consul.Close)
	for epoch, step := range []string{"ckpt_3", "ckpt_4"} {
		n := newNode(t, "", func(c *api.AgentConfig) {
			c.Store, c.Consul = "", &api.ConsulConfig{Address: consul.URL, Service: "checkpoint-store"}
		})
		n.start()
		must.EqOp(t, uint64(epoch+1), n.restore().Epoch)
		n.write(step, "state of "+step)
		n.durable(int64(3 + epoch))
	}
}

// What cannot be staged now is staged when it can, the last checkpoint of an ended task included.
func TestAgent_StagesOnceItCan(t *testing.T) {
	t.Parallel()
	st := t.TempDir()
	a := newNode(t, st, nil)
	a.start()
	a.restore()
	task := a.shell("sleep 60")
	dir := filepath.Join(a.conf.StateDir, "stage")
	must.NoError(t, os.RemoveAll(dir))
	must.NoError(t, os.WriteFile(dir, nil, 0o600)) // no directory can be made below a file
	a.write("step-7", "the last one")
	a.poll(10*time.Second, "the trouble is told", func() bool { return len(a.events(api.EventFailed)) > 0 })
	must.NoError(t, syscall.Kill(-task.Process.Pid, syscall.SIGKILL))
	o, err := a.ctl.Finish(context.Background(), time.Now().Add(1500*time.Millisecond), false)
	must.NoError(t, err)
	must.False(t, o.Done, must.Sprint("a checkpoint waits that is not even staged"))
	must.NoError(t, os.Remove(dir))
	must.NoError(t, os.Mkdir(dir, 0o700))
	a.durable(7)
	must.SliceLen(t, 1, a.events(api.EventFailed))
	_, content := read(t, st, a.conf.Lineage)
	must.Eq(t, "the last one", content)
	a.exits(10 * time.Second)
}

// A request that was made before the task's process was known reaches it by signal.
func TestAgent_SignalsALateProcess(t *testing.T) {
	t.Parallel()
	a := newNode(t, t.TempDir(), func(c *api.AgentConfig) { c.Signal = int(syscall.SIGUSR1) })
	a.start()
	a.restore()
	r := a.ask(true, 20*time.Second)
	cmd := exec.Command("/bin/sh", "-c", `trap 'echo answer > .x.tmp; sleep 0.05; mv .x.tmp step-3' USR1; touch .ready; while true; do sleep 0.05; done`)
	cmd.Dir = a.conf.CheckpointDir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	must.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	})
	a.poll(5*time.Second, "the trap is set", func() bool {
		_, err := os.Stat(filepath.Join(a.conf.CheckpointDir, ".ready"))
		return err == nil
	})
	must.NoError(t, a.ctl.Attach(context.Background(), cmd.Process.Pid, 0))
	o := a.outcome(r.ID)
	must.True(t, o.Durable, must.Sprint(o.Error))
}

// A pid alone does not name a process, and a task that has ended has none.
func TestAgent_AttachesTheRightProcess(t *testing.T) {
	t.Parallel()
	a := newNode(t, t.TempDir(), nil)
	a.start()
	a.restore()
	must.ErrorContains(t, a.ctl.Attach(context.Background(), os.Getpid(), 1), "another one")
	task := a.shell("sleep 60")
	must.NoError(t, syscall.Kill(-task.Process.Pid, syscall.SIGKILL))
	_, err := a.ctl.Finish(context.Background(), time.Now().Add(5*time.Second), false)
	must.NoError(t, err)
	must.ErrorContains(t, a.ctl.Attach(context.Background(), os.Getpid(), 0), "ended already")
}

// A second agent on the same state directory does not start, and leaves the first one's sockets alone.
func TestAgent_OnePerStateDirectory(t *testing.T) {
	t.Parallel()
	a := newNode(t, t.TempDir(), nil)
	a.start()
	a.restore()
	exe, err := os.Executable()
	must.NoError(t, err)
	second := exec.Command(exe)
	second.Env = append(os.Environ(), agentEnv+"="+filepath.Join(a.dir, "agent.json"))
	out, err := second.CombinedOutput()
	must.Error(t, err)
	must.True(t, strings.Contains(string(out), "another agent uses"), must.Sprint(string(out)))
	s, err := a.ctl.Status(context.Background(), 0, 0)
	must.NoError(t, err)
	must.Eq(t, a.cmd.Process.Pid, s.PID)
}
