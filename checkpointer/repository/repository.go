// Package repository keeps snapshots of checkpoints in a store: whole files by content, and one manifest per snapshot
// that is written last. A snapshot that was published is restored byte for byte, or reported as damaged; nothing else
// can come out. The package starts no goroutine.
//
// FORMAT.md describes the objects.
package repository

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
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
	Format int `json:"format"`
}

// Repository is an opened repository.
type Repository struct {
	store   store.Store
	created int64 // bytes that making the repository took, until a writer reports them
}

// Open opens the repository in a store. With create, an empty store becomes one.
func Open(ctx context.Context, s store.Store, create bool) (*Repository, error) {
	var created int64
	b, err := readAll(ctx, s, headKey, 1<<16)
	if errors.Is(err, store.ErrNotFound) && create {
		b, err = json.Marshal(head{Format: Format})
		if err == nil {
			if created, err = s.Put(ctx, headKey, bytes.NewReader(b)); errors.Is(err, store.ErrExists) {
				b, err = readAll(ctx, s, headKey, 1<<16)
			}
		}
	}
	if errors.Is(err, store.ErrNotFound) {
		return nil, fmt.Errorf("%s holds no checkpoint repository: %w; is the right file system mounted there?", s.URL(), err)
	}
	if err != nil {
		return nil, fmt.Errorf("open repository: %w", err)
	}
	var h head
	if err := json.Unmarshal(b, &h); err != nil {
		return nil, fmt.Errorf("open repository in %s: decode %s: %w", s.URL(), headKey, err)
	}
	if h.Format != Format {
		return nil, fmt.Errorf("repository in %s has format %d, this program knows %d: use a newer one", s.URL(), h.Format, Format)
	}
	return &Repository{store: s, created: created}, nil
}

// URL is the store's URL.
func (r *Repository) URL() string { return r.store.URL() }

func objectKey(sum string) string { return "objects/" + sum[:2] + "/" + sum }

func lineagePrefix(lineage string) string { return "lineages/" + url.PathEscape(lineage) + "/" }

func epochKey(lineage string, epoch uint64) string {
	return lineagePrefix(lineage) + fmt.Sprintf("epochs/%08d", epoch)
}

func manifestKey(lineage, id string) string { return lineagePrefix(lineage) + "snapshots/" + id }

// lastEpoch returns the highest claimed epoch of a lineage, 0 if there is none.
func (r *Repository) lastEpoch(ctx context.Context, lineage string) (uint64, error) {
	entries, err := r.store.List(ctx, lineagePrefix(lineage)+"epochs/")
	if err != nil {
		return 0, err
	}
	var last uint64
	for _, e := range entries {
		n, err := strconv.ParseUint(e.Key[strings.LastIndexByte(e.Key, '/')+1:], 10, 64)
		if err == nil {
			last = max(last, n)
		}
	}
	return last, nil
}

// Snapshot is one snapshot of a listing.
type Snapshot struct {
	Lineage string `json:"lineage"`
	ID      string `json:"snapshot"`
	Epoch   uint64 `json:"epoch"`
	Step    int64  `json:"step"`
}

// Snapshots lists the snapshots of a lineage, newest first; with lineage "" those of all, lineage by lineage.
func (r *Repository) Snapshots(ctx context.Context, lineage string) ([]Snapshot, error) {
	prefix := "lineages/"
	if lineage != "" {
		if err := CheckLineage(lineage); err != nil {
			return nil, err
		}
		prefix = lineagePrefix(lineage) + "snapshots/"
	}
	entries, err := r.store.List(ctx, prefix)
	if err != nil {
		return nil, fmt.Errorf("list snapshots: %w", err)
	}
	var out []Snapshot
	for _, e := range entries {
		parts := strings.Split(e.Key, "/")
		if len(parts) != 4 || parts[2] != "snapshots" {
			continue
		}
		name, err := url.PathUnescape(parts[1])
		if err != nil {
			continue
		}
		epoch, step, err := parseID(parts[3])
		if err != nil {
			continue
		}
		out = append(out, Snapshot{Lineage: name, ID: parts[3], Epoch: epoch, Step: step})
	}
	slices.SortFunc(out, func(a, b Snapshot) int {
		if c := strings.Compare(a.Lineage, b.Lineage); c != 0 {
			return c
		}
		return strings.Compare(b.ID, a.ID)
	})
	return out, nil
}

// Manifest reads and checks the manifest of a snapshot; a *DamageError tells that it is not what was published.
func (r *Repository) Manifest(ctx context.Context, s Snapshot) (*Manifest, error) {
	key := manifestKey(s.Lineage, s.ID)
	b, err := readAll(ctx, r.store, key, maxManifest)
	if err != nil {
		if errors.Is(err, store.ErrNotFound) {
			err = ErrNoSnapshot
		}
		return nil, fmt.Errorf("read manifest of snapshot %s: %w", s.ID, err)
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

func damage(id string, step int64, object, reason string) *DamageError {
	return &DamageError{api.Damage{Snapshot: id, Step: step, Object: object, Reason: reason}}
}

// Claim takes the next writer epoch of a lineage: who holds the highest one is the only writer.
func (r *Repository) Claim(ctx context.Context, lineage, writer string, now time.Time) (*Writer, error) {
	if err := CheckLineage(lineage); err != nil {
		return nil, err
	}
	record, err := json.Marshal(map[string]any{"writer": writer, "at": now.UTC()})
	if err != nil {
		return nil, err
	}
	for {
		last, err := r.lastEpoch(ctx, lineage)
		if err != nil {
			return nil, fmt.Errorf("claim epoch of %s: %w", lineage, err)
		}
		n, err := r.store.Put(ctx, epochKey(lineage, last+1), bytes.NewReader(record))
		if errors.Is(err, store.ErrExists) {
			continue // somebody else took it; the next one then
		}
		if err != nil {
			return nil, fmt.Errorf("claim epoch of %s: %w", lineage, err)
		}
		w := &Writer{repo: r, Lineage: lineage, Epoch: last + 1, unreported: n + r.created}
		r.created = 0
		return w, nil
	}
}

// Resume is the writer of an epoch that was claimed before, after a restart of its process.
func (r *Repository) Resume(lineage string, epoch uint64) *Writer {
	return &Writer{repo: r, Lineage: lineage, Epoch: epoch}
}

func readAll(ctx context.Context, s store.Store, key string, limit int64) ([]byte, error) {
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
