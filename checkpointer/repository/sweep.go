package repository

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"nomad-spotter/checkpointer/store"
)

// announce says which snapshots are going to be removed, and spares those that were pinned meanwhile.
func (c *collection) announce(ctx context.Context, keep Retention) error {
	lineage := c.garbage.Lineage
	for _, id := range slices.Sorted(maps.Keys(c.doomed)) {
		_, err := c.repo.store.Put(ctx, lineageKey(lineage, kindRemoved, id), strings.NewReader(""))
		if err != nil && !errors.Is(err, store.ErrExists) {
			return err
		}
	}
	for _, id := range slices.Sorted(maps.Keys(c.stale)) {
		_, err := c.repo.store.Put(ctx, lineageKey(lineage, kindStale, id), strings.NewReader(""))
		if err != nil && !errors.Is(err, store.ErrExists) {
			return err
		}
	}
	pinned, err := c.repo.pins(ctx, lineage, keep)
	if err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(pinned)) {
		if !pinned[id] || !c.doomed[id] {
			continue
		}
		if err := c.turn.remove(ctx, lineageKey(lineage, kindRemoved, id)); err != nil {
			return err
		}
		delete(c.doomed, id)
		c.garbage.Kept[id] = "pinned"
	}
	return nil
}

// sweep picks what is to be deleted, parts and packs: doomed snapshots, those whose removal an earlier collection has
// begun, those that never count, and packs that are not needed.
func (c *collection) sweep(ctx context.Context) (snapshots, packs []string, err error) {
	g := c.garbage
	// In this order: a removal that another collection has announced was there to be seen by saves that have no intent yet; an
	// intent that a claim ended has published before that claim, or never will; a save that has no intent any more has
	// published.
	keys, err := c.repo.list(ctx, g.Lineage, kindRemoved, kindStale, kindSeen, kindSaves, kindSnapshots, kindDurable)
	if err != nil {
		return nil, nil, err
	}
	claims := sightings(keys)
	working, relied := openSaves(g.Lineage, keys, claims)
	for _, k := range keys {
		if k.kind == kindRemoved {
			c.doomed[k.id] = true
		}
	}
	whole := map[string]bool{}
	for _, s := range visible(keys) {
		whole[s.ID] = true
	}
	var stay []Snapshot
	rest, looked := map[string]bool{}, map[string]bool{} // incomplete and not removed; looked at
	for _, k := range keys {
		p, err := parsePart(k.id)
		if !k.isSnapshot() || err != nil || looked[k.id] {
			continue
		}
		looked[k.id] = true
		s := Snapshot{Lineage: g.Lineage, ID: k.id, Epoch: p.epoch, Step: p.step}
		id := stepOf(k.id)
		busy := relied[id] || working[id]
		switch {
		case busy && c.doomed[id]:
			g.Busy = append(g.Busy, id)
		case busy:
		case c.doomed[id], claims.hide(s), c.stale[id] && !whole[id]:
			snapshots = append(snapshots, k.id)
			g.Snapshots = append(g.Snapshots, id)
			continue
		}
		stay = append(stay, s)
		rest[id] = !whole[id]
	}
	for _, k := range keys {
		if k.kind == kindStale && !rest[k.id] {
			c.announced = append(c.announced, k.id)
		}
	}
	if err := c.read(ctx, stay); err != nil {
		return nil, nil, err
	}
	needed := map[string]bool{}
	for _, s := range stay {
		m := c.manifests[s.ID]
		if m == nil { // by whoever does not heed the mark, in favour of one that is not in this list and may need the same packs
			return nil, nil, fmt.Errorf("snapshot %s was removed meanwhile: %w", s.ID, ErrCollecting)
		}
		for _, p := range m.Packs {
			needed[p.Name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.packs)) {
		if id, _, ok := parsePackName(name); ok && !needed[name] && !working[stepOf(id)] {
			packs = append(packs, name)
			g.Bytes += c.packs[name]
		}
	}
	slices.Sort(g.Snapshots)
	slices.Sort(g.Busy)
	g.Snapshots, g.Busy = slices.Compact(g.Snapshots), slices.Compact(g.Busy)
	g.Packs = len(packs)
	return snapshots, packs, nil
}

// openSaves returns the snapshots that writers are at work on, be it one rank of many, and those that they rely on.
func openSaves(lineage string, keys []object, claims sighted) (working, relied map[string]bool) {
	working, relied = map[string]bool{}, map[string]bool{}
	for _, k := range keys {
		i, p, err := parseIntent(k.id)
		if k.kind == kindSaves && err == nil && !claims.over(Snapshot{Lineage: lineage, Epoch: p.epoch}) {
			working[stepOf(i.id)], relied[stepOf(i.parent)] = true, true
		}
	}
	return working, relied
}

// remove deletes manifests, then packs, then the announcements, so that a crash at any point leaves what the next
// collection goes on with. Manifests that are gone already are deleted too: a collection that died may have removed them
// without making that durable, and they must not come back after their packs have gone.
func (c *collection) remove(ctx context.Context, snapshots, packs []string) error {
	lineage := c.garbage.Lineage
	if err := c.turn.present(ctx); err != nil {
		return err
	}
	for id := range c.doomed {
		if !slices.Contains(c.garbage.Busy, id) {
			snapshots = append(snapshots, id)
		}
	}
	snapshots = append(snapshots, c.announced...)
	slices.Sort(snapshots)
	for _, id := range slices.Compact(snapshots) {
		for _, kind := range []string{kindSnapshots, kindDurable} {
			if err := c.turn.remove(ctx, lineageKey(lineage, kind, id)); err != nil {
				return err
			}
		}
	}
	for _, name := range packs {
		if err := c.turn.remove(ctx, packKey(lineage, name)); err != nil {
			return err
		}
	}
	for _, id := range slices.Sorted(maps.Keys(c.doomed)) {
		if slices.Contains(c.garbage.Busy, id) {
			continue // the announcement stays
		}
		if err := c.turn.remove(ctx, lineageKey(lineage, kindRemoved, id)); err != nil {
			return err
		}
	}
	for _, id := range c.announced {
		if err := c.turn.remove(ctx, lineageKey(lineage, kindStale, id)); err != nil {
			return err
		}
	}
	return nil
}
