package repository

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"nomad-spotter/checkpointer/api"
)

// SnapshotStats says what a snapshot took, and why that is less than its files' size, in bytes:
//
//	Stored = Raw - Unchanged - Differences - Coding + Metadata
type SnapshotStats struct {
	Raw         int64 `json:"raw_bytes"`         // size of its files
	Stored      int64 `json:"stored_bytes"`      // packs that were made for it, and its manifest
	Unchanged   int64 `json:"saved_unchanged"`   // blocks that an earlier snapshot holds
	Differences int64 `json:"saved_differences"` // blocks coded as differences to earlier ones
	Coding      int64 `json:"saved_coding"`      // blocks coded alone
	Metadata    int64 `json:"metadata_bytes"`    // layout, indexes of the packs, manifest
	Blocks      int   `json:"blocks"`            // of the content
	New         int   `json:"new_blocks"`        // of which were made for it
	MaxLinks    int   `json:"max_links"`         // blocks that must be decoded before one, at most

	manifestBytes int64
}

// Add sums two up; MaxLinks is the larger one.
func (s *SnapshotStats) Add(o SnapshotStats) {
	s.Raw += o.Raw
	s.Stored += o.Stored
	s.Unchanged += o.Unchanged
	s.Differences += o.Differences
	s.Coding += o.Coding
	s.Metadata += o.Metadata
	s.Blocks += o.Blocks
	s.New += o.New
	s.MaxLinks = max(s.MaxLinks, o.MaxLinks)
}

// SnapshotUse is what one snapshot took.
type SnapshotUse struct {
	Snapshot
	SnapshotStats
}

// Usage is what a lineage takes in a store, in bytes. Total.Stored is all of its objects:
//
//	Total.Stored = Total.Raw - Total.Unchanged - Total.Differences - Total.Coding + Total.Metadata + Inherited + Unneeded
type Usage struct {
	Lineage   string        `json:"lineage"`
	Snapshots []SnapshotUse `json:"snapshots"` // newest first
	Total     SnapshotStats `json:"total"`     // its Metadata holds epochs, pins and the like too
	// Inherited is packs of snapshots that were removed, or do not count, which others still need.
	Inherited int64 `json:"inherited_bytes"`
	// Unneeded is packs that no snapshot needs: what Collect frees, unless a save is at work on them.
	Unneeded      int64        `json:"unneeded_bytes"`
	UnneededPacks int          `json:"unneeded_packs"`
	Damaged       []api.Damage `json:"damaged"` // snapshots that nothing else tells of; then packs may seem unneeded that are not
}

// Lineages lists the lineages of which a store holds anything, sorted.
func (r *Repository) Lineages(ctx context.Context) ([]string, error) {
	entries, err := r.store.List(ctx, "lineages/")
	if err != nil {
		return nil, fmt.Errorf("list lineages: %w", err)
	}
	var out []string
	for _, e := range entries {
		if name, _, _, ok := parseKey(e.Key); ok && CheckLineage(name) == nil {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// Usage reads the descriptions of all snapshots of a lineage and says what they take.
func (r *Repository) Usage(ctx context.Context, lineage string) (*Usage, error) {
	u, err := r.usage(ctx, lineage)
	if err != nil {
		return nil, fmt.Errorf("usage of %s: %w", lineage, err)
	}
	return u, nil
}

// lineageKinds are all kinds of objects of a lineage.
var lineageKinds = []string{kindAuthority, kindEpochs, kindStarts, kindSeen, kindSnapshots, kindDurable, kindPacks, kindSaves, kindRemoved, kindStale, kindPins, kindCopies, kindCollect}

func (r *Repository) usage(ctx context.Context, lineage string) (*Usage, error) {
	keys, err := r.list(ctx, lineage, lineageKinds...)
	if err != nil {
		return nil, err
	}
	u := &Usage{Lineage: lineage, Snapshots: []SnapshotUse{}, Damaged: []api.Damage{}}
	needed, own := map[string]bool{}, map[string]bool{} // packs that any snapshot needs; that were made for one that counts
	counts := visible(keys)
	slices.SortFunc(counts, func(a, b Snapshot) int { return b.compare(a) })
	for _, s := range parts(counts) {
		v, err := r.open(ctx, s)
		var st SnapshotStats
		if err == nil {
			st, err = v.stats()
		}
		var d *DamageError
		switch {
		case errors.As(err, &d):
			u.Damaged = append(u.Damaged, d.Damage)
			continue
		case errors.Is(err, ErrNoSnapshot): // removed since
			continue
		case err != nil:
			return nil, err
		}
		for _, p := range v.manifest.Packs {
			needed[p.Name] = true
			if id, _, _ := parsePackName(p.Name); id == s.ID {
				own[p.Name] = true
			}
		}
		u.Total.Add(st)
		if n := len(u.Snapshots); n > 0 && u.Snapshots[n-1].ID == stepOf(s.ID) { // another rank's part of the same
			u.Snapshots[n-1].Add(st)
			u.Snapshots[n-1].manifestBytes += st.manifestBytes
			continue
		}
		s.ID = stepOf(s.ID)
		u.Snapshots = append(u.Snapshots, SnapshotUse{s, st})
	}
	u.Total.Stored = 0
	for _, k := range keys {
		u.Total.Stored += k.size
		switch {
		case k.kind != kindPacks:
			u.Total.Metadata += k.size
		case own[k.id]:
		case needed[k.id]:
			u.Inherited += k.size
		default:
			u.Unneeded += k.size
			u.UnneededPacks++
		}
	}
	for _, s := range u.Snapshots {
		u.Total.Metadata -= s.manifestBytes // it was listed
	}
	return u, nil
}

// stats sums a snapshot up.
func (v *view) stats() (SnapshotStats, error) {
	m, err := v.manifest.Encode()
	if err != nil {
		return SnapshotStats{}, fmt.Errorf("snapshot %s of %s: %w", v.snapshot.ID, v.snapshot.Lineage, err)
	}
	st := SnapshotStats{Raw: v.manifest.RawBytes, manifestBytes: int64(len(m)), Blocks: len(v.blocks)}
	own := map[string]bool{}
	st.Stored = st.manifestBytes
	for _, p := range v.manifest.Packs {
		if id, _, _ := parsePackName(p.Name); id == v.snapshot.ID {
			own[p.Name] = true
			st.Stored += p.Bytes
		}
	}
	for _, a := range v.blocks {
		b := v.packs[a.pack].Blocks[a.block]
		st.MaxLinks = max(st.MaxLinks, b.Links)
		saved := int64(b.Raw - b.Len)
		switch {
		case !own[a.pack]:
			st.Unchanged += int64(b.Raw)
			continue
		case b.Links > 0:
			st.Differences += saved
		default:
			st.Coding += saved
		}
		st.New++
	}
	st.Metadata = st.Stored - (st.Raw - st.Unchanged - st.Differences - st.Coding)
	return st, nil
}
