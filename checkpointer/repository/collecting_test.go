package repository_test

import (
	"context"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-spotter/checkpointer/delta"
	"nomad-spotter/checkpointer/repository"
	"nomad-spotter/checkpointer/store"
	"nomad-spotter/checkpointer/store/storetest"
)

// stopped is a store of which one call waits: the first Delete of a key that has a text in it.
type stopped struct {
	store.Store
	del string
	f   func()
}

func (s *stopped) hit(text, key string) {
	if f := s.f; f != nil && text != "" && strings.Contains(key, text) {
		s.f = nil
		f()
	}
}

func (s *stopped) Delete(ctx context.Context, key string) error {
	s.hit(s.del, key)
	return s.Store.Delete(ctx, key)
}

// collectAt collects and does something before the first deletion of an object of a kind.
func collectAt(t *testing.T, mem store.Store, kind string, now func() time.Time, f func()) error {
	t.Helper()
	did := false
	r, err := repository.Open(t.Context(), &stopped{Store: mem, del: kind, f: func() { did = true; f() }}, false)
	must.NoError(t, err)
	_, err = r.Collect(t.Context(), "l", repository.Retention{Last: 1}, repository.CollectOptions{By: "the first", Now: now})
	must.True(t, did)
	return err
}

func collectAgain(t *testing.T, mem store.Store, now func() time.Time) error {
	t.Helper()
	_, err := openMemory(t, mem).Collect(t.Context(), "l", repository.Retention{Last: 1}, repository.CollectOptions{Now: now})
	return err
}

func marks(t *testing.T, mem store.Store) int {
	t.Helper()
	list, err := mem.List(t.Context(), "lineages/l/@collecting/")
	must.NoError(t, err)
	return len(list)
}

// Of two collections one gives way, whatever the first is about to do.
func TestCollect_oneAtATime(t *testing.T) {
	for _, kind := range []string{"@snapshots/", "@packs/", "@removed/"} {
		mem := &storetest.Memory{}
		w := claim(t, openMemory(t, mem), "l")
		w.Options.Effort = delta.None
		for s := range int64(3) {
			publish(t, w, s, small(s))
		}
		must.NoError(t, collectAt(t, mem, kind, nil, func() {
			err := collectAgain(t, mem, nil)
			must.ErrorIs(t, err, repository.ErrCollecting)
			must.ErrorContains(t, err, "the first, since ")
			must.EqOp(t, 1, marks(t, mem))
		}))
		must.EqOp(t, 0, marks(t, mem))
		must.NoError(t, collectAgain(t, mem, nil))
		must.Len(t, 1, snapshots(t, openMemory(t, mem)))
		intact(t, mem)
	}
}

// A collection that was held up removes nothing any more long before others stop waiting for it.
func TestCollect_heldUp(t *testing.T) {
	mem := &storetest.Memory{}
	w := claim(t, openMemory(t, mem), "l")
	for s := range int64(3) {
		publish(t, w, s, small(s))
	}
	clock := noon
	now := func() time.Time { return clock }
	later := func() time.Time { return noon.Add(11 * time.Hour) }
	before, err := mem.List(t.Context(), "lineages/l/@packs/")
	must.NoError(t, err)
	f := storetest.NewFaulty(mem, storetest.Fault{Op: storetest.Delete, Key: "lineages/l/@collecting/", Kind: storetest.Before, Err: errDead})
	err = collectAt(t, f, "@snapshots/", now, func() {
		clock = clock.Add(2*time.Hour + time.Second)
		must.ErrorIs(t, collectAgain(t, mem, later), repository.ErrCollecting)
	})
	must.ErrorContains(t, err, "held up for too long")
	must.ErrorIs(t, err, errDead) // it could not take its mark back
	after, err := mem.List(t.Context(), "lineages/l/@packs/")
	must.NoError(t, err)
	must.Eq(t, before, after)
	must.EqOp(t, 1, marks(t, mem))
	must.NoError(t, collectAgain(t, mem, later)) // this process knows that it is over
	must.EqOp(t, 0, marks(t, mem))
	intact(t, mem)
}

// The mark of a collection that died is waited for, but not for ever; one that cannot be read until it is dropped.
func TestCollect_dead(t *testing.T) {
	mem := prepared(t)
	mark := func(content string) {
		_, err := mem.Put(t.Context(), "lineages/l/@collecting/DEAD", strings.NewReader(content))
		must.NoError(t, err)
	}
	mark(`{"by":"x","at":"2026-03-01T12:00:00Z","process":"another"}`)
	at := func(d time.Duration) func() time.Time { return func() time.Time { return noon.Add(d) } }
	must.ErrorIs(t, collectAgain(t, mem, at(12*time.Hour-1)), repository.ErrCollecting)
	must.NoError(t, collectAgain(t, mem, at(12*time.Hour)))
	must.EqOp(t, 0, marks(t, mem))
	mark("{")
	must.ErrorIs(t, collectAgain(t, mem, nil), repository.ErrCollecting)
	must.NoError(t, openMemory(t, mem).DropDead(t.Context(), "l"))
	must.NoError(t, collectAgain(t, mem, nil))
}

// A claim that was held up before it recorded what it starts from comes to the same as the later one that completed it:
// nothing that was collected in between is missed.
func TestClaim_late(t *testing.T) {
	for _, kind := range []string{"@starts/00000002", "@seen/00000002"} {
		mem := &storetest.Memory{}
		publish(t, claim(t, openMemory(t, mem), "l"), 4, small(4))
		atManifest, goManifest := make(chan struct{}), make(chan struct{})
		atClaim, goClaim := make(chan struct{}), make(chan struct{})
		saved, claimed := make(chan error, 1), make(chan error, 1)
		held := func(text string, at, on chan struct{}) (*repository.Repository, error) {
			return repository.Open(t.Context(), &hooked{Store: mem, text: text, puts: func() { close(at); <-on }}, false)
		}
		go func() {
			r, err := held("@snapshots/00000001-000000000005", atManifest, goManifest)
			if err == nil {
				_, err = r.Resume("l", 1).Publish(t.Context(), 5, small(5), noon)
			}
			saved <- err
		}()
		<-atManifest
		go func() {
			r, err := held(kind, atClaim, goClaim)
			if err == nil {
				_, err = r.Claim(t.Context(), "l", "two", noon)
			}
			claimed <- err
		}()
		<-atClaim
		close(goManifest)
		must.ErrorIs(t, <-saved, repository.ErrSuperseded)
		must.ErrorIs(t, collectAgain(t, mem, nil), repository.ErrClaiming)
		claim(t, openMemory(t, mem), "l")
		before := snapshots(t, openMemory(t, mem))
		must.NoError(t, collectAgain(t, mem, nil))
		close(goClaim)
		must.NoError(t, <-claimed)
		must.Eq(t, before[:1], snapshots(t, openMemory(t, mem)))
		intact(t, mem)
	}
}

// An intent that an attempt left which died at once says nothing of packs that were there before it.
func TestPublish_packsBeforeIntent(t *testing.T) {
	mem := &storetest.Memory{}
	faulty := storetest.NewFaulty(mem)
	r, err := repository.Open(t.Context(), faulty, true)
	must.NoError(t, err)
	none := func(w *repository.Writer) *repository.Writer { w.Options.Effort = delta.None; return w }
	w := none(claim(t, r, "l"))
	faulty.Set(storetest.Fault{Op: storetest.Put, Key: "lineages/l/@snapshots/", Kind: storetest.Before, Err: errDead})
	_, err = w.Publish(t.Context(), 4, small(4), noon)
	must.ErrorIs(t, err, errDead)
	faulty.Set()
	publish(t, w, 5, small(5)) // drops the intent of 4, whose pack stays
	must.NoError(t, collectAt(t, mem, "@packs/00000001-000000000004", nil, func() {
		f := storetest.NewFaulty(mem, storetest.Fault{Op: storetest.Stat, Key: "lineages/l/@removed/", Kind: storetest.Before, Err: errDead})
		rf, err := repository.Open(t.Context(), f, false)
		must.NoError(t, err)
		_, err = none(rf.Resume("l", 1)).Publish(t.Context(), 4, small(4), noon)
		must.ErrorIs(t, err, errDead)
		publish(t, none(openMemory(t, mem).Resume("l", 1)), 4, small(4))
	}))
	must.Len(t, 2, snapshots(t, openMemory(t, mem)))
	intact(t, mem)
}

// Epochs go on from the highest one of which anything tells, and a writer is superseded by it, when objects got lost.
func TestClaim_lost(t *testing.T) {
	for _, lost := range []string{"@epochs/", "@starts/", "@seen/"} {
		mem := &storetest.Memory{}
		for e := range int64(3) {
			publish(t, claim(t, openMemory(t, mem), "l"), e, small(e))
		}
		list, err := mem.List(t.Context(), "lineages/l/"+lost)
		must.NoError(t, err)
		must.Len(t, 3, list)
		for _, o := range list {
			must.NoError(t, mem.Delete(t.Context(), o.Key))
		}
		rep, err := openMemory(t, mem).Verify(t.Context(), "", false, nil)
		must.NoError(t, err)
		var damaged []string
		for _, d := range rep.Damaged {
			damaged = append(damaged, d.Object)
			must.StrContains(t, d.Reason, "missing")
		}
		var want []string
		for _, o := range list {
			id, _, _ := strings.Cut(path.Base(o.Key), "-") // what comes after it is in a name that is gone
			want = append(want, "lineages/l/"+lost+id)
		}
		if lost == "@starts/" { // the other record tells the same
			want = nil
		}
		must.Eq(t, want, damaged)
		_, err = openMemory(t, mem).Resume("l", 2).Publish(t.Context(), 9, small(9), noon)
		must.ErrorIs(t, err, repository.ErrSuperseded)
		w := claim(t, openMemory(t, mem), "l")
		must.EqOp(t, 4, w.Epoch)
		publish(t, w, 10, small(10))
		must.EqOp(t, "00000004-000000000010", snapshots(t, openMemory(t, mem))[0].ID)
		must.NoError(t, collectAgain(t, mem, nil))
		intact(t, mem)
	}
}
