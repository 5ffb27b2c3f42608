package repository

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/shoenig/test/must"
)

func TestPart(t *testing.T) {
	for _, c := range []struct {
		name string
		want part
		bad  bool
	}{
		{"00000001-000000000100", part{1, 100, 0, 1}, false},
		{"00000001-000000000100_0000of0002", part{1, 100, 0, 2}, false},
		{"00000012-000000000007_0007of0008", part{12, 7, 7, 8}, false},
		{"00000001-000000000100_65535of65536", part{1, 100, 65535, 65536}, false},
		{"00000001-000000000100_0000of65537", part{}, true},
		{"00000001-000000000100_0002of0002", part{}, true},
		{"00000001-000000000100_0000of0001", part{}, true},
		{"00000001-000000000100_0of2", part{}, true},
		{"00000001-000000000100_", part{}, true},
		{"00000001-000000000100_-001of0002", part{}, true},
		{"00000001-000000000100_0000of0002_0000of0002", part{}, true},
		{"1-100", part{}, true},
	} {
		got, err := parsePart(c.name)
		must.EqOp(t, c.bad, err != nil, must.Sprint(c.name))
		if !c.bad {
			must.EqOp(t, c.want, got)
			must.EqOp(t, c.name, got.String())
			must.EqOp(t, snapshotID(got.epoch, got.step), stepOf(c.name))
		}
	}
}

func FuzzParsePart(f *testing.F) {
	f.Add("00000001-000000000100_0001of0002")
	f.Add("00000001-000000000100")
	f.Fuzz(func(t *testing.T, name string) {
		if p, err := parsePart(name); err == nil {
			must.EqOp(t, name, p.String())
			must.NoError(t, CheckRank(p.rank, p.ranks))
		}
	})
}

func TestGather(t *testing.T) {
	snap := func(epoch uint64, step int64, rank, ranks int) object {
		return object{lineage: "l", kind: kindSnapshots, id: part{epoch, step, rank, ranks}.String()}
	}
	for _, c := range []struct {
		name       string
		keys       []object
		complete   []string
		incomplete []string
	}{
		{"none", nil, nil, nil},
		{"alone", []object{snap(1, 5, 0, 1)}, []string{"1 5 0"}, nil},
		{"both", []object{snap(1, 5, 0, 2), snap(1, 5, 1, 2)}, []string{"1 5 2"}, nil},
		{"one of two", []object{snap(1, 5, 1, 2)}, nil, []string{"1 5 [2] 1"}},
		{"of two epochs", []object{snap(1, 5, 0, 2), snap(2, 5, 1, 2)}, nil, []string{"1 5 [2] 1", "2 5 [2] 1"}},
		{"of two steps", []object{snap(1, 5, 0, 2), snap(1, 6, 1, 2)}, nil, []string{"1 5 [2] 1", "1 6 [2] 1"}},
		{"they disagree", []object{snap(1, 5, 0, 2), snap(1, 5, 1, 3)}, nil, []string{"1 5 [2 3] 2"}},
		{"one that disagrees adds nothing", []object{snap(1, 5, 0, 2), snap(1, 5, 1, 2), snap(1, 5, 2, 3)}, []string{"1 5 2"}, nil},
		{"the smaller of two", []object{snap(1, 5, 0, 2), snap(1, 5, 1, 2), snap(1, 5, 0, 1)}, []string{"1 5 0"}, nil},
		{"hidden by the next epoch", []object{snap(1, 5, 0, 2), snap(1, 5, 1, 2), snap(1, 4, 0, 2), {"l", kindSeen, "00000002-none", 0}}, nil, nil},
		{"being removed", []object{snap(1, 5, 0, 2), snap(1, 5, 1, 2), {"l", kindRemoved, snapshotID(1, 5), 0}}, nil, nil},
		{"of two lineages", []object{snap(1, 5, 0, 2), {"m", kindSnapshots, part{1, 5, 1, 2}.String(), 0}}, nil, []string{"1 5 [2] 1", "1 5 [2] 1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			complete, incomplete := gather(c.keys)
			var got []string
			for _, s := range complete {
				got = append(got, fmt.Sprint(s.Epoch, s.Step, s.Ranks))
			}
			must.Eq(t, c.complete, got)
			got = nil
			for _, s := range incomplete {
				got = append(got, fmt.Sprint(s.Epoch, " ", s.Step, " ", s.Ranks, " ", s.Present))
			}
			must.Eq(t, c.incomplete, got)
		})
	}
}

// Whatever is in a store, what counts is complete and of one epoch.
func TestGatherRandom(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 7))
		var keys []object
		have := map[part]bool{}
		for range r.IntN(30) {
			ranks := 1 + r.IntN(3)
			p := part{1 + r.Uint64N(3), r.Int64N(3), r.IntN(ranks), ranks}
			if !have[p] {
				have[p] = true
				keys = append(keys, object{lineage: "l", kind: kindSnapshots, id: p.String()})
			}
		}
		complete, incomplete := gather(keys)
		for _, s := range complete {
			must.Len(t, max(s.Ranks, 1), s.Parts())
			for i, p := range s.Parts() {
				must.True(t, have[part{s.Epoch, s.Step, i, max(s.Ranks, 1)}])
				must.EqOp(t, s.ID, stepOf(p.ID))
			}
		}
		steps := map[string]bool{}
		for p := range have {
			steps[snapshotID(p.epoch, p.step)] = true
		}
		must.EqOp(t, len(steps), len(complete)+len(incomplete))
	}
}

func TestStale(t *testing.T) {
	complete := []Snapshot{{ID: "b", Epoch: 1, Step: 5}, {ID: "a", Epoch: 1, Step: 3}}
	got := stale(complete, []Incomplete{{ID: "x", Epoch: 1, Step: 4}, {ID: "y", Epoch: 1, Step: 6}, {ID: "z", Epoch: 2, Step: 1}})
	must.Eq(t, map[string]bool{"x": true}, got)
	must.MapEmpty(t, stale(nil, []Incomplete{{ID: "x", Epoch: 1, Step: 4}}))
}

func TestForRank(t *testing.T) {
	gang := Snapshot{ID: snapshotID(1, 5), Epoch: 1, Step: 5, Ranks: 2}
	p, err := gang.forRank(1, 2)
	must.NoError(t, err)
	must.EqOp(t, "00000001-000000000005_0001of0002", p.ID)
	_, err = gang.forRank(0, 0)
	must.ErrorIs(t, err, ErrRanks)
	must.ErrorContains(t, err, "saved by 2 ranks and cannot be restored by one of 1")
	_, err = gang.forRank(2, 2)
	must.ErrorContains(t, err, "rank 2 of 2")
	alone := Snapshot{ID: snapshotID(1, 5), Epoch: 1, Step: 5}
	p, err = alone.forRank(0, 1)
	must.NoError(t, err)
	must.EqOp(t, alone, p)
	_, err = alone.forRank(3, 4)
	must.ErrorIs(t, err, ErrRanks)
}
