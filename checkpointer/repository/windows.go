package repository

import (
	"container/list"
	"context"
	"errors"
	"slices"
	"sort"
	"sync"

	"nomad-spotter/checkpointer/pack"
)

// windowBytes is how much of a pack is read at once.
const windowBytes = 4 << 20

// errShortObject says that an object ends before it should.
var errShortObject = errors.New("it is shorter than it was")

// windows reads packs in large pieces, which neighbouring blocks share, and reads ahead. It is safe for concurrent use.
type windows struct {
	view  *view
	size  int64 // of a window, whole blocks, as many as fit
	limit int   // windows kept when nobody uses them
	wg    sync.WaitGroup

	mu     sync.Mutex
	starts map[string][]int64 // of a pack's windows, as offsets, and the end of the last
	needed map[string][]bool  // of a pack's blocks; nil: unknown
	queue  []windowKey        // worth reading ahead, in this order
	turn   map[windowKey]int  // the place in queue
	uses   map[windowKey]int  // how often it will be used yet; 0 or less: who knows
	next   int                // what comes before in queue was read, or left out
	ahead  int                // how many to read ahead
	early  []windowKey        // read ahead, and not used yet
	open   map[windowKey]*window
	unused *list.List // windowKey of those open that nobody uses any more, the longest unused first
}

type windowKey struct {
	pack string
	n    int // number of the window in the pack
}

type window struct {
	done  chan struct{} // closed when data and err are there
	data  []byte
	err   error
	users int
	place *list.Element // in unused, while it is there
}

// newWindows keeps up to bytes of what nobody uses at the moment.
func newWindows(v *view, bytes int64) *windows {
	return &windows{
		view: v, size: windowBytes, limit: int(max(bytes/windowBytes, 2)), open: map[windowKey]*window{},
		starts: map[string][]int64{}, turn: map[windowKey]int{}, uses: map[windowKey]int{}, unused: list.New(),
	}
}

// newSingly reads every block by itself.
func newSingly(v *view) *windows {
	w := newWindows(v, 0)
	w.size = 0
	return w
}

// cut returns where the windows of a pack begin. The caller holds mu.
func (w *windows) cut(name string) []int64 {
	if s := w.starts[name]; s != nil {
		return s
	}
	ix := w.view.packs[name]
	s := []int64{0}
	needed := w.needed[name] // nil: who knows
	for i, b := range ix.Blocks {
		last := s[len(s)-1]
		if b.Off == last || b.Len == 0 {
			continue
		}
		full := b.Off+int64(b.Len)-last > w.size
		if full || needed != nil && (i == 0 || needed[i] != needed[i-1]) && unneeded(ix, needed, i) > gapBytes {
			s = append(s, b.Off)
		}
	}
	s = append(s, ix.Body)
	w.starts[name] = s
	return s
}

// gapBytes is how much that nobody needs is read for one request less.
const gapBytes = 256 << 10

// unneeded is how many bytes, up to a little over gapBytes, nobody needs from a block on, or before it if it is needed.
func unneeded(ix *pack.Index, needed []bool, i int) (n int) {
	step := 1
	if needed[i] {
		i, step = i-1, -1
	}
	for ; i >= 0 && i < len(needed) && !needed[i] && n <= gapBytes; i += step {
		n += ix.Blocks[i].Len
	}
	return n
}

// key returns the window in which an offset lies. The caller holds mu.
func (w *windows) key(name string, off int64) windowKey {
	s := w.cut(name)
	return windowKey{name, sort.Search(len(s)-1, func(i int) bool { return s[i+1] > off })}
}

// want says that blocks will be asked for in about this order, each once, and no others. It is called before any is. It
// looks at every piece of a base once, however often a block is named.
func (w *windows) want(blocks []address) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.needed = map[string][]bool{}
	var order []address // a block after those that it is decoded with
	uses := map[address]int{}
	for _, a := range blocks {
		order = w.need(order, a)
		uses[a]++
	}
	for _, a := range slices.Backward(order) {
		for from := range w.view.bases(a) {
			uses[from] = min(uses[from]+uses[a], maxUses)
		}
	}
	for _, a := range order {
		b := &w.view.packs[a.pack].Blocks[a.block]
		if b.Len == 0 {
			continue
		}
		k := w.key(a.pack, b.Off)
		w.uses[k] = min(w.uses[k]+uses[a], maxUses)
		if _, ok := w.turn[k]; !ok {
			w.turn[k] = len(w.queue)
			w.queue = append(w.queue, k)
		}
	}
}

// maxUses is more than any window is used; so often nothing is decoded.
const maxUses = 1 << 30

// need appends a block to the order, behind what it is decoded with, unless it is there already.
func (w *windows) need(order []address, a address) []address {
	ix := w.view.packs[a.pack]
	if ix == nil || a.block >= len(ix.Blocks) {
		return order
	}
	if w.needed[a.pack] == nil {
		w.needed[a.pack] = make([]bool, len(ix.Blocks))
	}
	if w.needed[a.pack][a.block] {
		return order
	}
	w.needed[a.pack][a.block] = true
	for from := range w.view.bases(a) {
		if w.view.mayUse(a, from) {
			order = w.need(order, from)
		}
	}
	return append(order, a)
}

// bytes returns the encoded bytes of a block of a pack, until release is called.
func (w *windows) bytes(ctx context.Context, name string, b *pack.Block) (enc []byte, release func(), err error) {
	if b.Len == 0 {
		return nil, func() {}, nil
	}
	k, win, start := w.use(ctx, name, b.Off)
	select {
	case <-win.done:
	case <-ctx.Done():
		w.release(k, win)
		return nil, nil, ctx.Err()
	}
	if win.err != nil {
		err := win.err
		w.forget(k, win)
		return nil, nil, err
	}
	at := int(b.Off - start)
	if at+b.Len > len(win.data) {
		w.release(k, win)
		return nil, nil, errShortObject
	}
	return win.data[at : at+b.Len], func() { w.release(k, win) }, nil
}

// use counts the caller as a user of the window at an offset, which is read if it is not there, as are the next ones.
func (w *windows) use(ctx context.Context, name string, off int64) (windowKey, *window, int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	k := w.key(name, off)
	win := w.open[k]
	if win == nil {
		win = w.read(ctx, k)
		if turn, ok := w.turn[k]; ok && turn >= w.next { // what was read before its turn was not needed after all
			w.next, w.ahead = turn+1, 1
			for _, e := range w.early {
				w.idle(e)
			}
			w.early = w.early[:0]
		}
	}
	if i := slices.Index(w.early, k); i >= 0 {
		w.early = slices.Delete(w.early, i, i+1)
		w.ahead = min(2*w.ahead, readAhead)
	}
	win.users++
	if win.place != nil {
		w.unused.Remove(win.place)
		win.place = nil
	}
	for len(w.early) < w.ahead && w.next < len(w.queue) {
		next := w.queue[w.next]
		w.next++
		w.read(ctx, next)
		w.early = append(w.early, next)
	}
	return k, win, w.starts[name][k.n]
}

// readAhead is how many windows are read before anybody asks for them, once some were asked for in their turn.
const readAhead = 6

// read begins to read a window. The caller holds mu.
func (w *windows) read(ctx context.Context, k windowKey) *window {
	win := &window{done: make(chan struct{})}
	w.open[k] = win
	s := w.starts[k.pack]
	off, n := s[k.n], s[k.n+1]-s[k.n]
	w.wg.Go(func() {
		defer close(win.done)
		win.data, win.err = readRange(ctx, w.view.repo.store, packKey(w.view.snapshot.Lineage, k.pack), off, n)
	})
	return win
}

// release ends a use. A window that was dropped meanwhile is nobody's any more.
func (w *windows) release(k windowKey, win *window) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open[k] != win {
		return
	}
	w.uses[k]--
	if win.users--; win.users > 0 {
		return
	}
	select {
	case <-win.done:
		if w.uses[k] == 0 {
			w.drop(k)
			return
		}
	default: // whoever asked has given up
	}
	w.idle(k)
}

// drop gives the memory of a window back that was read and that nobody uses. The caller holds mu.
func (w *windows) drop(k windowKey) {
	win := w.open[k]
	delete(w.open, k)
	if win.place != nil {
		w.unused.Remove(win.place)
	}
	if cap(win.data) == windowBytes {
		windowPool.Put(win.data[:windowBytes]) //nolint:staticcheck // a slice header more is nothing beside 4 MiB
	}
}

// idle keeps a window that nobody uses any more, up to the limit of those. One that is still being read stays longer. The
// caller holds mu.
func (w *windows) idle(k windowKey) {
	w.open[k].place = w.unused.PushBack(k)
	for e := w.unused.Front(); e != nil && w.unused.Len() > w.limit; {
		old := e.Value.(windowKey) //nolint:forcetypeassert,errcheck // there is nothing else in it
		e = e.Next()
		select {
		case <-w.open[old].done:
			w.drop(old)
		default:
		}
	}
}

// forget drops a window that could not be read, so that the next one who wants it tries again.
func (w *windows) forget(k windowKey, win *window) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.open[k] == win {
		delete(w.open, k)
		if win.place != nil {
			w.unused.Remove(win.place)
			win.place = nil
		}
	}
}

// wait returns when no read is under way any more.
func (w *windows) wait() { w.wg.Wait() }
