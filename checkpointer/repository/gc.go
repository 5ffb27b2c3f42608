package repository

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"nomad-spotter/checkpointer/store"
)

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
