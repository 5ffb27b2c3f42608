package repository_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/shoenig/test/must"

	"nomad-spotter/checkpointer/repository"
	"nomad-spotter/checkpointer/store"
	"nomad-spotter/checkpointer/store/storetest"
)

// shard is what a rank has of a step, in an epoch.
func shard(epoch uint64, step int64, rank int) memory {
	m := small(step)
	m.files["rank"] = fmt.Sprintf("rank %d of epoch %d", rank, epoch)
	return m
}

// gangScene is a store on which two ranks of several epochs and collectors meet.
type gangScene struct {
	t        *testing.T
	mu       sync.Mutex
	complete map[string]bool // reported complete: snapshots
}

// member publishes steps as one rank of two.
func (g *gangScene) member(ctx context.Context, r *repository.Repository, epoch uint64, rank int, steps ...int64) {
	w := r.Resume("l", epoch)
	w.Rank, w.Ranks, w.Options.Workers = rank, 2, 1
	for _, step := range steps {
		p, err := w.Publish(ctx, step, shard(epoch, step, rank), noon)
		if err == nil && p.Complete {
			g.mu.Lock()
			id, _, _ := strings.Cut(p.ID, "_")
			g.complete[id] = true
			g.mu.Unlock()
		}
	}
}

func (g *gangScene) saves(epoch uint64, rank int, steps ...int64) func(context.Context, store.Store) {
	return func(ctx context.Context, s store.Store) {
		if r, err := repository.Open(ctx, s, false); err == nil {
			g.member(ctx, r, epoch, rank, steps...)
		}
	}
}

// restarts takes a new epoch and saves with it as both ranks, one after the other.
func (g *gangScene) restarts(steps ...int64) func(context.Context, store.Store) {
	return func(ctx context.Context, s store.Store) {
		r, err := repository.Open(ctx, s, false)
		if err != nil {
			return
		}
		w, err := r.Claim(ctx, "l", "coordinator", noon)
		if err != nil {
			return
		}
		for _, step := range steps {
			for rank := range 2 {
				g.member(ctx, r, w.Epoch, rank, step)
			}
		}
	}
}

func (g *gangScene) collects(ctx context.Context, s store.Store) {
	if r, err := repository.Open(ctx, s, false); err == nil {
		_, _ = r.Collect(ctx, "l", repository.Retention{Last: 2}, repository.CollectOptions{}) // what it does is looked at
	}
}

// reads looks at the newest snapshot again and again: it must be whole, and never go back.
func (g *gangScene) reads(ctx context.Context, s store.Store) {
	r, err := repository.Open(ctx, s, false)
	if err != nil {
		return
	}
	for range 3 {
		list, err := r.Snapshots(ctx, "l")
		if err != nil || len(list) == 0 {
			return
		}
		for rank, p := range list[0].Parts() {
			m, err := r.Manifest(ctx, p)
			if err == nil && (m.Epoch != list[0].Epoch || m.Step != list[0].Step || m.Rank != rank || m.Ranks != 2) {
				g.t.Errorf("part %s of %+v is %+v", p.ID, list[0], m)
			}
			if err != nil && !errors.Is(err, errDead) && !errors.Is(err, repository.ErrNoSnapshot) {
				g.t.Errorf("part %s: %v", p.ID, err)
			}
		}
	}
}

// check holds the store to its promises: what counts is whole, of one epoch, and as it was published; what was reported
// complete counts, unless two newer ones do.
func (g *gangScene) check(s store.Store) error {
	ctx := g.t.Context()
	r, err := repository.Open(ctx, s, false)
	if err != nil {
		return err
	}
	rep, err := r.Verify(ctx, "", true, nil)
	if err != nil {
		return err
	}
	if len(rep.Damaged) > 0 {
		return fmt.Errorf("damage: %+v", rep.Damaged)
	}
	list, err := r.Snapshots(ctx, "l")
	if err != nil {
		return err
	}
	for _, sn := range list {
		if sn.Ranks != 2 {
			return fmt.Errorf("%+v is not of two ranks", sn)
		}
		for rank, p := range sn.Parts() {
			got, err := content(g.t, r, p)
			if err != nil {
				return err
			}
			if want := shard(sn.Epoch, sn.Step, rank); !maps.Equal(got.files, want.files) {
				return fmt.Errorf("part %s has another content", p.ID)
			}
		}
	}
	for id := range g.complete {
		newer := slices.IndexFunc(list, func(sn repository.Snapshot) bool { return sn.ID <= id })
		if newer < 0 {
			newer = len(list)
		}
		if newer < 2 && (newer == len(list) || list[newer].ID != id) {
			return fmt.Errorf("snapshot %s was complete and is gone, %d are newer: %v", id, newer, list)
		}
	}
	return nil
}

// afterwards restarts the gang, collects, and finds nothing left by the dead.
func (g *gangScene) afterwards(s store.Store) error {
	g.restarts(1000, 1001)(g.t.Context(), s)
	if err := g.check(s); err != nil {
		return fmt.Errorf("after a restart: %w", err)
	}
	r, err := repository.Open(g.t.Context(), s, false)
	if err != nil {
		return err
	}
	if _, err := r.Collect(g.t.Context(), "l", repository.Retention{Last: 2}, repository.CollectOptions{}); err != nil {
		return err
	}
	if err := g.check(s); err != nil {
		return fmt.Errorf("after another collection: %w", err)
	}
	if n := len(g.complete); n < 2 {
		return fmt.Errorf("the restarted gang completed %d steps", n)
	}
	keys, err := s.List(g.t.Context(), "lineages/l/")
	if err != nil {
		return err
	}
	for _, k := range keys {
		for _, kind := range []string{"/@saves/", "/@stale/", "/@removed/"} {
			if strings.Contains(k.Key, kind) {
				return fmt.Errorf("%s was left", k.Key)
			}
		}
		if strings.Contains(k.Key, "/@snapshots/") && !strings.Contains(k.Key, "-00000000100") {
			return fmt.Errorf("%s was left", k.Key)
		}
	}
	return nil
}

// begun is a store with an epoch of a gang of two ranks and one complete step, 1; rank 0 has saved step 2 as well. What
// more is saved after that, by rank and step.
func begun(t *testing.T, more ...[2]int) *storetest.Memory {
	t.Helper()
	mem := &storetest.Memory{}
	r, err := repository.Open(t.Context(), mem, true)
	must.NoError(t, err)
	w := claim(t, r, "l")
	for _, at := range append([][2]int{{0, 1}, {1, 1}, {0, 2}}, more...) {
		m := r.Resume("l", w.Epoch)
		m.Rank, m.Ranks = at[0], 2
		publish(t, m, int64(at[1]), shard(1, int64(at[1]), at[0]))
	}
	return mem
}

func (g *gangScene) play(from *storetest.Memory, choose choice, actors ...func(context.Context, store.Store)) int {
	g.t.Helper()
	s := cloneOf(g.t, from)
	g.complete = map[string]bool{"00000001-000000000001": true}
	trace := act(g.t, s, choose, actors...)
	err := g.check(s)
	if err == nil {
		err = g.afterwards(s)
	}
	if err != nil {
		g.t.Fatalf("%v\n%s", err, strings.Join(trace, "\n"))
	}
	return len(trace)
}

// stride is how many calls apart a test stops its actors; with SPOTTER_SOAK in the environment it stops them at every one.
func stride(n int) int {
	if os.Getenv("SPOTTER_SOAK") != "" {
		return 1
	}
	return n
}

// A rank of a superseded gang, stopped at every one of its calls while the gang is started again as a whole; and the other
// way round.
func TestGangSuperseded(t *testing.T) {
	warm(t)
	from := begun(t)
	for first := range 2 {
		for n := 1; ; {
			g := &gangScene{t: t}
			if total := g.play(from, spells(first, n), g.saves(1, 1, 2), g.restarts(3)); n > total {
				break
			}
			if n++; first == 1 && n > 15 { // the claim's own calls are the first
				n += stride(30) - 1
			}
		}
	}
}

// A collection beside a rank that comes late with its part of a step: one goes on for any number of calls, then the other.
func TestGangCollected(t *testing.T) {
	warm(t)
	from := begun(t, [2]int{0, 3}, [2]int{1, 3}) // step 2 is what is collected, or else completed
	kept, removed := 0, 0
	for first := range 2 {
		for n := 1; ; n += stride(8) {
			most := 0
			for m := 1 + n%stride(13); ; m += stride(13) {
				g := &gangScene{t: t}
				total := g.play(from, spells(first, n, m), g.saves(1, 1, 2), g.collects)
				if g.complete["00000001-000000000002"] {
					kept++
				} else {
					removed++
				}
				if most = max(most, total); n+m > total {
					break
				}
			}
			if n > most {
				break
			}
		}
	}
	must.Positive(t, kept)
	must.Positive(t, removed)
	t.Logf("completed %d times, removed %d times", kept, removed)
}

// A rank dies before and after each of its calls; the gang is started again, and nothing is wrong.
func TestGangCrash(t *testing.T) {
	warm(t)
	from := begun(t)
	for _, v := range []verdict{dieBefore, dieAfter} {
		for n := 0; ; n += stride(3) {
			g := &gangScene{t: t}
			total := g.play(from, func(i int, waiting []int) (int, verdict) {
				if i == n {
					return waiting[0], v
				}
				return waiting[0], goOn
			}, g.saves(1, 1, 2, 3))
			if n >= total {
				break
			}
		}
	}
}

// Ranks, coordinators and collections in any order of their calls, some of which die.
func TestGangRandom(t *testing.T) {
	warm(t)
	from := begun(t, [2]int{0, 3}, [2]int{1, 3})
	for seed := range uint64(budget(t, 20)) {
		g := &gangScene{t: t}
		g.play(from, wild(rand.New(rand.NewPCG(seed, 99))),
			g.saves(1, 0, 4, 5), g.saves(1, 1, 2, 4, 5), g.restarts(6), g.restarts(7), g.collects, g.collects, g.reads)
	}
}

// A rank that begins does not take the intents of another rank for those of a dead one.
func TestGangIntents(t *testing.T) {
	mem := begun(t)
	faulty := storetest.NewFaulty(mem, storetest.Fault{Op: storetest.Put, Key: "lineages/l/@snapshots/", Kind: storetest.Before, Err: errDead})
	r, err := repository.Open(t.Context(), faulty, false)
	must.NoError(t, err)
	for rank := range 2 {
		w := r.Resume("l", 1)
		w.Rank, w.Ranks = rank, 2
		_, err = w.Publish(t.Context(), 4, shard(1, 4, rank), noon)
		must.ErrorIs(t, err, errDead)
		keys, err := mem.List(t.Context(), "lineages/l/@saves/")
		must.NoError(t, err)
		must.Len(t, rank+1, keys)
	}
	// Nor does a collection take their packs.
	before, err := mem.List(t.Context(), "lineages/l/@packs/")
	must.NoError(t, err)
	_, err = r.Collect(t.Context(), "l", repository.Retention{Last: 1}, repository.CollectOptions{})
	must.NoError(t, err)
	after, err := mem.List(t.Context(), "lineages/l/@packs/")
	must.NoError(t, err)
	must.Eq(t, before, after)
}

// Two coordinators at once get different epochs, and only the gang of the later one completes anything after that.
func TestGangCoordinators(t *testing.T) {
	warm(t)
	from := begun(t)
	for n := range 12 {
		s := cloneOf(t, from)
		epochs := [2]uint64{}
		coordinate := func(i int) func(context.Context, store.Store) {
			return func(ctx context.Context, s store.Store) {
				if r, err := repository.Open(ctx, s, false); err == nil {
					if w, err := r.Claim(ctx, "l", "coordinator", noon); err == nil {
						epochs[i] = w.Epoch
					}
				}
			}
		}
		act(t, s, spells(0, n, n), coordinate(0), coordinate(1))
		must.Eq(t, []uint64{2, 3}, slices.Sorted(slices.Values(epochs[:])))
		r, err := repository.Open(t.Context(), s, false)
		must.NoError(t, err)
		early := r.Resume("l", 2)
		early.Ranks = 2
		_, err = early.Publish(t.Context(), 7, shard(2, 7, 0), noon)
		must.ErrorIs(t, err, repository.ErrSuperseded)
	}
}

// A gang restores the same step with every rank, whichever rank's part cannot be restored.
func TestGangNewest(t *testing.T) {
	mem := begun(t)
	r, err := repository.Open(t.Context(), mem, false)
	must.NoError(t, err)
	w := r.Resume("l", 1)
	w.Rank, w.Ranks = 1, 2
	p := publish(t, w, 2, shard(1, 2, 1))
	must.True(t, p.Complete)
	target := func(rank, ranks int) repository.Target {
		d := into(t.TempDir())
		d.Rank, d.Ranks = rank, ranks
		return d
	}
	for rank := range 2 {
		d := target(rank, 2)
		m, damaged, err := r.Newest(t.Context(), "l", d)
		must.NoError(t, err)
		must.SliceEmpty(t, damaged)
		must.EqOp(t, 2, m.Step)
		must.EqOp(t, rank, m.Rank)
		must.Eq(t, shard(1, 2, rank).files, contents(t, d.Dir+"/c2"))
	}
	_, _, err = r.Newest(t.Context(), "l", target(0, 1))
	var other *repository.RanksError
	must.ErrorAs(t, err, &other)
	must.EqOp(t, 2, other.Have)
	must.EqOp(t, 1, other.Want)
	_, _, err = r.Newest(t.Context(), "l", target(3, 4))
	must.ErrorIs(t, err, repository.ErrRanks)

	// The manifest of rank 1 is damaged: both pass over the step.
	key := "lineages/l/@snapshots/" + p.ID
	damage := func(b []byte) []byte { b[10] ^= 1; return b }
	must.True(t, mem.Damage(key, damage))
	for rank := range 2 {
		m, damaged, err := r.Newest(t.Context(), "l", target(rank, 2))
		must.NoError(t, err)
		must.Len(t, 1, damaged)
		must.EqOp(t, p.ID, damaged[0].Snapshot)
		must.EqOp(t, 1, m.Step)
	}
	must.True(t, mem.Damage(key, damage)) // mended

	// A pack of rank 1 is damaged inside: it says so, and does not go on from another step than rank 0.
	m, err := r.Manifest(t.Context(), repository.Snapshot{Lineage: "l", ID: p.ID, Epoch: 1, Step: 2, Ranks: 2})
	must.NoError(t, err)
	must.True(t, mem.Damage("lineages/l/@packs/"+m.Packs[0].Name, func(b []byte) []byte { b[0] ^= 1; return b }))
	fresh, err := repository.Open(t.Context(), mem, false)
	must.NoError(t, err)
	m, damaged, err := fresh.Newest(t.Context(), "l", target(1, 2))
	var d *repository.DamageError
	must.ErrorAs(t, err, &d)
	must.Nil(t, m)
	must.Len(t, 1, damaged)
	must.ErrorContains(t, err, "all ranks must restore the same step")

	// One is missing: rank 0 sees that too.
	must.NoError(t, mem.Delete(t.Context(), d.Object))
	m, _, err = fresh.Newest(t.Context(), "l", target(0, 2))
	must.NoError(t, err)
	must.EqOp(t, 1, m.Step)
}

// Replicas of one task in two regions are lineages of their own: they may read each other's snapshots, and neither ends the
// other.
func TestRegions(t *testing.T) {
	r, _ := openDisk(t)
	east, west := claim(t, r, "train@east"), claim(t, r, "train@west")
	publish(t, east, 10, small(10))
	publish(t, west, 5, small(5))
	publish(t, east, 20, small(20))
	list, err := r.Snapshots(t.Context(), "train@east")
	must.NoError(t, err)
	must.Len(t, 2, list)
	d := into(t.TempDir())
	m, err := r.Restore(t.Context(), list[0], d) // west goes on from what east has
	must.NoError(t, err)
	must.EqOp(t, "train@east", m.Lineage)
	publish(t, west, 20, small(20))
	_, err = east.Publish(t.Context(), 30, small(30), noon)
	must.NoError(t, err)
	list, err = r.Snapshots(t.Context(), "train")
	must.NoError(t, err)
	must.SliceEmpty(t, list)
}

// A copy of a gang's snapshot has all its parts, and counts once they are there.
func TestGangCopy(t *testing.T) {
	from := begun(t)
	a, err := repository.Open(t.Context(), from, false)
	must.NoError(t, err)
	list, err := a.Snapshots(t.Context(), "l")
	must.NoError(t, err)
	must.Len(t, 1, list)
	calls := storetest.NewFaulty(&storetest.Memory{})
	b, err := repository.Open(t.Context(), calls, true)
	must.NoError(t, err)
	calls.Set()
	plan, err := repository.Missing(t.Context(), a, b, list[0])
	must.NoError(t, err)
	c, err := repository.Copy(t.Context(), a, b, list[0], repository.CopyOptions{})
	must.NoError(t, err)
	must.Eq(t, plan, c)
	must.EqOp(t, 2, c.Count)
	n := len(calls.Calls())
	again, err := repository.Copy(t.Context(), a, b, list[0], repository.CopyOptions{})
	must.NoError(t, err)
	must.True(t, again.There)
	must.EqOp(t, 0, again.Count)
	for i := 1; i <= n; i++ { // it fails at any call, and goes on when it is repeated
		mem := &storetest.Memory{}
		faulty := storetest.NewFaulty(mem)
		b, err := repository.Open(t.Context(), faulty, true)
		must.NoError(t, err)
		faulty.Set(storetest.Fault{N: i, Kind: storetest.After, Err: errDead})
		if _, err := repository.Copy(t.Context(), a, b, list[0], repository.CopyOptions{}); err == nil {
			continue
		}
		faulty.Set()
		there, err := b.Snapshots(t.Context(), "l")
		must.NoError(t, err)
		if len(there) == 0 { // a collection in between takes nothing away
			_, err = b.Collect(t.Context(), "l", repository.Retention{Last: 1}, repository.CollectOptions{})
			if err != nil {
				must.ErrorIs(t, err, repository.ErrClaiming)
			}
		}
		_, err = repository.Copy(t.Context(), a, b, list[0], repository.CopyOptions{})
		must.NoError(t, err, must.Sprintf("call %d", i))
		there, err = b.Snapshots(t.Context(), "l")
		must.NoError(t, err)
		must.Eq(t, list, there)
		rep, err := b.Verify(t.Context(), "", true, nil)
		must.NoError(t, err)
		must.SliceEmpty(t, rep.Damaged)
	}
}
