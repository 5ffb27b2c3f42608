package repository_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/shoenig/test/must"

	"nomad-spotter/checkpointer/repository"
)

// drifting returns checkpoints of a model whose weights drift, with a frozen tensor and a file of text.
func drifting(n int) []memory {
	rng := rand.New(rand.NewPCG(1, 2))
	w, frozen := make([]float32, 40_000), make([]float32, 40_000)
	for i := range w {
		w[i] = float32(rng.NormFloat64())
	}
	for i := range frozen {
		frozen[i] = float32(rng.NormFloat64())
	}
	var out []memory
	for step := range n {
		for i := range w {
			w[i] *= 1 + float32(rng.NormFloat64())/1e5
		}
		out = append(out, memory{fmt.Sprintf("ckpt_%d", step), map[string]string{
			"model.safetensors": safetensors(map[string][]float32{"layer.weight": w, "frozen.weight": frozen}),
			"notes.txt":         fmt.Sprintf("step %d", step),
		}})
	}
	return out
}

// The parts of a usage add up to what is in the store, to the byte, whatever was removed.
func TestUsage(t *testing.T) {
	r, dir := openDisk(t)
	w := claim(t, r, "l")
	stored := map[string]int64{}
	for step, src := range drifting(6) {
		p := publish(t, w, int64(step), src)
		stored[p.ID] = p.StoredBytes
	}
	check := func(snapshots int) *repository.Usage {
		t.Helper()
		u, err := r.Usage(t.Context(), "l")
		must.NoError(t, err)
		must.Len(t, snapshots, u.Snapshots)
		must.EqOp(t, size(t, filepath.Join(dir, "lineages")), u.Total.Stored)
		s := u.Total
		must.EqOp(t, s.Stored, s.Raw-s.Unchanged-s.Differences-s.Coding+s.Metadata+u.Inherited+u.Unneeded)
		for _, s := range u.Snapshots {
			must.EqOp(t, s.Stored, s.Raw-s.Unchanged-s.Differences-s.Coding+s.Metadata)
			must.Greater(t, 0, s.Metadata)
			must.Between(t, 0, s.MaxLinks, repository.DefaultLinks+1)
		}
		return u
	}
	u := check(6)
	for _, s := range u.Snapshots[:5] {
		must.EqOp(t, stored[s.ID], s.Stored) // all but the first, which took the repository's head and the claim too
		must.Greater(t, 160_000-1, s.Unchanged)
		must.Greater(t, 0, s.Differences+s.Coding)
	}
	must.EqOp(t, 0, u.Snapshots[5].Unchanged+u.Snapshots[5].Differences)
	must.EqOp(t, 0, u.Inherited+u.Unneeded)

	// The first one's packs are still needed when it is gone.
	_, err := r.Collect(t.Context(), "l", repository.Retention{Last: 1}, repository.CollectOptions{})
	must.NoError(t, err)
	u = check(1)
	must.Greater(t, 0, u.Inherited)
	must.EqOp(t, 0, u.Unneeded)

	// A pack that a killed save left.
	packs := names(t, filepath.Join(dir, "lineages/l/@packs"))
	left := "00000001-000000000009" + packs[0][len("00000001-000000000009"):]
	must.NoError(t, os.WriteFile(filepath.Join(dir, "lineages/l/@packs", left), []byte("left"), 0o644))
	u = check(1)
	must.EqOp(t, 4, u.Unneeded)
	must.EqOp(t, 1, u.UnneededPacks)

	lineages, err := r.Lineages(t.Context())
	must.NoError(t, err)
	must.Eq(t, []string{"l"}, lineages)
}

func TestDescribe(t *testing.T) {
	r, _ := openDisk(t)
	w := claim(t, r, "l")
	for step, src := range drifting(3) {
		publish(t, w, int64(step), src)
	}
	list, err := r.Snapshots(t.Context(), "l")
	must.NoError(t, err)
	d, err := r.Describe(t.Context(), list[0], repository.Detail{Tensors: true, Methods: 1 << 20})
	must.NoError(t, err)
	must.EqOp(t, 2, d.Files)
	must.False(t, d.Pinned)
	must.EqOp(t, d.Blocks, d.Examined)
	must.Eq(t, []repository.FormatPart{{Format: "safetensors", Files: 1, Bytes: d.Raw - 6}, {Format: "raw", Files: 1, Bytes: 6}}, d.Formats)
	must.Len(t, 2, d.Tensors)
	must.EqOp(t, "frozen.weight", d.Tensors[0].Name)
	must.EqOp(t, 160_000, d.Tensors[0].Raw)
	must.EqOp(t, "w", d.Tensors[0].Kind)
	must.EqOp(t, "f32", d.Kinds[0].DType)
	must.EqOp(t, 320_000, d.Kinds[0].Raw)
	must.EqOp(t, "", d.Kinds[len(d.Kinds)-1].DType)

	// Every way of looking at the blocks sees the same bytes.
	var kinds, links, methods, used, from int64
	for _, k := range d.Kinds {
		kinds += k.Stored
	}
	for _, l := range d.Links {
		links += l.Stored
	}
	for _, m := range d.Methods {
		must.NotEq(t, "corrupt", m.Method)
		methods += m.Stored
	}
	must.EqOp(t, links, kinds)
	must.EqOp(t, links, methods)
	for _, p := range d.Packs {
		used += int64(p.Used)
	}
	for _, s := range d.Sources {
		from += int64(s.Blocks)
	}
	must.EqOp(t, int64(d.Blocks), used)
	must.EqOp(t, int64(d.Blocks), from)
	must.EqOp(t, d.ID, d.Sources[0].Snapshot)
	must.EqOp(t, 2, d.Links[len(d.Links)-1].Links)

	// A few blocks only.
	must.NoError(t, r.Pin(t.Context(), list[0]))
	d, err = r.Describe(t.Context(), list[0], repository.Detail{Methods: 1})
	must.NoError(t, err)
	must.EqOp(t, 1, d.Examined)
	must.True(t, d.Pinned)
	must.Nil(t, d.Tensors)
	_, err = r.Describe(t.Context(), repository.Snapshot{Lineage: "l", ID: "00000001-000000000009", Epoch: 1, Step: 9}, repository.Detail{})
	must.ErrorIs(t, err, repository.ErrNoSnapshot)
}
