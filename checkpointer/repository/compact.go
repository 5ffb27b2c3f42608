package repository

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"sort"
	"sync"

	"golang.org/x/sync/errgroup"

	"nomad-spotter/checkpointer/layout"
	"nomad-spotter/checkpointer/quant"
	"nomad-spotter/checkpointer/tensor"
)

// Precision says how a snapshot's content relates to what was saved.
type Precision string

// The precisions.
const (
	// Exact is byte for byte. It is the zero value, and absent from a manifest.
	Exact Precision = ""
	// Compact is with an optimizer's moments rounded, see package quant; everything else is byte for byte. The content of
	// the snapshot is what came out of the rounding: that is what its sums cover and what is restored.
	Compact Precision = "compact"
)

// String returns "exact" or "compact".
func (p Precision) String() string {
	if p == Exact {
		return "exact"
	}
	return string(p)
}

// Remark is what is said of a snapshot behind all else: nothing of one that is exact.
func (p Precision) Remark() string {
	if p == Exact {
		return ""
	}
	return "; precision " + p.String() + ": the optimizer's moments are rounded"
}

// ParsePrecision is the inverse of Precision.String.
func ParsePrecision(s string) (Precision, bool) {
	switch s {
	case Exact.String():
		return Exact, true
	case Compact.String():
		return Compact, true
	}
	return Exact, false
}

// rounding is what a compact snapshot changes of its files' bytes.
type rounding struct {
	layout  *layout.Layout
	how     [][]*quant.Rounding // by entry and section; nil: not at all
	patches [][]patch           // by entry, in the order of their offsets
}

// patch is a checksum of rounded data, which takes the place of that of the data in the file.
type patch struct {
	off int64 // in the file
	crc [4]byte
}

// newRounding tells what is rounded of files with a layout. It has no patches yet.
func newRounding(l *layout.Layout) *rounding {
	r := &rounding{layout: l, how: make([][]*quant.Rounding, len(l.Entries)), patches: make([][]patch, len(l.Entries))}
	for i, e := range l.Entries {
		r.how[i] = make([]*quant.Rounding, len(e.Sections))
		for j, s := range e.Sections {
			r.how[i][j] = quant.Of(s.Kind, s.DType)
		}
	}
	return r
}

// apply rounds the bytes of a piece of a tensor, or puts the checksums in that lie in a piece of what is between tensors.
// Without a rounding it does nothing.
func (r *rounding) apply(p layout.Piece, b []byte) {
	if r == nil {
		return
	}
	if how := r.how[p.Entry][p.Section]; how != nil {
		how.Round(b)
		return
	}
	if r.layout.Entries[p.Entry].Sections[p.Section].Name != "" {
		return
	}
	list := r.patches[p.Entry]
	const size = int64(len(patch{}.crc))
	for i := sort.Search(len(list), func(i int) bool { return list[i].off+size > p.Off }); i < len(list) && list[i].off < p.Off+int64(p.Len); i++ {
		at := list[i].off - p.Off // below 0 where the piece begins within the checksum
		copy(b[max(at, 0):], list[i].crc[max(-at, 0):])
	}
}

// summed is a tensor that is rounded, and where its file keeps its checksum.
type summed struct {
	entry int
	how   *quant.Rounding
	sum   tensor.Checksum
}

// compact makes the reader round. Where a file has checksums of its tensors, which makes it read those once more, it gets
// those of the rounded tensors; a tensor whose checksum cannot be found in such a file stays as it is.
func (r *reader) compact(ctx context.Context, l *layout.Layout, workers int) error {
	r.rounding = newRounding(l)
	var todo []summed
	for i, e := range l.Entries {
		if e.Format != tensor.FormatTorch {
			continue
		}
		var sums []tensor.Checksum
		err := r.files.use(i, func(f File) (err error) {
			sums, err = tensor.Checksums(f, e.Size())
			return err
		})
		if err != nil {
			return r.explain(fmt.Errorf("file %q: %w", e.Path, err))
		}
		todo = append(todo, match(i, e, r.rounding.how[i], sums)...)
	}
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(workers)
	for _, t := range todo {
		g.Go(func() error {
			crc, err := r.crc(ctx, t)
			if err != nil {
				return r.explain(fmt.Errorf("file %q: %w", l.Entries[t.entry].Path, err))
			}
			mu.Lock()
			defer mu.Unlock()
			for _, off := range t.sum.Fields {
				r.rounding.patches[t.entry] = append(r.rounding.patches[t.entry], patch{off, crc})
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for _, p := range r.rounding.patches {
		sort.Slice(p, func(i, j int) bool { return p[i].off < p[j].off })
	}
	return nil
}

// match finds the checksums of those tensors of a file that are rounded. A tensor without one stays as it is.
func match(entry int, e layout.Entry, how []*quant.Rounding, sums []tensor.Checksum) []summed {
	at := make(map[int64]tensor.Checksum, len(sums))
	for _, s := range sums {
		at[s.Off] = s
	}
	var out []summed
	var off int64
	for j, s := range e.Sections {
		if how[j] != nil {
			if sum, ok := at[off]; ok && sum.Len == s.Len {
				out = append(out, summed{entry, how[j], sum})
			} else {
				how[j] = nil
			}
		}
		off += s.Len
	}
	return out
}

// crc returns the checksum of a tensor once it is rounded.
func (r *reader) crc(ctx context.Context, t summed) (out [4]byte, err error) {
	buf := crcPool.Get().([]byte) //nolint:forcetypeassert,errcheck // it holds nothing else
	defer crcPool.Put(buf)        //nolint:staticcheck // a slice header more is nothing beside a quarter of a MiB
	sum := uint32(0)
	for at := int64(0); at < t.sum.Len; at += int64(len(buf)) {
		if err := ctx.Err(); err != nil {
			return out, err
		}
		b := buf[:min(int64(len(buf)), t.sum.Len-at)]
		err := r.files.use(t.entry, func(f File) error {
			n, err := f.ReadAt(b, t.sum.Off+at)
			if n == len(b) {
				return nil
			}
			return err
		})
		if err != nil {
			return out, err
		}
		t.how.Round(b)
		sum = crc32.Update(sum, crc32.IEEETable, b)
	}
	binary.LittleEndian.PutUint32(out[:], sum)
	return out, nil
}

var crcPool = sync.Pool{New: func() any { return make([]byte, 256<<10) }}
