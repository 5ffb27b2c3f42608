package driverharness

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/plugins/drivers"
	"github.com/hashicorp/nomad/plugins/drivers/testutils"
	"github.com/shoenig/test/must"
)

// start runs a task with the given config block and returns it with its directories made and its image in place.
func start(t *testing.T, h *testutils.DriverHarness, name, config string) *drivers.TaskConfig {
	t.Helper()
	tc := task(name)
	cleanup := h.MkAllocDir(tc, true)
	t.Cleanup(func() {
		_ = h.DestroyTask(tc.ID, true)
		cleanup()
	})
	writeImage(t, filepath.Join(tc.TaskDir().LocalDir, "image.tar"))
	schema, err := h.TaskConfigSchema()
	must.NoError(t, err)
	must.NoError(t, tc.EncodeDriverConfig(decode(t, schema, config)))
	_, _, err = h.StartTask(tc)
	must.NoError(t, err)
	return tc
}

func wait(t *testing.T, h *testutils.DriverHarness, id string) *drivers.ExitResult {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	ch, err := h.WaitTask(ctx, id)
	must.NoError(t, err)
	select {
	case r := <-ch:
		must.NotNil(t, r)
		return r
	case <-ctx.Done():
		t.Fatal("the task did not end")
		return nil
	}
}

const sleeper = `config {
	image   = "oci-archive:local/image.tar"
	command = "/bin/sh"
	args    = ["-c", "while true; do sleep 1; done"]
}`

func TestDriver_Fingerprint(t *testing.T) {
	h := newHarness(t)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	ch, err := h.Fingerprint(ctx)
	must.NoError(t, err)
	for {
		select {
		case fp := <-ch:
			must.NotNil(t, fp)
			if fp.Health == drivers.HealthStateHealthy {
				return
			}
		case <-ctx.Done():
			t.Fatal("the driver never became healthy")
		}
	}
}

func TestDriver_ExitCodeAndLogs(t *testing.T) {
	h := newHarness(t)
	tc := start(t, h, "exit", `config {
		image   = "oci-archive:local/image.tar"
		command = "/bin/sh"
		args    = ["-c", "echo to stdout; echo to stderr >&2; exit 7"]
	}`)
	must.Eq(t, 7, wait(t, h, tc.ID).ExitCode)
	logs := filepath.Dir(tc.StdoutPath)
	for name, want := range map[string]string{"exit.stdout.0": "to stdout", "exit.stderr.0": "to stderr"} {
		poll(t, 10*time.Second, want+" arrives in "+name, func() bool {
			b, err := os.ReadFile(filepath.Join(logs, name))
			return err == nil && strings.TrimSpace(string(b)) == want
		})
	}
	must.NoError(t, h.DestroyTask(tc.ID, true))
	_, err := h.InspectTask(tc.ID)
	must.ErrorContains(t, err, drivers.ErrTaskNotFound.Error())
}

func TestDriver_StopIsIdempotent(t *testing.T) {
	h := newHarness(t)
	tc := start(t, h, "stop", sleeper)
	must.NoError(t, h.WaitUntilStarted(tc.ID, 10*time.Second))
	must.NoError(t, h.StopTask(tc.ID, 3*time.Second, "SIGTERM"))
	must.NoError(t, h.StopTask(tc.ID, 3*time.Second, "SIGTERM"))
	r := wait(t, h, tc.ID)
	must.True(t, r.ExitCode != 0 || r.Signal != 0, must.Sprintf("%+v", r))
}

func TestDriver_SignalAndExec(t *testing.T) {
	h := newHarness(t)
	tc := start(t, h, "signal", `config {
		image   = "oci-archive:local/image.tar"
		command = "/bin/sh"
		args    = ["-c", "trap 'exit 9' USR1; while true; do sleep 0.1; done"]
	}`)
	must.NoError(t, h.WaitUntilStarted(tc.ID, 10*time.Second))
	r, err := h.ExecTask(tc.ID, []string{"/bin/sh", "-c", "echo out; echo err >&2; exit 3"}, 10*time.Second)
	must.NoError(t, err)
	must.Eq(t, 3, r.ExitResult.ExitCode)
	must.Eq(t, "out", strings.TrimSpace(string(r.Stdout)))
	must.Eq(t, "err", strings.TrimSpace(string(r.Stderr)))
	must.NoError(t, h.SignalTask(tc.ID, "SIGUSR1"))
	must.Eq(t, 9, wait(t, h, tc.ID).ExitCode)
}

func TestDriver_Stats(t *testing.T) {
	h := newHarness(t)
	tc := start(t, h, "stats", sleeper)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	ch, err := h.TaskStats(ctx, tc.ID, time.Second)
	must.NoError(t, err)
	for usage := range ch {
		if m := usage.ResourceUsage.MemoryStats; m.Usage > 0 || m.RSS > 0 {
			return
		}
	}
	t.Fatal("no memory usage was reported")
}

func TestDriver_Recover(t *testing.T) {
	h := newHarness(t)
	tc := task("recover")
	cleanup := h.MkAllocDir(tc, true)
	t.Cleanup(func() { _ = h.DestroyTask(tc.ID, true); cleanup() })
	writeImage(t, filepath.Join(tc.TaskDir().LocalDir, "image.tar"))
	schema, err := h.TaskConfigSchema()
	must.NoError(t, err)
	must.NoError(t, tc.EncodeDriverConfig(decode(t, schema, sleeper)))
	handle, _, err := h.StartTask(tc)
	must.NoError(t, err)
	must.NoError(t, h.RecoverTask(handle)) // known already: nothing changes
	must.NoError(t, h.WaitUntilStarted(tc.ID, 10*time.Second))
}

func TestDriver_ExecStreamingConformance(t *testing.T) {
	h := newHarness(t)
	tc := start(t, h, "exec", sleeper)
	must.NoError(t, h.WaitUntilStarted(tc.ID, 10*time.Second))
	testutils.ExecTaskStreamingConformanceTests(t, h, tc.ID)
}

func TestDriver_DNS(t *testing.T) {
	h := newHarness(t)
	tc := task("dns")
	tc.DNS = &drivers.DNSConfig{Servers: []string{"8.8.8.8"}, Searches: []string{"example.org"}, Options: []string{"ndots:2"}}
	cleanup := h.MkAllocDir(tc, true)
	t.Cleanup(func() { _ = h.DestroyTask(tc.ID, true); cleanup() })
	writeImage(t, filepath.Join(tc.TaskDir().LocalDir, "image.tar"))
	schema, err := h.TaskConfigSchema()
	must.NoError(t, err)
	must.NoError(t, tc.EncodeDriverConfig(decode(t, schema, sleeper)))
	_, _, err = h.StartTask(tc)
	must.NoError(t, err)
	testutils.TestTaskDNSConfig(t, h, tc.ID, tc.DNS)
}
