package agent_test

import (
	"encoding/binary"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/shoenig/test/must"

	"nomad-spotter/checkpointer/api"
)

// weights is a safetensors file of one tensor that moves a little from step to step.
func weights(step int) string {
	const head = `{"w":{"dtype":"F32","shape":[40000],"data_offsets":[0,160000]}}`
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(head)))
	b = append(b, head...)
	for i := range 40000 {
		x := math.Sin(float64(i)*12.9898) * 43758.5453
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(x-math.Floor(x))+float32(step)*1e-7))
	}
	return string(b)
}

// adam is a safetensors file of weights that move a little from step to step, and of their first moments.
func adam(step int) string {
	const head = `{"w":{"dtype":"F32","shape":[40000],"data_offsets":[0,160000]},"optim.exp_avg.w":{"dtype":"F32","shape":[40000],"data_offsets":[160000,320000]}}`
	w := weights(step)
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(head)))
	b = append(b, head...)
	b = append(b, w[len(w)-160000:]...)
	for i := range 40000 {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(math.Sin(float64(i+step)*12.9898))))
	}
	return string(b)
}

// An agent that rounds says so of what it saves and of what it restores, and codes against the files it kept although they
// are not what the store holds.
func TestAgent_Compact(t *testing.T) {
	t.Parallel()
	st := t.TempDir()
	compact := func(c *api.AgentConfig) { c.Precision = "compact" }
	a := newNode(t, st, compact)
	a.start()
	a.restore()
	a.shell("sleep 60")
	a.write("step-1.safetensors", adam(1))
	must.EqOp(t, "compact", a.durable(1).Precision)
	spoil(t, st)
	a.write("step-2.safetensors", adam(2))
	cp := a.durable(2)
	must.EqOp(t, "compact", cp.Precision)
	must.Less(t, 120_000, cp.StoredBytes) // weights take 60,000 as differences, else 140,000
	a.kill()

	st = t.TempDir()
	a = newNode(t, st, compact)
	a.start()
	a.restore()
	a.shell("sleep 60")
	a.write("step-7.safetensors", adam(7))
	a.durable(7)
	a.kill()
	b := newNode(t, st, nil)
	b.start()
	r := b.restore()
	must.NotNil(t, r.Checkpoint)
	must.EqOp(t, "compact", r.Checkpoint.Precision)
	got, err := os.ReadFile(filepath.Join(b.conf.CheckpointDir, "step-7.safetensors"))
	must.NoError(t, err)
	want := adam(7)
	must.True(t, string(got[:len(got)-160000]) == want[:len(want)-160000])
	must.False(t, string(got) == want)
	b.shell("sleep 60")
	b.write("step-8.safetensors", adam(8))
	must.EqOp(t, "exact", b.durable(8).Precision)
}

// spoil damages every pack of a store.
func spoil(t *testing.T, dir string) {
	t.Helper()
	must.NoError(t, filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Base(filepath.Dir(p)) != "@packs" {
			return err
		}
		f, err := os.OpenFile(p, os.O_WRONLY, 0)
		must.NoError(t, err)
		_, err = f.WriteAt(make([]byte, 4096), 1000)
		must.NoError(t, err)
		return f.Close()
	}))
}

// A checkpoint is coded against the one before, which is kept on this machine, not against what the store gives back: here
// that is damaged meanwhile, and the difference is small all the same.
func TestAgent_CodesAgainstWhatItKept(t *testing.T) {
	t.Parallel()
	st := t.TempDir()
	a := newNode(t, st, nil)
	a.start()
	a.restore()
	a.shell("sleep 60")
	a.write("step-1.safetensors", weights(1))
	must.Greater(t, 100_000, a.durable(1).StoredBytes)
	spoil(t, st)
	a.write("step-2.safetensors", weights(2))
	must.Less(t, 60_000, a.durable(2).StoredBytes)
	must.NoError(t, os.Remove(filepath.Join(a.conf.CheckpointDir, "step-1.safetensors")))
	must.NoError(t, os.Remove(filepath.Join(a.conf.CheckpointDir, "step-2.safetensors")))
	stages, err := os.ReadDir(filepath.Join(a.conf.StateDir, "stage"))
	must.NoError(t, err)
	must.Len(t, 1, stages, must.Sprint("no more than the last one is kept"))
}
