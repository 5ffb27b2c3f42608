package taskplugin

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/nomad/nomad/structs"
	"github.com/shoenig/test/must"
)

// A finished checkpoint that waits for its store, in the stage only, is saved before a restart in place begins anew. Its
// file is gone from the checkpoint directory, so nothing else has it.
func TestRestartSavesWhatIsStaged(t *testing.T) {
	t.Parallel()
	store := filepath.Join(t.TempDir(), "store")
	n := newNode(t, fmt.Sprintf("checkpoint {\n store = %q\n finish_timeout = \"1s\"\n restore_timeout = \"1s\"\n}", "file://"+store))
	task := n.newTask(training, nil)
	task.start()
	task.resumed()
	must.NoError(t, os.Rename(store, store+".away"))
	must.NoError(t, os.WriteFile(store, nil, 0o600)) // nothing can be written below a file
	task.stop(3 * time.Second)
	task.wait()
	saved := task.number("saved ")
	must.NoError(t, os.Remove(filepath.Join(task.tc.TaskDir().Dir, "checkpoints", fmt.Sprintf("step-%d", saved))))
	task.destroy()

	task.tc.ID += "x"
	_, _, err := n.d.StartTask(task.tc)
	must.ErrorContains(t, err, "save the checkpoints of the earlier run")
	must.True(t, structs.IsRecoverable(err))
	n.waitEvent("Not started: checkpoints of the earlier run are not in the store yet")

	must.NoError(t, os.Remove(store))
	must.NoError(t, os.Rename(store+".away", store))
	task.mu.Lock()
	task.out["stdout"] = ""
	task.mu.Unlock()
	poll(t, "a start, which Nomad tries again", func() bool { // once the agent has found its store again
		task.tc.ID += "x"
		h, _, err := n.d.StartTask(task.tc)
		task.handle = h
		return err == nil
	})
	must.Eq(t, saved, task.resumed())
}

// An agent that was started just before the plugin was killed is in no ledger. It is found by its socket.
func TestUnknownAgentIsFound(t *testing.T) {
	t.Parallel()
	n := newNode(t, "")
	task := n.newTask(training, nil)
	task.start()
	task.resumed()
	agent := n.agentPID()
	forget := func() {
		files, err := filepath.Glob(filepath.Join(n.state, "t", "*", "task.json"))
		must.NoError(t, err)
		must.Len(t, 1, files)
		b, err := os.ReadFile(files[0])
		must.NoError(t, err)
		var l map[string]any
		must.NoError(t, json.Unmarshal(b, &l))
		l["agent"] = map[string]any{}
		b, err = json.Marshal(l)
		must.NoError(t, err)
		must.NoError(t, os.WriteFile(files[0], b, 0o600))
	}
	n.stop()
	forget()
	n.start()
	must.NoError(t, n.d.RecoverTask(task.handle))
	must.Eq(t, agent, n.agentPID())

	n.stop()
	forget()
	n.start()
	task.again() // Nomad has lost the task's state as well
	ended(t, agent)
}

// A notice breaks off a start that is still waiting, so that the task is placed on another node.
func TestNoticeBreaksOffAStart(t *testing.T) {
	t.Parallel()
	var at atomic.Pointer[time.Time]
	file := filepath.Join(t.TempDir(), "file")
	must.NoError(t, os.WriteFile(file, nil, 0o600))
	n := newNode(t, fmt.Sprintf("notice {\n source = \"ec2\"\n endpoint = %q\n poll_interval = \"100ms\"\n}\ncheckpoint {\n store = %q\n restore_timeout = \"1m\"\n}",
		metadata(t, &at), "file://"+file+"/store"))
	task := n.newTask(training, nil)
	done := make(chan error, 1)
	go func() {
		_, _, err := n.d.StartTask(task.tc)
		done <- err
	}()
	poll(t, "the agent waits for its store", func() bool {
		files, _ := filepath.Glob(filepath.Join(n.state, "t", "*", "agent.json"))
		return len(files) == 1
	})
	deadline := time.Now().Add(time.Minute)
	at.Store(&deadline)
	select {
	case err := <-done:
		must.ErrorContains(t, err, "is not started on this node")
		must.False(t, structs.IsRecoverable(err))
	case <-time.After(20 * time.Second):
		t.Fatal("the start goes on although the node is being left")
	}
}

// A containerd that hangs does not keep Nomad waiting.
func TestStopWithHungContainerd(t *testing.T) {
	n := newNode(t, "")
	task := n.newTask(`args = ["hup"]`, nil)
	task.start()
	task.waitOutput("waiting")
	must.NoError(t, shared.cmd.Process.Signal(syscall.SIGSTOP))
	hung := true
	t.Cleanup(func() {
		if hung {
			_ = shared.cmd.Process.Signal(syscall.SIGCONT)
		}
	})
	done := make(chan error, 1)
	go func() { done <- n.d.StopTask(task.tc.ID, 2*time.Second, "") }()
	select {
	case err := <-done:
		must.ErrorContains(t, err, "deadline exceeded")
	case <-time.After(30 * time.Second):
		t.Fatal("StopTask hangs with containerd")
	}
	hung = false
	must.NoError(t, shared.cmd.Process.Signal(syscall.SIGCONT))
	task.stop(5 * time.Second) // Nomad asks again
	task.wait()
}

// A mount of a directory of the task's own works that is checked again in the container.
func TestMountOfTheTasksOwnDirectory(t *testing.T) {
	t.Parallel()
	n := newNode(t, "")
	task := n.newTask("args = [\"show\"]\nmount {\n source = \"local/data\"\n target = \"/secrets\"\n}", nil)
	task.start()
	must.Eq(t, 0, task.wait().ExitCode)
	task.waitOutput("write /secrets <nil>")
	must.FileExists(t, filepath.Join(task.tc.TaskDir().LocalDir, "data", "probe.tmp"))
}
