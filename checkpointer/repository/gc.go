package repository

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

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
	Busy      []string          `json:"busy"`    // snapshots that a save at work relies on: they stay for now
	Damaged   []string          `json:"damaged"` // kept, but a pack is missing or has another length: they stand for none
	Copies    []string          `json:"copies"`  // snapshots that are being copied into the store: nothing is removed then
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

// ErrClaiming says that a collection came while a writer claimed its epoch: which snapshots count is not certain then.
// Another collection a moment later does better; if the writer died, one after the next claim, or after DropDead.
var ErrClaiming = errors.New("a writer is claiming the lineage, or died while it did; nothing was removed: collect again later, or with `checkpointer gc --drop-dead` if no writer is just starting; in a replica, after the next copy")

// CollectOptions say how a collection works. The zero value is a good default.
type CollectOptions struct {
	Dry bool             // say what would be removed, remove nothing
	By  string           // who collects, for people
	Now func() time.Time // nil: time.Now
}

// Collect removes what a retention does not keep of a lineage: snapshots, and packs that nothing needs any more, also
// those that writers left that died. Of the snapshots that a retention keeps,
// one of which a pack is missing or has another length stands for none: the next older one is kept in its place as well.
//
// Writers may be at work. The order of things is what keeps their data:
//
//	collector                              writer
//	lists the packs: only these may go     creates its intent, which names the snapshot it relies on
//	makes sure of what it keeps
//	announces each removal                 looks whether that one is being removed; if so it takes another
//	lists the announcements of others      makes packs
//	lists the claims                       creates the manifest
//	lists the intents                      looks for a newer epoch
//	lists the snapshots                    removes its intent
//	removes what nothing refers to
//
// There is an intent of a snapshot from before its first pack until after its manifest; a retry goes on under the intent
// that the failed attempt left, or uses no pack that was there before its own. So if no intent was there to be listed, then either the
// announcement was there to be seen, or the manifest is there to be listed, or the pack was not there to be listed. An
// intent counts for nothing once the claim of a newer epoch is complete: its snapshot will be hidden.
//
// A step of a gang that is incomplete and older than the newest complete snapshot goes too. That is announced in a place of
// its own, which says nothing about a snapshot that has become complete in between: that one stays. The announcement lasts
// until nothing incomplete is left of the step, so that a rank that comes late sees it whoever has announced it.
//
// For the same reason a claim must be complete before a removal is decided: only then it is certain which of the newest
// snapshots count, and that there are as many as are to be kept.
//
// Collections do not meet: one that comes while another is at work fails with ErrCollecting (collecting.go).
func (r *Repository) Collect(ctx context.Context, lineage string, keep Retention, o CollectOptions) (*Garbage, error) {
	g, err := r.collect(ctx, lineage, keep, o)
	if err != nil {
		return nil, fmt.Errorf("collect garbage of %s: %w", lineage, err)
	}
	return g, nil
}

// collection is a collection at work.
type collection struct {
	repo      *Repository
	turn      *turn // nil in a dry one
	garbage   *Garbage
	packs     map[string]int64     // that may go: name to bytes
	manifests map[string]*Manifest // that were read, of parts
	doomed    map[string]bool      // snapshots that are to be removed
	stale     map[string]bool      // what is to be removed if it still is incomplete
	announced []string             // such, by this or an earlier collection, of which nothing incomplete will be left
}

func (r *Repository) collect(ctx context.Context, lineage string, keep Retention, o CollectOptions) (_ *Garbage, err error) {
	if err := CheckLineage(lineage); err != nil {
		return nil, err
	}
	dry := o.Dry
	c := &collection{
		repo: r, garbage: &Garbage{Lineage: lineage, Kept: map[string]string{}, Snapshots: []string{}, Busy: []string{}, Damaged: []string{}, Copies: []string{}},
		manifests: map[string]*Manifest{}, doomed: map[string]bool{},
	}
	if !dry {
		now := o.Now
		if now == nil {
			now = time.Now
		}
		if c.turn, err = r.take(ctx, lineage, cmp.Or(o.By, "somebody"), now); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, c.turn.end(ctx)) }()
	}
	if c.packs, err = r.packSizes(ctx, lineage); err != nil {
		return nil, err
	}
	// In this order: whoever claims after the epochs were listed sees the snapshots that were listed before.
	keys, err := r.list(ctx, lineage, kindSnapshots, kindDurable, kindEpochs, kindSeen, kindRemoved)
	if err != nil {
		return nil, err
	}
	list, incomplete := gather(keys)
	if !settled(keys, list) {
		return nil, ErrClaiming
	}
	c.stale = stale(list, incomplete)
	slices.SortFunc(list, func(a, b Snapshot) int { return b.compare(a) })
	pinned, err := r.pins(ctx, lineage, keep)
	if err != nil {
		return nil, err
	}
	if err := c.keep(ctx, list, keep, pinned); err != nil {
		return nil, err
	}
	var kept []Snapshot
	for _, s := range list {
		if c.garbage.Kept[s.ID] == "" {
			c.doomed[s.ID] = true
		} else {
			kept = append(kept, s.Parts()...)
		}
	}
	if busy, err := c.copies(ctx, dry); err != nil || busy {
		return c.garbage, err
	}
	if !dry {
		if len(c.doomed) > 0 {
			if err := r.endure(ctx, kept); err != nil {
				return nil, err
			}
		}
		if err := c.announce(ctx, keep); err != nil {
			return nil, err
		}
		// Again: a copy that is seen neither now nor before sees what was announced.
		if busy, err := c.copies(ctx, dry); err != nil || busy {
			return c.garbage, err
		}
	}
	snapshots, packs, err := c.sweep(ctx)
	if err != nil {
		return nil, err
	}
	if !dry {
		err = c.remove(ctx, snapshots, packs)
	}
	return c.garbage, err
}

// copies tells whether snapshots are being copied into the lineage.
func (c *collection) copies(ctx context.Context, dry bool) (bool, error) {
	var err error
	c.garbage.Copies, err = c.repo.unfinished(ctx, c.garbage.Lineage, !dry)
	return len(c.garbage.Copies) > 0, err
}

// errProbe is what the content of an object that is not to be created ends with.
var errProbe = errors.New("nothing is to be created")

// failing is a reader that fails.
type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errProbe }

// harden makes sure that an object survives a crash of the machine: who created it may have died after it could be seen and
// before it was durable. The store's Put says so of what exists, and creates nothing when its reader fails. A store that
// reads first, as one behind a network does, has nothing that can be seen and may yet be lost. The error is ErrNotFound
// when there is no such object.
func (r *Repository) harden(ctx context.Context, key string) error {
	_, err := r.store.Put(ctx, key, failing{})
	if errors.Is(err, store.ErrExists) {
		return nil
	}
	if errors.Is(err, errProbe) {
		_, err = r.store.Stat(ctx, key)
	}
	return err
}

// endure makes sure that snapshots survive a crash of the machine before others are removed in their favour.
func (r *Repository) endure(ctx context.Context, list []Snapshot) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallelReads)
	for _, s := range list {
		g.Go(func() error {
			err := r.harden(ctx, manifestKey(s.Lineage, s.ID))
			if errors.Is(err, store.ErrNotFound) {
				err = fmt.Errorf("snapshot %s was removed meanwhile, nothing else was: %w", s.ID, ErrNoSnapshot)
			}
			return err
		})
	}
	return g.Wait()
}

// packSizes lists the packs of a lineage: names to bytes.
func (r *Repository) packSizes(ctx context.Context, lineage string) (map[string]int64, error) {
	list, err := r.list(ctx, lineage, kindPacks)
	if err != nil {
		return nil, err
	}
	out := make(map[string]int64, len(list))
	for _, p := range list {
		out[p.id] = p.size
	}
	return out, nil
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

// parallelReads is how many manifests are read at once.
const parallelReads = 8

// read reads the manifests of snapshots that were not read yet. When one is damaged, what it needs is not known; whoever
// mends it shall find as much as possible: nothing is removed.
func (c *collection) read(ctx context.Context, list []Snapshot) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallelReads)
	got := make([]*Manifest, len(list))
	for i, s := range list {
		if c.manifests[s.ID] != nil {
			continue
		}
		g.Go(func() error {
			m, err := c.repo.Manifest(ctx, s)
			var d *DamageError
			switch {
			case errors.As(err, &d):
				return fmt.Errorf("nothing was removed: %w", d)
			case errors.Is(err, ErrNoSnapshot): // another collection has removed it
			case err != nil:
				return err
			}
			got[i] = m
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for i, s := range list {
		if got[i] != nil {
			got[i].Blocks, got[i].Layout = nil, nil // only the packs matter
			c.manifests[s.ID] = got[i]
		}
	}
	return nil
}

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
