// Package repository keeps snapshots of checkpoints in a store: blocks of tensors in packs, coded against the snapshot
// before, and one manifest per snapshot that is written last. A snapshot that was published is restored byte for byte, or
// reported as damaged; nothing else can come out. Goroutines end before the call that started them returns.
//
// FORMAT.md describes the objects.
package repository

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"nomad-spotter/checkpointer/api"
	"nomad-spotter/checkpointer/store"
)

// Format is the version of the objects' layout.
const Format = 1

const headKey = "spotter-repository.json"

// Errors that callers branch on.
var (
	ErrSuperseded = errors.New("a newer writer epoch exists")
	ErrUnclaimed  = errors.New("the store does not hold the claim of the writer's epoch")
	ErrNoSnapshot = errors.New("no such snapshot")
	ErrConflict   = errors.New("this step was published before in this epoch, with other content")
)

// DamageError is one object that cannot be what was published.
type DamageError struct{ api.Damage }

// Error implements error.
func (e *DamageError) Error() string {
	return fmt.Sprintf("snapshot %s is damaged: %s: %s", e.Snapshot, e.Object, e.Reason)
}

type head struct {
	Format int    `json:"format"`
	ID     string `json:"id"` // random
}

// Repository is an opened repository.
type Repository struct {
	store   store.Store
	id      string
	created atomic.Int64 // bytes that making the repository took, until a writer reports them
	// conditional tells that the store was seen to create objects conditionally.
	conditional atomic.Bool
	indexes     indexes
	trusted     sync.Map // keys of packs that were written or read whole by this process
}

// Open opens the repository in a store. With create, an empty store becomes one.
func Open(ctx context.Context, s store.Store, create bool) (*Repository, error) {
	r := &Repository{store: s}
	h, err := r.openHead(ctx, create)
	if errors.Is(err, store.ErrNotFound) {
		return nil, fmt.Errorf("%s holds no checkpoint repository: %w; is the right file system mounted there?", s.URL(), err)
	}
	if err != nil {
		return nil, fmt.Errorf("open repository in %s: %w", s.URL(), err)
	}
	if h.Format != Format {
		return nil, fmt.Errorf("repository in %s has format %d, this program knows %d: use a newer one", s.URL(), h.Format, Format)
	}
	if !validID(h.ID) {
		return nil, fmt.Errorf("repository in %s: %w: %s has an id that is not %d hexadecimal digits with a right check sum at the end: %q", s.URL(), store.ErrDamaged, headKey, idLen, h.ID)
	}
	r.id = h.ID
	return r, nil
}

// URL is the store's URL.
func (r *Repository) URL() string { return r.store.URL() }

// Kinds of objects of a lineage, the names of directories below its own. No escaped element of a lineage has an "@".
const (
	kindEpochs    = "@epochs"     // EPOCH: who claimed it
	kindStarts    = "@starts"     // EPOCH: holds the newest snapshot that was there after the claim of EPOCH
	kindSeen      = "@seen"       // EPOCH-SNAPSHOT: that one, in a name, so that a listing tells it
	kindSnapshots = "@snapshots"  // SNAPSHOT: its manifest
	kindDurable   = "@durable"    // SNAPSHOT: it was reported durable
	kindPacks     = "@packs"      // SNAPSHOT-N-HASH: blocks
	kindSaves     = "@saves"      // SNAPSHOT.PARENT: a writer is at work and relies on PARENT
	kindRemoved   = "@removed"    // SNAPSHOT: it is being removed
	kindStale     = "@stale"      // SNAPSHOT: it is incomplete, stays so, and is being removed
	kindPins      = "@pins"       // SNAPSHOT: it is kept
	kindCollect   = "@collecting" // RANDOM: a collection is at work
)

// escape makes a lineage a path, element by element.
func escape(lineage string) string {
	lineage, fork := splitFork(lineage)
	if fork != "" {
		fork = forkMark + fork
	}
	parts := strings.Split(lineage, "/")
	for i, p := range parts {
		parts[i] = strings.ReplaceAll(url.PathEscape(p), "@", "%40")
	}
	return strings.Join(parts, "/") + fork
}

func lineagePrefix(lineage string) string { return "lineages/" + escape(lineage) + "/" }

func lineageKey(lineage, kind, id string) string { return lineagePrefix(lineage) + kind + "/" + id }

// parseKey reverses lineageKey.
func parseKey(key string) (lineage, kind, id string, ok bool) {
	rest, ok := strings.CutPrefix(key, "lineages/")
	if !ok {
		return "", "", "", false
	}
	parts := strings.Split(rest, "/")
	if len(parts) < 3 {
		return "", "", "", false
	}
	n := len(parts) - 2
	name := parts[:n]
	for i, p := range name {
		u, err := url.PathUnescape(p)
		if err != nil {
			return "", "", "", false
		}
		name[i] = u
	}
	return strings.Join(name, "/"), parts[n], parts[n+1], true
}

func packKey(lineage, name string) string { return lineageKey(lineage, kindPacks, name) }

func manifestKey(lineage, id string) string { return lineageKey(lineage, kindSnapshots, id) }

// Snapshot is one snapshot of a listing.
type Snapshot struct {
	Lineage string `json:"lineage"`
	ID      string `json:"snapshot"`
	Epoch   uint64 `json:"epoch"`
	Step    int64  `json:"step"`
	Ranks   int    `json:"ranks,omitempty"` // of a gang, from 2 on; 0: it has no ranks
}

// Snapshots lists the snapshots of a lineage that are complete, newest first; with lineage "" those of all, lineage by lineage.
func (r *Repository) Snapshots(ctx context.Context, lineage string) ([]Snapshot, error) {
	keys, err := r.list(ctx, lineage, countingKinds...)
	if err != nil {
		return nil, fmt.Errorf("list snapshots: %w", err)
	}
	out := visible(keys)
	slices.SortFunc(out, func(a, b Snapshot) int {
		return cmp.Or(strings.Compare(a.Lineage, b.Lineage), b.compare(a))
	})
	return out, nil
}

// object is a key of a lineage, taken apart.
type object struct {
	lineage, kind, id string
	size              int64
}

// list returns the objects of some kinds of a lineage; with lineage "" those of all.
func (r *Repository) list(ctx context.Context, lineage string, kinds ...string) ([]object, error) {
	prefixes := []string{"lineages/"}
	if lineage != "" {
		if err := CheckLineage(lineage); err != nil {
			return nil, err
		}
		prefixes = prefixes[:0]
		for _, k := range kinds {
			prefixes = append(prefixes, lineagePrefix(lineage)+k+"/")
		}
	}
	var out []object
	for _, p := range prefixes {
		entries, err := r.store.List(ctx, p)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			name, kind, id, ok := parseKey(e.Key)
			if ok && slices.Contains(kinds, kind) && (lineage == "" || name == lineage) {
				out = append(out, object{name, kind, id, e.Size})
			}
		}
	}
	return out, nil
}

// countingKinds are the kinds of objects that tell which snapshots count, in the order in which they are listed.
var countingKinds = []string{kindSnapshots, kindDurable, kindSeen, kindRemoved}

// isSnapshot tells whether an object says that there is a snapshot: its manifest does, and so does the note that it was
// reported durable. Where only the note is there the manifest was lost.
func (o object) isSnapshot() bool { return o.kind == kindSnapshots || o.kind == kindDurable }

// visible picks the snapshots that count: not those that are incomplete, that an old epoch published after a newer one had
// begun, or that are being removed.
func visible(keys []object) []Snapshot {
	complete, _ := gather(keys)
	return complete
}

// compare orders snapshots of a lineage by (epoch, step), never by clock.
func (s Snapshot) compare(o Snapshot) int {
	return cmp.Or(cmp.Compare(s.Epoch, o.Epoch), cmp.Compare(s.Step, o.Step))
}

// Manifest reads and checks the manifest of a snapshot; a *DamageError tells that it is not what was published.
func (r *Repository) Manifest(ctx context.Context, s Snapshot) (*Manifest, error) {
	if s.Ranks > 1 && !s.isPart() {
		return nil, fmt.Errorf("snapshot %s has a manifest for each of its %d ranks: name one, such as %s", s.ID, s.Ranks, s.Part(0).ID)
	}
	key := manifestKey(s.Lineage, s.ID)
	b, err := readObject(ctx, r.store, key, maxManifest)
	if err != nil {
		if errors.Is(err, store.ErrNotFound) {
			err = r.absent(ctx, s)
		}
		return nil, s.found(key, fmt.Errorf("read manifest of snapshot %s: %w", s.ID, err))
	}
	m, err := ParseManifest(b)
	if err == nil && (m.Lineage != s.Lineage || m.ID() != s.ID) {
		err = fmt.Errorf("it describes snapshot %s of %s", m.ID(), m.Lineage)
	}
	if err != nil {
		return nil, damage(s.ID, s.Step, key, err.Error())
	}
	return m, nil
}

// absent says why a snapshot has no manifest: it was removed, ErrNoSnapshot, or the manifest was lost, a *DamageError. A
// collection notes a removal before it deletes the manifest, and until it has deleted the note of durability.
func (r *Repository) absent(ctx context.Context, s Snapshot) error {
	note := lineageKey(s.Lineage, kindDurable, s.ID)
	for range 2 {
		_, err := r.store.Stat(ctx, note)
		if errors.Is(err, store.ErrNotFound) {
			return ErrNoSnapshot
		}
		leaving := false
		if err == nil {
			leaving, err = r.leaving(ctx, s)
		}
		if err != nil {
			return err
		}
		if leaving {
			return ErrNoSnapshot
		}
	}
	return damage(s.ID, s.Step, manifestKey(s.Lineage, s.ID), "missing, though "+note+" says that it was durable; where it was deleted on purpose delete that too")
}

// missing says why a snapshot lacks a pack: it was removed meanwhile, ErrNoSnapshot, or the pack was lost, a *DamageError. A
// collection deletes a manifest before the packs that only it names.
func (r *Repository) missing(ctx context.Context, s Snapshot, key string) error {
	_, err := r.store.Stat(ctx, manifestKey(s.Lineage, s.ID))
	switch {
	case errors.Is(err, store.ErrNotFound):
		return r.absent(ctx, s)
	case err != nil:
		return err
	}
	return damage(s.ID, s.Step, key, "missing")
}

// found turns the error of a store which found that an object of a snapshot is damaged into a *DamageError.
func (s Snapshot) found(key string, err error) error {
	if !errors.Is(err, store.ErrDamaged) {
		return err
	}
	_, reason, _ := strings.Cut(err.Error(), store.ErrDamaged.Error()+": ")
	return damage(s.ID, s.Step, key, cmp.Or(reason, store.ErrDamaged.Error()))
}

func damage(id string, step int64, object, reason string) *DamageError {
	return &DamageError{api.Damage{Snapshot: id, Step: step, Object: object, Reason: reason}}
}

// Claim takes the next writer epoch of a lineage from the store: who holds the highest one is the only writer.
func (r *Repository) Claim(ctx context.Context, lineage, writer string, now time.Time) (*Writer, error) {
	return r.ClaimWith(ctx, lineage, Claim{Writer: writer, Now: now})
}

// Resume is the writer of an epoch that was claimed before, after a restart of its process.
func (r *Repository) Resume(lineage string, epoch uint64) *Writer {
	return &Writer{repo: r, Lineage: lineage, Epoch: epoch}
}

// readObject reads an object of at most limit bytes.
func readObject(ctx context.Context, s store.Store, key string, limit int64) ([]byte, error) {
	rc, err := s.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(rc, limit+1))
	if err = errors.Join(err, rc.Close()); err != nil {
		return nil, fmt.Errorf("read %s: %w", key, err)
	}
	return b, nil
}
