package repository_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/shoenig/test/must"

	"nomad-spotter/checkpointer/repository"
	"nomad-spotter/checkpointer/store"
	"nomad-spotter/checkpointer/store/storetest"
)

// replacing is a store that does not create conditionally.
type replacing struct{ *storetest.Memory }

func (s replacing) Put(ctx context.Context, key string, r io.Reader) (int64, error) {
	if err := s.Delete(ctx, key); err != nil {
		return 0, err
	}
	return s.Memory.Put(ctx, key, r)
}

// counter gives out epochs.
type counter struct {
	mu   sync.Mutex
	last uint64
}

func (c *counter) get(context.Context) (repository.Authority, error) { return c, nil }

func (c *counter) Name() string { return "consul:test" }

func (c *counter) Next(_ context.Context, _ string, above uint64) (uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = max(c.last, above) + 1
	return c.last, nil
}

func openMemory(t *testing.T, s store.Store) *repository.Repository {
	t.Helper()
	r, err := repository.Open(t.Context(), s, true)
	must.NoError(t, err)
	return r
}

// A repository whose head is gone is damaged, not a place for a new one.
func TestOpen_headless(t *testing.T) {
	r, dir := openDisk(t)
	list := series(t, r, 2)
	was := contents(t, dir)
	p := filepath.Join(dir, "spotter-repository.json")
	must.NoError(t, os.Remove(p))
	for _, create := range []bool{false, true} {
		s, err := store.Open("file://"+dir, create)
		must.NoError(t, err)
		_, err = repository.Open(t.Context(), s, create)
		must.ErrorIs(t, err, store.ErrDamaged)
		must.ErrorContains(t, err, "spotter-repository.json is missing")
		must.FileNotExists(t, p)
	}
	// As the error says.
	must.NoError(t, os.WriteFile(p, []byte(`{"format":1,"id":"`+r.ID()+`"}`), 0o644))
	must.Eq(t, was, contents(t, dir))
	must.Eq(t, list, snapshots(t, reopen(t, dir)))
}

// All who open a new store at the same time agree on its id.
func TestRepositoryID(t *testing.T) {
	for n := range 8 {
		mem := &storetest.Memory{}
		var ids [2]string
		opens := func(i int) func(context.Context, store.Store) {
			return func(ctx context.Context, s store.Store) {
				r, err := repository.Open(ctx, s, true)
				if err == nil {
					ids[i] = r.ID()
				}
			}
		}
		act(t, mem, spells(0, n), opens(0), opens(1))
		must.EqOp(t, ids[0], ids[1])
		must.EqOp(t, 32, len(ids[0]))
		must.EqOp(t, ids[0], openMemory(t, mem).ID())
	}
	must.NotEq(t, openMemory(t, &storetest.Memory{}).ID(), openMemory(t, &storetest.Memory{}).ID())
}

func TestNotConditional(t *testing.T) {
	s := replacing{&storetest.Memory{}}
	r := openMemory(t, s)
	must.EqOp(t, r.ID(), openMemory(t, s).ID())
	_, err := r.Claim(t.Context(), "l", "test", noon)
	must.ErrorIs(t, err, store.ErrNotConditional)
	must.ErrorContains(t, err, "take epochs from Consul, or say that nobody else ever writes the lineage (single_writer)")

	// Nobody else writes it: every claim must say so.
	w, err := r.ClaimWith(t.Context(), "alone", repository.Claim{Now: noon, SingleWriter: true})
	must.NoError(t, err)
	publish(t, w, 1, small(1))
	_, err = r.Claim(t.Context(), "alone", "test", noon)
	must.ErrorIs(t, err, repository.ErrAuthority)
	next, err := r.ClaimWith(t.Context(), "alone", repository.Claim{Now: noon, SingleWriter: true})
	must.NoError(t, err)
	must.EqOp(t, 2, next.Epoch)
	_, err = w.Publish(t.Context(), 2, small(2), noon)
	must.ErrorIs(t, err, repository.ErrSuperseded)

	// Epochs come from elsewhere.
	c := &counter{last: 7}
	w, err = r.ClaimWith(t.Context(), "l", repository.Claim{Now: noon, Authority: c.get})
	must.NoError(t, err)
	must.EqOp(t, 8, w.Epoch)
	p := publish(t, w, 1, small(1))
	m, err := r.Manifest(t.Context(), repository.Snapshot{Lineage: "l", ID: p.ID, Epoch: 8, Step: 1})
	must.NoError(t, err)
	must.EqOp(t, "consul:test", m.Authority)
	_, err = r.Claim(t.Context(), "l", "test", noon)
	must.ErrorIs(t, err, repository.ErrAuthority)
	must.ErrorContains(t, err, "from consul:test")
	c.last = 0 // it has forgotten everything
	w, err = r.ClaimWith(t.Context(), "l", repository.Claim{Now: noon, Authority: c.get})
	must.NoError(t, err)
	must.EqOp(t, 9, w.Epoch)
}

// On a store that does not create conditionally, writers that race for an epoch get different ones from elsewhere.
func TestNotConditionalRace(t *testing.T) {
	s := replacing{&storetest.Memory{}}
	openMemory(t, s)
	c := &counter{}
	var mu sync.Mutex
	epochs := map[uint64]bool{}
	claims := func(ctx context.Context, s store.Store) {
		r, err := repository.Open(ctx, s, false)
		if err != nil {
			return
		}
		w, err := r.ClaimWith(ctx, "l", repository.Claim{Now: noon, Authority: c.get})
		if err == nil {
			mu.Lock()
			epochs[w.Epoch] = true
			mu.Unlock()
		}
	}
	for n := range 12 {
		act(t, s, spells(0, n, n/2), claims, claims)
		must.MapLen(t, 2*(n+1), epochs)
	}
}

func TestForks(t *testing.T) {
	a, from := openDisk(t)
	b, _ := openDisk(t)
	w := claim(t, a, "l")
	publish(t, w, 10, small(10))
	replicate := func(x, y *repository.Repository) error {
		list, err := x.Snapshots(t.Context(), "")
		must.NoError(t, err)
		for _, s := range list {
			if _, err := repository.Copy(t.Context(), x, y, s, repository.CopyOptions{}); err != nil {
				return err
			}
		}
		return nil
	}
	must.NoError(t, replicate(a, b))

	// Nobody writes to a replica by mistake.
	_, err := b.Claim(t.Context(), "l", "test", noon)
	must.ErrorIs(t, err, repository.ErrForeign)
	must.ErrorContains(t, err, a.ID())
	_, err = b.Resume("l", 1).Publish(t.Context(), 11, small(11), noon)
	must.ErrorIs(t, err, repository.ErrForeign)
	here, err := a.Standing(t.Context(), "l")
	must.NoError(t, err)
	there, err := b.Standing(t.Context(), "l")
	must.NoError(t, err)
	must.True(t, here.Ahead(there))
	must.False(t, there.Ahead(here))

	// The home goes dark: the lineage goes on as a fork, while its old writer goes on as well.
	fork, err := b.ClaimWith(t.Context(), "l", repository.Claim{Now: noon, Fork: true})
	must.NoError(t, err)
	must.EqOp(t, "l/@forks/"+b.ID(), fork.Lineage)
	must.EqOp(t, 2, fork.Epoch)
	p := publish(t, fork, 15, small(15))
	m, err := b.Manifest(t.Context(), repository.Snapshot{Lineage: fork.Lineage, ID: p.ID, Epoch: 2, Step: 15})
	must.NoError(t, err)
	must.EqOp(t, "repository:"+b.ID(), m.Authority)
	must.Eq(t, &repository.Origin{Lineage: "l", Snapshot: "00000001-000000000010"}, m.Forked)
	publish(t, w, 20, small(20))
	m, damaged, err := b.Newest(t.Context(), "l", into(t.TempDir()))
	must.NoError(t, err)
	must.SliceEmpty(t, damaged)
	must.EqOp(t, 15, m.Step)
	_, err = b.Claim(t.Context(), "l", "test", noon) // the fork's next run need not say again that it is one
	must.NoError(t, err)
	_, err = fork.Publish(t.Context(), 16, small(16), noon)
	must.ErrorIs(t, err, repository.ErrSuperseded)

	here, err = a.Standing(t.Context(), "l")
	must.NoError(t, err)
	there, err = b.Standing(t.Context(), "l")
	must.NoError(t, err)
	must.True(t, there.Ahead(here)) // though its step is lower
	must.True(t, here.Home && there.Home)

	// They see each other again: no key is in the way, and the one with the lower epoch stops.
	must.NoError(t, replicate(b, a))
	must.NoError(t, replicate(a, b))
	_, err = w.Publish(t.Context(), 30, small(30), noon)
	must.ErrorIs(t, err, repository.ErrSuperseded)
	must.ErrorContains(t, err, fork.Lineage)
	_, err = a.Claim(t.Context(), "l", "test", noon)
	must.ErrorIs(t, err, repository.ErrForeign)
	must.ErrorContains(t, err, b.ID())
	for _, r := range []*repository.Repository{a, b} {
		list, err := r.History(t.Context(), "l")
		must.NoError(t, err)
		must.Len(t, 3, list)
		must.EqOp(t, fork.Lineage, list[0].Lineage)
		for _, s := range list {
			must.EqOp(t, "l", s.Base())
			got, err := content(t, r, s)
			must.NoError(t, err)
			must.Eq(t, small(s.Step).files, got.files)
		}
	}
	must.StrContains(t, strings.Join(names(t, from+"/lineages/l"), " "), "@forks")

	// The old home takes over again, on purpose: now the fork stops.
	back, err := a.ClaimWith(t.Context(), "l", repository.Claim{Now: noon, Fork: true})
	must.NoError(t, err)
	must.EqOp(t, "l", back.Lineage)
	must.EqOp(t, 4, back.Epoch) // above all that it knows of the fork
	publish(t, back, 16, small(16))
	must.NoError(t, replicate(a, b))
	_, err = b.Claim(t.Context(), "l", "test", noon)
	must.ErrorIs(t, err, repository.ErrForeign)
	w3 := b.Resume(fork.Lineage, 3)
	_, err = w3.Publish(t.Context(), 16, small(16), noon)
	must.ErrorIs(t, err, repository.ErrSuperseded)
}

// Who of two forks goes on is decided alike everywhere, whatever came first.
func TestForkOrder(t *testing.T) {
	for _, c := range []struct {
		own, other [2]int64 // epochs and steps of the newest snapshots
		stops      bool
	}{
		{[2]int64{2, 50}, [2]int64{3, 1}, true},
		{[2]int64{3, 1}, [2]int64{2, 50}, false},
		{[2]int64{3, 5}, [2]int64{3, 6}, true},
		{[2]int64{3, 6}, [2]int64{3, 5}, false},
		{[2]int64{3, 5}, [2]int64{3, 5}, false}, // the lineage's own line
	} {
		mem := &storetest.Memory{}
		r := openMemory(t, mem)
		var own *repository.Writer
		for range c.own[0] {
			own = claim(t, r, "l")
		}
		publish(t, own, c.own[1], small(c.own[1]))
		// A fork as a copy brings it.
		id := strings.Repeat("f", 32)
		_, err := mem.Put(t.Context(), "lineages/l/@forks/"+id+"/@snapshots/"+snapshotName(c.other), strings.NewReader("x"))
		must.NoError(t, err)
		_, err = own.Publish(t.Context(), c.own[1], small(c.own[1]), noon)
		must.EqOp(t, c.stops, errors.Is(err, repository.ErrSuperseded), must.Sprint(c, err))
	}
}

func TestHostileRecord(t *testing.T) {
	for _, content := range []string{"", "x", "{}", `{"repository":"../../etc","epochs":"store"}`, `{"repository":"` + strings.Repeat("0", 32) + `"}`} {
		mem := &storetest.Memory{}
		r := openMemory(t, mem)
		_, err := mem.Put(t.Context(), "lineages/l/@authority/record", strings.NewReader(content))
		must.NoError(t, err)
		_, err = r.Claim(t.Context(), "l", "test", noon)
		must.ErrorContains(t, err, "read lineages/l/@authority/record", must.Sprint(content))
	}
}

func snapshotName(at [2]int64) string {
	return fmt.Sprintf("%08d-%012d", at[0], at[1])
}

// A bit that flips in the head, or in the record of where a lineage is written, is damage: never another repository.
func TestOpen_flippedBits(t *testing.T) {
	mem := &storetest.Memory{}
	publish(t, claim(t, openMemory(t, mem), "l"), 1, small(1))
	for _, key := range []string{"spotter-repository.json", "lineages/l/@authority/record"} {
		size, err := mem.Stat(t.Context(), key)
		must.NoError(t, err)
		for bit := range 8 * int(size) {
			flip := func(b []byte) []byte {
				b = bytes.Clone(b)
				b[bit/8] ^= 1 << (bit % 8)
				return b
			}
			must.True(t, mem.Damage(key, flip))
			r, err := repository.Open(t.Context(), mem, false)
			if err == nil {
				var rep repository.Report
				rep, err = r.Verify(t.Context(), "", false, nil)
				must.NoError(t, err)
				must.Len(t, 1, rep.Damaged, must.Sprintf("%s, bit %d", key, bit))
				must.EqOp(t, key, rep.Damaged[0].Object)
				_, err = r.Claim(t.Context(), "l", "x", noon)
			}
			must.Error(t, err, must.Sprintf("%s, bit %d", key, bit))
			if !strings.Contains(err.Error(), "use a newer one") { // the number of the format
				must.ErrorIs(t, err, store.ErrDamaged, must.Sprintf("%s, bit %d", key, bit))
			}
			must.True(t, mem.Damage(key, flip))
		}
	}
}
