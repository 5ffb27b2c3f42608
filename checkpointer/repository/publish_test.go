package repository_test

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/shoenig/test/must"

	"nomad-spotter/checkpointer/repository"
	"nomad-spotter/checkpointer/stage"
	"nomad-spotter/checkpointer/store"
	"nomad-spotter/checkpointer/store/storetest"
)

func TestOpen(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	must.NoError(t, os.Mkdir(dir, 0o755))
	s, err := store.Open("file://"+dir, false)
	must.NoError(t, err)
	_, err = repository.Open(t.Context(), s, false)
	must.ErrorIs(t, err, store.ErrNotFound)
	must.ErrorContains(t, err, "is the right file system mounted there?")
	reopen(t, dir)
	reopen(t, dir)
	head := filepath.Join(dir, "spotter-repository.json")
	for content, want := range map[string]string{`{"format":2}`: "format 2, this program knows 1", `{"format":1}`: "it is not as it was written", `{"format":1,"id":"x"}`: "an id that is not 32", `x`: "decode"} {
		must.NoError(t, os.WriteFile(head, []byte(content), 0o644))
		_, err = repository.Open(t.Context(), s, true)
		must.ErrorContains(t, err, want)
	}
}

// What the writer says it stored is what the store grew by, to the byte; content that is there is not stored again.
func TestStoredBytes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	must.NoError(t, os.Mkdir(dir, 0o755))
	r := reopen(t, dir)
	w := claim(t, r, "l")
	var before int64
	for step, c := range []struct {
		files map[string]string
		packs int
	}{
		{map[string]string{"same": "constant content", "other": "zero"}, 1},
		{map[string]string{"same": "constant content", "other": "one"}, 2},
		{map[string]string{"same": "constant content", "other": "one"}, 2},
		{nil, 3},
	} {
		p := publish(t, w, int64(step), memory{"c", c.files})
		after := size(t, dir)
		must.EqOp(t, after-before, p.StoredBytes, must.Sprintf("step %d", step))
		before = after
		must.Len(t, c.packs, names(t, filepath.Join(dir, "lineages/l/@packs")))
		must.SliceEmpty(t, names(t, filepath.Join(dir, "lineages/l/@saves")))
	}
}

func TestRepublish(t *testing.T) {
	r, dir := openDisk(t)
	w := claim(t, r, "l")
	first := publish(t, w, 1, memory{"c", map[string]string{"a": "x"}})
	before := size(t, dir)
	again := publish(t, r.Resume("l", w.Epoch), 1, memory{"c", map[string]string{"a": "x"}})
	must.EqOp(t, first.ID, again.ID)
	must.EqOp(t, 0, again.StoredBytes)
	must.EqOp(t, before, size(t, dir))
	for _, other := range []memory{
		{"c", map[string]string{"a": "y"}}, {"d", map[string]string{"a": "x"}}, {"c", map[string]string{"b": "x"}},
	} {
		_, err := w.Publish(t.Context(), 1, other, noon)
		must.ErrorIs(t, err, repository.ErrConflict)
	}
	m, _, err := r.Newest(t.Context(), "l", into(t.TempDir()))
	must.NoError(t, err)
	must.EqOp(t, first.ID, m.ID())
}

func TestSuperseded(t *testing.T) {
	r, _ := openDisk(t)
	old := claim(t, r, "l")
	publish(t, old, 1, memory{"c", nil})
	next := claim(t, r, "l")
	_, err := old.Publish(t.Context(), 2, memory{"c", nil}, noon)
	must.ErrorIs(t, err, repository.ErrSuperseded)
	publish(t, next, 2, memory{"c", nil})
	publish(t, claim(t, r, "l/other"), 1, memory{"c", nil}) // another lineage does not matter
	publish(t, next, 3, memory{"c", nil})
	// A store in which this epoch was never claimed is another one.
	_, err = r.Resume("l", 3).Publish(t.Context(), 4, memory{"c", nil}, noon)
	must.ErrorContains(t, err, "is the right file system mounted there?")
}

// interrupting is a checkpoint whose reading lets something else happen.
type interrupting struct {
	memory
	during func()
}

func (i interrupting) Check() error {
	i.during()
	return nil
}

// A claim in the middle of a publication wins: the old writer is told, and readers do not see its snapshot.
func TestSupersededDuringPublication(t *testing.T) {
	r, _ := openDisk(t)
	old := claim(t, r, "l")
	publish(t, old, 1, memory{"c", nil})
	var next *repository.Writer
	_, err := old.Publish(t.Context(), 2, interrupting{memory{"c", nil}, func() { next = claim(t, r, "l") }}, noon)
	must.ErrorIs(t, err, repository.ErrSuperseded)
	list, err := r.Snapshots(t.Context(), "l")
	must.NoError(t, err)
	must.Len(t, 1, list)
	publish(t, next, 2, memory{"c", nil})
}

// A snapshot that an old epoch published behind the back of a newer one is not seen.
func TestLateSnapshotIgnored(t *testing.T) {
	r, dir := openDisk(t)
	old := claim(t, r, "l")
	publish(t, old, 5, memory{"c", nil})
	claim(t, r, "l")
	snapshots := filepath.Join(dir, "lineages/l/@snapshots")
	b, err := os.ReadFile(filepath.Join(snapshots, "00000001-000000000005"))
	must.NoError(t, err)
	m, err := repository.ParseManifest(b)
	must.NoError(t, err)
	m.Step = 6
	b, err = m.Encode()
	must.NoError(t, err)
	must.NoError(t, os.WriteFile(filepath.Join(snapshots, m.ID()), b, 0o644))
	got, _, err := r.Newest(t.Context(), "l", into(t.TempDir()))
	must.NoError(t, err)
	must.EqOp(t, 5, got.Step)
}

func TestConcurrentClaims(t *testing.T) {
	r, _ := openDisk(t)
	const n = 16
	epochs := make([]int, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			w, err := r.Claim(t.Context(), "l", fmt.Sprint(i), noon)
			if err == nil {
				epochs[i] = int(w.Epoch)
			}
		})
	}
	wg.Wait()
	slices.Sort(epochs)
	for i, e := range epochs {
		must.EqOp(t, i+1, e)
	}
}

// Newest is by epoch, then step, both as numbers; never by time or as text.
func TestNewestOrder(t *testing.T) {
	r, _ := openDisk(t)
	w := claim(t, r, "l")
	for _, step := range []int64{1_000_000_000_000, 7, 999_999_999_999} {
		publish(t, w, step, memory{"c", nil})
	}
	m, _, err := r.Newest(t.Context(), "l", into(t.TempDir()))
	must.NoError(t, err)
	must.EqOp(t, 1_000_000_000_000, m.Step)
	publish(t, claim(t, r, "l"), 3, memory{"c", nil})
	m, _, err = r.Newest(t.Context(), "l", into(t.TempDir()))
	must.NoError(t, err)
	must.EqOp(t, 3, m.Step)
	all, err := r.Snapshots(t.Context(), "")
	must.NoError(t, err)
	must.Len(t, 4, all)
	must.EqOp(t, 7, all[3].Step)
}

// A lineage is not its prefix, and names survive their escaping.
func TestLineages(t *testing.T) {
	r, _ := openDisk(t)
	lineages := []string{"a", "a/b", "a/@snapshots", "ab", "a b/ü@%2F"}
	for i, l := range lineages {
		publish(t, claim(t, r, l), int64(i), memory{"c", nil})
	}
	for i, l := range lineages {
		list, err := r.Snapshots(t.Context(), l)
		must.NoError(t, err)
		must.Len(t, 1, list, must.Sprint(l))
		must.EqOp(t, int64(i), list[0].Step)
		must.EqOp(t, l, list[0].Lineage)
	}
	all, err := r.Snapshots(t.Context(), "")
	must.NoError(t, err)
	must.Len(t, len(lineages), all)
}

// What JSON cannot keep is refused before anything is published, not restored under another name.
func TestNamesThatAreNotText(t *testing.T) {
	r, _ := openDisk(t)
	w := claim(t, r, "l")
	for _, src := range []memory{{"c\xff", nil}, {"c", map[string]string{"a\xff": ""}}} {
		_, err := w.Publish(t.Context(), 1, src, noon)
		must.Error(t, err)
	}
	_, err := r.Claim(t.Context(), "l\xff", "test", noon)
	must.ErrorContains(t, err, "not UTF-8")
	list, err := r.Snapshots(t.Context(), "")
	must.NoError(t, err)
	must.SliceEmpty(t, list)
}

// A checkpoint that changes while it is published is not published.
func TestSourceChanges(t *testing.T) {
	r, _ := openDisk(t)
	w := claim(t, r, "l")
	dir := t.TempDir()
	for name, change := range map[string]func(p string) error{
		"longer":   func(p string) error { return os.WriteFile(p, []byte("longer than it was"), 0o644) },
		"same":     func(p string) error { return os.WriteFile(p, []byte("CONTENT"), 0o644) },
		"replaced": func(p string) error { return errors.Join(os.Remove(p), os.WriteFile(p, []byte("content"), 0o644)) },
		"gone":     os.Remove,
	} {
		path := filepath.Join(dir, name)
		write(t, dir, map[string]string{name: "content"})
		tree := scan(t, path)
		must.NoError(t, change(path))
		_, err := w.Publish(t.Context(), 1, tree, noon)
		must.Error(t, err, must.Sprint(name))
		must.True(t, errors.Is(err, stage.ErrChanged) || strings.Contains(err.Error(), "when it was finished"), must.Sprint(err))
	}
	list, err := r.Snapshots(t.Context(), "l")
	must.NoError(t, err)
	must.SliceEmpty(t, list)
}

// More workers than blocks are none: however many are asked for, a save takes what it can use.
func TestManyWorkers(t *testing.T) {
	r := openMemory(t, &storetest.Memory{})
	w := claim(t, r, "l")
	w.Options.Workers = math.MaxInt
	publish(t, w, 1, small(1))
	publish(t, w, 2, memory{"c", nil})
}
