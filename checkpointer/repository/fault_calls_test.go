package repository_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/shoenig/test/must"

	"nomad-spotter/checkpointer/repository"
	"nomad-spotter/checkpointer/store"
	"nomad-spotter/checkpointer/store/storetest"
)

// ill is one way for a call to go wrong. One that lies gives or keeps other bytes and says nothing.
type ill struct {
	name  string
	fault storetest.Fault
	lies  bool
}

var ills = []ill{
	{"fails before", storetest.Fault{Kind: storetest.Before, Err: errors.New("503 slow down")}, false},
	{"fails after", storetest.Fault{Kind: storetest.After, Err: errors.New("connection reset")}, false},
	{"is full", storetest.Fault{Kind: storetest.Truncate, At: 5, Err: store.ErrFull}, false},
	{"is refused", storetest.Fault{Kind: storetest.Before, Err: store.ErrCredentials}, false},
	{"takes for ever", storetest.Fault{Kind: storetest.Slow, Delay: time.Hour}, false},
	{"ends early", storetest.Fault{Kind: storetest.Truncate, At: 40}, true},
	{"flips a bit", storetest.Fault{Kind: storetest.Flip, At: 33}, true},
	{"flips the first bit", storetest.Fault{Kind: storetest.Flip, At: 0}, true},
}

// timed calls f with a context that ends after a minute, of a clock that does not wait.
func timed(t *testing.T, f func(ctx context.Context)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		f(ctx)
	})
}

// saves3 opens the repository of a store, claims and publishes three steps, each tried twice; it returns what was reported
// durable. What the store grew by is what was reported, when nothing failed.
func saves3(ctx context.Context, s store.Store, first int64) (durable map[string]int64, stored int64, failed error) {
	durable = map[string]int64{}
	r, err := repository.Open(ctx, s, true)
	if err != nil {
		return durable, 0, err
	}
	w, err := r.Claim(ctx, "l", "test", noon)
	if err != nil {
		return durable, 0, err
	}
	w.Options.Workers = 1
	for step := first; step < first+3; step++ {
		for range 2 {
			p, err := w.Publish(ctx, step, small(step), noon)
			if err == nil {
				durable[p.ID] = step
				stored += p.StoredBytes
				break
			}
			failed = err
		}
	}
	return durable, stored, failed
}

// whole fails the test unless every snapshot that is listed is what was published, and all that are wanted are listed.
func whole(t *testing.T, s store.Store, durable map[string]int64) {
	t.Helper()
	r, err := repository.Open(t.Context(), s, false)
	if len(durable) == 0 && errors.Is(err, store.ErrNotFound) {
		return // it never got so far
	}
	must.NoError(t, err)
	rep, err := r.Verify(t.Context(), "", true, nil)
	must.NoError(t, err)
	must.SliceEmpty(t, rep.Damaged)
	list, err := r.Snapshots(t.Context(), "l")
	must.NoError(t, err)
	left := maps.Clone(durable)
	for _, sn := range list {
		got, err := content(t, r, sn)
		must.NoError(t, err)
		must.Eq(t, small(sn.Step), got)
		delete(left, sn.ID)
	}
	must.MapEmpty(t, left, must.Sprint("durable snapshots are gone"))
}

// Every call of a save goes wrong in every way. What was reported durable is there afterwards, and saving goes on.
func TestSaveFaults(t *testing.T) {
	warm(t)
	for _, ill := range ills {
		t.Run(ill.name, func(t *testing.T) {
			t.Parallel()
			for n := 1; ; n++ {
				mem := &storetest.Memory{}
				ill.fault.N = n
				s := storetest.NewFaulty(mem, ill.fault)
				var durable map[string]int64
				var stored int64
				var failed error
				timed(t, func(ctx context.Context) { durable, stored, failed = saves3(ctx, s, 0) })
				calls := s.Calls()
				s.Set()
				wrote := n <= len(calls) && calls[n-1].Op == storetest.Put
				if ill.lies && wrote { // nothing can be promised but that it is noticed
					noticed(t, mem, calls[n-1].Key)
				} else {
					whole(t, mem, durable)
				}
				again, _, err := saves3(t.Context(), s, 3)
				if ill.lies && n <= len(calls) && (calls[n-1].Key == "spotter-repository.json" || strings.Contains(calls[n-1].Key, "/@authority/")) {
					continue // which store this is, or whose the lineage: that a person must look after
				}
				must.NoError(t, err)
				must.MapLen(t, 3, again)
				if !ill.lies || !wrote {
					maps.Copy(durable, again)
					whole(t, mem, durable)
				}
				if n > len(calls) {
					must.NoError(t, failed)
					must.MapLen(t, 6, durable)
					must.EqOp(t, held(t, mem)-grown(t, mem, 2), stored)
					must.Greater(t, 30, n)
					return
				}
			}
		})
	}
}

// grown is what the objects of an epoch take.
func grown(t *testing.T, s store.Store, epoch int) (n int64) {
	t.Helper()
	list, err := s.List(t.Context(), "")
	must.NoError(t, err)
	for _, e := range list {
		if strings.Contains(e.Key, fmt.Sprintf("/%08d", epoch)) {
			n += e.Size
		}
	}
	return n
}

// noticed fails the test if a restore yields other bytes than were saved, after the store has kept another object than it
// was given, or if damage is reported of something else.
func noticed(t *testing.T, s store.Store, key string) {
	t.Helper()
	r, err := repository.Open(t.Context(), s, false)
	if err != nil {
		return
	}
	list, err := r.Snapshots(t.Context(), "l")
	must.NoError(t, err)
	bad := map[string]bool{}
	for _, sn := range list {
		got, err := content(t, r, sn)
		var d *repository.DamageError
		if errors.As(err, &d) {
			must.EqOp(t, key, d.Object)
			bad[sn.ID] = true
			continue
		}
		must.NoError(t, err)
		must.Eq(t, small(sn.Step), got)
	}
	rep, err := r.Verify(t.Context(), "", false, nil)
	must.NoError(t, err)
	for _, d := range rep.Damaged {
		must.EqOp(t, key, d.Object)
		delete(bad, d.Snapshot)
	}
	must.MapEmpty(t, bad, must.Sprint("verify does not find what a restore finds"))
}

// Every call of a reader goes wrong in every way: it fails, reports damage, or has the right bytes, and changes nothing.
func TestReadFaults(t *testing.T) {
	warm(t)
	mem := &storetest.Memory{}
	durable, _, err := saves3(t.Context(), mem, 0)
	must.NoError(t, err)
	before := everything(t, mem)
	for _, ill := range ills {
		for n := 1; ; n++ {
			ill.fault.N = n
			s := storetest.NewFaulty(mem, ill.fault)
			timed(t, func(ctx context.Context) { err = reads(ctx, t, s) })
			var d *repository.DamageError
			must.True(t, n <= len(s.Calls()) || err == nil, must.Sprint(err))
			must.True(t, ill.lies || !errors.As(err, &d), must.Sprintf("%s is called damage: %v", ill.name, err))
			if n > len(s.Calls()) {
				break
			}
		}
	}
	must.Eq(t, before, everything(t, mem))
	whole(t, mem, durable)
}

// reads restores the newest snapshot and verifies all, and fails the test when that yields wrong bytes.
func reads(ctx context.Context, t *testing.T, s store.Store) error {
	t.Helper()
	r, err := repository.Open(ctx, s, false)
	if err != nil {
		return err
	}
	dir := t.TempDir()
	m, damaged, err := r.Newest(ctx, "l", into(dir))
	if m != nil {
		must.Eq(t, small(m.Step).files, contents(t, dir+"/"+m.Name))
	}
	if err != nil {
		return err
	}
	if len(damaged) > 0 {
		return &repository.DamageError{Damage: damaged[0]}
	}
	rep, err := r.Verify(ctx, "", true, nil)
	if err == nil && len(rep.Damaged) > 0 {
		err = &repository.DamageError{Damage: rep.Damaged[0]}
	}
	return err
}

// everything is what a store holds.
func everything(t *testing.T, s store.Store) map[string]string {
	t.Helper()
	out := map[string]string{}
	list, err := s.List(t.Context(), "")
	must.NoError(t, err)
	for _, e := range list {
		out[e.Key] = string(object(t, s, e.Key))
	}
	return out
}

// Every call of a collection goes wrong in every way: what is kept is whole, and the next one finishes the work.
func TestCollectFaults(t *testing.T) {
	warm(t)
	from := prepared(t)
	for _, ill := range ills {
		t.Run(ill.name, func(t *testing.T) {
			t.Parallel()
			for n := 1; ; n++ {
				mem := cloneOf(t, from)
				ill.fault.N = n
				s := storetest.NewFaulty(mem, ill.fault)
				sc := &scene{t: t, keep: repository.Retention{Last: 2}, durable: map[string]int64{}}
				for step := range int64(4) {
					sc.durable[fmt.Sprintf("%08d-%012d", 1, step)] = step
				}
				timed(t, func(ctx context.Context) { sc.collects(ctx, s) })
				calls := len(s.Calls())
				must.NoError(t, sc.check(mem))
				must.NoError(t, sc.afterwards(mem))
				if n > calls {
					must.Greater(t, 20, n)
					return
				}
			}
		})
	}
}
