package repository

import (
	"errors"
	"io"
	"sync"
)

// maxHandles is how many files one save or restore holds open.
const maxHandles = 128

// handles keeps files open that are used again soon. It is safe for concurrent use.
type handles[F io.Closer] struct {
	open func(i int) (F, error)

	mu    sync.Mutex
	known map[int]*handle[F]
	order []int // oldest use first; may name what is closed or in use
}

type handle[F io.Closer] struct {
	f     F
	users int
}

func newHandles[F io.Closer](open func(i int) (F, error)) *handles[F] {
	return &handles[F]{open: open, known: map[int]*handle[F]{}}
}

// use calls f with file i.
func (h *handles[F]) use(i int, f func(F) error) (err error) {
	hd, err := h.acquire(i)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.release(i, hd)) }()
	return f(hd.f)
}

func (h *handles[F]) acquire(i int) (*handle[F], error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	hd := h.known[i]
	if hd == nil {
		f, err := h.open(i)
		if err != nil {
			return nil, err
		}
		hd = &handle[F]{f: f}
		h.known[i] = hd
	}
	hd.users++
	return hd, nil
}

func (h *handles[F]) release(i int, hd *handle[F]) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if hd.users--; hd.users > 0 {
		return nil
	}
	if n := len(h.order); n == 0 || h.order[n-1] != i {
		h.order = append(h.order, i)
	}
	var errs []error
	for len(h.known) > maxHandles && len(h.order) > 0 {
		old := h.order[0]
		h.order = h.order[1:]
		if o := h.known[old]; o != nil && o.users == 0 {
			delete(h.known, old)
			errs = append(errs, o.f.Close())
		}
	}
	return errors.Join(errs...)
}

// close closes all. Nobody may be using one.
func (h *handles[F]) close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var errs []error
	for i, hd := range h.known {
		errs = append(errs, hd.f.Close())
		delete(h.known, i)
	}
	return errors.Join(errs...)
}
