package repository_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/shoenig/test/must"

	"nomad-spotter/checkpointer/repository"
	"nomad-spotter/checkpointer/store"
	"nomad-spotter/checkpointer/store/storetest"
)

// series publishes drifting checkpoints in two epochs and returns their snapshots, newest first.
func series(t *testing.T, r *repository.Repository, n int) []repository.Snapshot {
	t.Helper()
	w := claim(t, r, "l")
	for step, src := range drifting(n) {
		if step == n/2 {
			w = claim(t, r, "l")
		}
		publish(t, w, int64(step), src)
	}
	list, err := r.Snapshots(t.Context(), "l")
	must.NoError(t, err)
	must.Len(t, n, list)
	return list
}

func copyOf(t *testing.T, from, to *repository.Repository, s repository.Snapshot) repository.Copied {
	t.Helper()
	c, err := repository.Copy(t.Context(), from, to, s, repository.CopyOptions{})
	must.NoError(t, err)
	return c
}

// A replica of everything is the same, object by object; a second copy reads and changes nothing.
func TestCopy(t *testing.T) {
	a, from := openDisk(t)
	b, to := openDisk(t)
	list := series(t, a, 5)
	var progress atomic.Int64
	for i, s := range list {
		plan, err := repository.Missing(t.Context(), a, b, s)
		must.NoError(t, err)
		progress.Store(0)
		c, err := repository.Copy(t.Context(), a, b, s, repository.CopyOptions{Progress: func(n int64) { progress.Add(n) }})
		must.NoError(t, err)
		must.Eq(t, plan, c)
		must.False(t, c.There)
		must.EqOp(t, i == 0, c.Count == c.Packs) // later ones share packs
		var needed int64
		d, err := b.Describe(t.Context(), s, repository.Detail{})
		must.NoError(t, err)
		for _, p := range d.Packs {
			needed += p.Bytes
		}
		must.EqOp(t, needed, progress.Load())
	}
	must.Eq(t, contents(t, filepath.Join(from, "lineages")), contents(t, filepath.Join(to, "lineages")))
	for _, s := range list {
		c := copyOf(t, a, reopen(t, to), s)
		must.True(t, c.There)
		must.EqOp(t, 0, c.Count)
	}
	rep, err := b.Verify(t.Context(), "", true, nil)
	must.NoError(t, err)
	must.SliceEmpty(t, rep.Damaged)
	must.EqOp(t, 5, rep.Snapshots)

	// A replica that lost a pack is mended.
	packs := names(t, filepath.Join(to, "lineages/l/@packs"))
	must.NoError(t, os.Remove(filepath.Join(to, "lineages/l/@packs", packs[0])))
	c := copyOf(t, a, reopen(t, to), list[len(list)-1])
	must.EqOp(t, 1, c.Count)
	must.Eq(t, contents(t, filepath.Join(from, "lineages")), contents(t, filepath.Join(to, "lineages")))
}

// The newest one alone is whole; into a store that does not exist, all is missing.
func TestCopyNewest(t *testing.T) {
	a, _ := openDisk(t)
	b, _ := openDisk(t)
	list := series(t, a, 5)
	plan, err := repository.Missing(t.Context(), a, nil, list[0])
	must.NoError(t, err)
	must.EqOp(t, plan.Packs, plan.Count)
	copyOf(t, a, b, list[0])
	got, err := content(t, b, list[0])
	must.NoError(t, err)
	want, err := content(t, a, list[0])
	must.NoError(t, err)
	must.Eq(t, want, got)
	rep, err := b.Verify(t.Context(), "", true, nil)
	must.NoError(t, err)
	must.SliceEmpty(t, rep.Damaged)
	_, err = repository.Copy(t.Context(), a, b, repository.Snapshot{Lineage: "l", ID: "00000009-000000000001", Epoch: 9, Step: 1}, repository.CopyOptions{})
	must.ErrorIs(t, err, repository.ErrNoSnapshot)
}

// What is in both stores and differs is never replaced, and both are named.
func TestCopyFork(t *testing.T) {
	for name, c := range map[string]struct {
		fork func(t *testing.T, a, b *repository.Repository)
		want error
	}{
		"epochs claimed in both": {func(t *testing.T, a, b *repository.Repository) {
			_, err := b.Claim(t.Context(), "l", "another", noon)
			must.NoError(t, err)
			publish(t, claim(t, a, "l"), 1, memory{"c", map[string]string{"a": "x"}})
		}, repository.ErrFork},
		"seen differs": {func(t *testing.T, a, b *repository.Repository) {
			w := claim(t, a, "l")
			publish(t, w, 1, memory{"c", nil})
			publish(t, claim(t, b, "l"), 2, memory{"c", nil})
			claim(t, b, "l")
			publish(t, claim(t, a, "l"), 3, memory{"c", nil})
		}, repository.ErrFork},
		"snapshots differ": {func(t *testing.T, a, b *repository.Repository) {
			publish(t, claim(t, a, "l"), 1, memory{"c", map[string]string{"a": "x"}})
			publish(t, claim(t, b, "l"), 1, memory{"c", map[string]string{"a": "y"}})
		}, repository.ErrFork},
	} {
		t.Run(name, func(t *testing.T) {
			a, from := openDisk(t)
			b, to := openDisk(t)
			c.fork(t, a, b)
			before := contents(t, to)
			list, err := a.Snapshots(t.Context(), "l")
			must.NoError(t, err)
			_, err = repository.Copy(t.Context(), a, b, list[0], repository.CopyOptions{})
			must.ErrorIs(t, err, c.want)
			must.StrContains(t, err.Error(), to)
			must.StrContains(t, err.Error(), from)
			after := contents(t, to)
			for key, b := range before {
				must.EqOp(t, b, after[key], must.Sprint(key))
			}
		})
	}
}

// Damage of the source is not copied; damage of the target is not replaced.
func TestCopyDamage(t *testing.T) {
	a, from := openDisk(t)
	list := series(t, a, 2)
	flip := func(dir, key string) {
		p := filepath.Join(dir, "lineages/l", key)
		b, err := os.ReadFile(p)
		must.NoError(t, err)
		b[len(b)/2] ^= 1
		must.NoError(t, os.WriteFile(p, b, 0o644))
	}
	b, to := openDisk(t)
	copyOf(t, a, b, list[1])
	pack := "@packs/" + names(t, filepath.Join(to, "lineages/l/@packs"))[0]
	flip(to, pack)
	_, err := repository.Copy(t.Context(), a, reopen(t, to), list[0], repository.CopyOptions{})
	must.ErrorContains(t, err, "is damaged in file://"+to)
	var d *repository.DamageError
	must.False(t, errors.As(err, &d))
	flip(to, pack)

	flip(from, pack)
	c, cdir := openDisk(t)
	_, err = repository.Copy(t.Context(), a, c, list[0], repository.CopyOptions{})
	must.True(t, errors.As(err, &d))
	must.EqOp(t, "lineages/l/"+pack, d.Object)
	must.SliceEmpty(t, names(t, filepath.Join(cdir, "lineages/l/@copies"))) // it is over
	must.SliceEmpty(t, snapshots(t, c))
}

// Snapshots that cannot be copied are passed over, and what was brought for them is of use for the next ones.
func TestCopyRun(t *testing.T) {
	a, from := openDisk(t)
	list := series(t, a, 6)
	bad, packs := map[string]bool{}, map[string][]string{}
	for i, s := range list {
		d, err := a.Describe(t.Context(), s, repository.Detail{})
		must.NoError(t, err)
		for _, p := range d.Packs {
			packs[s.ID] = append(packs[s.ID], p.Name)
			if strings.HasPrefix(p.Name, s.ID+"-") && (i == 0 || i == 2) {
				bad[p.Name] = true
			}
		}
	}
	must.Positive(t, len(bad))
	for name := range bad {
		must.NoError(t, os.Remove(filepath.Join(from, "lineages/l/@packs", name)))
	}
	a = reopen(t, from)
	needs := func(s repository.Snapshot) bool {
		return slices.ContainsFunc(packs[s.ID], func(name string) bool { return bad[name] })
	}
	b, to := openDisk(t)
	run := repository.NewCopyRun(b)
	whole := 0
	for _, s := range list {
		_, err := repository.Copy(t.Context(), a, b, s, repository.CopyOptions{Run: run})
		if !needs(s) {
			must.NoError(t, err)
			whole++
			continue
		}
		var d *repository.DamageError
		must.True(t, errors.As(err, &d), must.Sprint(err))
	}
	must.Positive(t, whole)
	must.Less(t, 6, whole)
	copies, err := b.Copies(t.Context(), "l")
	must.NoError(t, err)
	must.Len(t, 6-whole, copies)
	g, err := b.Collect(t.Context(), "l", repository.Retention{Last: 9}, repository.CollectOptions{})
	must.NoError(t, err)
	must.EqOp(t, 0, g.Packs)
	must.NoError(t, run.End(t.Context()))
	must.SliceEmpty(t, names(t, filepath.Join(to, "lineages/l/@copies")))
	_, err = b.Collect(t.Context(), "l", repository.Retention{Last: 9}, repository.CollectOptions{})
	must.NoError(t, err)
	rep, err := b.Verify(t.Context(), "", true, nil)
	must.NoError(t, err)
	must.SliceEmpty(t, rep.Damaged)
	must.EqOp(t, whole, rep.Snapshots)
}

// gated is a store that calls get, if there is one, before an object is read, and put after one was put.
type gated struct {
	store.Store
	get, put func(key string)
}

func (g gated) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	if g.get != nil {
		g.get(key)
	}
	return g.Store.Get(ctx, key)
}

func (g gated) GetRange(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	if g.get != nil {
		g.get(key)
	}
	return g.Store.GetRange(ctx, key, off, n)
}

func (g gated) Put(ctx context.Context, key string, r io.Reader) (int64, error) {
	n, err := g.Store.Put(ctx, key, r)
	if g.put != nil {
		g.put(key)
	}
	return n, err
}

// What a copy that failed has brought counts for nothing once its mark was dropped.
func TestCopyRun_dropped(t *testing.T) {
	mem, there := &storetest.Memory{}, &storetest.Memory{}
	list := series(t, openMemory(t, mem), 2)
	d, err := openMemory(t, mem).Describe(t.Context(), list[0], repository.Detail{})
	must.NoError(t, err)
	own := ""
	for _, p := range d.Packs {
		if strings.HasPrefix(p.Name, list[0].ID+"-") {
			own = "lineages/l/@packs/" + p.Name
		}
	}
	must.True(t, mem.Damage(own, func(b []byte) []byte { return b[:len(b)-1] }))
	// The damage is found after the other pack has come.
	came := make(chan struct{})
	a := openMemory(t, gated{Store: mem, get: func(key string) {
		if key == own {
			<-came
		}
	}})
	b := openMemory(t, gated{Store: there, put: func(key string) {
		if strings.Contains(key, "/@packs/") {
			close(came)
		}
	}})
	run := repository.NewCopyRun(b)
	_, err = repository.Copy(t.Context(), a, b, list[0], repository.CopyOptions{Run: run})
	var damage *repository.DamageError
	must.True(t, errors.As(err, &damage))
	must.NoError(t, b.DropDead(t.Context(), "l"))
	_, err = repository.Copy(t.Context(), a, b, list[1], repository.CopyOptions{Run: run})
	must.ErrorIs(t, err, repository.ErrUncollected)
}

func snapshots(t *testing.T, r *repository.Repository) []repository.Snapshot {
	t.Helper()
	list, err := r.Snapshots(t.Context(), "l")
	must.NoError(t, err)
	return list
}

var errFull = errors.New("out of space")

// failing is a store that takes so many more objects.
type failing struct {
	store.Store
	mu   sync.Mutex
	left int
}

func (f *failing) Put(ctx context.Context, key string, r io.Reader) (int64, error) {
	f.mu.Lock()
	f.left--
	full := f.left < 0
	f.mu.Unlock()
	if full {
		return 0, errFull
	}
	return f.Store.Put(ctx, key, r)
}

// A copy that was cut off after any number of objects keeps its packs from the collector, and goes on where it was.
func TestCopyResume(t *testing.T) {
	a, _ := openDisk(t)
	list := series(t, a, 3)
	for n := 0; ; n++ {
		f := &failing{Store: &storetest.Memory{}, left: 1 << 20}
		b, err := repository.Open(t.Context(), f, true)
		must.NoError(t, err)
		f.left = n
		_, err = repository.Copy(t.Context(), a, b, list[0], repository.CopyOptions{})
		if err == nil {
			must.Greater(t, 6, n) // records, marks, packs, manifest
			break
		}
		must.ErrorIs(t, err, errFull)
		whole := len(snapshots(t, b)) > 0 // the manifest is there, and only the note of it is missing
		f.left = 1 << 20
		packs, err := f.List(t.Context(), "lineages/l/@packs/")
		must.NoError(t, err)
		g, err := b.Collect(t.Context(), "l", repository.Retention{Last: 1}, repository.CollectOptions{})
		if errors.Is(err, repository.ErrClaiming) { // an epoch came over, and not yet what its writer saw: as if it were being claimed
			must.SliceEmpty(t, packs)
		} else {
			must.NoError(t, err)
			must.EqOp(t, 0, g.Packs)
			if len(packs) > 0 && !whole {
				must.Eq(t, []string{list[0].ID}, g.Copies)
			}
		}
		again, err := repository.Open(t.Context(), f, false)
		must.NoError(t, err)
		c := copyOf(t, a, again, list[0])
		must.EqOp(t, c.Packs-len(packs), c.Count)
		left, err := f.List(t.Context(), "lineages/l/@copies/")
		must.NoError(t, err)
		must.SliceEmpty(t, left)
		rep, err := again.Verify(t.Context(), "", true, nil)
		must.NoError(t, err)
		must.SliceEmpty(t, rep.Damaged)
		g, err = again.Collect(t.Context(), "l", repository.Retention{Last: 1}, repository.CollectOptions{})
		must.NoError(t, err)
		must.EqOp(t, 0, g.Packs+len(g.Copies))
	}
}

// Packs that nothing in the target needs may be on their way out: a copy does not rely on them. Nor do marks of a copy that
// will never go on hold up collections for good.
func TestCopyUncollected(t *testing.T) {
	a, from := openDisk(t)
	b, to := openDisk(t)
	list := series(t, a, 2)
	copyOf(t, a, b, list[1])
	for _, kind := range []string{"@snapshots", "@durable"} {
		must.NoError(t, os.Remove(filepath.Join(to, "lineages/l", kind, list[1].ID)))
	}
	_, err := repository.Copy(t.Context(), a, b, list[0], repository.CopyOptions{})
	must.ErrorIs(t, err, repository.ErrUncollected)
	must.SliceEmpty(t, names(t, filepath.Join(to, "lineages/l/@copies")))
	g, err := b.Collect(t.Context(), "l", repository.Retention{Last: 1}, repository.CollectOptions{})
	must.NoError(t, err)
	must.EqOp(t, 1, g.Packs)
	copyOf(t, a, b, list[0])

	mark := filepath.Join(to, "lineages/l/@copies", list[1].ID)
	must.NoError(t, os.WriteFile(mark, nil, 0o644))
	g, err = b.Collect(t.Context(), "l", repository.Retention{Last: 1}, repository.CollectOptions{})
	must.NoError(t, err)
	must.Eq(t, []string{list[1].ID}, g.Copies)
	must.NoError(t, b.DropDead(t.Context(), "l"))
	g, err = b.Collect(t.Context(), "l", repository.Retention{Last: 1}, repository.CollectOptions{})
	must.NoError(t, err)
	must.SliceEmpty(t, g.Copies)

	// One whose snapshot is there has only left its mark.
	must.NoError(t, os.WriteFile(filepath.Join(to, "lineages/l/@copies", list[0].ID+".checked"), nil, 0o644))
	g, err = b.Collect(t.Context(), "l", repository.Retention{Last: 1}, repository.CollectOptions{})
	must.NoError(t, err)
	must.SliceEmpty(t, g.Copies)
	must.SliceEmpty(t, names(t, filepath.Join(to, "lineages/l/@copies")))
	must.SliceEmpty(t, slices.DeleteFunc(names(t, filepath.Join(from, "lineages/l")), func(n string) bool { return strings.HasPrefix(n, "@") }))
}

// interleaved is a store in which a collection runs before one of a copy's calls.
type interleaved struct {
	store.Store
	mu        sync.Mutex
	at, calls int
	do        func()
}

func (i *interleaved) tick() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.calls++; i.calls == i.at {
		i.do()
	}
}

func (i *interleaved) Put(ctx context.Context, key string, r io.Reader) (int64, error) {
	i.tick()
	return i.Store.Put(ctx, key, r)
}

func (i *interleaved) Stat(ctx context.Context, key string) (int64, error) {
	i.tick()
	return i.Store.Stat(ctx, key)
}

func (i *interleaved) List(ctx context.Context, prefix string) ([]store.Entry, error) {
	i.tick()
	return i.Store.List(ctx, prefix)
}

// Whenever a collection runs in the target during a copy that succeeds, what was copied is whole.
func TestCopyDuringCollection(t *testing.T) {
	a, _ := openDisk(t)
	list := series(t, a, 4)
	for at := 1; ; at++ {
		mem := &storetest.Memory{}
		b, err := repository.Open(t.Context(), mem, true)
		must.NoError(t, err)
		copyOf(t, a, b, list[3])
		copyOf(t, a, b, list[2])
		i := &interleaved{Store: mem, at: at, do: func() {
			_, err := b.Collect(t.Context(), "l", repository.Retention{Last: 1}, repository.CollectOptions{})
			must.NoError(t, err)
		}}
		via, err := repository.Open(t.Context(), i, false)
		must.NoError(t, err)
		_, err = repository.Copy(t.Context(), a, via, list[0], repository.CopyOptions{})
		must.NoError(t, err, must.Sprintf("call %d", at))
		rep, err := b.Verify(t.Context(), "", true, nil)
		must.NoError(t, err)
		must.SliceEmpty(t, rep.Damaged, must.Sprintf("call %d", at))
		if i.calls < at {
			must.Greater(t, 10, at)
			return
		}
	}
}

// Of several repositories the newest snapshot of all is restored, and a damaged one from where it is whole.
func TestNewestOf(t *testing.T) {
	a, diskA := openDisk(t)
	list := series(t, a, 3) // newest first
	b, _ := openDisk(t)
	copyOf(t, a, b, list[0])
	c, _ := openDisk(t)
	copyOf(t, a, c, list[2])

	restore := func(repos ...*repository.Repository) (*repository.Manifest, *repository.Repository, int) {
		t.Helper()
		m, from, damaged, err := repository.NewestOf(t.Context(), repos, "l", into(t.TempDir()))
		must.NoError(t, err)
		return m, from, len(damaged)
	}
	m, from, n := restore(c, b, a)
	must.EqOp(t, list[0].ID, m.ID())
	must.True(t, from == b) // the first that has it
	must.Zero(t, n)

	must.NoError(t, flip(filepath.Join(diskA, "lineages/l/@snapshots", list[0].ID), -2))
	a = reopen(t, diskA)
	m, from, n = restore(a, c, b)
	must.EqOp(t, list[0].ID, m.ID())
	must.True(t, from == b)
	must.EqOp(t, 1, n)
	m, from, n = restore(a, c)
	must.Less(t, list[0].Step, m.Step)
	must.EqOp(t, 1, n)
	must.NotNil(t, from)

	none, _ := openDisk(t)
	m, from, n = restore(none)
	must.Nil(t, m)
	must.Nil(t, from)
	must.Zero(t, n)
}
