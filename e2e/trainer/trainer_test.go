package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/shoenig/test/must"
	"github.com/shoenig/test/wait"

	"nomad-spotter/checkpointer/api"
)

// buffer is a bytes.Buffer for two goroutines.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// steps returns the numbers of the steps that the output shows finished.
func (b *buffer) steps() []int {
	var out []int
	for _, m := range regexp.MustCompile(`(?m) step (\d+) loss `).FindAllStringSubmatch(b.String(), -1) {
		n, _ := strconv.Atoi(m[1])
		out = append(out, n)
	}
	return out
}

func (b *buffer) last() int {
	if s := b.steps(); len(s) > 0 {
		return s[len(s)-1]
	}
	return 0
}

func clearEnv(t *testing.T) {
	for _, k := range []string{api.EnvCheckpointDir, api.EnvSocket, api.EnvResumePath, api.EnvResumeStep} {
		t.Setenv(k, "")
	}
}

// reference trains without interruption and returns the model.
func reference(t *testing.T, steps string) []byte {
	t.Helper()
	out := filepath.Join(t.TempDir(), "model")
	must.NoError(t, run(t.Context(), []string{"--steps", steps, "--size", "64KiB", "--out", out}, new(buffer)))
	b, err := os.ReadFile(out)
	must.NoError(t, err)
	return b
}

func TestRun_lossFalls(t *testing.T) {
	clearEnv(t)
	var out buffer
	must.NoError(t, run(t.Context(), []string{"--steps", "600", "--size", "64KiB"}, &out))
	var losses []float64
	for _, m := range regexp.MustCompile(` loss ([0-9.]+)`).FindAllStringSubmatch(out.String(), -1) {
		v, err := strconv.ParseFloat(m[1], 64)
		must.NoError(t, err)
		losses = append(losses, v)
	}
	must.Len(t, 600, losses)
	mean := func(v []float64) (m float64) {
		for _, x := range v {
			m += x / float64(len(v))
		}
		return m
	}
	must.Less(t, mean(losses[:20])/2, mean(losses[580:]))
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	must.RegexMatch(t, regexp.MustCompile(`^\S+Z final sha256 [0-9a-f]{64}$`), lines[len(lines)-1])
}

func TestRun_resumedIsIdentical(t *testing.T) {
	clearEnv(t)
	want := reference(t, "300")
	for _, cut := range []string{"1", "127", "129", "299", "300"} { // an epoch has 128 steps
		dir := t.TempDir()
		t.Setenv(api.EnvCheckpointDir, dir)
		t.Setenv(api.EnvResumePath, "")
		t.Setenv(api.EnvResumeStep, "")
		must.NoError(t, run(t.Context(), []string{"--steps", cut, "--size", "64KiB"}, new(buffer)))
		n, _ := strconv.Atoi(cut)
		t.Setenv(api.EnvResumePath, filepath.Join(dir, checkpointName(int64(n))))
		t.Setenv(api.EnvResumeStep, cut)
		out := filepath.Join(t.TempDir(), "model")
		must.NoError(t, run(t.Context(), []string{"--steps", "300", "--out", out}, new(buffer)))
		got, err := os.ReadFile(out)
		must.NoError(t, err)
		must.True(t, bytes.Equal(want, got), must.Sprintf("cut at %s", cut))
	}
}

func TestRun_refusesAnotherStep(t *testing.T) {
	clearEnv(t)
	dir := t.TempDir()
	t.Setenv(api.EnvCheckpointDir, dir)
	must.NoError(t, run(t.Context(), []string{"--steps", "3", "--size", "64KiB"}, new(buffer)))
	t.Setenv(api.EnvResumePath, filepath.Join(dir, checkpointName(3)))
	t.Setenv(api.EnvResumeStep, "4")
	must.ErrorContains(t, run(t.Context(), []string{"--steps", "5"}, new(buffer)), "SPOTTER_RESUME_STEP is 4")
}

func TestDecode(t *testing.T) {
	tr := newTrainer(newState(7, 16), newDataset(7))
	for range 130 {
		tr.train()
	}
	b := tr.encode()
	s, err := decode(b)
	must.NoError(t, err)
	must.Eq(t, tr.encode(), s.encode())
	for _, i := range []int{0, len(magic), len(b) / 2, len(b) - 1} {
		bad := bytes.Clone(b)
		bad[i] ^= 1
		_, err := decode(bad)
		must.Error(t, err)
	}
	_, err = decode(b[:len(b)-4])
	must.Error(t, err)
}

func TestSave_keepsTheNewest(t *testing.T) {
	s := newState(1, 16)
	dir := t.TempDir()
	for s.step = 1; s.step <= 5; s.step++ {
		_, err := s.save(dir, 2)
		must.NoError(t, err)
	}
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	must.NoError(t, err)
	must.Eq(t, []string{filepath.Join(dir, checkpointName(4)), filepath.Join(dir, checkpointName(5))}, names)
}

// agent is the task socket of a checkpoint agent, as far as a training program sees it.
type agent struct {
	mu       sync.Mutex
	request  *api.Request
	finished []api.Finished
	changed  chan struct{}
}

func (a *agent) open(r *api.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.request = r
	close(a.changed)
	a.changed = make(chan struct{})
}

func (a *agent) serve(t *testing.T) string {
	t.Helper()
	a.changed = make(chan struct{})
	dir, err := os.MkdirTemp("", "agent") // short: a socket's path has at most 107 bytes
	must.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	l, err := net.Listen("unix", path)
	must.NoError(t, err)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, r *http.Request) {
		after, _ := strconv.ParseUint(r.FormValue("after"), 10, 64)
		d, _ := time.ParseDuration(r.FormValue("wait"))
		timer := time.NewTimer(d)
		for {
			a.mu.Lock()
			req, changed := a.request, a.changed
			a.mu.Unlock()
			if d == 0 || req != nil && req.ID > after {
				_ = json.NewEncoder(w).Encode(api.Status{Request: req})
				return
			}
			select {
			case <-changed:
			case <-timer.C:
				d = 0
			case <-r.Context().Done():
				return
			}
		}
	})
	mux.HandleFunc("POST /v1/finished", func(w http.ResponseWriter, r *http.Request) {
		var f api.Finished
		_ = json.NewDecoder(r.Body).Decode(&f)
		a.mu.Lock()
		defer a.mu.Unlock()
		a.finished = append(a.finished, f)
		_ = json.NewEncoder(w).Encode(api.Status{Request: a.request})
	})
	srv := &http.Server{Handler: mux}
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close() })
	return path
}

func (a *agent) lastFinished() api.Finished {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.finished) == 0 {
		return api.Finished{}
	}
	return a.finished[len(a.finished)-1]
}

func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	must.Wait(t, wait.InitialSuccess(wait.BoolFunc(f), wait.Timeout(20*time.Second), wait.Gap(2*time.Millisecond)), must.Sprint(what))
}

// background trains until the test ends.
func background(t *testing.T, args ...string) *buffer {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	out := new(buffer)
	done := make(chan error, 1)
	go func() { done <- run(ctx, args, out) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			must.ErrorIs(t, err, errStopped)
		}
	})
	return out
}

func TestAsk_socketFinalStopsTraining(t *testing.T) {
	clearEnv(t)
	a := new(agent)
	dir := t.TempDir()
	t.Setenv(api.EnvSocket, a.serve(t))
	t.Setenv(api.EnvCheckpointDir, dir)
	out := background(t, "--steps", "1000000", "--checkpoint-every", "0", "--size", "64KiB", "--step-time", "2ms")
	eventually(t, "trains", func() bool { return out.last() > 5 })

	a.open(&api.Request{ID: 1, Reason: api.ReasonInterval})
	eventually(t, "first checkpoint", func() bool { return a.lastFinished().Step > 0 })
	first := a.lastFinished().Step
	eventually(t, "goes on", func() bool { return int64(out.last()) > first+5 })

	a.open(&api.Request{ID: 2, Reason: api.ReasonNotice, Final: true})
	eventually(t, "final checkpoint", func() bool { return a.lastFinished().Step > first })
	last := a.lastFinished()
	must.FileExists(t, last.Path)
	must.Eq(t, 2, last.Request)
	pause(t.Context(), 200*time.Millisecond) // a hundred steps' time
	must.Eq(t, int(last.Step), out.last(), must.Sprint("no step after a final checkpoint"))

	a.open(nil)
	eventually(t, "goes on when withdrawn", func() bool { return int64(out.last()) > last.Step+5 })
	seen := out.steps()
	for i, s := range seen {
		must.Eq(t, i+1, s, must.Sprint("no step is done twice or left out"))
	}
}

func TestAsk_file(t *testing.T) {
	clearEnv(t)
	dir := t.TempDir()
	t.Setenv(api.EnvCheckpointDir, dir)
	out := background(t, "--steps", "1000000", "--checkpoint-every", "0", "--size", "64KiB", "--step-time", "2ms", "--ask", "file")
	eventually(t, "trains", func() bool { return out.last() > 5 })
	b, err := json.Marshal(api.Request{ID: 3, Reason: api.ReasonDrain, Final: true})
	must.NoError(t, err)
	must.NoError(t, writeDurably(filepath.Join(dir, api.RequestFile), b))
	eventually(t, "checkpoint", func() bool { return strings.Contains(out.String(), "checkpoint ") })
	last := out.last()
	pause(t.Context(), 200*time.Millisecond)
	must.Eq(t, last, out.last())
	must.FileExists(t, filepath.Join(dir, checkpointName(int64(last))))
	must.NoError(t, os.Remove(filepath.Join(dir, api.RequestFile)))
	eventually(t, "goes on", func() bool { return out.last() > last+5 })
}

func TestAsk_signalAndStop(t *testing.T) {
	clearEnv(t)
	binary := filepath.Join(t.TempDir(), "trainer")
	build := exec.Command("go", "build", "-o", binary, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	text, err := build.CombinedOutput()
	must.NoError(t, err, must.Sprint(string(text)))
	dir := t.TempDir()
	cmd := exec.Command(binary, "--steps", "1000000", "--checkpoint-every", "0", "--size", "64KiB", "--step-time", "2ms", "--ask", "signal")
	cmd.Env = append(os.Environ(), api.EnvCheckpointDir+"="+dir)
	out := new(buffer)
	cmd.Stdout, cmd.Stderr = out, out
	must.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	eventually(t, "trains", func() bool { return out.last() > 5 })
	must.NoError(t, cmd.Process.Signal(syscall.SIGUSR1))
	eventually(t, "checkpoint", func() bool {
		names, _ := filepath.Glob(filepath.Join(dir, "step-*.ckpt"))
		return len(names) == 1
	})
	must.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	must.Error(t, cmd.Wait())
	must.Eq(t, exitStopped, cmd.ProcessState.ExitCode())
}

func TestParse(t *testing.T) {
	for _, c := range []struct{ args, err string }{
		{"--ask letter", `"letter" is not one of socket, signal, file, none`},
		{"--size 3MB", `"3MB" is not a size`},
		{"--keep 0", "--keep: 0 is less than 1"},
		{"now", `unexpected argument "now"`},
	} {
		clearEnv(t)
		must.ErrorContains(t, run(t.Context(), strings.Fields(c.args), new(buffer)), c.err)
	}
	must.Eq(t, 16, hiddenFor(1))
	for _, size := range []int64{64 << 10, 1 << 20, 8 << 20} {
		n := int64(len(newState(1, hiddenFor(size)).encode())) - 4*examples
		must.Between(t, size*95/100, n, size*105/100)
	}
}

// A program that is stopped while it waits after a final request does not do another step first.
func TestAsk_stoppedAfterFinal(t *testing.T) {
	clearEnv(t)
	for range 8 { // the select that it depends on chooses at random
		a := new(agent)
		t.Setenv(api.EnvSocket, a.serve(t))
		t.Setenv(api.EnvCheckpointDir, t.TempDir())
		ctx, cancel := context.WithCancel(t.Context())
		out := new(buffer)
		done := make(chan error, 1)
		go func() {
			done <- run(ctx, []string{"--steps", "1000000", "--size", "64KiB", "--checkpoint-every", "0"}, out)
		}()
		a.open(&api.Request{ID: 1, Reason: api.ReasonNotice, Final: true})
		eventually(t, "final checkpoint", func() bool { return a.lastFinished().Request == 1 })
		cancel()
		must.ErrorIs(t, <-done, errStopped)
		must.Eq(t, int(a.lastFinished().Step), out.last())
	}
}
