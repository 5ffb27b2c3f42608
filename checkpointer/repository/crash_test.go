package repository_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/shoenig/test/must"

	"nomad-spotter/checkpointer/repository"
	"nomad-spotter/checkpointer/store"
	"nomad-spotter/checkpointer/store/storetest"
)

// histories is how many random histories a normal run tries.
const histories = 2000

// history is one life of a repository on a disk that crashes. Everything follows from its seed.
type history struct {
	t    *testing.T
	rand *rand.Rand
	disk *storetest.Sim
	// durable is what was reported durable: lineage to snapshot to content.
	durable map[string]map[string]memory
	next    int64 // step
	resume  bool  // writers may go on in an epoch that was claimed before
	keep    int   // of the newest snapshots, when garbage is collected; 0: it never is
	log     []string
}

func (h *history) note(format string, args ...any) {
	h.log = append(h.log, fmt.Sprintf(format, args...))
}

func (h *history) open() (*repository.Repository, error) {
	s, err := store.OpenFile("/store", h.disk, true)
	if err != nil {
		return nil, err
	}
	return repository.Open(context.Background(), s, true)
}

// checkpoint makes content of which much was seen before, so that objects are shared.
func (h *history) checkpoint() memory {
	m := memory{name: fmt.Sprintf("c%d", h.rand.IntN(3)), files: map[string]string{}}
	for i := range h.rand.IntN(3) {
		m.files[fmt.Sprintf("f%d", i)] = fmt.Sprintf("content %d", h.rand.IntN(6))
	}
	// Weights that move a little from step to step, some of them not at all.
	tensors := map[string][]float32{}
	for i := range 1 + h.rand.IntN(3) {
		v := make([]float32, 300)
		for j := range v {
			v[j] = float32(j) + float32(i) + 1
			if i != 1 {
				v[j] += 1e-5 * float32(h.next)
			}
		}
		tensors[fmt.Sprintf("layer%d.weight", i)] = v
	}
	m.files["model.safetensors"] = safetensors(tensors)
	return m
}

// live opens the repository, claims an epoch and publishes until something fails; it stops by itself after some steps.
func (h *history) live(lineage string, steps int) {
	r, err := h.open()
	if err != nil {
		h.note("open: %v", err)
		return
	}
	w, err := h.writer(r, lineage)
	if err != nil {
		h.note("claim %s: %v", lineage, err)
		return
	}
	for range steps {
		if h.keep > 0 && h.rand.IntN(2) == 0 && !h.collect(r, lineage) {
			return
		}
		h.next++
		c := h.checkpoint()
		p, err := w.Publish(context.Background(), h.next, c, noon)
		if err != nil {
			h.note("publish %s %d: %v", lineage, h.next, err)
			return
		}
		if h.durable[lineage] == nil {
			h.durable[lineage] = map[string]memory{}
		}
		h.durable[lineage][p.ID] = c
		h.note("durable %s %s", lineage, p.ID)
	}
}

// writer claims an epoch, or goes on in the newest one as after a restart.
func (h *history) writer(r *repository.Repository, lineage string) (*repository.Writer, error) {
	if h.resume && h.rand.IntN(3) == 0 {
		list, err := r.Snapshots(context.Background(), lineage)
		if err != nil {
			return nil, err
		}
		if len(list) > 0 {
			return r.Resume(lineage, list[0].Epoch), nil
		}
	}
	return r.Claim(context.Background(), lineage, "test", noon)
}

// collect collects garbage and tells whether that went well.
func (h *history) collect(r *repository.Repository, lineage string) bool {
	g, err := r.Collect(context.Background(), lineage, repository.Retention{Last: h.keep}, repository.CollectOptions{})
	if errors.Is(err, repository.ErrClaiming) {
		return true // somebody died while claiming
	}
	if err != nil {
		h.note("collect %s: %v", lineage, err)
		return false
	}
	h.note("collected %s: %v and %d packs", lineage, g.Snapshots, g.Packs)
	return true
}

func (h *history) failf(format string, args ...any) {
	h.t.Helper()
	for _, l := range h.log {
		h.t.Log(l)
	}
	h.t.Fatalf(format, args...)
}

// check holds the repository to its promises after a reboot.
func (h *history) check() {
	h.t.Helper()
	ctx := context.Background()
	r, err := h.open()
	if err != nil {
		h.failf("open after the crash: %v", err)
	}
	rep, err := r.Verify(ctx, "", false, nil)
	if err != nil {
		h.failf("verify: %v", err)
	}
	if len(rep.Damaged) > 0 { // a manifest is written last, so none may lack an object, durable or not
		h.failf("verify finds damage: %+v", rep.Damaged)
	}
	for lineage, want := range h.durable {
		list, err := r.Snapshots(ctx, lineage)
		if err != nil {
			h.failf("list: %v", err)
		}
		found := map[string]repository.Snapshot{}
		for _, s := range list {
			found[s.ID] = s
		}
		for id, c := range want {
			s, ok := found[id]
			if !ok {
				newer := 0
				for other := range found {
					if other > id { // in the order of epochs and steps
						newer++
					}
				}
				if h.keep == 0 || newer < h.keep {
					h.failf("durable snapshot %s of %s is gone, %d are newer", id, lineage, newer)
				}
				continue
			}
			h.same(r, s, c)
		}
	}
}

// same compares a snapshot with what was published.
func (h *history) same(r *repository.Repository, s repository.Snapshot, c memory) {
	h.t.Helper()
	got, err := content(h.t, r, s)
	if err != nil {
		h.failf("read %s: %v", s.ID, err)
	}
	if got.name != c.name || !maps.Equal(got.files, c.files) {
		h.failf("snapshot %s is %.300q, published was %.300q", s.ID, got, c)
	}
}

// restore puts the newest snapshot on the real disk; that it is the right one follows from its step.
func (h *history) restore(lineage string) {
	h.t.Helper()
	r, err := h.open()
	if err != nil {
		h.failf("open: %v", err)
	}
	dir := h.t.TempDir()
	m, damaged, err := r.Newest(context.Background(), lineage, into(dir))
	if err != nil || len(damaged) > 0 || m.Step != h.next {
		h.failf("restore: %+v %v %v, expected step %d", m, damaged, err, h.next)
	}
	want := h.durable[lineage][m.ID()]
	must.EqOp(h.t, want.name, m.Name)
	must.Eq(h.t, want.files, contents(h.t, filepath.Join(dir, m.Name)))
}

// crash ends the present life: by a kill of the process, which keeps the disk as it is, or by a crash of the machine.
func (h *history) crash(kill bool, survive float64) {
	if kill {
		h.note("killed after %d effects", h.disk.Effects())
		h.disk.CrashAt(0)
		return
	}
	h.note("crash after %d effects", h.disk.Effects())
	h.disk.Reboot(func() bool { return h.rand.Float64() < survive })
}

func newHistory(t *testing.T, seed uint64) *history {
	return &history{t: t, rand: rand.New(rand.NewPCG(seed, 1)), disk: storetest.New(), durable: map[string]map[string]memory{}}
}

// TestCrashRandom lives many random histories: several lives, each cut short at a random effect, by a kill or a crash.
func TestCrashRandom(t *testing.T) {
	n := budget(t, histories)
	durable := make([]int, runtime.GOMAXPROCS(0))
	t.Run("all", func(t *testing.T) {
		for shard := range durable {
			t.Run(fmt.Sprint(shard), func(t *testing.T) {
				t.Parallel()
				for seed := shard; seed < n; seed += len(durable) {
					durable[shard] += randomHistory(t, uint64(seed))
				}
			})
		}
	})
	total := 0
	for _, d := range durable {
		total += d
	}
	must.Greater(t, n, total) // the histories are worth something
	t.Logf("%d histories, %d durable snapshots", n, total)
}

// randomHistory lives one and returns how many snapshots became durable in it.
func randomHistory(t *testing.T, seed uint64) (durable int) {
	t.Helper()
	h := newHistory(t, seed)
	h.note("seed %d", seed)
	survive := []float64{0, 0.2, 0.5, 0.8, 1}[h.rand.IntN(5)]
	h.keep, h.resume = h.rand.IntN(4), true
	for range 2 + h.rand.IntN(4) {
		h.disk.CrashAt(1 + h.rand.IntN(80))
		h.live([]string{"a", "a/b"}[h.rand.IntN(2)], 1+h.rand.IntN(3))
		h.crash(h.rand.IntN(2) == 0, survive)
	}
	h.crash(false, survive)
	h.check()
	h.resume = false
	h.live("a", 1) // a retried publication succeeds
	if len(h.durable["a"]) == 0 {
		h.failf("nothing can be published after the crash")
	}
	h.crash(false, 0)
	h.check()
	for _, d := range h.durable {
		durable += len(d)
	}
	if seed%250 == 0 {
		h.restore("a")
	}
	return durable
}

// TestCrashEverywhere crashes one history at each of its effects, by kill and by crash, and again right after.
func TestCrashEverywhere(t *testing.T) {
	for _, c := range []struct {
		kill    bool
		survive float64
	}{{kill: true}, {survive: 0}, {survive: 0.5}, {survive: 1}} {
		for n := 1; ; n++ {
			h := newHistory(t, 42)
			h.live("a", 1)
			h.disk.CrashAt(n)
			h.live("a", 2)
			over := len(h.durable["a"]) == 3
			h.crash(c.kill, c.survive)
			h.live("a/b", 1) // relies on objects that the dead may have left
			h.crash(false, 0)
			h.check()
			if len(h.durable["a/b"]) != 1 {
				h.failf("effect %d: nothing can be published after the crash", n)
			}
			if over {
				must.Greater(t, 20, n)
				break
			}
		}
	}
}
