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

// Pin keeps a snapshot whatever a retention says, until it is unpinned. It fails with ErrNoSnapshot when the snapshot is
// gone or a collection is about to remove it.
func (r *Repository) Pin(ctx context.Context, s Snapshot) error {
	if _, err := r.store.Put(ctx, lineageKey(s.Lineage, kindPins, stepOf(s.ID)), strings.NewReader("")); err != nil && !errors.Is(err, store.ErrExists) {
		return fmt.Errorf("pin snapshot %s of %s: %w", s.ID, s.Lineage, err)
	}
	// In this order: a collection announces, then looks for pins.
	gone, err := r.gone(ctx, s)
	if err == nil && gone {
		err = errors.Join(ErrNoSnapshot, r.Unpin(ctx, s))
	}
	if err != nil {
		return fmt.Errorf("pin snapshot %s of %s: %w", s.ID, s.Lineage, err)
	}
	return nil
}

// Unpin ends a pin; that of a snapshot without one is no error.
func (r *Repository) Unpin(ctx context.Context, s Snapshot) error {
	return r.store.Delete(ctx, lineageKey(s.Lineage, kindPins, stepOf(s.ID)))
}

// gone tells whether a snapshot has been removed or is being removed.
func (r *Repository) gone(ctx context.Context, s Snapshot) (bool, error) {
	for _, p := range s.Parts() {
		switch _, err := r.store.Stat(ctx, manifestKey(p.Lineage, p.ID)); {
		case errors.Is(err, store.ErrNotFound):
			return true, nil
		case err != nil:
			return false, err
		}
	}
	_, err := r.store.Stat(ctx, lineageKey(s.Lineage, kindRemoved, stepOf(s.ID)))
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// pins returns the snapshots that are pinned.
func (r *Repository) pins(ctx context.Context, lineage string, keep Retention) (map[string]bool, error) {
	list, err := r.list(ctx, lineage, kindPins)
	if err != nil {
		return nil, err
	}
	out := make(map[string]bool, len(list))
	for _, p := range list {
		out[p.id] = true
	}
	maps.Copy(out, keep.Pins)
	return out, nil
}

// keep decides what stays. Snapshots that lack something do not count, but stay as long as if they did.
func (c *collection) keep(ctx context.Context, list []Snapshot, keep Retention, pinned map[string]bool) error {
	present := c.packs
	for sound := slices.Clone(list); ; {
		var chosen []Snapshot
		why := keep.Keep(sound, pinned)
		for _, s := range sound {
			if why[s.ID] != "" {
				chosen = append(chosen, s.Parts()...)
				c.garbage.Kept[s.ID] = why[s.ID]
			}
		}
		if err := c.read(ctx, chosen); err != nil {
			return err
		}
		lacking := func(s Snapshot) bool {
			return why[s.ID] != "" && slices.ContainsFunc(s.Parts(), func(p Snapshot) bool {
				return c.manifests[p.ID] != nil && lacks(c.manifests[p.ID], present)
			})
		}
		if !slices.ContainsFunc(sound, lacking) {
			return nil
		}
		// Perhaps it was not there yet when the packs were listed.
		var err error
		if present, err = c.repo.packSizes(ctx, c.garbage.Lineage); err != nil {
			return err
		}
		n := len(sound)
		sound = slices.DeleteFunc(sound, func(s Snapshot) bool {
			if !lacking(s) {
				return false
			}
			c.garbage.Damaged = append(c.garbage.Damaged, s.ID)
			c.garbage.Kept[s.ID] = "damaged: a pack is missing or has another length; it stands for none"
			return true
		})
		if len(sound) == n {
			return nil
		}
	}
}

// lacks tells whether a pack that a snapshot needs is missing or has another length.
func lacks(m *Manifest, present map[string]int64) bool {
	return slices.ContainsFunc(m.Packs, func(p PackRef) bool {
		size, ok := present[p.Name]
		return !ok || size != p.Bytes
	})
}
