package repository

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"nomad-spotter/checkpointer/delta"
	"nomad-spotter/checkpointer/store"
	"nomad-spotter/checkpointer/tensor"
)

// Description tells what a snapshot is and how it is stored. All sizes are bytes.
type Description struct {
	Snapshot
	Name      string    `json:"name"`
	Created   time.Time `json:"created"`
	Precision string    `json:"precision"` // see Precision
	Pinned    bool      `json:"pinned"`
	Files     int       `json:"files"`
	Sections  int       `json:"sections"` // tensors, and runs of bytes between them
	SnapshotStats

	NeededBytes int64        `json:"needed_bytes"` // what a restore needs: all packs and the manifest
	Formats     []FormatPart `json:"formats"`
	Kinds       []KindPart   `json:"kinds"`
	Links       []LinkPart   `json:"links"`    // by the number of blocks that must be decoded before one
	Methods     []MethodPart `json:"methods"`  // how blocks are coded
	Examined    int          `json:"examined"` // blocks that Methods tells of
	Sources     []SourcePart `json:"sources"`  // the snapshots whose blocks it uses, its own first
	Packs       []PackPart   `json:"packs"`
	Tensors     []TensorPart `json:"tensors,omitzero"`
}

// FormatPart is what files of one format have in common.
type FormatPart struct {
	Format string `json:"format"`
	Files  int    `json:"files"`
	Bytes  int64  `json:"raw_bytes"`
}

// KindPart is the tensors of one kind and type of element. Kind is "w" for weights, "m" and "v" for an optimizer's first
// and second moments, "" for others; both are empty for what lies between tensors.
type KindPart struct {
	Kind     string `json:"kind"`
	DType    string `json:"dtype"`
	Sections int    `json:"sections"`
	Raw      int64  `json:"raw_bytes"`
	Stored   int64  `json:"stored_bytes"` // encoded, where unchanged too
}

// LinkPart is the blocks with one number of links.
type LinkPart struct {
	Links  int   `json:"links"`
	Blocks int   `json:"blocks"`
	Raw    int64 `json:"raw_bytes"`
	Stored int64 `json:"stored_bytes"`
}

// MethodPart is the blocks that are coded in one way, see delta.Method.
type MethodPart struct {
	Method string `json:"method"`
	Blocks int    `json:"blocks"`
	Raw    int64  `json:"raw_bytes"`
	Stored int64  `json:"stored_bytes"`
}

// SourcePart is what a snapshot uses of another one, or of its own.
type SourcePart struct {
	Snapshot string `json:"snapshot"`
	Blocks   int    `json:"blocks"` // of the content that lie in its packs
	Bases    int    `json:"bases"`  // blocks of its packs that others are differences to
}

// PackPart is one pack that a restore needs.
type PackPart struct {
	Name   string `json:"name"`
	Bytes  int64  `json:"bytes"`
	Blocks int    `json:"blocks"`
	Used   int    `json:"used"` // blocks of the content among them
}

// TensorPart is one tensor.
type TensorPart struct {
	File   string `json:"file"` // "" where the checkpoint is one file
	Name   string `json:"name"`
	Kind   string `json:"kind"`
	DType  string `json:"dtype"`
	Raw    int64  `json:"raw_bytes"`
	Stored int64  `json:"stored_bytes"` // its share of the blocks that it lies in
}

// Detail says how much a description tells.
type Detail struct {
	Tensors bool // every single tensor
	// Methods is how many blocks are looked at to see how they are coded, evenly spread over the snapshot. Each costs a
	// small read.
	Methods int
}

// Describe reads what describes a snapshot, but not its content.
func (r *Repository) Describe(ctx context.Context, s Snapshot, detail Detail) (*Description, error) {
	v, err := r.open(ctx, s)
	if err != nil {
		return nil, fmt.Errorf("describe snapshot %s of %s: %w", s.ID, s.Lineage, err)
	}
	_, err = r.store.Stat(ctx, lineageKey(s.Lineage, kindPins, stepOf(s.ID)))
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, fmt.Errorf("describe snapshot %s of %s: %w", s.ID, s.Lineage, err)
	}
	m := v.manifest
	d := &Description{
		Snapshot: s, Name: m.Name, Created: m.Created, Precision: m.Precision.String(), Pinned: err == nil, Files: m.Files,
		Formats: v.formats(), Links: v.links(), Packs: v.packParts(), Sources: v.sources(),
	}
	if d.SnapshotStats, err = v.stats(); err != nil {
		return nil, err
	}
	for _, p := range m.Packs {
		d.NeededBytes += p.Bytes
	}
	d.NeededBytes += d.manifestBytes
	tensors := v.tensors()
	d.Sections, d.Kinds = len(tensors), kinds(tensors)
	if detail.Tensors {
		d.Tensors = slices.DeleteFunc(tensors, func(t TensorPart) bool { return t.Name == "" })
	}
	if d.Methods, d.Examined, err = v.methods(ctx, detail.Methods); err != nil {
		return nil, fmt.Errorf("describe snapshot %s of %s: %w", s.ID, s.Lineage, err)
	}
	return d, nil
}

func (v *view) formats() []FormatPart {
	known := map[string]*FormatPart{}
	for _, e := range v.layout.Entries {
		if e.Dir {
			continue
		}
		f := known[e.Format]
		if f == nil {
			f = &FormatPart{Format: e.Format}
			known[e.Format] = f
		}
		f.Files++
		f.Bytes += e.Size()
	}
	return sortedParts(known, func(a, b FormatPart) int { return cmp.Compare(b.Bytes, a.Bytes) })
}

// sortedParts returns the values in an order that does not depend on the map: by how, then by key.
func sortedParts[K cmp.Ordered, V any](m map[K]*V, how func(a, b V) int) []V {
	keys := make([]K, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	out := make([]V, len(keys))
	for i, k := range keys {
		out[i] = *m[k]
	}
	slices.SortStableFunc(out, how)
	return out
}

func (v *view) links() []LinkPart {
	known := map[int]*LinkPart{}
	for _, a := range v.blocks {
		b := v.packs[a.pack].Blocks[a.block]
		p := known[b.Links]
		if p == nil {
			p = &LinkPart{Links: b.Links}
			known[b.Links] = p
		}
		p.Blocks++
		p.Raw += int64(b.Raw)
		p.Stored += int64(b.Len)
	}
	return sortedParts(known, func(a, b LinkPart) int { return cmp.Compare(a.Links, b.Links) })
}

func (v *view) packParts() []PackPart {
	used := map[string]int{}
	for _, a := range v.blocks {
		used[a.pack]++
	}
	out := make([]PackPart, len(v.manifest.Packs))
	for i, p := range v.manifest.Packs {
		out[i] = PackPart{Name: p.Name, Bytes: p.Bytes, Blocks: len(v.packs[p.Name].Blocks), Used: used[p.Name]}
	}
	return out
}

// sources counts what the snapshot uses of which snapshots' packs.
func (v *view) sources() []SourcePart {
	known := map[string]*SourcePart{}
	of := func(pack string) *SourcePart {
		id, _, _ := parsePackName(pack) // checked with the manifest
		if known[id] == nil {
			known[id] = &SourcePart{Snapshot: id}
		}
		return known[id]
	}
	seen := map[address]bool{}
	var follow func(a address)
	follow = func(a address) {
		ix := v.packs[a.pack]
		if ix == nil || a.block >= len(ix.Blocks) {
			return
		}
		for _, p := range ix.Blocks[a.block].Base {
			b := address{ix.Packs[p.Pack], p.Block}
			if seen[b] || !v.mayUse(a, b) {
				continue
			}
			seen[b] = true
			of(b.pack).Bases++
			follow(b)
		}
	}
	for _, a := range v.blocks {
		of(a.pack).Blocks++
		follow(a)
	}
	return sortedParts(known, func(a, b SourcePart) int {
		return cmp.Or(-cmp.Compare(b2i(a.Snapshot == v.snapshot.ID), b2i(b.Snapshot == v.snapshot.ID)), cmp.Compare(b.Snapshot, a.Snapshot))
	})
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// tensors returns every section with its share of the encoded bytes: that of a block is spread over its pieces by length,
// rounded so that the sum is right.
func (v *view) tensors() []TensorPart {
	first := make([]int, len(v.layout.Entries))
	var out []TensorPart
	for i, e := range v.layout.Entries {
		first[i] = len(out)
		for _, s := range e.Sections {
			out = append(out, TensorPart{File: e.Path, Name: s.Name, Kind: s.Kind.String(), DType: s.DType.String(), Raw: s.Len})
		}
	}
	for i, b := range v.plan {
		a := v.blocks[i]
		enc := int64(v.packs[a.pack].Blocks[a.block].Len)
		at, given := int64(0), int64(0)
		for _, p := range b.Pieces {
			at += int64(p.Len)
			share := enc*at/int64(b.Len) - given
			given += share
			out[first[p.Entry]+p.Section].Stored += share
		}
	}
	return out
}

// kinds sums tensors up. What lies between tensors comes last.
func kinds(tensors []TensorPart) []KindPart {
	known := map[string]*KindPart{}
	for _, t := range tensors {
		key := fmt.Sprintf("%t\x00%s\x00%s", t.Name == "", t.Kind, t.DType)
		k := known[key]
		if k == nil {
			k = &KindPart{Kind: t.Kind, DType: t.DType}
			known[key] = k
		}
		k.Sections++
		k.Raw += t.Raw
		k.Stored += t.Stored
	}
	return sortedParts(known, func(a, b KindPart) int {
		return cmp.Or(cmp.Compare(b2i(a.DType == tensor.Bytes.String()), b2i(b.DType == tensor.Bytes.String())), cmp.Compare(b.Raw, a.Raw))
	})
}

// parallelLooks is how many blocks' methods are asked for at once.
const parallelLooks = 8

// methods reads the first byte of at most n blocks.
func (v *view) methods(ctx context.Context, n int) ([]MethodPart, int, error) {
	n = min(n, len(v.blocks))
	known := map[string]*MethodPart{}
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallelLooks)
	for i := range n {
		a := v.blocks[int64(i)*int64(len(v.blocks))/int64(n)]
		b := v.packs[a.pack].Blocks[a.block]
		g.Go(func() error {
			head, err := readStart(ctx, v.repo.store, packKey(v.snapshot.Lineage, a.pack), b.Off, int64(min(b.Len, 1)))
			if errors.Is(err, store.ErrNotFound) {
				return v.damaged(packKey(v.snapshot.Lineage, a.pack), errors.New("missing"))
			}
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			name := delta.Method(head)
			p := known[name]
			if p == nil {
				p = &MethodPart{Method: name}
				known[name] = p
			}
			p.Blocks++
			p.Raw += int64(b.Raw)
			p.Stored += int64(b.Len)
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, 0, err
	}
	return sortedParts(known, func(a, b MethodPart) int { return cmp.Compare(b.Raw, a.Raw) }), n, nil
}

// readStart reads a few bytes of an object.
func readStart(ctx context.Context, s store.Store, key string, off, n int64) ([]byte, error) {
	rc, err := s.GetRange(ctx, key, off, n)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(rc, n))
	return b, errors.Join(err, rc.Close())
}
