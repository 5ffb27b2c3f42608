package repository

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"nomad-spotter/checkpointer/delta"
	"nomad-spotter/checkpointer/pack"
	"nomad-spotter/checkpointer/store"
)

// decoder decodes blocks of one snapshot. It is not safe for concurrent use; several may share their windows.
type decoder struct {
	view    *view
	windows *windows
	codec   *delta.Decoder
	spare   [][]byte
}

func newDecoder(v *view, w *windows) *decoder {
	return &decoder{view: v, windows: w, codec: delta.NewDecoder()}
}

func (d *decoder) close() { d.spare = nil }

// buffer returns n bytes of any content.
func (d *decoder) buffer(n int) []byte {
	if k := len(d.spare); k > 0 {
		b := d.spare[k-1]
		d.spare = d.spare[:k-1]
		if cap(b) >= n {
			return b[:n]
		}
	}
	return make([]byte, n, max(n, 512<<10))
}

// free gives a buffer back.
func (d *decoder) free(b []byte) { d.spare = append(d.spare, b) }

// block returns the raw bytes of a block, verified. A *DamageError tells that they are not what was saved.
func (d *decoder) block(ctx context.Context, a address) ([]byte, error) {
	return d.linked(ctx, a, pack.MaxLinks)
}

// linked decodes a block at the end of at most links links.
func (d *decoder) linked(ctx context.Context, a address, links int) ([]byte, error) {
	ix := d.view.packs[a.pack]
	key := packKey(d.view.snapshot.Lineage, a.pack)
	desc := &ix.Blocks[a.block]
	if desc.Links > links {
		return nil, d.view.damaged(key, fmt.Errorf("block %d has more links than what refers to it allows", a.block))
	}
	var ref []byte
	if len(desc.Base) > 0 {
		var err error
		if ref, err = d.base(ctx, ix, key, a, desc); err != nil {
			return nil, err
		}
		defer d.free(ref)
	}
	enc, release, err := d.windows.bytes(ctx, a.pack, desc.Off, desc.Len)
	if errors.Is(err, store.ErrNotFound) {
		return nil, d.view.damaged(key, errors.New("missing"))
	}
	if errors.Is(err, errShortObject) {
		return nil, d.view.damaged(key, err)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", key, err)
	}
	defer release()
	out := d.buffer(desc.Raw)
	err = d.codec.Decode(out, enc, ref)
	if err == nil && pack.SumOf(out) != desc.Sum {
		err = errors.New("content does not match its hash")
	}
	if err != nil {
		return nil, d.view.damaged(key, fmt.Errorf("block %d: %w", a.block, err))
	}
	return out, nil
}

// base puts together the reference of a block.
func (d *decoder) base(ctx context.Context, ix *pack.Index, key string, a address, desc *pack.Block) ([]byte, error) {
	out := d.buffer(desc.Raw)
	at := 0
	for _, p := range desc.Base {
		name := ix.Packs[p.Pack]
		other := d.view.packs[name]
		if other == nil || p.Block >= len(other.Blocks) || p.Off+p.Len > other.Blocks[p.Block].Raw {
			return nil, d.view.damaged(key, fmt.Errorf("block %d refers to bytes that do not exist in pack %s", a.block, name))
		}
		b, err := d.linked(ctx, address{name, p.Block}, desc.Links-1)
		if err != nil {
			return nil, err
		}
		if p.Len == desc.Raw && p.Off == 0 && len(b) == desc.Raw {
			d.free(out)
			return b, nil
		}
		at += copy(out[at:], b[p.Off:p.Off+p.Len])
		d.free(b)
	}
	return out, nil
}

// windowBytes is how much of a pack is read at once.
const windowBytes = 4 << 20

// errShortObject says that an object ends before it should.
var errShortObject = errors.New("it is shorter than it was")

// windows reads packs in large pieces, which neighbouring blocks share, and reads ahead. It is safe for concurrent use.
type windows struct {
	view  *view
	limit int // windows kept when nobody uses them
	wg    sync.WaitGroup

	mu     sync.Mutex
	open   map[windowKey]*window
	unused []windowKey // oldest first
}

type windowKey struct {
	pack string
	n    int64 // number of the window in the pack
}

type window struct {
	done  chan struct{} // closed when data and err are there
	data  []byte
	err   error
	users int
}

// newWindows keeps up to bytes of what nobody uses at the moment.
func newWindows(v *view, bytes int64) *windows {
	return &windows{view: v, limit: int(max(bytes/windowBytes, 2)), open: map[windowKey]*window{}}
}

// bytes returns n bytes of a pack from off on, until release is called.
func (w *windows) bytes(ctx context.Context, name string, off int64, n int) (b []byte, release func(), err error) {
	first, last := off/windowBytes, (off+int64(n)-1)/windowBytes
	if n == 0 {
		return nil, func() {}, nil
	}
	if first == last {
		k := windowKey{name, first}
		win, err := w.acquire(ctx, k)
		if err != nil {
			return nil, nil, err
		}
		start := int(off - first*windowBytes)
		if start+n > len(win.data) {
			w.release(k)
			return nil, nil, errShortObject
		}
		return win.data[start : start+n], func() { w.release(k) }, nil
	}
	out := make([]byte, 0, n)
	for i := first; i <= last; i++ {
		k := windowKey{name, i}
		win, err := w.acquire(ctx, k)
		if err != nil {
			return nil, nil, err
		}
		start := int(max(off-i*windowBytes, 0))
		end := min(int(off+int64(n)-i*windowBytes), windowBytes)
		if end > len(win.data) {
			w.release(k)
			return nil, nil, errShortObject
		}
		out = append(out, win.data[start:end]...)
		w.release(k)
	}
	return out, func() {}, nil
}

func (w *windows) acquire(ctx context.Context, k windowKey) (*window, error) {
	win := w.use(ctx, k)
	select {
	case <-win.done:
	case <-ctx.Done():
		w.release(k)
		return nil, ctx.Err()
	}
	if win.err != nil {
		err := win.err
		w.forget(k, win)
		return nil, err
	}
	return win, nil
}

// use counts the caller as a user of a window, which is read if it is not there.
func (w *windows) use(ctx context.Context, k windowKey) *window {
	w.mu.Lock()
	defer w.mu.Unlock()
	win := w.open[k]
	if win == nil {
		win = &window{done: make(chan struct{})}
		w.open[k] = win
		w.wg.Go(func() {
			defer close(win.done)
			off := k.n * windowBytes
			n := min(windowBytes, w.view.packs[k.pack].Body-off)
			win.data, win.err = readRange(ctx, w.view.repo.store, packKey(w.view.snapshot.Lineage, k.pack), off, n)
		})
	}
	win.users++
	return win
}

// release ends a use. Windows that nobody uses are kept up to the limit.
func (w *windows) release(k windowKey) {
	w.mu.Lock()
	defer w.mu.Unlock()
	win := w.open[k]
	if win == nil {
		return
	}
	if win.users--; win.users > 0 {
		return
	}
	w.unused = append(w.unused, k)
	for len(w.unused) > w.limit {
		old := w.unused[0]
		w.unused = w.unused[1:]
		if o := w.open[old]; o != nil && o.users == 0 {
			delete(w.open, old)
			if cap(o.data) == windowBytes {
				windowPool.Put(o.data[:windowBytes]) //nolint:staticcheck // a slice header more is nothing beside 4 MiB
			}
		}
	}
}

// forget drops a window that could not be read, so that the next one who wants it tries again.
func (w *windows) forget(k windowKey, win *window) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open[k] == win {
		delete(w.open, k)
	}
}

// wait returns when no read is under way any more.
func (w *windows) wait() { w.wg.Wait() }
