package repository_test

import (
	"context"
	"encoding/binary"
	"io"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/shoenig/test/must"

	"nomad-spotter/checkpointer/delta"
	"nomad-spotter/checkpointer/repository"
	"nomad-spotter/checkpointer/store"
	"nomad-spotter/checkpointer/store/storetest"
)

// metered counts the bytes that are asked for of packs.
type metered struct {
	store.Store
	read atomic.Int64
}

func (m *metered) GetRange(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	m.read.Add(n)
	return m.Store.GetRange(ctx, key, off, n)
}

// With effort fast a restore reads no more than the checkpoint has bytes; with others it may. What changes little is coded
// against its earlier self all the same.
func TestFastReads(t *testing.T) {
	for _, tc := range []struct {
		name   string
		effort delta.Effort
		dtype  string
		change float64 // of each number, relative
		more   bool    // a restore reads more than the raw size
		links  int
	}{
		{"fast, many bits differ", delta.Fast, "F32", 1e-2, false, 0},
		{"fast, few bits differ", delta.Fast, "BF16", 1e-5, false, 4},
		{"auto, many bits differ", delta.Auto, "F32", 1e-2, true, 3},
		{"none", delta.None, "BF16", 1e-5, false, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := &metered{Store: &storetest.Memory{}}
			r, err := repository.Open(t.Context(), s, true)
			must.NoError(t, err)
			w := claim(t, r, "l")
			w.Options = repository.Options{Effort: tc.effort}
			random := rand.New(rand.NewPCG(1, 2))
			numbers := make([]float32, 1<<19)
			for i := range numbers {
				numbers[i] = float32(random.NormFloat64())
			}
			weights := &weight{name: "w", dtype: tc.dtype}
			run := &training{rand: random, files: map[string][]*weight{"model.safetensors": {weights}}, other: map[string]string{}}
			for step := range int64(6) {
				weights.data = weights.data[:0]
				for i, v := range numbers {
					bits := binary.LittleEndian.AppendUint32(nil, math.Float32bits(v))
					weights.data = append(weights.data, bits[4-widths[tc.dtype]:]...)
					numbers[i] *= float32(1 + tc.change*random.NormFloat64())
				}
				publish(t, w, step, run.checkpoint(step))
			}
			must.EqOp(t, tc.links, links(t, s.Store.(*storetest.Memory))) //nolint:forcetypeassert // made above
			list, err := r.Snapshots(t.Context(), "l")
			must.NoError(t, err)
			must.Len(t, 6, list)
			more := false
			for _, sn := range list {
				s.read.Store(0)
				_, err := content(t, r, sn)
				must.NoError(t, err)
				more = more || s.read.Load() > int64(len(weights.data))+10_000
			}
			must.EqOp(t, tc.more, more)
		})
	}
}
