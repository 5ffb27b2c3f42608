package repository_test

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/shoenig/test/must"

	"nomad-spotter/checkpointer/delta"
	"nomad-spotter/checkpointer/repository"
	"nomad-spotter/checkpointer/store"
	"nomad-spotter/checkpointer/store/storetest"
)

// Processes that meet although they should not: two of one epoch, two copies of one snapshot, readers and a collection.

// written is a repository of three steps, each in a pack of its own.
func written(t *testing.T) *storetest.Memory {
	t.Helper()
	mem := &storetest.Memory{}
	w := claim(t, openMemory(t, mem), "l")
	w.Options.Effort = delta.None
	for s := range int64(3) {
		publish(t, w, s, small(s))
	}
	return mem
}

func collectLast(t *testing.T, mem store.Store) {
	t.Helper()
	_, err := openMemory(t, mem).Collect(t.Context(), "l", repository.Retention{Last: 1}, repository.CollectOptions{})
	must.NoError(t, err)
}

// A process that saves in the same epoch does not take another one's save for dead.
func TestPublish_twoOfOneEpoch(t *testing.T) {
	mem := written(t)
	r := openMemory(t, &hooked{Store: mem, text: "@snapshots/00000001-000000000010", puts: func() {
		publish(t, openMemory(t, mem).Resume("l", 1), 9, small(9))
		collectLast(t, mem)
	}})
	_, err := r.Resume("l", 1).Publish(t.Context(), 10, small(10), noon)
	must.NoError(t, err)
	must.EqOp(t, 10, snapshots(t, openMemory(t, mem))[0].Step)
	intact(t, mem)
}

// Of two that save the same step in one epoch, one does not call it durable once the other's was removed.
func TestPublish_sameStepOfOneEpoch(t *testing.T) {
	mem := written(t)
	r := openMemory(t, &hooked{Store: mem, text: "@snapshots/00000001-000000000010", puts: func() {
		w := openMemory(t, mem).Resume("l", 1)
		publish(t, w, 10, small(10))
		publish(t, w, 11, small(11))
		collectLast(t, mem)
	}})
	_, err := r.Resume("l", 1).Publish(t.Context(), 10, small(10), noon)
	must.ErrorIs(t, err, repository.ErrConflict)
	_, err = openMemory(t, mem).Restore(t.Context(), snapshots(t, openMemory(t, mem))[0], into(t.TempDir()))
	must.NoError(t, err)
}

// Saving a step again does not call durable what has been damaged since.
func TestPublish_againOverDamage(t *testing.T) {
	r, dir := openDisk(t)
	publish(t, claim(t, r, "l"), 1, small(1))
	pack := names(t, dir+"/lineages/l/@packs")[0]
	must.NoError(t, flip(dir+"/lineages/l/@packs/"+pack, 5))
	for _, r := range []*repository.Repository{r, reopen(t, dir)} {
		_, err := r.Resume("l", 1).Publish(t.Context(), 1, small(1), noon)
		var d *repository.DamageError
		must.True(t, errors.As(err, &d))
		must.EqOp(t, "lineages/l/@packs/"+pack, d.Object)
	}
}

// A copy whose mark another one of the same snapshot has ended does not leave what a collection has taken the packs of.
func TestCopy_twoOfOneSnapshot(t *testing.T) {
	for _, whole := range []bool{true, false} {
		mem, to := written(t), &storetest.Memory{}
		from := openMemory(t, mem)
		list := snapshots(t, from)
		copyOf(t, from, openMemory(t, to), list[0])
		h := openMemory(t, &hooked{Store: to, text: "@snapshots/" + list[1].ID, puts: func() {
			if whole {
				copyOf(t, openMemory(t, mem), openMemory(t, to), list[1])
			} else {
				must.NoError(t, openMemory(t, to).DropDead(t.Context(), "l"))
			}
			collectLast(t, to)
		}})
		_, err := repository.Copy(t.Context(), from, h, list[1], repository.CopyOptions{})
		must.ErrorContains(t, err, "copy again")
		copyOf(t, openMemory(t, mem), openMemory(t, to), list[1])
		intact(t, to)
	}
}

// The marks of a gang's snapshot are told apart as well: here a third copy has made the one anew that the second ended.
func TestCopy_twoOfOneGang(t *testing.T) {
	mem, to := begun(t), &storetest.Memory{}
	for step := int64(4); step <= 5; step++ {
		for rank := range 2 {
			w := openMemory(t, mem).Resume("l", 1)
			w.Rank, w.Ranks = rank, 2
			publish(t, w, step, shard(1, step, rank))
		}
	}
	from := openMemory(t, mem)
	list := snapshots(t, from)
	copyOf(t, from, openMemory(t, to), list[0])
	h := openMemory(t, &hooked{Store: to, text: "@snapshots/" + list[1].Part(1).ID, puts: func() {
		copyOf(t, openMemory(t, mem), openMemory(t, to), list[1])
		collectLast(t, to)
		f := storetest.NewFaulty(to, storetest.Fault{Op: storetest.Put, Key: "lineages/l/@snapshots/", Kind: storetest.Before, Err: errDead})
		_, err := repository.Copy(t.Context(), openMemory(t, mem), openMemory(t, f), list[1], repository.CopyOptions{})
		must.ErrorIs(t, err, errDead)
	}})
	_, err := repository.Copy(t.Context(), from, h, list[1], repository.CopyOptions{})
	must.ErrorContains(t, err, "copy again")
	copyOf(t, openMemory(t, mem), openMemory(t, to), list[1])
	intact(t, to)
}

// What an epoch starts from is decided where the lineage is written, and a claim that is not complete stays there.
func TestDropDead_replica(t *testing.T) {
	mem, to := written(t), &storetest.Memory{}
	copyOf(t, openMemory(t, mem), openMemory(t, to), snapshots(t, openMemory(t, mem))[0])
	publish(t, openMemory(t, mem).Resume("l", 1), 5, small(5))
	f := storetest.NewFaulty(mem, storetest.Fault{Op: storetest.Put, Key: "lineages/l/@starts/", Kind: storetest.Before, Err: errDead})
	_, err := openMemory(t, f).Claim(t.Context(), "l", "x", noon)
	must.ErrorIs(t, err, errDead)
	copyOf(t, openMemory(t, mem), openMemory(t, to), snapshots(t, openMemory(t, mem))[1])
	collectLast(t, to)
	must.NoError(t, openMemory(t, to).DropDead(t.Context(), "l"))
	publish(t, claim(t, openMemory(t, mem), "l"), 6, small(6))
	for _, s := range snapshots(t, openMemory(t, mem)) {
		copyOf(t, openMemory(t, mem), openMemory(t, to), s)
	}
	intact(t, to)
}

// A record that is damaged in the source is not copied.
func TestCopy_damagedRecords(t *testing.T) {
	for _, key := range []string{"@authority/record", "@starts/00000001", "@epochs/00000001"} {
		mem, to := written(t), &storetest.Memory{}
		must.True(t, mem.Damage("lineages/l/"+key, func(b []byte) []byte { return b[:len(b)-1] }))
		_, err := repository.Copy(t.Context(), openMemory(t, mem), openMemory(t, to), snapshots(t, openMemory(t, mem))[0], repository.CopyOptions{})
		var d *repository.DamageError
		must.True(t, errors.As(err, &d), must.Sprint(key))
		must.EqOp(t, "lineages/l/"+key, d.Object)
		must.SliceEmpty(t, snapshots(t, openMemory(t, to)))
	}
}

// What is removed while it is read is no damage: a restore takes the snapshot in whose favour it went.
func TestRead_meetsCollection(t *testing.T) {
	for _, text := range []string{"@snapshots/", "@packs/"} {
		meeting := func() *repository.Repository {
			mem := written(t)
			var once sync.Once
			return openMemory(t, gated{Store: mem, get: func(key string) {
				if strings.Contains(key, text) {
					once.Do(func() {
						publish(t, openMemory(t, mem).Resume("l", 1), 10, small(10))
						collectLast(t, mem)
					})
				}
			}})
		}
		m, damaged, err := meeting().Newest(t.Context(), "l", into(t.TempDir()))
		must.NoError(t, err)
		must.EqOp(t, 10, m.Step)
		must.SliceEmpty(t, damaged)
		rep, err := meeting().Verify(t.Context(), "", true, nil)
		must.NoError(t, err)
		must.SliceEmpty(t, rep.Damaged)
	}
}
