package object

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
	"time"

	"github.com/thanos-io/objstore"

	"nomad-spotter/checkpointer/store"
)

var (
	// errShort is a body that ends before its announced length.
	errShort = errors.New("the store sent fewer bytes than it announced")
	// errWrong is what no repetition mends.
	errWrong = errors.New("not sent")
)

// Get implements store.Store. The reader returns all bytes of the object or an error: one that breaks off is continued
// where it broke, as often as configured without progress. An object of up to 1 MiB is read before Get returns; a larger one
// is taken for the same object throughout, as objects are never changed.
func (s *Store) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	if err := store.CheckKey(key); err != nil {
		return nil, err
	}
	r, err := s.open(ctx, key, 0, -1)
	if err != nil {
		return nil, s.explain("get", key, err)
	}
	return r, nil
}

// GetRange implements store.Store, with the promises of Get.
func (s *Store) GetRange(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	if err := store.CheckKey(key); err != nil {
		return nil, err
	}
	if off < 0 || n < 0 {
		return nil, fmt.Errorf("get %s in %s: range of %d bytes from %d on", key, s.url, n, off)
	}
	if n == 0 { // no vendor has an empty range
		if _, err := s.stat(ctx, key); err != nil {
			return nil, s.explain("get", key, err)
		}
		return io.NopCloser(bytes.NewReader(nil)), nil
	}
	r, err := s.open(ctx, key, off, min(n, math.MaxInt64-off))
	if err != nil {
		return nil, s.explain("get", key, err)
	}
	return r, nil
}

// body is an answer that is being read. Its context ends when the store has been silent for too long.
type body struct {
	io.ReadCloser
	size   int64 // bytes announced
	cancel context.CancelCauseFunc
	timer  *time.Timer
}

func (b *body) Close() error {
	b.timer.Stop()
	err := b.ReadCloser.Close()
	b.cancel(context.Canceled)
	return err
}

// ask begins to read n bytes from off on, or all from there with n of -1.
func (s *Store) ask(ctx context.Context, key string, off, n int64) (*body, error) {
	limited, cancel := context.WithCancelCause(ctx)
	b := &body{cancel: cancel, timer: time.AfterFunc(s.timeout, func() { cancel(errSilent) })}
	fail := func(err error) (*body, error) {
		b.timer.Stop()
		silent := errors.Is(context.Cause(limited), errSilent)
		cancel(context.Canceled)
		if silent && ctx.Err() == nil {
			return nil, fmt.Errorf("%w (%v): %v", errSilent, s.timeout, err) //nolint:errorlint // the context's error would read as the caller's
		}
		return nil, err
	}
	var err error
	if off == 0 && n < 0 {
		b.ReadCloser, err = s.bucket.Get(limited, s.prefix+key)
	} else {
		b.ReadCloser, err = s.bucket.GetRange(limited, s.prefix+key, off, n)
	}
	if errors.Is(err, io.EOF) { // objstore's way, with minio's client, to answer that there is nothing to read
		if a, aerr := s.bucket.Attributes(limited, s.prefix+key); aerr != nil || a.Size > off {
			return fail(errors.Join(fmt.Errorf("%w: none of %d", errShort, a.Size-off), aerr))
		}
		b.ReadCloser, err = objstore.NopCloserWithSize(bytes.NewReader(nil)), nil
	}
	if err != nil {
		return fail(err)
	}
	b.size, err = objstore.TryToGetSize(b.ReadCloser)
	if err == nil && b.size < 0 {
		err = fmt.Errorf("the store does not announce a length: %w", errWrong)
	}
	if err == nil && n >= 0 && b.size > n {
		err = fmt.Errorf("the store sends %d bytes for a range of %d: %w", b.size, n, errWrong)
	}
	if err != nil {
		return fail(errors.Join(err, b.ReadCloser.Close()))
	}
	b.timer.Stop()
	return b, nil
}

// open asks until the store answers, and reads small answers whole.
func (s *Store) open(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	var out io.ReadCloser
	for attempt := 1; ; attempt++ {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		b, err := s.ask(ctx, key, off, n)
		if err == nil {
			r := &reader{s: s, ctx: ctx, key: key, off: off, left: b.size, body: b}
			out = r
			if b.size <= s.small {
				out, err = r.whole()
			}
		}
		k := transient
		if err != nil {
			k = s.kindOf(err)
		}
		switch {
		case err == nil:
			return out, nil
		case n >= 0 && k == noRange: // behind the end, of an object that is there
			return io.NopCloser(bytes.NewReader(nil)), nil
		case ctx.Err() != nil:
			return nil, errors.Join(ctx.Err(), err)
		case k != transient:
			return nil, err
		case attempt >= s.attempts:
			return nil, fmt.Errorf("after %d attempts: %w", attempt, err)
		}
		if err := s.pause(ctx, attempt); err != nil {
			return nil, err
		}
	}
}

// reader returns just left bytes, from off on, and asks again when an answer breaks off.
type reader struct {
	s      *Store
	ctx    context.Context //nolint:containedctx // an io.Reader has no other way to end with its caller
	key    string
	off    int64 // of the next byte
	left   int64
	fails  int // in a row, without a byte between them
	empty  int // reads in a row without a byte or an error
	failed error
	body   *body // nil after a failure

	closing sync.Once
}

// whole reads a small answer to its end and closes it; it does not continue one that breaks off.
func (r *reader) whole() (io.ReadCloser, error) {
	content := make([]byte, r.left)
	for n := 0; n < len(content); {
		k, err := r.read(content[n:])
		if n += k; err != nil && n < len(content) {
			return nil, errors.Join(err, r.Close())
		}
	}
	if err := r.Close(); err != nil {
		return nil, err
	}
	return io.NopCloser(bytes.NewReader(content)), nil
}

// read reads once from the answer and bounds how long the store may be silent. Its error is never io.EOF.
func (r *reader) read(p []byte) (int, error) {
	r.body.timer.Reset(r.s.timeout)
	n, err := r.body.Read(p)
	r.body.timer.Stop()
	if n == 0 && err == nil {
		if r.empty++; r.empty > 100 {
			err = io.ErrNoProgress
		}
	} else {
		r.empty = 0
	}
	if err == nil {
		return n, nil
	}
	if cerr := r.ctx.Err(); cerr != nil {
		return n, cerr
	}
	return n, fmt.Errorf("%w: %d bytes are missing at offset %d: %v", errShort, r.left-int64(n), r.off+int64(n), err) //nolint:errorlint // io.EOF must not be seen here
}

// Read implements io.Reader.
func (r *reader) Read(p []byte) (int, error) {
	if r.left == 0 {
		return 0, io.EOF
	}
	if r.failed != nil {
		return 0, r.failed
	}
	if len(p) == 0 {
		return 0, nil
	}
	for {
		if r.body == nil {
			if err := r.again(); err != nil {
				r.failed = r.s.explain("read", r.key, err)
				return 0, r.failed
			}
		}
		n, err := r.read(p[:min(int64(len(p)), r.left)])
		r.off, r.left = r.off+int64(n), r.left-int64(n)
		if n > 0 {
			r.fails = 0
		}
		if err != nil && r.left > 0 {
			if err := r.broke(err); err != nil {
				r.failed = r.s.explain("read", r.key, err)
				return n, r.failed
			}
		}
		if n > 0 {
			return n, nil
		}
	}
}

// broke gives a broken answer up and waits a little; it returns an error when it happened too often.
func (r *reader) broke(err error) error {
	if r.body != nil {
		_ = r.body.Close() // it is broken already
		r.body = nil
	}
	if r.fails++; r.fails >= r.s.attempts {
		return fmt.Errorf("after %d attempts: %w", r.fails, err)
	}
	if r.ctx.Err() != nil || r.s.kindOf(err) != transient {
		return err
	}
	return r.s.pause(r.ctx, r.fails)
}

// again asks for the rest, until the store answers.
func (r *reader) again() error {
	for {
		b, err := r.s.ask(r.ctx, r.key, r.off, r.left)
		if err == nil && b.size != r.left {
			err = fmt.Errorf("the object changed its size while it was read: %d bytes are left from %d on, not %d: %w", b.size, r.off, r.left, errors.Join(errWrong, b.Close()))
		}
		if err == nil {
			r.body = b
			return nil
		}
		if err := r.broke(err); err != nil {
			return err
		}
	}
}

// Close implements io.Closer.
func (r *reader) Close() error {
	var err error
	r.closing.Do(func() {
		if r.failed == nil {
			r.failed = fmt.Errorf("read %s in %s: closed", r.key, r.s.url)
		}
		if r.body != nil {
			err = r.body.Close()
		}
	})
	return err
}
