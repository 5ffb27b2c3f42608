package sealed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"sync"
	"sync/atomic"

	"nomad-spotter/checkpointer/store"
)

// maxCiphers is how many ciphers of objects are kept, about 1 KiB each: reading a range of one of them takes one request
// to the store below instead of two.
const maxCiphers = 256

// sealedStore is the encrypted store.
type sealedStore struct {
	inner      store.Store
	key        []byte       // from which those of the objects are derived
	unreported atomic.Int64 // bytes that making the repository took, until a Put reports them

	mu      sync.Mutex
	ciphers map[string]*objectCipher
}

var _ store.Store = (*sealedStore)(nil)

// hidden tells whether a key belongs to the encryption itself.
func hidden(key string) bool {
	return key == headKey || key == plainKeys || strings.HasPrefix(key, slotPrefix)
}

// URL implements store.Store: it is that of the store below.
func (s *sealedStore) URL() string { return s.inner.URL() }

// Put implements store.Store. It returns the bytes by which the store below grew.
func (s *sealedStore) Put(ctx context.Context, key string, r io.Reader) (int64, error) {
	if hidden(key) {
		return 0, fmt.Errorf("put %s: this name is reserved in an encrypted repository", key)
	}
	sealed, err := newSealer(s.key, key, r)
	if err != nil {
		return 0, fmt.Errorf("put %s: %w", key, err)
	}
	n, err := s.inner.Put(ctx, key, sealed)
	if err != nil {
		return n, err
	}
	return n + s.unreported.Swap(0), nil
}

// missing is the answer for hidden objects.
func (s *sealedStore) missing(op, key string) error {
	return fmt.Errorf("%s %s in %s: %w", op, key, s.URL(), store.ErrNotFound)
}

// Get implements store.Store. Only when the reader has come to its end, the object is known to be whole.
func (s *sealedStore) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	if hidden(key) {
		return nil, s.missing("get", key)
	}
	src, err := s.inner.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	return &opener{src: &source{ReadCloser: src}, key: s.key, name: key, left: math.MaxInt64}, nil
}

// GetRange implements store.Store. It reads only the segments that hold the range, and the header of an object that it
// has not read before. An object that ends within or before the range is known to end there when the reader has come to
// its end.
func (s *sealedStore) GetRange(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	if off < 0 || n < 0 {
		return nil, fmt.Errorf("get %s in %s: range of %d bytes from %d on", key, s.URL(), n, off)
	}
	if hidden(key) {
		return nil, s.missing("get", key)
	}
	if n == 0 {
		_, err := s.inner.Stat(ctx, key)
		return io.NopCloser(bytes.NewReader(nil)), err
	}
	off = min(off, maxPlain-1)
	n = min(n, maxPlain-off)
	r, known, err := s.openRange(ctx, key, off, n)
	if errors.Is(err, ErrDamaged) && known {
		// The object may have been replaced since its header was read.
		s.forget(key)
		r, _, err = s.openRange(ctx, key, off, n)
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

// openRange opens a range and its first segment. known tells that the header was not read again.
func (s *sealedStore) openRange(ctx context.Context, key string, off, n int64) (r io.ReadCloser, known bool, err error) {
	first, skip := segmentOf(off)
	o := &opener{key: s.key, name: key, index: first, skip: skip, left: n}
	if first > 0 {
		if o.c, known, err = s.cipher(ctx, key); err != nil {
			return nil, known, err
		}
	}
	last, _ := segmentOf(off + n - 1)
	start := first * segmentSize
	src, err := s.inner.GetRange(ctx, key, start, (last+1)*segmentSize+1-start)
	if err != nil {
		return nil, known, err
	}
	o.src = &source{ReadCloser: src}
	err = o.next()
	if errors.Is(err, errBeyond) {
		o.last, err = true, s.checkEnd(ctx, key, off, o.c)
	}
	if err != nil {
		return nil, known, errors.Join(fmt.Errorf("open %s: %w", key, err), src.Close())
	}
	return o, known, nil
}

// checkEnd fails unless the object is known to end at the plaintext offset off or before.
func (s *sealedStore) checkEnd(ctx context.Context, key string, off int64, c *objectCipher) error {
	size, err := s.inner.Stat(ctx, key)
	if err != nil {
		return err
	}
	n, ok := lengthOf(size)
	if !ok {
		return fmt.Errorf("%w: no object has %d bytes when sealed", ErrDamaged, size)
	}
	if off < n {
		return fmt.Errorf("the store gave nothing from byte %d on of an object of %d bytes", off, size)
	}
	o := &opener{key: s.key, name: key, c: c, index: (size - 1) / segmentSize, left: 1}
	start := o.index * segmentSize
	if o.index == 0 {
		o.c = nil // the header is read again, with the segment
	}
	src, err := s.inner.GetRange(ctx, key, start, size-start)
	if err != nil {
		return err
	}
	o.src = &source{ReadCloser: src}
	return errors.Join(o.next(), src.Close())
}

// cipher returns the cipher of an object, from its header unless that is known.
func (s *sealedStore) cipher(ctx context.Context, key string) (c *objectCipher, known bool, err error) {
	s.mu.Lock()
	c, known = s.ciphers[key]
	s.mu.Unlock()
	if known {
		return c, true, nil
	}
	header, err := readUpTo(ctx, s.inner, key, headerSize)
	if err != nil {
		return nil, false, err
	}
	if c, err = newObjectCipher(s.key, key, header); err != nil {
		return nil, false, fmt.Errorf("open %s: %w", key, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.ciphers) >= maxCiphers {
		for other := range s.ciphers { // any one of them
			delete(s.ciphers, other)
			break
		}
	}
	if s.ciphers == nil {
		s.ciphers = map[string]*objectCipher{}
	}
	s.ciphers[key] = c
	return c, false, nil
}

func (s *sealedStore) forget(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.ciphers, key)
}

// Stat implements store.Store. The length, in bytes of plaintext, follows from that of the sealed object; only reading to
// the end shows that it is authentic.
func (s *sealedStore) Stat(ctx context.Context, key string) (int64, error) {
	if hidden(key) {
		return 0, s.missing("stat", key)
	}
	size, err := s.inner.Stat(ctx, key)
	if err != nil {
		return 0, err
	}
	n, ok := lengthOf(size)
	if !ok {
		return 0, fmt.Errorf("stat %s: %w: no object has %d bytes when sealed", key, ErrDamaged, size)
	}
	return n, nil
}

// List implements store.Store. Sizes are as those of Stat, 0 for objects of a size that no sealed object has.
func (s *sealedStore) List(ctx context.Context, prefix string) ([]store.Entry, error) {
	entries, err := s.inner.List(ctx, prefix)
	if err != nil {
		return nil, err
	}
	var out []store.Entry
	for _, e := range entries {
		if hidden(e.Key) {
			continue
		}
		e.Size, _ = lengthOf(e.Size)
		out = append(out, e)
	}
	return out, nil
}

// Delete implements store.Store.
func (s *sealedStore) Delete(ctx context.Context, key string) error {
	if hidden(key) {
		return fmt.Errorf("delete %s: this name is reserved in an encrypted repository", key)
	}
	s.forget(key)
	return s.inner.Delete(ctx, key)
}

// readUpTo reads the first n bytes of an object, or what there is.
func readUpTo(ctx context.Context, s store.Store, key string, n int64) ([]byte, error) {
	rc, err := s.GetRange(ctx, key, 0, n)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(rc, n))
	if err = errors.Join(err, rc.Close()); err != nil {
		return nil, fmt.Errorf("read %s: %w", key, err)
	}
	return b, nil
}
