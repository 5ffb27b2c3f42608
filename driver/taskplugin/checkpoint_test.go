package taskplugin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/nomad/nomad/structs"
	"github.com/shoenig/test/must"

	"nomad-spotter/driver/evacuate"
)

const training = `
args = ["train"]
checkpoint {
  dir     = "/checkpoints"
  pattern = "step-*"
}
`

// resumed waits for the program's word about where it goes on, the last one it gave.
func (t *task) resumed() int {
	t.n.t.Helper()
	return t.number("resumed from ")
}

func (t *task) number(prefix string) int {
	t.n.t.Helper()
	t.waitOutput(prefix)
	lines := strings.Split(strings.TrimSpace(t.output("stdout")), "\n")
	for i := len(lines) - 1; i >= 0; i-- {
		if s, ok := strings.CutPrefix(lines[i], prefix); ok {
			n, err := strconv.Atoi(s)
			must.NoError(t.n.t, err)
			return n
		}
	}
	return -1
}

func TestStopCheckpointsAndRestartResumes(t *testing.T) {
	t.Parallel()
	n := newNode(t, "")
	task := n.newTask(training, nil)
	task.start()
	must.Eq(t, 0, task.resumed())
	time.Sleep(200 * time.Millisecond) // some steps
	start := time.Now()
	task.stop(20 * time.Second)
	must.Less(t, 10*time.Second, time.Since(start))
	must.Eq(t, 0, task.wait().ExitCode) // it is told to stop only when its checkpoint is durable
	saved := task.number("saved ")
	must.Positive(t, saved)
	n.waitEvent(fmt.Sprintf("Checkpoint %d durable in ", saved))
	task.destroy()

	task.mu.Lock()
	task.out["stdout"] = ""
	task.mu.Unlock()
	task.again()
	must.Eq(t, saved, task.resumed())
	n.waitEvent(fmt.Sprintf("Restored step %d from file://", saved))
}

func TestReplacementRestoresElsewhere(t *testing.T) {
	t.Parallel()
	store := t.TempDir()
	extra := fmt.Sprintf("checkpoint {\n store = %q\n}", "file://"+store)
	n := newNode(t, extra)
	task := n.newTask(training, nil)
	task.start()
	task.resumed()
	task.stop(20 * time.Second)
	saved := task.number("saved ")

	other := newNode(t, extra)
	next := other.newTask(training, nil)
	next.start()
	must.Eq(t, saved, next.resumed())
}

func TestExitWaitsForTheLastCheckpoint(t *testing.T) {
	t.Parallel()
	n := newNode(t, "")
	task := n.newTask(strings.Replace(training, `["train"]`, `["train", "5"]`, 1), nil)
	task.start()
	must.Eq(t, 0, task.wait().ExitCode)
	// The result came after the checkpoint was durable.
	must.Eq(t, "5", must1(n.d.InspectTask(task.tc.ID))(t).DriverAttributes["durable_step"])
}

func must1[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		must.NoError(t, err)
		return v
	}
}

func TestAgentIsStartedAgain(t *testing.T) {
	t.Parallel()
	n := newNode(t, "")
	task := n.newTask(training, nil)
	task.start()
	task.resumed()
	pid := n.agentPID()
	must.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	n.waitEvent("was started again")
	must.NotEq(t, pid, n.agentPID())
	task.stop(20 * time.Second)
	n.waitEvent(fmt.Sprintf("Checkpoint %d durable", task.number("saved ")))
}

// agentPID reads the pid of the only task's agent from its ledger.
func (n *node) agentPID() int {
	n.t.Helper()
	files, err := filepath.Glob(filepath.Join(n.state, "t", "*", "task.json"))
	must.NoError(n.t, err)
	must.Len(n.t, 1, files)
	b, err := os.ReadFile(files[0])
	must.NoError(n.t, err)
	var l struct {
		Agent struct {
			PID int `json:"pid"`
		} `json:"agent"`
	}
	must.NoError(n.t, json.Unmarshal(b, &l))
	return l.Agent.PID
}

func TestStoreOutOfReach(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	must.NoError(t, os.WriteFile(file, nil, 0o600))
	n := newNode(t, fmt.Sprintf("checkpoint {\n store = %q\n restore_timeout = \"1s\"\n}", "file://"+file+"/store"))
	task := n.newTask(training, nil)
	_, _, err := n.d.StartTask(task.tc)
	must.Error(t, err)
	must.True(t, structs.IsRecoverable(err), must.Sprint(err))
	n.waitEvent("cannot be restored within 1s")
	ended(t, n.agentPID())
}

// ended waits until a process is gone, and reaped.
func ended(t *testing.T, pid int) {
	t.Helper()
	poll(t, fmt.Sprintf("end of process %d", pid), func() bool { return syscall.Kill(pid, 0) != nil })
}

func TestCheckpointDirIsForTheTaskAlone(t *testing.T) {
	t.Parallel()
	n := newNode(t, "")
	task := n.newTask("args = [\"show\"]\ncheckpoint {}", nil)
	task.tc.User = "trainer"
	task.start()
	must.Eq(t, 0, task.wait().ExitCode)
	task.waitOutput("uid 1234 gid 1235")
	for _, s := range []string{"write /alloc <nil>", "write /local <nil>", "write /secrets <nil>", "write /checkpoints <nil>", "socket <nil>", "env FROM_IMAGE=1", "env NOMAD_ALLOC_INDEX=0", "cwd /tmp", "Groups:\t77", "NoNewPrivs:\t1"} {
		task.waitOutput(s)
	}
	for _, d := range []string{filepath.Join(task.tc.TaskDir().Dir, "checkpoints"), filepath.Join(n.state, "t")} {
		info, err := os.Stat(d)
		must.NoError(t, err)
		must.Eq(t, 0o700, info.Mode().Perm())
	}
	info, err := os.Stat(filepath.Join(task.tc.TaskDir().Dir, "checkpoints"))
	must.NoError(t, err)
	must.Eq(t, 1234, info.Sys().(*syscall.Stat_t).Uid)
}

// metadata is an EC2 instance metadata service with a notice that can be switched on.
func metadata(t *testing.T, at *atomic.Pointer[time.Time]) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch deadline := at.Load(); {
		case r.Method == http.MethodPut:
			_, _ = w.Write([]byte("token"))
		case r.URL.Path == "/latest/meta-data/spot/instance-action" && deadline != nil:
			_, _ = fmt.Fprintf(w, `{"action":"terminate","time":%q}`, deadline.UTC().Format(time.RFC3339))
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func TestNoticeEndsTheTaskForRescheduling(t *testing.T) {
	t.Parallel()
	var at atomic.Pointer[time.Time]
	n := newNode(t, fmt.Sprintf("notice {\n source = \"ec2\"\n endpoint = %q\n poll_interval = \"100ms\"\n}", metadata(t, &at)))
	task := n.newTask(training, nil)
	task.start()
	task.resumed()
	deadline := time.Now().Add(time.Minute)
	at.Store(&deadline)
	r := task.wait()
	must.Eq(t, evacuate.ExitCode, r.ExitCode)
	n.waitEvent("Interruption notice: ")
	n.waitEvent(fmt.Sprintf("Checkpoint %d durable", task.number("saved ")))
	task.destroy()
	task.tc.ID += "x"
	_, _, err := n.d.StartTask(task.tc)
	must.ErrorContains(t, err, "not started on this node")
	must.False(t, structs.IsRecoverable(err))
	state, text := n.health()
	must.Eq(t, "unhealthy", state, must.Sprint(text))
}

// health looks once, as the fingerprint does.
func (n *node) health() (state, description string) {
	f := n.d.look(n.d.ctx, n.d.manager, true)
	return string(f.state), f.description
}
