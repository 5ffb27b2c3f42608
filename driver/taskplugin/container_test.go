package taskplugin

import (
	"context"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/uuid"
	"github.com/hashicorp/nomad/plugins/drivers"
	"github.com/shoenig/test/must"
)

func TestStats(t *testing.T) {
	t.Parallel()
	n := newNode(t, "")
	task := n.newTask(`args = ["burn"]`, nil)
	task.start()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ch, err := n.d.TaskStats(ctx, task.tc.ID, 500*time.Millisecond)
	must.NoError(t, err)
	<-ch // the first has no rate
	u := (<-ch).ResourceUsage
	must.Between(t, 20.0, u.CpuStats.Percent, 250.0)
	must.Eq(t, u.CpuStats.Percent/100*mhzPerCore(), u.CpuStats.TotalTicks)
	must.Positive(t, u.MemoryStats.Usage)
	must.SliceContains(t, u.MemoryStats.Measured, "RSS")
	must.SliceContains(t, u.MemoryStats.Measured, "Usage")
	task.stop(0)
	for range ch { // it must be closed when the task has ended
	}
}

func TestOOM(t *testing.T) {
	t.Parallel()
	n := newNode(t, "")
	task := n.newTask(`args = ["eat"]`, func(tc *drivers.TaskConfig) {
		tc.Resources.NomadResources.Memory.MemoryMB = 64
		tc.Resources.LinuxResources.MemoryLimitBytes = 64 << 20
	})
	task.start()
	r := task.wait()
	must.True(t, r.OOMKilled)
	must.Eq(t, 137, r.ExitCode)
}

func TestExec(t *testing.T) {
	t.Parallel()
	n := newNode(t, "")
	task := n.newTask(``, nil)
	task.start()
	r, err := n.d.ExecTask(task.tc.ID, []string{"/bin/testimage", "exit", "5"}, 10*time.Second)
	must.NoError(t, err)
	must.Eq(t, 5, r.ExitResult.ExitCode)
	must.Eq(t, "to stdout\n", string(r.Stdout))
	must.Eq(t, "to stderr\n", string(r.Stderr))

	start := time.Now()
	_, err = n.d.ExecTask(task.tc.ID, []string{"/bin/testimage", "stubborn"}, time.Second)
	must.ErrorContains(t, err, "did not end within 1s")
	must.Less(t, 8*time.Second, time.Since(start))

	_, err = n.d.ExecTask(task.tc.ID, []string{"/bin/nothing"}, 5*time.Second)
	must.ErrorContains(t, err, "/bin/nothing")
	_, err = n.d.ExecTask(task.tc.ID, nil, 5*time.Second)
	must.ErrorContains(t, err, "empty")
}

type pipeEnd struct{ *io.PipeWriter }

func TestExecStreaming(t *testing.T) {
	t.Parallel()
	n := newNode(t, "")
	task := n.newTask(``, nil)
	task.start()
	in, toIn := io.Pipe()
	out, fromOut := io.Pipe()
	go func() {
		_, _ = toIn.Write([]byte("through the container\n"))
		_ = toIn.Close()
	}()
	got := make(chan string, 1)
	go func() {
		b, _ := io.ReadAll(out)
		got <- string(b)
	}()
	r, err := n.d.ExecTaskStreaming(context.Background(), task.tc.ID, &drivers.ExecOptions{
		Command: []string{"/bin/testimage", "cat"}, Stdin: in, Stdout: pipeEnd{fromOut}, Stderr: nopWriter{}, ResizeCh: make(chan drivers.TerminalSize),
	})
	must.NoError(t, err)
	must.Eq(t, 0, r.ExitCode)
	must.NoError(t, fromOut.Close())
	must.Eq(t, "through the container\n", <-got)
}

type nopWriter struct{}

func (nopWriter) Write(p []byte) (int, error) { return len(p), nil }
func (nopWriter) Close() error                { return nil }

func TestGroupNetwork(t *testing.T) {
	t.Parallel()
	n := newNode(t, "")
	ns := netns(t)
	task := n.newTask("args = [\"show\"]\nextra_hosts = [\"db:10.0.0.7\"]", func(tc *drivers.TaskConfig) {
		tc.NetworkIsolation = &drivers.NetworkIsolationSpec{
			Mode: drivers.NetIsolationModeGroup, Path: ns,
			HostsConfig: &drivers.HostsConfig{Hostname: "trainer-1", Address: "172.26.64.5"},
		}
		tc.DNS = &drivers.DNSConfig{Servers: []string{"10.0.0.1"}, Searches: []string{"example.org"}, Options: []string{"ndots:2"}}
	})
	task.start()
	must.Eq(t, 0, task.wait().ExitCode)
	for _, s := range []string{"hostname trainer-1", "interface lo", "nameserver 10.0.0.1", "search example.org", "options ndots:2", "172.26.64.5 trainer-1", "10.0.0.7 db"} {
		task.waitOutput(s)
	}
	must.Eq(t, 1, strings.Count(task.output("stdout"), "interface "))
}

// netns makes a network namespace that is named by a file, as Nomad does.
func netns(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("unshare"); err != nil {
		t.Skip("unshare (util-linux) is not on PATH")
	}
	path := filepath.Join("/run", "spt-"+uuid.NewString()[:8])
	must.NoError(t, os.WriteFile(path, nil, 0o600))
	out, err := exec.Command("unshare", "--net="+path, "true").CombinedOutput()
	must.NoError(t, err, must.Sprint(string(out)))
	t.Cleanup(func() {
		_ = exec.Command("umount", path).Run()
		_ = os.Remove(path)
	})
	return path
}

// TestSeccomp expects the profile exactly where the runtime can apply one.
func TestSeccomp(t *testing.T) {
	t.Parallel()
	n := newNode(t, "allow_privileged = true")
	info, err := n.d.runtime.Probe(context.Background())
	must.NoError(t, err)
	t.Logf("containerd %s, seccomp %t", info.Version, info.Seccomp)
	filtered, open := n.newTask(`args = ["show"]`, nil), n.newTask("args = [\"show\"]\nseccomp = \"unconfined\"", nil)
	filtered.start()
	open.start()
	must.Eq(t, 0, filtered.wait().ExitCode)
	must.Eq(t, 0, open.wait().ExitCode)
	mode := map[bool]string{true: "Seccomp:\t2", false: "Seccomp:\t0"}
	filtered.waitOutput(mode[info.Seccomp])
	open.waitOutput(mode[false])
}

func TestPrivileged(t *testing.T) {
	t.Parallel()
	n := newNode(t, "allow_privileged = true")
	task := n.newTask("args = [\"show\"]\nprivileged = true", nil)
	task.start()
	must.Eq(t, 0, task.wait().ExitCode)
	task.waitOutput("NoNewPrivs:\t0")
	strict := newNode(t, "")
	refused := strict.newTask("args = [\"show\"]\nprivileged = true", nil)
	_, _, err := strict.d.StartTask(refused.tc)
	must.ErrorContains(t, err, "config.privileged")
}

func TestHostNetwork(t *testing.T) {
	t.Parallel()
	n := newNode(t, "")
	task := n.newTask(`args = ["show"]`, nil)
	task.start()
	must.Eq(t, 0, task.wait().ExitCode)
	host, err := os.Hostname()
	must.NoError(t, err)
	task.waitOutput("hostname " + host)
}

func TestPull(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(registry.New())
	defer s.Close()
	ref := strings.TrimPrefix(s.URL, "http://") + "/team/train:1"
	tag, err := name.ParseReference(ref)
	must.NoError(t, err)
	ix, err := layout.ImageIndexFromPath(filepath.Join(shared.dir, "layout"))
	must.NoError(t, err)
	m, err := ix.IndexManifest()
	must.NoError(t, err)
	img, err := ix.Image(m.Manifests[0].Digest)
	must.NoError(t, err)
	must.NoError(t, remote.Write(tag, img))

	n := newNode(t, "")
	task := n.newTask(fmt.Sprintf("image = %q\nargs = [\"exit\", \"0\"]", ref), nil)
	task.start()
	must.Eq(t, 0, task.wait().ExitCode)
	n.waitEvent("Pulling image " + ref)
	n.waitEvent("Pulled image " + ref)
	s.Close() // it is here now
	again := n.newTask(fmt.Sprintf("image = %q\nargs = [\"exit\", \"0\"]", ref), nil)
	again.start()
	must.Eq(t, 0, again.wait().ExitCode)
}

func TestArchiveInsideTheTaskOnly(t *testing.T) {
	t.Parallel()
	n := newNode(t, "")
	outside := filepath.Join(n.allocs, "outside.tar")
	task := n.newTask(`image = "oci-archive:local/link.tar"`, nil)
	must.NoError(t, os.Link(shared.archive, outside))
	must.NoError(t, os.Symlink(outside, filepath.Join(task.tc.TaskDir().LocalDir, "link.tar")))
	_, _, err := n.d.StartTask(task.tc)
	must.ErrorContains(t, err, "config.image")
	must.ErrorContains(t, err, "escapes")
	task.configure(`image = "oci-archive:etc/image.tar"`)
	_, _, err = n.d.StartTask(task.tc)
	must.ErrorContains(t, err, "none of the task's directories")
	task.configure(`image = "oci-archive:alloc/missing.tar"`)
	_, _, err = n.d.StartTask(task.tc)
	must.ErrorContains(t, err, "no such file")
}

func TestBadTaskConfig(t *testing.T) {
	t.Parallel()
	n := newNode(t, "")
	task := n.newTask("image = \"\"\nprivileged = true\ncheckpoint {\n dir = \"ckpt\"\n interval = \"-1s\"\n store = \"ftp://x\"\n}", nil)
	_, _, err := n.d.StartTask(task.tc)
	for _, s := range []string{"config.image: is missing", `config.checkpoint.dir: "ckpt" is relative`, `config.checkpoint.interval: "-1s" is negative`, `config.checkpoint.store: "ftp://x"`} {
		must.ErrorContains(t, err, s)
	}
}

func TestMissingCommand(t *testing.T) {
	t.Parallel()
	n := newNode(t, "")
	task := n.newTask(`entrypoint = ["/bin/nothing"]`, nil)
	_, _, err := n.d.StartTask(task.tc)
	must.ErrorContains(t, err, "/bin/nothing")
	left, err := n.d.runtime.List(context.Background(), "spotter.alloc_id", task.tc.AllocID)
	must.NoError(t, err)
	must.SliceEmpty(t, left)
}

func TestNoGoroutineLeaks(t *testing.T) {
	n := newNode(t, "")
	before := runtime.NumGoroutine()
	for range 3 {
		task := n.newTask(`args = ["exit", "0"]`, nil)
		task.start()
		must.Eq(t, 0, task.wait().ExitCode)
		task.destroy()
	}
	// Each task of the test itself has two readers of its output.
	allowed := before + 3*2
	for end := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > allowed; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			stacks := make([]byte, 1<<20)
			t.Fatalf("%d goroutines, %d allowed\n%s", runtime.NumGoroutine(), allowed, stacks[:runtime.Stack(stacks, true)])
		}
	}
}
