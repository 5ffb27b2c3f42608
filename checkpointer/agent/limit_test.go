package agent_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-spotter/checkpointer/agent"
	"nomad-spotter/checkpointer/api"
)

// plain builds an agent as it is delivered.
func plain(t *testing.T) string {
	t.Helper()
	exe := filepath.Join(t.TempDir(), "agent")
	out, err := exec.Command("go", "build", "-o", exe, "./testdata/agent").CombinedOutput()
	must.NoError(t, err, must.Sprint(string(out)))
	return exe
}

// trainingState writes a safetensors file of full training state: random weights, and as many bytes that are still zero.
func trainingState(t *testing.T, path string, step, floats int) {
	t.Helper()
	head := fmt.Sprintf(`{"w":{"dtype":"F32","shape":[%d],"data_offsets":[0,%d]},"m":{"dtype":"F32","shape":[%d],"data_offsets":[%d,%d]}}`,
		floats, 4*floats, floats, 4*floats, 8*floats)
	f, err := os.Create(path)
	must.NoError(t, err)
	_, err = f.Write(append(binary.LittleEndian.AppendUint64(nil, uint64(len(head))), head...))
	must.NoError(t, err)
	x, b := uint32(1), make([]byte, 0, 4<<20)
	for i := range floats {
		x = x*1664525 + 1013904223
		v := math.Float32frombits(x>>9|0x3f800000) - 1.5
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v+float32(step)*1e-6))
		if len(b) == cap(b) || i == floats-1 {
			_, err := f.Write(b)
			must.NoError(t, err)
			b = b[:0]
		}
	}
	must.NoError(t, f.Truncate(int64(8+len(head)+8*floats))) // zeros that take no room
	must.NoError(t, f.Close())
}

// peak is the most memory that a process had, and how long it computed.
func peak(t *testing.T, pid int) (rss int64, cpu time.Duration) {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	must.NoError(t, err)
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kb, err := strconv.ParseInt(strings.Fields(v)[0], 10, 64)
			must.NoError(t, err)
			rss = kb << 10
		}
	}
	b, err = os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	must.NoError(t, err)
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')'):]))
	for _, f := range fields[12:14] { // user and system time in hundredths of a second (proc(5), fields 14 and 15)
		n, err := strconv.ParseInt(f, 10, 64)
		must.NoError(t, err)
		cpu += time.Duration(n) * 10 * time.Millisecond
	}
	return rss, cpu
}

// cores watches a process, and says how many cores it used at most during 0.4 seconds.
func cores(t *testing.T, pid int) (stop func() float64) {
	t.Helper()
	const window, pause = 400 * time.Millisecond, 50 * time.Millisecond
	done, most := make(chan struct{}), make(chan float64)
	go func() {
		type sample struct {
			at  time.Time
			cpu time.Duration
		}
		var samples []sample
		highest := 0.0
		for {
			select {
			case <-done:
				most <- highest
				return
			case <-time.After(pause):
			}
			_, cpu := peak(t, pid)
			now := sample{time.Now(), cpu}
			samples = append(samples, now)
			for len(samples) > 1 && now.at.Sub(samples[1].at) >= window {
				samples = samples[1:]
			}
			if d := now.at.Sub(samples[0].at); d >= window {
				highest = max(highest, (now.cpu-samples[0].cpu).Seconds()/d.Seconds())
			}
		}
	}()
	return func() float64 { close(done); return <-most }
}

// An agent with the least memory and one core saves a large checkpoint, another one against it, and restores that.
func TestAgent_StaysInBounds(t *testing.T) {
	if testing.Short() {
		t.Skip("writes a gigabyte")
	}
	t.Parallel()
	const memory, floats = 256 << 20, 40_000_000 // 320 MB, half of them zero
	st, exe := t.TempDir(), plain(t)
	small := func(c *api.AgentConfig) { c.MaxMemoryBytes = memory }
	n := newNode(t, st, small)
	n.exe = exe
	n.start()
	n.restore()
	n.shell("sleep 600")
	save := func(step int) {
		path := filepath.Join(n.conf.CheckpointDir, fmt.Sprintf("step-%d.safetensors", step))
		tmp := filepath.Join(n.conf.CheckpointDir, ".tmp")
		trainingState(t, tmp, step, floats)
		must.NoError(t, os.Rename(tmp, path))
		stop := cores(t, n.cmd.Process.Pid)
		cp := n.durable(int64(step))
		used := stop()
		rss, cpu := peak(t, n.cmd.Process.Pid)
		t.Logf("step %d: %d MB of %d stored, %.0f MiB, %.1f s of CPU so far, at most %.2f cores", step, cp.StoredBytes/1e6, cp.RawBytes/1e6, float64(rss)/(1<<20), cpu.Seconds(), used)
		must.Less(t, memory, rss)
		must.Less(t, 1.4, used, must.Sprint("cores in use"))
	}
	save(1)
	save(2)
	must.NoError(t, os.Remove(filepath.Join(n.conf.CheckpointDir, "step-1.safetensors")))
	r := newNode(t, st, small)
	r.exe = exe
	r.start()
	must.EqOp(t, 2, r.restore().Checkpoint.Step)
	rss, _ := peak(t, r.cmd.Process.Pid)
	t.Logf("restore: %.0f MiB", float64(rss)/(1<<20))
	must.Less(t, memory, rss)
	must.True(t, same(t, filepath.Join(n.conf.CheckpointDir, "step-2.safetensors"), filepath.Join(r.conf.CheckpointDir, "step-2.safetensors")))
}

// same compares two files.
func same(t *testing.T, a, b string) bool {
	t.Helper()
	var files [2]*os.File
	for i, p := range []string{a, b} {
		f, err := os.Open(p)
		must.NoError(t, err)
		defer f.Close()
		files[i] = f
	}
	x, y := make([]byte, 4<<20), make([]byte, 4<<20)
	for {
		n, err := io.ReadFull(files[0], x)
		m, other := io.ReadFull(files[1], y)
		if n != m || !bytes.Equal(x[:n], y[:m]) {
			return false
		}
		if err != nil || other != nil {
			return err == other //nolint:errorlint // both are the same sentinel
		}
	}
}

func TestValidate_Bounds(t *testing.T) {
	for _, c := range []struct {
		conf api.AgentConfig
		want string
	}{
		{api.AgentConfig{MaxCPUs: -1}, "max_cpus: -1 is negative"},
		{api.AgentConfig{MaxMemoryBytes: 1}, "max_memory_bytes: 1 is too little"},
		{api.AgentConfig{MaxMemoryBytes: 256<<20 - 1}, "max_memory_bytes: 268435455 is too little"},
		{api.AgentConfig{Effort: "most"}, `effort: "most" is unknown: use auto, fast, small or none`},
		{api.AgentConfig{Precision: "half"}, `precision: "half" is unknown: use exact or compact`},
		{api.AgentConfig{Links: 65}, "links: 65 must be 0 to 64"},
	} {
		must.ErrorContains(t, agent.Validate(c.conf), c.want)
	}
	err := agent.Validate(api.AgentConfig{MaxMemoryBytes: 256 << 20, Links: 64, MaxCPUs: 1, Effort: "small", Precision: "compact"})
	for _, name := range []string{"max_", "links", "effort", "precision"} {
		must.StrNotContains(t, err.Error(), name)
	}
}
