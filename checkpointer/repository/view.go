package repository

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"sync"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sync/errgroup"

	"nomad-spotter/checkpointer/internal/ctxio"
	"nomad-spotter/checkpointer/layout"
	"nomad-spotter/checkpointer/pack"
	"nomad-spotter/checkpointer/store"
)

// address says where a block lies.
type address struct {
	pack  string // its name
	block int
}

// view is a snapshot with all that is needed to decode it, but for the blocks themselves.
type view struct {
	repo     *Repository
	snapshot Snapshot
	manifest *Manifest
	layout   *layout.Layout
	plan     []layout.Block
	blocks   []address              // of the plan's blocks
	head     []address              // of the layout's
	packs    map[string]*pack.Index // by name
	refs     map[string]PackRef     // by name
}

// indexes remembers the indexes that were read; packs never change.
type indexes struct {
	mu    sync.Mutex
	known map[string]*pack.Index // by key in the store
	size  int                    // blocks in known
}

// maxIndexed bounds how many blocks' descriptions are kept in memory.
const maxIndexed = 1 << 18

func (x *indexes) get(key string) *pack.Index {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.known[key]
}

func (x *indexes) put(key string, ix *pack.Index) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.known == nil || x.size+len(ix.Blocks) > maxIndexed {
		x.known, x.size = map[string]*pack.Index{}, 0
	}
	x.known[key] = ix
	x.size += len(ix.Blocks)
}

// index reads the index of a pack and compares it with what the manifest says. A *DamageError tells that it is not that.
func (r *Repository) index(ctx context.Context, s Snapshot, p PackRef) (*pack.Index, error) {
	key := packKey(s.Lineage, p.Name)
	if ix := r.indexes.get(key); ix != nil {
		return ix, nil
	}
	_, want, _ := parsePackName(p.Name) // the manifest was checked
	b, err := readRange(ctx, r.store, key, p.Bytes-p.Index-pack.FooterLen, p.Index+pack.FooterLen)
	if errors.Is(err, store.ErrNotFound) {
		return nil, r.missing(ctx, s, key)
	}
	if err != nil {
		return nil, s.found(key, fmt.Errorf("read index of %s: %w", key, err))
	}
	if int64(len(b)) != p.Index+pack.FooterLen {
		return nil, damage(s.ID, s.Step, key, "it is shorter than it was")
	}
	n, sum, err := pack.ParseFooter(b[p.Index:])
	if err == nil && (n != p.Index || sum != want) {
		err = errors.New("it is another pack")
	}
	var ix *pack.Index
	if err == nil {
		ix, err = pack.ParseIndex(b[:p.Index], want, p.Bytes-p.Index-pack.FooterLen)
	}
	if err != nil {
		return nil, damage(s.ID, s.Step, key, err.Error())
	}
	r.indexes.put(key, ix)
	return ix, nil
}

func readRange(ctx context.Context, s store.Store, key string, off, n int64) ([]byte, error) {
	rc, err := s.GetRange(ctx, key, off, n)
	if err != nil {
		return nil, err
	}
	var b []byte
	if n <= windowBytes {
		if n > windowBytes/2 {
			b = windowPool.Get().([]byte)[:n] //nolint:forcetypeassert,errcheck // it holds nothing else
		} else {
			b = make([]byte, n)
		}
		var k int
		k, err = io.ReadFull(ctxio.Reader(ctx, rc), b)
		b = b[:k]
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = nil
		}
	} else {
		b, err = io.ReadAll(io.LimitReader(ctxio.Reader(ctx, rc), n))
	}
	return b, errors.Join(err, rc.Close())
}

// windowPool holds the memory of windows.
var windowPool = sync.Pool{New: func() any { return newMemory(windowBytes) }}

// open reads all that describes a snapshot.
func (r *Repository) open(ctx context.Context, s Snapshot) (*view, error) {
	m, err := r.Manifest(ctx, s)
	if err != nil {
		return nil, err
	}
	v := &view{repo: r, snapshot: s, manifest: m, packs: map[string]*pack.Index{}, refs: map[string]PackRef{}}
	found := make([]*pack.Index, len(m.Packs))
	g, in := errgroup.WithContext(ctx)
	g.SetLimit(parallelReads)
	for i, p := range m.Packs {
		g.Go(func() (err error) {
			found[i], err = r.index(in, s, p)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	for i, p := range m.Packs {
		v.packs[p.Name], v.refs[p.Name] = found[i], p
	}
	if err := v.resolve(ctx); err != nil {
		return nil, err
	}
	return v, nil
}

// resolve reads the layout and finds every block.
func (v *view) resolve(ctx context.Context) (err error) {
	key := manifestKey(v.snapshot.Lineage, v.snapshot.ID)
	if v.head, err = v.addresses(v.manifest.Layout); err != nil {
		return v.damaged(key, err)
	}
	if v.blocks, err = v.addresses(v.manifest.Blocks); err != nil {
		return v.damaged(key, err)
	}
	b, err := v.readLayout(ctx)
	if err != nil {
		return err
	}
	if v.layout, err = layout.Parse(b); err != nil {
		return v.damaged(packKey(v.snapshot.Lineage, v.head[0].pack), err)
	}
	if err := v.covers(); err != nil {
		return v.damaged(key, err)
	}
	v.plan = layout.Plan(v.layout)
	if err := v.fits(); err != nil {
		return v.damaged(key, err)
	}
	return nil
}

func (v *view) damaged(object string, err error) error {
	return damage(v.snapshot.ID, v.snapshot.Step, object, err.Error())
}

// covers tells whether there are as many bytes in the blocks as in the layout, so that the plan is not larger than what is
// there to be planned.
func (v *view) covers() error {
	var n int64
	for _, a := range v.blocks {
		n += int64(v.packs[a.pack].Blocks[a.block].Raw)
	}
	if raw := v.layout.RawBytes(); raw != n {
		return fmt.Errorf("its blocks have %d bytes, the layout has %d", n, raw)
	}
	return nil
}

// fits tells whether the manifest's blocks are those of the plan.
func (v *view) fits() error {
	if len(v.plan) != len(v.blocks) {
		return fmt.Errorf("it names %d blocks, the layout has %d", len(v.blocks), len(v.plan))
	}
	for i, a := range v.blocks {
		if d := v.packs[a.pack].Blocks[a.block]; d.Raw != v.plan[i].Len || d.Elem != v.plan[i].Elem {
			return fmt.Errorf("block %d has %d bytes, the layout says %d", i, d.Raw, v.plan[i].Len)
		}
	}
	if v.layout.RawBytes() != v.manifest.RawBytes || v.layout.Files() != v.manifest.Files {
		return fmt.Errorf("it tells of %d bytes in %d files, the layout of %d in %d", v.manifest.RawBytes, v.manifest.Files, v.layout.RawBytes(), v.layout.Files())
	}
	return nil
}

// addresses spreads runs out and checks that their blocks exist.
func (v *view) addresses(runs []Run) ([]address, error) {
	var out []address
	limit := 0
	for _, ix := range v.packs {
		limit += len(ix.Blocks)
	}
	for _, r := range runs {
		name := v.manifest.Packs[r[0]].Name
		if r[1]+r[2] > len(v.packs[name].Blocks) {
			return nil, fmt.Errorf("blocks %d to %d are not in pack %s", r[1], r[1]+r[2]-1, name)
		}
		if len(out)+r[2] > limit { // none occurs twice
			return nil, fmt.Errorf("more than the %d blocks of its packs", limit)
		}
		for i := range r[2] {
			out = append(out, address{name, r[1] + i})
		}
	}
	return out, nil
}

// bases are the blocks that the base of a block lies in, as often as they are decoded for it: once for several pieces in a
// row.
func (v *view) bases(a address) iter.Seq[address] {
	return func(yield func(address) bool) {
		ix := v.packs[a.pack]
		var last address
		for i, p := range ix.Blocks[a.block].Base {
			from := address{ix.Packs[p.Pack], p.Block}
			if (i == 0 || from != last) && !yield(from) {
				return
			}
			last = from
		}
	}
}

// cost counts the blocks that must be decoded for one, with itself, and their encoded bytes; what it counts beyond limit is
// not exact.
func (v *view) cost(a address, limit int) (blocks, size int) {
	ix := v.packs[a.pack]
	if ix == nil || a.block >= len(ix.Blocks) {
		return limit + 1, 0
	}
	blocks, size = 1, ix.Blocks[a.block].Len
	for from := range v.bases(a) {
		if blocks > limit || !v.mayUse(a, from) {
			return limit + 1, 0
		}
		n, more := v.cost(from, limit-blocks)
		blocks, size = blocks+n, size+more
	}
	return blocks, size
}

// mayUse tells whether a block may refer to another: to one that exists and has fewer links, so that there is an end.
func (v *view) mayUse(from, to address) bool {
	ix, base := v.packs[from.pack], v.packs[to.pack]
	return base != nil && to.block < len(base.Blocks) && base.Blocks[to.block].Links < ix.Blocks[from.block].Links
}

// readLayout returns the bytes of the layout.
func (v *view) readLayout(ctx context.Context) ([]byte, error) {
	d := newDecoder(v, newSingly(v))
	defer d.close()
	var packed []byte
	for _, a := range v.head {
		b, err := d.block(ctx, a)
		if err != nil {
			return nil, err
		}
		if packed = append(packed, b...); len(packed) > layout.MaxBytes {
			return nil, v.damaged(packKey(v.snapshot.Lineage, a.pack), errors.New("the layout is too long"))
		}
		d.free(b)
	}
	z, err := unzip()
	if err != nil {
		return nil, err
	}
	b, err := z.DecodeAll(packed, nil)
	if err != nil {
		return nil, v.damaged(packKey(v.snapshot.Lineage, v.head[0].pack), err)
	}
	return b, nil
}

// unzip decodes layouts; zip encodes them. Both may be used by several at once.
var (
	unzip = sync.OnceValues(func() (*zstd.Decoder, error) {
		return zstd.NewReader(nil, zstd.WithDecoderMaxMemory(layout.MaxBytes), zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true))
	})
	zip = sync.OnceValues(func() (*zstd.Encoder, error) {
		return zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedBetterCompression), zstd.WithLowerEncoderMem(true))
	})
)
