package repository_test

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/shoenig/test/must"

	"nomad-spotter/checkpointer/quant"
	"nomad-spotter/checkpointer/repository"
	"nomad-spotter/checkpointer/tensor"
)

// moments is a checkpoint of weights and their moments, some of which fill blocks of their own, at a step of a random walk.
func moments(step int) memory {
	tensors := map[string][]float32{}
	for name, n := range map[string]int{"layer": 40_000, "norm": 77} {
		r := rand.New(rand.NewPCG(uint64(n), 1))
		values := func(scale float64) []float32 {
			out := make([]float32, n)
			for range step + 1 {
				for i := range out {
					out[i] += float32(r.NormFloat64() * scale)
				}
			}
			return out
		}
		tensors["model."+name+".weight"] = values(.02)
		tensors["optim.exp_avg."+name] = values(1e-3)
		square := values(1e-3)
		for i, x := range square {
			square[i] = x * x
		}
		square[3] = float32(math.NaN())
		square[5] = float32(math.Inf(1))
		tensors["optim.exp_avg_sq."+name] = square
	}
	return memory{"ckpt", map[string]string{"state.safetensors": safetensors(tensors), "notes.txt": "exp_avg"}}
}

// roundedFile is what a compact snapshot holds of a safetensors file.
func roundedFile(t *testing.T, file string) string {
	t.Helper()
	l, err := tensor.Parse(strings.NewReader(file), int64(len(file)), "state.safetensors")
	must.NoError(t, err)
	b, at := []byte(file), int64(0)
	changed := 0
	for _, s := range l.Sections {
		if how := quant.Of(s.Kind, s.DType); how != nil {
			how.Round(b[at : at+s.Len])
			changed++
		}
		at += s.Len
	}
	must.EqOp(t, 4, changed)
	return string(b)
}

func rounded(t *testing.T, m memory) memory {
	t.Helper()
	return memory{m.name, map[string]string{"state.safetensors": roundedFile(t, m.files["state.safetensors"]), "notes.txt": m.files["notes.txt"]}}
}

// Snapshots of both precisions are parents of each other; each restores what it promises, whether its parent's files are on
// this machine or not, and says which it is.
func TestCompact_Chain(t *testing.T) {
	for name, local := range map[string]bool{"from the store": false, "from this machine": true} {
		t.Run(name, func(t *testing.T) {
			r, _ := openDisk(t)
			w := claim(t, r, "l")
			files := map[string]memory{}
			reads := 0
			if local {
				w.Options.Local = func(snapshot string) repository.Source {
					reads++
					return files[snapshot]
				}
			}
			order := []repository.Precision{repository.Exact, repository.Compact, repository.Compact, repository.Exact, repository.Exact, repository.Compact}
			for step, p := range order {
				w.Options.Precision = p
				files[publish(t, w, int64(step), moments(step)).ID] = moments(step)
			}
			must.EqOp(t, local, reads > 0)
			list, err := r.Snapshots(t.Context(), "l")
			must.NoError(t, err)
			must.Len(t, len(order), list)
			for _, s := range list {
				want := moments(int(s.Step))
				if order[s.Step] == repository.Compact {
					want = rounded(t, want)
				}
				got, err := content(t, r, s)
				must.NoError(t, err)
				must.True(t, got.files["state.safetensors"] == want.files["state.safetensors"], must.Sprintf("step %d", s.Step))
				must.EqOp(t, "exp_avg", got.files["notes.txt"])
				m, err := r.Manifest(t.Context(), s)
				must.NoError(t, err)
				must.EqOp(t, order[s.Step], m.Precision)
				d, err := r.Describe(t.Context(), s, repository.Detail{})
				must.NoError(t, err)
				must.EqOp(t, order[s.Step].String(), d.Precision)
			}
			rep, err := r.Verify(t.Context(), "l", true, nil)
			must.NoError(t, err)
			must.SliceEmpty(t, rep.Damaged)
		})
	}
}

// A checkpoint that was restored from a compact snapshot has nothing left to round: saved again, in whichever precision, it
// is the same content and takes no new block.
func TestCompact_Again(t *testing.T) {
	r, dir := openDisk(t)
	w := claim(t, r, "l")
	w.Options.Precision = repository.Compact
	publish(t, w, 1, moments(1))
	packs := func() []string { return names(t, filepath.Join(dir, "lineages/l/@packs")) }
	before := packs()
	target := t.TempDir()
	m, _, err := r.Newest(t.Context(), "l", into(target))
	must.NoError(t, err)
	must.EqOp(t, repository.Compact, m.Precision)
	restored := scan(t, filepath.Join(target, "ckpt"))
	for step, p := range map[int64]repository.Precision{2: repository.Compact, 3: repository.Exact} {
		w.Options.Precision = p
		publish(t, w, step, restored)
	}
	must.Eq(t, before, packs())

	// The exact original is another content: none of the rounded moments is taken for it.
	w.Options.Precision = repository.Exact
	p := publish(t, w, 4, moments(1))
	must.Greater(t, 2*40_000*4/2, int(p.StoredBytes))
	s, err := r.Snapshots(t.Context(), "l")
	must.NoError(t, err)
	got, err := content(t, r, s[0])
	must.NoError(t, err)
	must.True(t, got.files["state.safetensors"] == moments(1).files["state.safetensors"])
}

// The same source gives the same bytes in the store, whatever the number of workers.
func TestCompact_Deterministic(t *testing.T) {
	packs := func(workers int) map[string]string {
		r, dir := openDisk(t)
		w := claim(t, r, "l")
		w.Options.Precision, w.Options.Workers = repository.Compact, workers
		publish(t, w, 1, moments(1))
		publish(t, w, 2, moments(2))
		return contents(t, filepath.Join(dir, "lineages/l/@packs"))
	}
	one := packs(1)
	must.Eq(t, one, packs(3))
	exactSize := func() (n int) {
		r, _ := openDisk(t)
		w := claim(t, r, "l")
		return int(publish(t, w, 1, moments(1)).StoredBytes + publish(t, w, 2, moments(2)).StoredBytes)
	}()
	n := 0
	for _, p := range one {
		n += len(p)
	}
	must.Less(t, exactSize*6/10, n)
}

// A step that was published exactly cannot be published compactly, nor the other way round.
func TestCompact_Conflict(t *testing.T) {
	r, _ := openDisk(t)
	w := claim(t, r, "l")
	publish(t, w, 1, moments(1))
	w.Options.Precision = repository.Compact
	_, err := w.Publish(t.Context(), 1, moments(1), noon)
	must.ErrorIs(t, err, repository.ErrConflict)
	publish(t, w, 2, moments(2))
	publish(t, w, 2, moments(2))
	w.Options.Precision = repository.Exact
	_, err = w.Publish(t.Context(), 2, moments(2), noon)
	must.ErrorIs(t, err, repository.ErrConflict)
}

func TestPrecision(t *testing.T) {
	for _, p := range []repository.Precision{repository.Exact, repository.Compact} {
		got, ok := repository.ParsePrecision(p.String())
		must.True(t, ok)
		must.EqOp(t, p, got)
	}
	_, ok := repository.ParsePrecision("")
	must.False(t, ok)

	r, dir := openDisk(t)
	w := claim(t, r, "l")
	publish(t, w, 1, moments(0))
	key := filepath.Join(dir, "lineages/l/@snapshots", "00000001-000000000001")
	b, err := os.ReadFile(key)
	must.NoError(t, err)
	must.StrNotContains(t, string(b), "precision")
	m, err := repository.ParseManifest(b)
	must.NoError(t, err)
	m.Precision = repository.Compact
	b, err = m.Encode()
	must.NoError(t, err)
	must.StrContains(t, string(b), `,"precision":"compact","raw_bytes":`)
	var fields map[string]any
	must.NoError(t, json.Unmarshal([]byte(strings.SplitN(string(b), "\n", 2)[0]), &fields))
	again, err := repository.ParseManifest(b)
	must.NoError(t, err)
	must.EqOp(t, repository.Compact, again.Precision)
	m.Precision = "exact"
	_, err = m.Encode()
	must.ErrorContains(t, err, `precision "exact"`)
}
