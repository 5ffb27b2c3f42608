package repository

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"nomad-spotter/checkpointer/delta"
	"nomad-spotter/checkpointer/internal/ctxio"
	"nomad-spotter/checkpointer/layout"
	"nomad-spotter/checkpointer/pack"
	"nomad-spotter/checkpointer/store"
)

// packBytes is the size at which a pack is closed.
const packBytes = 32 << 20

// parallelUploads is how many packs are on their way at once.
const parallelUploads = 2

// codedBytes is the memory for one encoded block. What nearly fills it is not copied into its pack.
const codedBytes = layout.BlockBytes + 1024

var codedPool = sync.Pool{New: func() any { return newMemory(codedBytes)[:0] }}

// codedMemory returns memory for n bytes of encoded blocks, of length 0.
func codedMemory(n int) []byte {
	if n > codedBytes {
		return make([]byte, 0, n)
	}
	return codedPool.Get().([]byte) //nolint:forcetypeassert,errcheck // it holds nothing else
}

// Options say how a writer works. The zero value is a good default.
type Options struct {
	// Effort weighs time against size.
	Effort delta.Effort
	// Workers is how many blocks are coded at once; 0: as many as there are CPUs.
	Workers int
	// Links is how many blocks a restore may have to decode before one, per block, at most pack.MaxLinks; 0: DefaultLinks, and
	// one more where a restore reads little all the same.
	Links int
	// Precision says what may be rounded; the zero value is Exact, nothing.
	Precision Precision
	// Local returns the files of an earlier snapshot if this machine still has them, unchanged; else nil. It saves reading
	// that snapshot from the store. What it returns is compared with the snapshot's sums.
	Local func(snapshot string) Source
	// Progress is called with the raw bytes done so far, by several goroutines.
	Progress func(bytes int64)
}

// DefaultLinks keeps a restore to four blocks per block: one that stands alone and three differences. Where differences are
// small there is one more.
const DefaultLinks = 3

func (o Options) workers() int {
	if o.Workers > 0 {
		return o.Workers
	}
	return runtime.GOMAXPROCS(0)
}

// mayLink tells whether a block of n bytes may have so many links, with which about read bytes are read to restore it.
func (o Options) mayLink(links, read, n int) bool {
	switch {
	case links > pack.MaxLinks:
		return false
	case o.Links > 0:
		return links <= o.Links
	default:
		return links <= DefaultLinks || links == DefaultLinks+1 && read <= n+n/2
	}
}

// encoding is one save at work.
type encoding struct {
	writer *Writer
	opts   Options
	id     string // snapshot
	src    *reader
	layout *layout.Layout
	plan   []layout.Block
	parent *parent // nil: none
	match  [][]layout.Place
	done   atomic.Int64

	// The collector's own.
	builder  pack.Builder
	manifest *Manifest
	numbers  map[string]int // packs in the manifest
	made     int            // number of the next pack
	pending  []waiting      // blocks in the open pack
	blocks   []address
	head     []address
	bases    map[address]bool // what new blocks refer to

	upload  errgroup.Group
	mu      sync.Mutex
	stored  int64           // bytes that were new in the store
	uploads context.Context //nolint:containedctx // lives for one save
	cancel  context.CancelFunc
}

// waiting is a block whose pack has no name yet.
type waiting struct {
	list  *[]address
	index int
}

// coded is one block's outcome.
type coded struct {
	reuse *address // it is the same as an earlier block
	enc   []byte
	desc  pack.Block
	base  []basePiece
}

// basePiece is a piece of a base before its pack has a number.
type basePiece struct {
	at       address
	off, len int
}

// task is a block on its way through the workers.
type task struct {
	index int
	out   coded
	err   error
	done  chan struct{}
	buf   *buffers
}

// buffers are what a worker needs for one block.
type buffers struct{ cur, ref, enc []byte }

// newBuffers makes buffers for blocks of up to largest bytes.
func newBuffers(largest int) *buffers {
	enc := codedBytes
	if largest < codedBytes/4 {
		enc = 2 * largest
	}
	return &buffers{newMemory(largest), newMemory(largest), newMemory(enc)[:0]}
}

// run codes all blocks in the order of the plan, fills packs with them and uploads those.
func (e *encoding) run(ctx context.Context) error {
	workers := max(min(e.opts.workers(), len(e.plan)), 1)
	ctx, e.cancel = context.WithCancel(ctx)
	defer e.cancel()
	e.uploads = ctx
	e.upload.SetLimit(parallelUploads)
	g, ctx := errgroup.WithContext(ctx)
	todo := make(chan *task)
	ordered := make(chan *task, 2*workers)
	largest := 0
	for _, b := range e.plan {
		largest = max(largest, b.Len)
	}
	free := make(chan *buffers, min(2*workers+2, len(e.plan)))
	for range cap(free) {
		free <- newBuffers(largest)
	}
	g.Go(func() error { // hands out the blocks
		defer close(todo)
		defer close(ordered)
		for i := range e.plan {
			t := &task{index: i, done: make(chan struct{})}
			select {
			case t.buf = <-free:
			case <-ctx.Done():
				return ctx.Err()
			}
			for _, c := range []chan *task{ordered, todo} {
				select {
				case c <- t:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
		}
		return nil
	})
	var win *windows
	if e.parent != nil {
		win = newWindows(e.parent.view, 64<<20)
		if e.parent.local == nil {
			win.want(e.parent.view.blocks)
		}
	}
	for range workers {
		g.Go(func() error {
			c := newCoder(e, win)
			for t := range todo {
				t.err = c.code(ctx, t)
				close(t.done)
			}
			return nil
		})
	}
	g.Go(func() error { // collects them
		for t := range ordered {
			select {
			case <-t.done:
			case <-ctx.Done():
				return ctx.Err()
			}
			if t.err != nil {
				return t.err
			}
			if err := e.collect(t, &e.blocks); err != nil {
				return err
			}
			free <- t.buf
		}
		if err := e.addLayout(); err != nil {
			return err
		}
		return e.flush()
	})
	err := g.Wait()
	if err != nil {
		e.cancel()
	}
	if win != nil {
		win.wait()
	}
	// A failed upload is what the others were cancelled for.
	if failed := e.upload.Wait(); failed != nil && (err == nil || errors.Is(err, context.Canceled)) {
		return failed
	}
	return err
}

// collect takes a coded block into the open pack.
func (e *encoding) collect(t *task, list *[]address) error {
	c := t.out
	if c.reuse != nil {
		*list = append(*list, *c.reuse)
		return nil
	}
	for _, p := range c.base {
		e.bases[p.at] = true
		c.desc.Base = append(c.desc.Base, pack.Piece{Pack: e.builder.Pack(p.at.pack), Block: p.at.block, Off: p.off, Len: p.len})
	}
	var n int
	if len(c.enc) > codedBytes/2 && t.buf != nil {
		n = e.builder.Take(c.enc, c.desc)
		t.buf.enc = codedMemory(codedBytes)
	} else {
		n = e.builder.Add(c.enc, c.desc)
	}
	*list = append(*list, address{block: n})
	e.pending = append(e.pending, waiting{list, len(*list) - 1})
	if e.builder.Len() >= packBytes {
		return e.flush()
	}
	return nil
}

// addLayout puts the layout behind the content: the same one as before is not stored again.
func (e *encoding) addLayout() error {
	b, err := e.layout.Encode()
	if err != nil {
		return err
	}
	if e.parent != nil && bytes.Equal(b, e.parent.encoded) {
		e.head = e.parent.view.head
		return nil
	}
	z, err := zip()
	if err != nil {
		return err
	}
	b = z.EncodeAll(b, nil)
	enc := delta.NewEncoder(delta.None)
	for len(b) > 0 {
		part := b[:min(len(b), delta.MaxElems)]
		b = b[len(part):]
		out, _ := enc.Encode(nil, part, nil, delta.Bytes)
		t := &task{out: coded{enc: out, desc: pack.Block{Raw: len(part), Elem: delta.Bytes, Sum: pack.SumOf(part)}}}
		if err := e.collect(t, &e.head); err != nil {
			return err
		}
	}
	return nil
}

// flush closes the open pack and uploads it.
func (e *encoding) flush() error {
	if e.builder.Blocks() == 0 {
		return nil
	}
	b, ix, indexLen, sum := e.builder.Finish()
	name := packName(e.id, e.made, sum)
	e.made++
	for _, w := range e.pending {
		(*w.list)[w.index].pack = name
	}
	e.pending = e.pending[:0]
	e.addPack(PackRef{Name: name, Bytes: b.Size(), Index: int64(indexLen)})
	key := packKey(e.writer.Lineage, name)
	e.upload.Go(func() error {
		n, err := e.writer.repo.putPack(e.uploads, key, b)
		if err != nil { // whoever sent it may be reading it still
			e.cancel()
			return err
		}
		for _, p := range b.Parts() {
			if cap(p) == codedBytes {
				codedPool.Put(p[:0]) //nolint:staticcheck // a slice header more is nothing beside half a MiB
			}
		}
		e.writer.repo.indexes.put(key, ix)
		e.mu.Lock()
		defer e.mu.Unlock()
		e.stored += n
		return nil
	})
	return nil
}

func (e *encoding) addPack(p PackRef) int {
	n, ok := e.numbers[p.Name]
	if !ok {
		n = len(e.manifest.Packs)
		e.numbers[p.Name] = n
		e.manifest.Packs = append(e.manifest.Packs, p)
	}
	return n
}

// putPack uploads a pack. One of the same name is what an earlier attempt uploaded under an intent that has been there ever
// since: it is taken if it has the same content and made anew if not.
func (r *Repository) putPack(ctx context.Context, key string, c *pack.Content) (int64, error) {
	for range 3 {
		n, err := r.store.Put(ctx, key, c.Reader())
		if err == nil {
			r.trusted.Store(key, true)
			return n, nil
		}
		if !errors.Is(err, store.ErrExists) {
			return 0, err
		}
		// Read twice before it is called damaged: a manifest may need it, and what failed may have been the reading.
		for range 2 {
			same, err := r.holds(ctx, key, c)
			if same {
				r.trusted.Store(key, true)
				return 0, nil
			}
			if err != nil && !errors.Is(err, store.ErrNotFound) && !errors.Is(err, store.ErrDamaged) {
				return 0, err
			}
		}
		if err := r.store.Delete(ctx, key); err != nil {
			return 0, err
		}
	}
	return 0, fmt.Errorf("put %s: it is there, is not what its name says, and does not go away", key)
}

// holds tells whether the object of a key is a pack, byte for byte.
func (r *Repository) holds(ctx context.Context, key string, c *pack.Content) (same bool, err error) {
	rc, err := r.store.Get(ctx, key)
	if err != nil {
		return false, err
	}
	same, err = c.Equal(ctxio.Reader(ctx, rc))
	return same && err == nil, errors.Join(err, rc.Close())
}

// runs joins addresses to runs of blocks.
func (e *encoding) runs(list []address, ref func(name string) PackRef) []Run {
	var out []Run
	for _, a := range list {
		n, ok := e.numbers[a.pack]
		if !ok {
			n = e.addPack(ref(a.pack))
		}
		if k := len(out) - 1; k >= 0 && out[k][0] == n && out[k][1]+out[k][2] == a.block {
			out[k][2]++
			continue
		}
		out = append(out, Run{n, a.block, 1})
	}
	return out
}
