package taskplugin

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/plugins/drivers"
	"github.com/hashicorp/nomad/plugins/shared/hclspec"
	"github.com/shoenig/test/must"
)

type specOf = *hclspec.Spec

const goarch = runtime.GOARCH

func TestExitCodeAndLogs(t *testing.T) {
	t.Parallel()
	n := newNode(t, "")
	task := n.newTask(`args = ["exit", "7"]`, nil)
	task.start()
	r := task.wait()
	must.Eq(t, 7, r.ExitCode)
	must.NoError(t, r.Err)
	task.waitOutput("to stdout")
	poll(t, "stderr", func() bool { return strings.Contains(task.output("stderr"), "to stderr") })
	st, err := n.d.InspectTask(task.tc.ID)
	must.NoError(t, err)
	must.Eq(t, drivers.TaskStateExited, st.State)
	must.False(t, st.CompletedAt.IsZero())
	task.destroy()
	must.ErrorIs(t, n.d.DestroyTask(task.tc.ID, true), drivers.ErrTaskNotFound)
	_, err = n.d.InspectTask(task.tc.ID)
	must.ErrorIs(t, err, drivers.ErrTaskNotFound)
	left, err := os.ReadDir(filepath.Join(n.state, "t"))
	must.NoError(t, err)
	must.SliceEmpty(t, left)
}

func TestStopIsIdempotentAndUsesImageSignal(t *testing.T) {
	t.Parallel()
	n := newNode(t, "")
	task := n.newTask(``, nil)
	task.start()
	task.waitOutput("sleeping")
	done := make(chan error, 2)
	for range 2 {
		go func() { done <- n.d.StopTask(task.tc.ID, 5*time.Second, "") }()
	}
	must.NoError(t, <-done)
	must.NoError(t, <-done)
	must.NoError(t, n.d.StopTask(task.tc.ID, time.Second, ""))
	must.Eq(t, 0, task.wait().ExitCode)
	task.waitOutput("got interrupt") // the image's STOPSIGNAL
}

func TestStopKillsTheStubborn(t *testing.T) {
	t.Parallel()
	n := newNode(t, "")
	task := n.newTask(`args = ["stubborn"]`, nil)
	task.start()
	task.waitOutput("stubborn")
	start := time.Now()
	task.stop(time.Second)
	must.Less(t, 5*time.Second, time.Since(start))
	r := task.wait()
	must.Eq(t, 137, r.ExitCode)
	must.Eq(t, 9, r.Signal)
	must.False(t, r.OOMKilled)
}

func TestSignal(t *testing.T) {
	t.Parallel()
	n := newNode(t, "")
	task := n.newTask(`args = ["hup"]`, nil)
	task.start()
	task.waitOutput("waiting")
	must.ErrorContains(t, n.d.SignalTask(task.tc.ID, "SIGNONSENSE"), "SIGNONSENSE")
	must.NoError(t, n.d.SignalTask(task.tc.ID, "SIGHUP"))
	must.Eq(t, 3, task.wait().ExitCode)
}

func TestWaitRespectsContext(t *testing.T) {
	t.Parallel()
	n := newNode(t, "")
	task := n.newTask(``, nil)
	task.start()
	ctx, cancel := context.WithCancel(context.Background())
	ch, err := n.d.WaitTask(ctx, task.tc.ID)
	must.NoError(t, err)
	cancel()
	r := <-ch
	must.NotNil(t, r)
	must.ErrorIs(t, r.Err, context.Canceled)
}
