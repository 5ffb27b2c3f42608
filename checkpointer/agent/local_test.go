package agent_test

import (
	"encoding/binary"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/shoenig/test/must"
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

// A checkpoint is coded against the one before, which is kept on this machine, not against what the store gives back: here
// that is damaged meanwhile, and the difference is small all the same.
func TestAgent_CodesAgainstWhatItKept(t *testing.T) {
	t.Parallel()
	st := t.TempDir()
	a := newNode(t, st, nil)
	a.start()
	a.restore()
	a.shell("sleep 60")
	spoil := func() {
		must.NoError(t, filepath.WalkDir(st, func(p string, d fs.DirEntry, err error) error {
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
	a.write("step-1.safetensors", weights(1))
	must.Greater(t, 100_000, a.durable(1).StoredBytes)
	spoil()
	a.write("step-2.safetensors", weights(2))
	must.Less(t, 60_000, a.durable(2).StoredBytes)
	must.NoError(t, os.Remove(filepath.Join(a.conf.CheckpointDir, "step-1.safetensors")))
	must.NoError(t, os.Remove(filepath.Join(a.conf.CheckpointDir, "step-2.safetensors")))
	stages, err := os.ReadDir(filepath.Join(a.conf.StateDir, "stage"))
	must.NoError(t, err)
	must.Len(t, 1, stages, must.Sprint("no more than the last one is kept"))
}
