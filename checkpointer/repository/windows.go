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

// want says that blocks will be asked for in about this order, each once, and no others. It is called before any is.
func (w *windows) want(blocks []address) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.needed = map[string][]bool{}
	all := func(visit func(a address)) {
		for _, a := range blocks {
			steps := wantedSteps
			w.follow(a, pack.MaxLinks, &steps, visit)
		}
	}
	all(func(a address) {
		if w.needed[a.pack] == nil {
			w.needed[a.pack] = make([]bool, len(w.view.packs[a.pack].Blocks))
		}
		w.needed[a.pack][a.block] = true
	})
	all(func(a address) {
		b := &w.view.packs[a.pack].Blocks[a.block]
		if b.Len == 0 {
			return
		}
		k := w.key(a.pack, b.Off)
		w.uses[k]++
		if _, ok := w.turn[k]; !ok {
			w.turn[k] = len(w.queue)
			w.queue = append(w.queue, k)
		}
	})
}

// follow visits the blocks that are decoded for one, in that order, with itself, up to so many.
func (w *windows) follow(a address, links int, steps *int, visit func(a address)) {
	ix := w.view.packs[a.pack]
	if ix == nil || a.block >= len(ix.Blocks) || links < 0 || *steps <= 0 {
		return
	}
	*steps--
	var last address
	for i, p := range ix.Blocks[a.block].Base {
		if from := (address{ix.Packs[p.Pack], p.Block}); i == 0 || from != last {
			w.follow(from, links-1, steps, visit)
			last = from
		}
	}
	visit(a)
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
			w.next = turn + 1
			for _, e := range w.early {
				w.idle(e)
			}
			w.early = w.early[:0]
		}
	}
	if i := slices.Index(w.early, k); i >= 0 {
		w.early = slices.Delete(w.early, i, i+1)
	}
	win.users++
	if win.place != nil {
		w.unused.Remove(win.place)
		win.place = nil
	}
	for len(w.early) < readAhead && w.next < len(w.queue) {
		next := w.queue[w.next]
		w.next++
		w.read(ctx, next)
		w.early = append(w.early, next)
	}
	return k, win, w.starts[name][k.n]
}

// readAhead is how many windows are read before anybody asks for them.
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

// idle keeps a window that nobody uses any more, up to the limit of those. The caller holds mu.
func (w *windows) idle(k windowKey) {
	w.open[k].place = w.unused.PushBack(k)
	for w.unused.Len() > w.limit {
		old := w.unused.Front().Value.(windowKey) //nolint:forcetypeassert,errcheck // there is nothing else in it
		select {
		case <-w.open[old].done:
			w.drop(old)
		default:
			return // it is still being read
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
