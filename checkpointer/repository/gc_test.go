package repository_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/shoenig/test/must"

	"nomad-spotter/checkpointer/repository"
	"nomad-spotter/checkpointer/store"
	"nomad-spotter/checkpointer/store/storetest"
)

// scene is a store on which writers and collectors meet.
type scene struct {
	t       *testing.T
	keep    repository.Retention
	mu      sync.Mutex
	durable map[string]int64 // reported durable: snapshot to step
}

// prepared is a repository with four snapshots of epoch 1, and what saves left that were cut short: of step 5, to be
// tried again, and of step 4's time.
func prepared(t *testing.T) *storetest.Memory {
	t.Helper()
	mem := &storetest.Memory{}
	faulty := storetest.NewFaulty(mem)
	r, err := repository.Open(t.Context(), faulty, true)
	must.NoError(t, err)
	w := claim(t, r, "l")
	for step := range int64(5) {
		if step == 4 {
			faulty.Set(storetest.Fault{Op: storetest.Put, Key: "lineages/l/@snapshots/", Kind: storetest.Before, Err: errDead})
		}
		_, err := w.Publish(t.Context(), step, small(step), noon)
		must.True(t, errors.Is(err, errDead) == (step == 4))
	}
	return mem
}

func (sc *scene) report(p repository.Published, step int64) {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	sc.durable[p.ID] = step
}

// saves publishes steps in the epoch that was claimed already.
func (sc *scene) saves(epoch uint64, steps ...int64) func(context.Context, store.Store) {
	return func(ctx context.Context, s store.Store) {
		r, err := repository.Open(ctx, s, false)
		if err != nil {
			return
		}
		sc.publish(ctx, r.Resume("l", epoch), steps)
	}
}

// claims does so in an epoch of its own.
func (sc *scene) claims(steps ...int64) func(context.Context, store.Store) {
	return func(ctx context.Context, s store.Store) {
		r, err := repository.Open(ctx, s, false)
		if err != nil {
			return
		}
		w, err := r.Claim(ctx, "l", "test", noon)
		if err != nil {
			return
		}
		sc.publish(ctx, w, steps)
	}
}

func (sc *scene) publish(ctx context.Context, w *repository.Writer, steps []int64) {
	w.Options.Workers = 1
	for _, step := range steps {
		p, err := w.Publish(ctx, step, small(step), noon)
		if err != nil {
			continue // the next step may do better
		}
		sc.report(p, step)
	}
}

func (sc *scene) collects(ctx context.Context, s store.Store) {
	r, err := repository.Open(ctx, s, false)
	if err != nil {
		return
	}
	_, _ = r.Collect(ctx, "l", sc.keep, repository.CollectOptions{}) // what it says does not matter, what it does is looked at
}

// check holds the store to its promises: every snapshot is whole and what was published; of those reported durable, only
// ones with enough newer ones are gone.
func (sc *scene) check(s store.Store) error {
	ctx := sc.t.Context()
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
		got, err := content(sc.t, r, sn)
		if err != nil {
			return err
		}
		if want := small(sn.Step); got.name != want.name || !maps.Equal(got.files, want.files) {
			return fmt.Errorf("snapshot %s has another content", sn.ID)
		}
	}
	for id := range sc.durable {
		newer := slices.IndexFunc(list, func(sn repository.Snapshot) bool { return sn.ID <= id })
		if newer < 0 {
			newer = len(list)
		}
		if newer < max(sc.keep.Last, 1) && (newer == len(list) || list[newer].ID != id) {
			return fmt.Errorf("durable snapshot %s is gone, %d are newer: %v", id, newer, list)
		}
	}
	return nil
}

// afterwards does what comes after: another epoch saves, a collection finds nothing left by the dead.
func (sc *scene) afterwards(s store.Store) error {
	ctx := sc.t.Context()
	r, err := repository.Open(ctx, s, false)
	if err != nil {
		return err
	}
	w, err := r.Claim(ctx, "l", "later", noon)
	if err != nil {
		return err
	}
	const step = 1000
	p, err := w.Publish(ctx, step, small(step), noon)
	if err != nil {
		return err
	}
	sc.report(p, step)
	if err := sc.check(s); err != nil {
		return fmt.Errorf("after another save: %w", err)
	}
	if _, err := r.Collect(ctx, "l", sc.keep, repository.CollectOptions{}); err != nil {
		return err
	}
	if err := sc.check(s); err != nil {
		return fmt.Errorf("after another collection: %w", err)
	}
	return sc.clean(r, s)
}

// clean tells whether the store holds what its snapshots need and nothing else.
func (sc *scene) clean(r *repository.Repository, s store.Store) error {
	ctx := sc.t.Context()
	list, err := r.Snapshots(ctx, "l")
	if err != nil {
		return err
	}
	needed := map[string]bool{}
	for _, sn := range list {
		m, err := r.Manifest(ctx, sn)
		if err != nil {
			return err
		}
		for _, p := range m.Packs {
			needed["lineages/l/@packs/"+p.Name] = true
		}
	}
	objects, err := s.List(ctx, "lineages/l/")
	if err != nil {
		return err
	}
	for _, o := range objects {
		kind, _, _ := strings.Cut(strings.TrimPrefix(o.Key, "lineages/l/"), "/")
		if kind == "@packs" && !needed[o.Key] || kind == "@saves" {
			return fmt.Errorf("%s was left", o.Key)
		}
	}
	return nil
}

// cast are actors that meet in a scene.
type cast struct {
	name   string
	actors func(sc *scene) []func(context.Context, store.Store)
}

var casts = []cast{
	{"save and collection", func(sc *scene) []func(context.Context, store.Store) {
		return []func(context.Context, store.Store){sc.saves(1, 4, 5), sc.collects}
	}},
	{"retry of an abandoned step and collection", func(sc *scene) []func(context.Context, store.Store) {
		return []func(context.Context, store.Store){sc.saves(1, 5, 4), sc.collects}
	}},
	{"the same again and collection", func(sc *scene) []func(context.Context, store.Store) {
		return []func(context.Context, store.Store){sc.saves(1, 2, 4), sc.collects}
	}},
	{"next epoch and collection", func(sc *scene) []func(context.Context, store.Store) {
		return []func(context.Context, store.Store){sc.claims(5, 6), sc.collects}
	}},
	{"two epochs and collection", func(sc *scene) []func(context.Context, store.Store) {
		return []func(context.Context, store.Store){sc.saves(1, 4, 6), sc.claims(5), sc.collects}
	}},
	{"two epochs, two collections", func(sc *scene) []func(context.Context, store.Store) {
		return []func(context.Context, store.Store){sc.saves(1, 6, 7), sc.claims(5), sc.collects, sc.collects}
	}},
}

// play has a cast meet on a copy of a store, and checks what comes of it.
func play(t *testing.T, from *storetest.Memory, c cast, keep repository.Retention, choose choice) (turns int) {
	t.Helper()
	s := cloneOf(t, from)
	sc := &scene{t: t, keep: keep, durable: map[string]int64{}}
	for step := range int64(4) {
		sc.durable[fmt.Sprintf("%08d-%012d", 1, step)] = step
	}
	trace := act(t, s, choose, c.actors(sc)...)
	err := sc.check(s)
	if err == nil {
		err = sc.afterwards(s)
	}
	if err != nil {
		t.Fatalf("%s: %v\n%s", c.name, err, strings.Join(trace, "\n"))
	}
	return len(trace)
}

// A collection beside saves: one goes on for any number of calls, then the other for any number, then they end one after
// the other. A normal run tries a part of these histories, spread evenly; with a budget all are tried.
func TestCollectInterleaved(t *testing.T) {
	warm(t)
	from := prepared(t)
	for _, c := range casts[:4] {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			total := play(t, from, c, repository.Retention{Last: 1}, spells(0))
			all := 2 * total * total
			runs := min(budget(t, 40), all)
			for i := range runs {
				k := i * all / runs
				play(t, from, c, repository.Retention{Last: 1}, spells(k%2, k/2%total, k/2/total))
			}
			t.Logf("%d of %d interleavings of %d calls", runs, all, total)
		})
	}
}

// Any number of saves and collections, in any order of their calls, some of which die.
func TestCollectRandom(t *testing.T) {
	warm(t)
	from := prepared(t)
	for i, c := range casts {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(budget(t, 30)) {
				r := rand.New(rand.NewPCG(seed, uint64(i)))
				play(t, from, c, repository.Retention{Last: 1 + r.IntN(2)}, wild(r))
			}
		})
	}
}

// wild picks at random who goes on, for some calls each time, and lets somebody die now and then.
func wild(r *rand.Rand) choice {
	actor, left := 0, 0
	deadly := []int{0, 0, 20, 60}[r.IntN(4)]
	steady := 1 + r.IntN(12)
	return func(_ int, waiting []int) (int, verdict) {
		if left--; left < 0 || !slices.Contains(waiting, actor) {
			actor, left = waiting[r.IntN(len(waiting))], r.IntN(steady)
		}
		if deadly > 0 && r.IntN(deadly) == 0 {
			return actor, verdict(1 + r.IntN(2))
		}
		return actor, goOn
	}
}
