package repository

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"nomad-spotter/checkpointer/store"
)

// A claim is complete when it is recorded what its epoch starts from: the newest snapshot that was there after the claim.
// Snapshots of older epochs that appear later do not count, and their writers, who look for newer epochs after publishing,
// do not call them durable. What an epoch starts from is decided once, by whoever first creates the object that holds it;
// so a claimant can complete the claims of others that died before they did, and one that was only held up comes to the same
// record, however late.

// noneSeen stands for a snapshot in the record of an epoch that starts from none.
const noneSeen = "none"

// epochOf reads the epoch from the name of an object of a claim.
func (o object) epochOf() (uint64, bool) {
	id, _, _ := strings.Cut(o.id, "-")
	n, err := strconv.ParseUint(id, 10, 64)
	return n, err == nil
}

// lastEpoch returns the highest claimed epoch of a lineage, 0 if there is none. Objects may get lost; the highest epoch is
// the one that anything tells of, of the kinds that are asked for.
func (r *Repository) lastEpoch(ctx context.Context, lineage string, kinds ...string) (uint64, error) {
	keys, err := r.list(ctx, lineage, kinds...)
	if err != nil {
		return 0, err
	}
	var last uint64
	for _, k := range keys {
		if n, ok := k.epochOf(); ok {
			last = max(last, n)
		}
	}
	return last, nil
}

// claimKinds are the kinds of objects that tell of an epoch.
var claimKinds = []string{kindEpochs, kindStarts, kindSeen, kindSnapshots, kindDurable}

// untold returns the epochs of one lineage that something tells of, but not the claim, sorted: the claim was lost.
func untold(keys []object) []uint64 {
	told := map[uint64]bool{}
	for _, k := range keys {
		if n, ok := k.epochOf(); ok {
			told[n] = true
		}
	}
	for _, k := range keys {
		if n, ok := k.epochOf(); ok && k.kind == kindEpochs {
			delete(told, n)
		}
	}
	return slices.Sorted(maps.Keys(told))
}

// complete records what an epoch starts from that was just claimed, and before that what the epochs before it start from
// whose claimants did not get so far. Claims that got lost it makes again. It returns how many bytes that took.
func (r *Repository) complete(ctx context.Context, lineage string, epoch uint64, others bool) (int64, error) {
	var stored int64
	if others {
		keys, err := r.list(ctx, lineage, claimKinds...)
		if err != nil {
			return 0, err
		}
		for _, lost := range untold(keys) {
			n, err := r.store.Put(ctx, lineageKey(lineage, kindEpochs, fmt.Sprintf("%08d", lost)), strings.NewReader(`{"writer":"lost"}`))
			if err != nil && !errors.Is(err, store.ErrExists) {
				return 0, err
			}
			stored += n
		}
		for _, open := range unseen(keys) {
			if open >= epoch {
				break
			}
			n, err := r.start(ctx, lineage, open)
			if err != nil {
				return 0, err
			}
			stored += n
		}
	}
	n, err := r.start(ctx, lineage, epoch)
	return stored + n, err
}

// start records what an epoch starts from.
func (r *Repository) start(ctx context.Context, lineage string, epoch uint64) (int64, error) {
	list, err := r.Snapshots(ctx, lineage)
	if err != nil {
		return 0, err
	}
	last := noneSeen
	if len(list) > 0 {
		last = list[0].ID
	}
	id := fmt.Sprintf("%08d", epoch)
	key := lineageKey(lineage, kindStarts, id)
	stored, err := r.store.Put(ctx, key, strings.NewReader(last))
	if errors.Is(err, store.ErrExists) {
		var b []byte
		b, err = readObject(ctx, r.store, key, maxRecord)
		last = string(b)
		if reason := unreadable(kindStarts, b); err == nil && reason != "" {
			err = fmt.Errorf("read %s: %w: %s", key, store.ErrDamaged, reason)
		}
	}
	if err != nil {
		return 0, err
	}
	n, err := r.store.Put(ctx, lineageKey(lineage, kindSeen, id+"-"+last), strings.NewReader(""))
	if errors.Is(err, store.ErrExists) {
		err = nil
	}
	return stored + n, err
}

// unseen returns the epochs of one lineage that were claimed and of which is not known what they start from, sorted.
func unseen(keys []object) []uint64 {
	open := map[uint64]bool{}
	for _, k := range keys {
		if n, ok := k.epochOf(); ok && k.kind == kindEpochs {
			open[n] = true
		}
	}
	for _, k := range keys {
		if n, ok := k.epochOf(); ok && k.kind == kindSeen {
			delete(open, n)
		}
	}
	return slices.Sorted(maps.Keys(open))
}

// settled tells whether it is certain which of some snapshots count: no claim of an epoch after theirs is incomplete.
func settled(keys []object, list []Snapshot) bool {
	open := unseen(keys)
	return len(open) == 0 || len(list) > 0 && !slices.ContainsFunc(list, func(s Snapshot) bool { return s.Epoch < open[len(open)-1] })
}

// sighted is what claims recorded: lineage to epoch to the newest snapshot that was there after its claim.
type sighted map[string]map[uint64]Snapshot

func sightings(keys []object) sighted {
	out := sighted{}
	for _, k := range keys {
		n, ok := k.epochOf()
		if !ok || k.kind != kindSeen {
			continue
		}
		if out[k.lineage] == nil {
			out[k.lineage] = map[uint64]Snapshot{}
		}
		_, last, _ := strings.Cut(k.id, "-")
		epoch, step, err := parseID(last)
		if err != nil {
			epoch, step = 0, 0 // there was none
		}
		s := Snapshot{Epoch: epoch, Step: step}
		if old, ok := out[k.lineage][n]; !ok || s.compare(old) > 0 {
			out[k.lineage][n] = s
		}
	}
	return out
}

// hide tells whether a snapshot does not count, now and for ever: a newer epoch had begun without it.
func (c sighted) hide(s Snapshot) bool {
	for epoch, last := range c[s.Lineage] {
		if epoch > s.Epoch && s.compare(last) > 0 {
			return true
		}
	}
	return false
}

// over tells whether the writer of a snapshot that is not there yet cannot publish it any more: a newer epoch has begun. If
// it does so all the same, because it was held up in between, it does not call the snapshot durable, and that one is
// hidden, or at least not the newest.
func (c sighted) over(s Snapshot) bool {
	for epoch := range c[s.Lineage] {
		if epoch > s.Epoch {
			return true
		}
	}
	return false
}

// dropClaims completes the claims of a lineage whose claimants died before they did: for a store where a later claimant
// cannot do so. Where one is still at work, it may come to count another snapshot as the one that it starts from.
func (r *Repository) dropClaims(ctx context.Context, lineage string) error {
	a, err := r.record(ctx, lineage)
	if err != nil || a == nil || a.Repository != r.id { // what an epoch of another repository starts from is decided there
		return err
	}
	keys, err := r.list(ctx, lineage, kindEpochs, kindSeen)
	if err != nil {
		return err
	}
	for _, epoch := range unseen(keys) {
		if _, err := r.start(ctx, lineage, epoch); err != nil {
			return err
		}
	}
	return nil
}
