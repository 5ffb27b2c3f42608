package repository

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"nomad-spotter/checkpointer/store"
)

// Retention says which snapshots of a lineage are kept. The newest always is.
type Retention struct {
	Last  int   // so many of the newest; 0: none but the newest
	Every int64 // in every span of so many steps, the newest; 0: none
	// Pins says of snapshots whether they are to be taken for pinned, whatever the store says.
	Pins map[string]bool
}

// Keep picks from snapshots of one lineage, newest first, those that a retention keeps; pinned ones are kept too. It
// returns, for each that is kept, why.
func (r Retention) Keep(list []Snapshot, pinned map[string]bool) map[string]string {
	out := map[string]string{}
	spans := map[int64]bool{}
	for i, s := range list {
		why := ""
		switch {
		case pinned[s.ID]:
			why = "pinned"
		case i < max(r.Last, 1):
			why = fmt.Sprintf("one of the last %d", max(r.Last, 1))
		}
		if r.Every > 0 && !spans[s.Step/r.Every] {
			spans[s.Step/r.Every] = true
			why = cmp.Or(why, fmt.Sprintf("the newest of steps %d to %d", s.Step/r.Every*r.Every, s.Step/r.Every*r.Every+r.Every-1))
		}
		if why != "" {
			out[s.ID] = why
		}
	}
	return out
}

// Garbage is what a collection of one lineage removes, or would.
type Garbage struct {
	Lineage   string            `json:"lineage"`
	Kept      map[string]string `json:"kept"` // snapshot to why
	Snapshots []string          `json:"removed_snapshots"`
	Packs     int               `json:"removed_packs"`
	Bytes     int64             `json:"freed_bytes"`
	Busy      []string          `json:"busy"`   // snapshots that a save at work relies on: they stay for now
	Copies    []string          `json:"copies"` // snapshots that are being copied into the store: nothing is removed then
}

// Pin keeps a snapshot whatever a retention says, until it is unpinned.
func (r *Repository) Pin(ctx context.Context, s Snapshot) error {
	_, err := r.store.Put(ctx, lineageKey(s.Lineage, kindPins, s.ID), strings.NewReader(""))
	if errors.Is(err, store.ErrExists) {
		return nil
	}
	return err
}

// Unpin ends a pin; that of a snapshot without one is no error.
func (r *Repository) Unpin(ctx context.Context, s Snapshot) error {
	return r.store.Delete(ctx, lineageKey(s.Lineage, kindPins, s.ID))
}

// Collect removes what a retention does not keep of a lineage: snapshots, and packs that nothing needs any more, also
// those that writers left that died. With dry it only says what it would remove.
//
// Writers may be at work. The order of things is what keeps their data:
//
//	collector                              writer (begin)
//	lists the packs: only these may go     creates its intent, which names the snapshot it relies on
//	announces each removal                 looks whether that one is being removed; if so it takes another
//	reads the newest epoch                 makes packs
//	lists the intents                      creates the manifest
//	lists the snapshots                    looks for a newer epoch
//	removes what nothing refers to         removes its intent
//
// If the intent was not there to be listed, then either the announcement was there to be seen, or the manifest is there
// to be listed. An intent of an epoch that is not the newest counts for nothing: its writer cannot publish any more.
func (r *Repository) Collect(ctx context.Context, lineage string, keep Retention, dry bool) (*Garbage, error) {
	g, err := r.collect(ctx, lineage, keep, true)
	if err == nil && !dry && len(g.Copies) == 0 { // nothing is announced where damage forbids to remove anything
		g, err = r.collect(ctx, lineage, keep, false)
	}
	if err != nil {
		return nil, fmt.Errorf("collect garbage of %s: %w", lineage, err)
	}
	return g, nil
}

func (r *Repository) collect(ctx context.Context, lineage string, keep Retention, dry bool) (*Garbage, error) {
	packs, err := r.list(ctx, lineage, kindPacks)
	if err != nil {
		return nil, err
	}
	list, err := r.Snapshots(ctx, lineage)
	if err != nil {
		return nil, err
	}
	pins, err := r.list(ctx, lineage, kindPins)
	if err != nil {
		return nil, err
	}
	pinned := map[string]bool{}
	for _, p := range pins {
		pinned[p.id] = true
	}
	maps.Copy(pinned, keep.Pins)
	g := &Garbage{Lineage: lineage, Kept: keep.Keep(list, pinned), Snapshots: []string{}, Busy: []string{}, Copies: []string{}}
	doomed := map[string]bool{}
	for _, s := range list {
		if g.Kept[s.ID] != "" {
			continue
		}
		doomed[s.ID] = true
		if dry {
			continue
		}
		_, err := r.store.Put(ctx, lineageKey(lineage, kindRemoved, s.ID), strings.NewReader(""))
		if err != nil && !errors.Is(err, store.ErrExists) {
			return nil, err
		}
	}
	return g, r.sweep(ctx, g, packs, doomed, dry)
}

// sweep removes doomed snapshots, those whose removal an earlier collection has begun, and packs that are not needed.
func (r *Repository) sweep(ctx context.Context, g *Garbage, packs []object, doomed map[string]bool, dry bool) error {
	copies, err := r.unfinished(ctx, g.Lineage, !dry)
	if g.Copies = copies; err != nil || len(copies) > 0 {
		return err
	}
	// Before the intents: one of an older epoch is dead only if its writer will see the newer epoch when it has published.
	last, err := r.lastEpoch(ctx, g.Lineage)
	if err != nil {
		return err
	}
	intents, err := r.list(ctx, g.Lineage, kindSaves)
	if err != nil {
		return err
	}
	// After the intents: a save that was not seen there any more has published.
	keys, err := r.list(ctx, g.Lineage, kindSnapshots, kindSeen, kindRemoved)
	if err != nil {
		return err
	}
	working, relied := openSaves(intents, last)
	for _, k := range keys {
		if k.kind == kindRemoved {
			doomed[k.id] = true
		}
	}
	shown := map[string]bool{}
	for _, s := range visible(keys) {
		shown[s.ID] = true
	}
	needed := map[string]bool{}
	var remove []string
	for _, k := range keys {
		if k.kind != kindSnapshots {
			continue
		}
		epoch, step, err := parseID(k.id)
		if err != nil {
			continue
		}
		switch {
		case relied[k.id]:
			if doomed[k.id] {
				g.Busy = append(g.Busy, k.id)
			}
		case doomed[k.id], !shown[k.id] && epoch < last:
			remove = append(remove, k.id)
			continue
		}
		m, err := r.Manifest(ctx, Snapshot{Lineage: g.Lineage, ID: k.id, Epoch: epoch, Step: step})
		var d *DamageError
		if errors.As(err, &d) {
			// What it needs is not known. Whoever mends it shall find as much as possible: nothing is removed.
			return fmt.Errorf("nothing was removed: %w", d)
		}
		if errors.Is(err, ErrNoSnapshot) {
			continue
		}
		if err != nil {
			return err
		}
		for _, p := range m.Packs {
			needed[p.Name] = true
		}
	}
	var idle []object
	for _, p := range packs {
		id, _, ok := parsePackName(p.id)
		if ok && !needed[p.id] && !working[id] {
			idle = append(idle, p)
		}
	}
	g.Snapshots = append(g.Snapshots, remove...)
	g.Packs = len(idle)
	for _, p := range idle {
		g.Bytes += p.size
	}
	if dry {
		return nil
	}
	return r.remove(ctx, g.Lineage, remove, idle, doomed)
}

// openSaves returns the snapshots that writers of the newest epoch are at work on, and those that they rely on.
func openSaves(intents []object, last uint64) (working, relied map[string]bool) {
	working, relied = map[string]bool{}, map[string]bool{}
	for _, k := range intents {
		id, parent, _ := strings.Cut(k.id, ".")
		if epoch, _, err := parseID(id); err == nil && epoch >= last {
			working[id], relied[parent] = true, true
		}
	}
	return working, relied
}

// remove deletes manifests, then packs, then the announcements, so that a crash at any point leaves what the next
// collection goes on with.
func (r *Repository) remove(ctx context.Context, lineage string, snapshots []string, packs []object, doomed map[string]bool) error {
	for _, id := range snapshots {
		if err := r.store.Delete(ctx, manifestKey(lineage, id)); err != nil {
			return err
		}
	}
	for _, p := range packs {
		if err := r.store.Delete(ctx, packKey(lineage, p.id)); err != nil {
			return err
		}
	}
	for _, id := range slices.Sorted(maps.Keys(doomed)) {
		if !slices.Contains(snapshots, id) {
			if _, err := r.store.Stat(ctx, manifestKey(lineage, id)); err == nil {
				continue // busy: the announcement stays
			}
		}
		if err := r.store.Delete(ctx, lineageKey(lineage, kindRemoved, id)); err != nil {
			return err
		}
	}
	return nil
}
