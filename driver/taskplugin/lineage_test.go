package taskplugin

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/nomad/nomad/structs"
	"github.com/shoenig/test/must"

	"nomad-spotter/checkpointer/api"
	"nomad-spotter/driver/evacuate"
)

// TestSuperseded has a node that was cut off: its task was replaced elsewhere and must not go on.
func TestSuperseded(t *testing.T) {
	t.Parallel()
	extra := fmt.Sprintf("checkpoint {\n store = %q\n}", "file://"+t.TempDir())
	hcl := "args = [\"train\"]\ncheckpoint {\n pattern = \"step-*\"\n interval = \"200ms\"\n lineage = \"team/run\"\n}"
	n, other := newNode(t, extra), newNode(t, extra)
	task, next := n.newTask(hcl, nil), other.newTask(hcl, nil)
	task.start()
	n.waitEvent("durable in")
	next.start()
	r := task.wait()
	must.Eq(t, evacuate.ExitCode, r.ExitCode)
	must.Error(t, r.Err)
	n.waitEvent("another instance of it goes on")
	task.destroy()
	task.tc.ID += "x"
	_, _, err := n.d.StartTask(task.tc)
	must.ErrorContains(t, err, "another instance")
	must.False(t, structs.IsRecoverable(err))
	other.waitEvent("durable in") // the other one is not disturbed

	// When the allocation is gone, so is the memory of it.
	must.NoError(t, os.RemoveAll(task.tc.AllocDir))
	n.d.manager.Sweep(context.Background())
	left, err := os.ReadDir(filepath.Join(n.state, "t"))
	must.NoError(t, err)
	must.SliceEmpty(t, left)
}

// unknown is a node that cannot tell whether it is about to go away, so that its evacuation neither starts nor calls
// anything off.
const unknown = "notice {\n source = \"ec2\"\n endpoint = \"http://127.0.0.1:1\"\n}"

// TestFinalAndWithdrawn has an evacuation that is called off.
func TestFinalAndWithdrawn(t *testing.T) {
	t.Parallel()
	n := newNode(t, unknown)
	task := n.newTask(training, nil)
	task.start()
	task.resumed()
	lt, err := n.d.manager.Task(task.tc.ID)
	must.NoError(t, err)
	must.Eq(t, evacuate.FinalNone, lt.State().Final)
	ask := evacuate.Ask{Reason: api.ReasonNotice, Deadline: time.Now().Add(20 * time.Second), Final: true}
	out, err := lt.Checkpoint(context.Background(), ask)
	must.NoError(t, err)
	must.True(t, out.Durable, must.Sprint(out.Error))
	first := task.number("saved ")
	must.Eq(t, int64(first), out.Step)
	must.Eq(t, evacuate.FinalDurable, lt.State().Final)

	n.restart() // a new plugin knows it still
	must.NoError(t, n.d.RecoverTask(task.handle))
	lt, err = n.d.manager.Task(task.tc.ID)
	must.NoError(t, err)
	must.Eq(t, evacuate.FinalDurable, lt.State().Final)
	must.Eq(t, out.Step, lt.State().Step)

	must.NoError(t, lt.Withdraw(context.Background()))
	must.Eq(t, evacuate.FinalNone, lt.State().Final)
	time.Sleep(200 * time.Millisecond) // it trains on
	task.stop(20 * time.Second)
	must.Greater(t, first, task.number("saved "))
	must.Eq(t, 0, task.wait().ExitCode)
}

// TestStopAfterFinal has Nomad stop a task whose final checkpoint is durable: it is not asked again.
func TestStopAfterFinal(t *testing.T) {
	t.Parallel()
	n := newNode(t, unknown)
	task := n.newTask(training, nil)
	task.start()
	task.resumed()
	lt, err := n.d.manager.Task(task.tc.ID)
	must.NoError(t, err)
	_, err = lt.Checkpoint(context.Background(), evacuate.Ask{Reason: api.ReasonDrain, Deadline: time.Now().Add(20 * time.Second), Final: true})
	must.NoError(t, err)
	first := task.number("saved ")
	task.stop(20 * time.Second)
	must.Eq(t, evacuate.ExitCode, task.wait().ExitCode)
	must.Eq(t, first, task.number("saved "))
}

// TestUploadOutlivesTheTask has a store that goes away before the last checkpoint, and comes back after the task was
// destroyed.
func TestUploadOutlivesTheTask(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	store := filepath.Join(base, "store")
	must.NoError(t, os.Mkdir(store, 0o700))
	n := newNode(t, fmt.Sprintf("checkpoint {\n store = %q\n finish_timeout = \"2s\"\n}", "file://"+store))
	task := n.newTask(training, nil)
	task.start()
	task.resumed()
	must.NoError(t, os.Rename(store, store+".away"))
	must.NoError(t, os.WriteFile(store, nil, 0o600)) // nothing can be written below a file
	start := time.Now()
	task.stop(3 * time.Second)
	task.wait()
	must.Less(t, 10*time.Second, time.Since(start))
	agent := n.agentPID()
	task.destroy()
	poll(t, "agent goes on", func() bool { return processAlive(agent) })
	must.NoError(t, os.Remove(store))
	must.NoError(t, os.Rename(store+".away", store))
	ended(t, agent)
	n.d.manager.Sweep(context.Background())
	left, err := os.ReadDir(filepath.Join(n.state, "t"))
	must.NoError(t, err)
	must.SliceEmpty(t, left)

	next := n.newTask(training+"\n", nil)
	next.tc.JobID = task.tc.JobID
	next.start()
	must.Eq(t, task.number("saved "), next.resumed())
}

func processAlive(pid int) bool {
	_, err := os.Stat(fmt.Sprintf("/proc/%d", pid))
	return err == nil
}
