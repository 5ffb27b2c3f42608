package storetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"nomad-spotter/checkpointer/store"
)

// Op is a method of store.Store.
type Op string

// The methods that can be made to fail. Any is every one of them.
const (
	Any      Op = ""
	Put      Op = "put"
	Get      Op = "get"
	GetRange Op = "get range"
	Stat     Op = "stat"
	List     Op = "list"
	Delete   Op = "delete"
)

// Kind says what goes wrong.
type Kind int

const (
	// Before fails a call with Err; it has no effect.
	Before Kind = iota
	// After carries a call out and then fails it with Err, whatever came of it, as when a reply is lost.
	After
	// Truncate cuts what is read, or what is stored by Put, after At bytes. With Err the reader, or Put, ends with it;
	// without, nothing tells that the bytes are not all.
	Truncate
	// Flip inverts the lowest bit of the byte at offset At of what is read, or stored by Put.
	Flip
	// Slow waits for Delay, or until the context is done, and then carries the call out.
	Slow
)

// Fault is one rule: the Nth call that matches Op and Key goes wrong in the way of Kind.
type Fault struct {
	Op    Op
	Key   string // prefix of the key, or of a listing's prefix; empty: all
	N     int    // counted from 1 among the calls that match Op and Key; 0: every one
	Kind  Kind
	Err   error         // for Before and After; optional for Truncate
	At    int64         // bytes from the start of what the call reads or writes
	Delay time.Duration // for Slow
}

// Call is one call that was made.
type Call struct {
	Op  Op
	Key string
}

// Faulty is a store that goes wrong as told. It is safe for use by several goroutines.
type Faulty struct {
	inner store.Store
	mu    sync.Mutex
	rules []*rule
	calls []Call
}

type rule struct {
	Fault
	seen int
}

var _ store.Store = (*Faulty)(nil)

// NewFaulty wraps a store. Of several faults that match one call, the first in the list happens.
func NewFaulty(inner store.Store, faults ...Fault) *Faulty {
	f := &Faulty{inner: inner}
	f.Set(faults...)
	return f
}

// Set replaces the faults, and counts and records calls from here on; without arguments everything works again.
func (f *Faulty) Set(faults ...Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules, f.calls = nil, nil
	for _, fault := range faults {
		f.rules = append(f.rules, &rule{Fault: fault})
	}
}

// Calls returns the calls since Set, in the order in which they began.
func (f *Faulty) Calls() []Call {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.calls)
}

// next records a call and returns the fault that it meets.
func (f *Faulty) next(op Op, key string) (Fault, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, Call{op, key})
	var hit *rule
	for _, r := range f.rules {
		if (r.Op != Any && r.Op != op) || !strings.HasPrefix(key, r.Key) {
			continue
		}
		if r.seen++; hit == nil && (r.N == 0 || r.N == r.seen) {
			hit = r
		}
	}
	if hit == nil {
		return Fault{Kind: After}, false
	}
	return hit.Fault, true
}

// meet counts a call, waits when it is to be slow and fails it when it is to fail before its effect.
func (f *Faulty) meet(ctx context.Context, op Op, key string) (Fault, error) {
	fault, ok := f.next(op, key)
	if !ok {
		return fault, nil
	}
	switch fault.Kind {
	case Before:
		return fault, fmt.Errorf("%s %s: %w", op, key, fault.Err)
	case Slow:
		t := time.NewTimer(fault.Delay)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return fault, fmt.Errorf("%s %s: %w", op, key, ctx.Err())
		}
	case After, Truncate, Flip:
	}
	return fault, nil
}

// lost is the error of a call whose reply does not arrive.
func (fault Fault) lost(op Op, key string) error {
	if fault.Kind == After && fault.Err != nil {
		return fmt.Errorf("%s %s: %w", op, key, fault.Err)
	}
	return nil
}

// bend returns r with what the fault does to bytes.
func (fault Fault) bend(r io.Reader) io.Reader {
	switch fault.Kind {
	case Truncate:
		return &cut{r: io.LimitReader(r, fault.At), err: fault.Err}
	case Flip:
		return &flip{r: r, at: fault.At}
	case Before, After, Slow:
	}
	return r
}

// URL implements store.Store.
func (f *Faulty) URL() string { return f.inner.URL() }

// Put implements store.Store.
func (f *Faulty) Put(ctx context.Context, key string, r io.Reader) (int64, error) {
	fault, err := f.meet(ctx, Put, key)
	if err != nil {
		return 0, err
	}
	n, err := f.inner.Put(ctx, key, fault.bend(r))
	if lost := fault.lost(Put, key); lost != nil {
		return 0, lost
	}
	return n, err
}

// Get implements store.Store.
func (f *Faulty) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	return f.read(ctx, Get, key, func() (io.ReadCloser, error) { return f.inner.Get(ctx, key) })
}

// GetRange implements store.Store.
func (f *Faulty) GetRange(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	return f.read(ctx, GetRange, key, func() (io.ReadCloser, error) { return f.inner.GetRange(ctx, key, off, n) })
}

func (f *Faulty) read(ctx context.Context, op Op, key string, open func() (io.ReadCloser, error)) (io.ReadCloser, error) {
	fault, err := f.meet(ctx, op, key)
	if err != nil {
		return nil, err
	}
	r, err := open()
	if lost := fault.lost(op, key); lost != nil {
		if err == nil {
			err = r.Close()
		}
		return nil, errors.Join(lost, err)
	}
	if err != nil {
		return nil, err
	}
	return struct {
		io.Reader
		io.Closer
	}{fault.bend(r), r}, nil
}

// Stat implements store.Store.
func (f *Faulty) Stat(ctx context.Context, key string) (int64, error) {
	fault, err := f.meet(ctx, Stat, key)
	if err != nil {
		return 0, err
	}
	n, err := f.inner.Stat(ctx, key)
	if lost := fault.lost(Stat, key); lost != nil {
		return 0, lost
	}
	return n, err
}

// List implements store.Store.
func (f *Faulty) List(ctx context.Context, prefix string) ([]store.Entry, error) {
	fault, err := f.meet(ctx, List, prefix)
	if err != nil {
		return nil, err
	}
	list, err := f.inner.List(ctx, prefix)
	if lost := fault.lost(List, prefix); lost != nil {
		return nil, lost
	}
	return list, err
}

// Delete implements store.Store.
func (f *Faulty) Delete(ctx context.Context, key string) error {
	fault, err := f.meet(ctx, Delete, key)
	if err != nil {
		return err
	}
	err = f.inner.Delete(ctx, key)
	if lost := fault.lost(Delete, key); lost != nil {
		return lost
	}
	return err
}

// cut ends with err instead of io.EOF.
type cut struct {
	r   io.Reader
	err error
}

func (c *cut) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	if err == io.EOF && c.err != nil {
		err = c.err
	}
	return n, err
}

// flip inverts a bit of the byte at offset at.
type flip struct {
	r       io.Reader
	off, at int64
}

func (f *flip) Read(p []byte) (int, error) {
	n, err := f.r.Read(p)
	if i := f.at - f.off; i >= 0 && i < int64(n) {
		p[i] ^= 1
	}
	f.off += int64(n)
	return n, err
}
