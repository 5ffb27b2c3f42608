package repository

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"nomad-spotter/checkpointer/store"
)

// A checkpoint of several ranks, a gang, is one snapshot in as many parts. A part is stored like a snapshot of its own,
// with a manifest, packs and intents, under a name that tells its rank and how many there are. The snapshot counts once
// all parts of that epoch and step are there; until then no reader sees it.

// MaxRanks bounds the ranks of a gang.
const MaxRanks = 1 << 16

// ErrRanks says that a number of ranks is not the one that is there.
var ErrRanks = errors.New("the number of ranks differs")

// RanksError is a snapshot of another number of ranks than that of the gang that wants it.
type RanksError struct {
	Snapshot   string
	Step       int64
	Have, Want int // ranks of the snapshot, and of who wants it
}

// Error implements error.
func (e *RanksError) Error() string {
	return fmt.Sprintf("snapshot %s (step %d) was saved by %d ranks and cannot be restored by one of %d: start %d ranks, or convert the checkpoint",
		e.Snapshot, e.Step, e.Have, e.Want, e.Have)
}

// Unwrap makes errors.Is find ErrRanks.
func (e *RanksError) Unwrap() error { return ErrRanks }

// CheckRank tells whether a rank can be one of a gang; of no gang if ranks is 0 or 1.
func CheckRank(rank, ranks int) error {
	switch {
	case ranks < 0 || ranks > MaxRanks:
		return fmt.Errorf("%d ranks: 1 to %d are possible", ranks, MaxRanks)
	case rank < 0 || rank >= max(ranks, 1):
		return fmt.Errorf("rank %d of %d ranks: it must be 0 to %d", rank, max(ranks, 1), max(ranks, 1)-1)
	}
	return nil
}

// part is the name of what one rank stores of a snapshot, taken apart.
type part struct {
	epoch       uint64
	step        int64
	rank, ranks int // 0 of 1 without a gang
}

func (p part) String() string {
	if p.ranks <= 1 {
		return snapshotID(p.epoch, p.step)
	}
	return fmt.Sprintf("%s_%04dof%04d", snapshotID(p.epoch, p.step), p.rank, p.ranks)
}

// parsePart reverses part.String.
func parsePart(name string) (part, error) {
	id, rest, gang := strings.Cut(name, "_")
	p := part{ranks: 1}
	var err error
	if p.epoch, p.step, err = parseID(id); err != nil || !gang {
		return p, err
	}
	rank, ranks, _ := strings.Cut(rest, "of")
	var rerr error
	p.rank, err = strconv.Atoi(rank)
	p.ranks, rerr = strconv.Atoi(ranks)
	if err != nil || rerr != nil || p.ranks < 2 || CheckRank(p.rank, p.ranks) != nil || p.String() != name {
		return part{}, fmt.Errorf("snapshot name %q is not EPOCH-STEP_RANKofRANKS", name)
	}
	return p, nil
}

// stepOf returns the snapshot that a part belongs to.
func stepOf(name string) string {
	id, _, _ := strings.Cut(name, "_")
	return id
}

// Part returns what one rank stored of a snapshot; the snapshot itself if it has no ranks or is a part already.
func (s Snapshot) Part(rank int) Snapshot {
	if s.Ranks > 1 {
		s.ID = part{s.Epoch, s.Step, rank, s.Ranks}.String()
	}
	return s
}

// Parts returns what there is of a snapshot, by rank.
func (s Snapshot) Parts() []Snapshot {
	if s.Ranks <= 1 || s.isPart() {
		return []Snapshot{s}
	}
	out := make([]Snapshot, s.Ranks)
	for i := range out {
		out[i] = s.Part(i)
	}
	return out
}

func (s Snapshot) isPart() bool { return stepOf(s.ID) != s.ID }

// forRank returns the part that a rank of a gang restores.
func (s Snapshot) forRank(rank, ranks int) (Snapshot, error) {
	if s.isPart() {
		return s, nil
	}
	if err := CheckRank(rank, ranks); err != nil {
		return s, err
	}
	if max(s.Ranks, 1) != max(ranks, 1) {
		return s, &RanksError{Snapshot: s.ID, Step: s.Step, Have: max(s.Ranks, 1), Want: max(ranks, 1)}
	}
	return s.Part(rank), nil
}

// Incomplete is a step of a gang of which parts are missing.
type Incomplete struct {
	Lineage string `json:"lineage"`
	ID      string `json:"snapshot"`
	Epoch   uint64 `json:"epoch"`
	Step    int64  `json:"step"`
	Ranks   []int  `json:"ranks"`   // how many there are; more than one number where the ranks disagree
	Present int    `json:"present"` // parts that are there
}

func (s Incomplete) compare(o Snapshot) int {
	return Snapshot{Epoch: s.Epoch, Step: s.Step}.compare(o)
}

// Incomplete lists the steps of gangs of which parts are missing, newest first: those that are being saved and those that
// never were to the end. With lineage "" those of all, lineage by lineage.
func (r *Repository) Incomplete(ctx context.Context, lineage string) ([]Incomplete, error) {
	keys, err := r.list(ctx, lineage, countingKinds...)
	if err != nil {
		return nil, fmt.Errorf("list incomplete snapshots: %w", err)
	}
	_, out := gather(keys)
	slices.SortFunc(out, func(a, b Incomplete) int {
		return cmp.Or(strings.Compare(a.Lineage, b.Lineage), cmp.Compare(b.Epoch, a.Epoch), cmp.Compare(b.Step, a.Step))
	})
	return out, nil
}

// gather puts parts together: the snapshots that are complete and count, and what is incomplete. Not counted is what an
// old epoch published after a newer one had begun, and what is being removed. Should there be complete sets of two
// numbers of ranks, which writers prevent, the smaller one counts.
func gather(keys []object) (complete []Snapshot, incomplete []Incomplete) {
	claims := sightings(keys)
	removed := map[[2]string]bool{}
	for _, k := range keys {
		if k.kind == kindRemoved {
			removed[[2]string{k.lineage, k.id}] = true
		}
	}
	type step struct {
		lineage, id string
	}
	found := map[step]map[int]int{} // to numbers of ranks, to how many of these there are
	looked := map[step]bool{}       // at parts
	var order []step
	for _, k := range keys {
		p, err := parsePart(k.id)
		if !k.isSnapshot() || err != nil || looked[step{k.lineage, k.id}] {
			continue
		}
		looked[step{k.lineage, k.id}] = true
		s := Snapshot{Lineage: k.lineage, ID: stepOf(k.id), Epoch: p.epoch, Step: p.step}
		if removed[[2]string{k.lineage, s.ID}] || claims.hide(s) {
			continue
		}
		at := step{k.lineage, s.ID}
		if found[at] == nil {
			found[at] = map[int]int{}
			order = append(order, at)
		}
		found[at][p.ranks]++
	}
	for _, at := range order {
		epoch, n, err := parseID(at.id)
		if err != nil {
			continue
		}
		least, present := 0, 0
		var ranks []int
		for r, have := range found[at] {
			ranks = append(ranks, r)
			present += have
			if have == r && (least == 0 || r < least) {
				least = r
			}
		}
		if least == 0 {
			slices.Sort(ranks)
			incomplete = append(incomplete, Incomplete{at.lineage, at.id, epoch, n, ranks, present})
			continue
		}
		s := Snapshot{Lineage: at.lineage, ID: at.id, Epoch: epoch, Step: n}
		if least > 1 {
			s.Ranks = least
		}
		complete = append(complete, s)
	}
	return complete, incomplete
}

// stale picks what is incomplete and older than the newest complete snapshot of a lineage.
func stale(complete []Snapshot, incomplete []Incomplete) map[string]bool {
	out := map[string]bool{}
	for _, s := range incomplete {
		if slices.ContainsFunc(complete, func(c Snapshot) bool { return s.compare(c) < 0 }) {
			out[s.ID] = true
		}
	}
	return out
}

// parents returns the parts that this writer may code against, newest first: its own rank's, of snapshots that count, and
// of this epoch's steps that other ranks have not finished yet. It fails with ErrRanks when the step that is about to be
// saved has parts of another number of ranks.
func (w *Writer) parents(ctx context.Context, step int64) ([]Snapshot, error) {
	keys, err := w.repo.list(ctx, w.Lineage, countingKinds...)
	if err != nil {
		return nil, err
	}
	claims := sightings(keys)
	counts, removed := map[string]bool{}, map[string]bool{}
	for _, s := range visible(keys) {
		counts[s.ID] = true
	}
	for _, k := range keys {
		if k.kind == kindRemoved {
			removed[k.id] = true
		}
	}
	var out []Snapshot
	looked := map[string]bool{}
	for _, k := range keys {
		p, err := parsePart(k.id)
		if !k.isSnapshot() || err != nil || looked[k.id] {
			continue
		}
		looked[k.id] = true
		s := Snapshot{Lineage: w.Lineage, ID: k.id, Epoch: p.epoch, Step: p.step}
		if p.epoch == w.Epoch && p.step == step && p.ranks != w.ranks() {
			return nil, fmt.Errorf("%w: step %d of epoch %d has parts of %d ranks, this is one of %d", ErrRanks, step, w.Epoch, p.ranks, w.ranks())
		}
		if p.ranks > 1 {
			s.Ranks = p.ranks
		}
		open := p.epoch == w.Epoch && !removed[stepOf(k.id)] && !claims.hide(s)
		if p.rank == w.Rank && p.ranks == w.ranks() && (counts[stepOf(k.id)] || open) {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b Snapshot) int { return b.compare(a) })
	return out, nil
}

func (w *Writer) ranks() int { return max(w.Ranks, 1) }

// leaving tells whether a snapshot or its rest is being removed.
func (r *Repository) leaving(ctx context.Context, s Snapshot) (bool, error) {
	kinds := []string{kindRemoved}
	if s.isPart() {
		kinds = append(kinds, kindStale)
	}
	for _, kind := range kinds {
		_, err := r.store.Stat(ctx, lineageKey(s.Lineage, kind, stepOf(s.ID)))
		if err == nil {
			return true, nil
		}
		if !errors.Is(err, store.ErrNotFound) {
			return false, err
		}
	}
	return false, nil
}

// complete tells whether all parts of a step are there.
func (w *Writer) complete(ctx context.Context, id string) (bool, error) {
	if w.ranks() == 1 {
		return true, nil
	}
	keys, err := w.repo.list(ctx, w.Lineage, kindSnapshots, kindRemoved)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(visible(keys), func(s Snapshot) bool { return s.ID == stepOf(id) && s.Ranks == w.ranks() }), nil
}

// sound fails with a *DamageError unless all parts of a snapshot have their manifests and packs, as far as listings tell:
// every rank of a gang so comes to the same answer.
func (r *Repository) sound(ctx context.Context, s Snapshot) error {
	packs, err := r.packSizes(ctx, s.Lineage)
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallelReads)
	for _, p := range s.Parts() {
		g.Go(func() error {
			m, err := r.Manifest(ctx, p)
			if err != nil {
				return err
			}
			for _, ref := range m.Packs {
				if size, ok := packs[ref.Name]; !ok || size != ref.Bytes {
					reason := "missing"
					if ok {
						reason = fmt.Sprintf("it has %d bytes, had %d", size, ref.Bytes)
					}
					return damage(p.ID, p.Step, packKey(p.Lineage, ref.Name), reason)
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// parts returns the parts of snapshots.
func parts(list []Snapshot) []Snapshot {
	out := make([]Snapshot, 0, len(list))
	for _, s := range list {
		out = append(out, s.Parts()...)
	}
	return out
}
