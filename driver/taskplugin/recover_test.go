package taskplugin

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/nomad/plugins/drivers"
	"github.com/shoenig/test/must"
)

func TestRecoverRunning(t *testing.T) {
	t.Parallel()
	n := newNode(t, "")
	task := n.newTask(training, nil)
	task.start()
	task.resumed()
	agent := n.agentPID()
	n.restart()
	must.NoError(t, n.d.RecoverTask(task.handle))
	must.NoError(t, n.d.RecoverTask(task.handle)) // once more is harmless
	st, err := n.d.InspectTask(task.tc.ID)
	must.NoError(t, err)
	must.Eq(t, drivers.TaskStateRunning, st.State)
	must.Eq(t, agent, n.agentPID())
	task.stop(20 * time.Second)
	must.Eq(t, 0, task.wait().ExitCode)
	n.waitEvent(fmt.Sprintf("Checkpoint %d durable", task.number("saved ")))
}

func TestLogsSurviveTheDriver(t *testing.T) {
	t.Parallel()
	n := newNode(t, "")
	task := n.newTask(`args = ["tick"]`, nil)
	task.start()
	task.waitOutput("tick 3\n")
	n.stop()
	seen := len(task.output("stdout"))
	poll(t, "more output while no driver runs", func() bool { return len(task.output("stdout")) > seen+50 })
	n.start()
	must.NoError(t, n.d.RecoverTask(task.handle))
}

func TestRecoverExitedWhileAway(t *testing.T) {
	t.Parallel()
	n := newNode(t, "")
	task := n.newTask(`args = ["hup"]`, nil)
	task.start()
	task.waitOutput("waiting")
	st, err := n.d.InspectTask(task.tc.ID)
	must.NoError(t, err)
	n.stop()
	var pid int
	_, err = fmt.Sscan(st.DriverAttributes["pid"], &pid)
	must.NoError(t, err)
	must.NoError(t, syscall.Kill(pid, syscall.SIGHUP))
	poll(t, "end of the container", func() bool { return syscall.Kill(pid, 0) != nil })
	n.start()
	must.NoError(t, n.d.RecoverTask(task.handle))
	must.Eq(t, 3, task.wait().ExitCode)
}

func TestRecoverGone(t *testing.T) {
	t.Parallel()
	n := newNode(t, "")
	task := n.newTask(training, nil)
	task.start()
	task.resumed()
	agent, id := n.agentPID(), n.containerID(task)
	n.stop()
	n.start()
	must.NoError(t, n.d.runtime.Remove(context.Background(), id))
	must.ErrorContains(t, n.d.RecoverTask(task.handle), "is gone")
	ended(t, agent)
	must.ErrorIs(t, n.d.DestroyTask(task.tc.ID, true), drivers.ErrTaskNotFound)
	task.again() // what Nomad does next
	task.stop(10 * time.Second)
}

func (n *node) containerID(task *task) string {
	n.t.Helper()
	st, err := n.d.InspectTask(task.tc.ID)
	must.NoError(n.t, err)
	return st.DriverAttributes["container_id"]
}

func TestLeftoversAreCleaned(t *testing.T) {
	t.Parallel()
	n := newNode(t, "")
	task := n.newTask(training, nil)
	task.start()
	task.resumed()
	agent, id := n.agentPID(), n.containerID(task)
	n.restart() // and Nomad has lost the task's state
	task.again()
	ended(t, agent)
	_, err := n.d.runtime.Inspect(context.Background(), id)
	must.Error(t, err)
	must.NotEq(t, id, n.containerID(task))
}

func TestDestroyRunning(t *testing.T) {
	t.Parallel()
	n := newNode(t, "")
	task := n.newTask(training, nil)
	task.start()
	task.resumed()
	agent, id := n.agentPID(), n.containerID(task)
	must.ErrorContains(t, n.d.DestroyTask(task.tc.ID, false), "running")
	done := make(chan error, 2)
	for range 2 {
		go func() { done <- n.d.DestroyTask(task.tc.ID, true) }()
	}
	first, second := <-done, <-done
	must.True(t, first == nil || second == nil)
	must.ErrorIs(t, errors.Join(first, second), drivers.ErrTaskNotFound)
	ended(t, agent)
	_, err := n.d.runtime.Inspect(context.Background(), id)
	must.Error(t, err)
}

func TestContainerdRestarts(t *testing.T) {
	n := newNode(t, "")
	task := n.newTask(`args = ["hup"]`, nil)
	task.start()
	task.waitOutput("waiting")
	shared.halt()
	state, text := n.health()
	must.Eq(t, "unhealthy", state, must.Sprint(text))
	must.NoError(t, shared.run())
	poll(t, "containerd again", func() bool { s, _ := n.health(); return s == "healthy" })
	must.NoError(t, n.d.SignalTask(task.tc.ID, "SIGHUP"))
	must.Eq(t, 3, task.wait().ExitCode)
}
