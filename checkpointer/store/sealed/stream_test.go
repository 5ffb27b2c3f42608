package sealed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/shoenig/test/must"
	"github.com/tink-crypto/tink-go/v2/streamingaead/subtle"

	"nomad-spotter/checkpointer/store"
	"nomad-spotter/checkpointer/store/storetest"
)

// first is how many plaintext bytes the first segment holds.
const first = plainSize - headerSize

// boundaries are plaintext lengths around the ends of segments.
var boundaries = []int{
	0, 1, 2, 1000, first - 1, first, first + 1, first + plainSize - 1, first + plainSize, first + plainSize + 1,
	first + 2*plainSize, first + 2*plainSize + 777,
}

var objectsKey = bytes.Repeat([]byte{7}, 32)

func random(n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(b)
	return b
}

// memory returns an encrypted store and the one below, without any keys.
func memory() (*sealedStore, *storetest.Memory) {
	m := &storetest.Memory{}
	return &sealedStore{inner: m, key: objectsKey}, m
}

func put(t testing.TB, s store.Store, key string, content []byte) int64 {
	t.Helper()
	n, err := s.Put(context.Background(), key, bytes.NewReader(content))
	must.NoError(t, err)
	return n
}

func get(s store.Store, key string) ([]byte, error) {
	rc, err := s.Get(context.Background(), key)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(rc)
	return b, errors.Join(err, rc.Close())
}

func getRange(s store.Store, key string, off, n int64) ([]byte, error) {
	rc, err := s.GetRange(context.Background(), key, off, n)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(rc)
	return b, errors.Join(err, rc.Close())
}

// The objects are those that Tink's library makes and reads.
func TestTinkFormat(t *testing.T) {
	theirs, err := subtle.NewAESGCMHKDF(objectsKey, "SHA256", 32, segmentSize, 0)
	must.NoError(t, err)
	for _, n := range boundaries {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			plain := random(n)
			s, m := memory()
			put(t, s, "a/b", plain)
			ours, err := get(m, "a/b")
			must.NoError(t, err)
			r, err := theirs.NewDecryptingReader(bytes.NewReader(ours), []byte("a/b"))
			must.NoError(t, err)
			got, err := io.ReadAll(r)
			must.NoError(t, err)
			must.True(t, bytes.Equal(plain, got))

			var out bytes.Buffer
			w, err := theirs.NewEncryptingWriter(&out, []byte("c"))
			must.NoError(t, err)
			_, err = w.Write(plain)
			must.NoError(t, err)
			must.NoError(t, w.Close())
			must.Eq(t, len(ours), out.Len())
			put(t, m, "c", out.Bytes())
			got, err = get(s, "c")
			must.NoError(t, err)
			must.True(t, bytes.Equal(plain, got))
		})
	}
}

func TestLengths(t *testing.T) {
	for _, n := range boundaries {
		s, m := memory()
		grown := put(t, s, "k", random(n))
		below, err := m.Stat(t.Context(), "k")
		must.NoError(t, err)
		must.Eq(t, below, grown)
		size, err := s.Stat(t.Context(), "k")
		must.NoError(t, err)
		must.Eq(t, int64(n), size)
		list, err := s.List(t.Context(), "")
		must.NoError(t, err)
		must.Eq(t, []store.Entry{{Key: "k", Size: int64(n)}}, list)
	}
	for _, size := range []int64{
		-1, 0, 1, headerSize, headerSize + tagSize - 1,
		segmentSize + 1, segmentSize + tagSize, 2*segmentSize + tagSize, (maxSegments + 1) * segmentSize, 1<<63 - 1,
	} {
		_, ok := lengthOf(size)
		must.False(t, ok, must.Sprintf("%d bytes", size))
	}
	n, ok := lengthOf(maxSegments * segmentSize)
	must.True(t, ok)
	must.Eq(t, int64(maxPlain), n)
}

// A source that is slow, odd or failing.
func TestSealSources(t *testing.T) {
	plain := random(first + plainSize + 5)
	for name, wrap := range map[string]func(io.Reader) io.Reader{
		"byte by byte":      iotest.OneByteReader,
		"halves":            iotest.HalfReader,
		"end with data":     iotest.DataErrReader,
		"nothing for a bit": func(r io.Reader) io.Reader { return io.MultiReader(strings.NewReader(""), r) },
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := memory()
			_, err := s.Put(t.Context(), "k", wrap(bytes.NewReader(plain)))
			must.NoError(t, err)
			got, err := get(s, "k")
			must.NoError(t, err)
			must.True(t, bytes.Equal(plain, got))
		})
	}
	boom := errors.New("boom")
	for _, fail := range []error{boom, io.ErrUnexpectedEOF, fmt.Errorf("wrapped: %w", io.EOF)} {
		for _, n := range boundaries {
			s, m := memory()
			_, err := s.Put(t.Context(), "k", io.MultiReader(bytes.NewReader(random(n)), iotest.ErrReader(fail)))
			must.ErrorIs(t, err, fail)
			list, err := m.List(t.Context(), "")
			must.NoError(t, err)
			must.SliceEmpty(t, list)
		}
	}
}

// Every range is what the plaintext has there, whatever was read before.
func TestRanges(t *testing.T) {
	for _, n := range boundaries {
		plain := random(n)
		s, m := memory()
		s.inner = strict{m}
		put(t, s, "k", plain)
		check := func(off, count int64) {
			t.Helper()
			got, err := getRange(s, "k", off, count)
			must.NoError(t, err, must.Sprintf("%d bytes from %d of %d", count, off, n))
			from := min(off, int64(n))
			must.True(t, bytes.Equal(plain[from:from+min(count, int64(n)-from)], got), must.Sprintf("%d bytes from %d of %d", count, off, n))
		}
		for _, off := range append([]int{n - 1, n, n + 1, n + plainSize, 10 * segmentSize}, boundaries...) {
			if off < 0 {
				continue
			}
			for _, count := range []int64{0, 1, plainSize + 1, 1<<63 - 1<<30, 1<<63 - 1} {
				check(int64(off), count)
			}
		}
		check(1<<63-1, 1<<63-1)
		r := rand.New(rand.NewPCG(1, uint64(n)))
		for range 20 {
			check(r.Int64N(int64(n)+100), r.Int64N(2*segmentSize))
		}
		for _, bad := range [][2]int64{{-1, 1}, {0, -1}} {
			_, err := getRange(s, "k", bad[0], bad[1])
			must.Error(t, err)
		}
	}
}

// strict refuses ranges that make no sense.
type strict struct{ store.Store }

func (s strict) GetRange(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	if off < 0 || n <= 0 || off+n < 0 {
		return nil, fmt.Errorf("range of %d bytes from %d on", n, off)
	}
	return s.Store.GetRange(ctx, key, off, n)
}

// counting counts what is read from the store below.
type counting struct {
	store.Store
	requests int
	bytes    int64
}

func (c *counting) GetRange(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	c.requests++
	rc, err := c.Store.GetRange(ctx, key, off, n)
	if err != nil {
		return nil, err
	}
	return &countingReader{rc, c}, nil
}

type countingReader struct {
	io.ReadCloser
	c *counting
}

func (r *countingReader) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	r.c.bytes += int64(n)
	return n, err
}

// A range costs its own segments, one byte to see that more follows, and the header once.
func TestRangeCost(t *testing.T) {
	s, m := memory()
	c := &counting{Store: m}
	s.inner = c
	put(t, s, "k", random(10*segmentSize))
	for _, want := range []struct {
		off, n, bytes int64
		requests      int
	}{
		{0, 1, segmentSize + 1, 1},
		{first + plainSize, plainSize, headerSize + segmentSize + 1, 2},
		{first + plainSize, plainSize, segmentSize + 1, 1},
		{first + 2*plainSize - 1, 2, 2*segmentSize + 1, 1},
		{first + 8*plainSize, 1, segmentSize + 1, 1},
	} {
		c.requests, c.bytes = 0, 0
		got, err := getRange(s, "k", want.off, want.n)
		must.NoError(t, err)
		must.Eq(t, int(want.n), len(got))
		must.Eq(t, want.bytes, c.bytes)
		must.Eq(t, want.requests, c.requests)
	}
}

// What the store says of its own trouble is not damage; an object that is replaced is read anew.
func TestTroubleAndReplacement(t *testing.T) {
	s, m := memory()
	plain := random(3 * segmentSize)
	put(t, s, "k", plain)
	for _, fail := range []error{errors.New("boom"), io.ErrUnexpectedEOF, context.DeadlineExceeded} {
		for _, after := range []int64{0, 10, headerSize, 1000, segmentSize, segmentSize + 1, 2*segmentSize + 5} {
			broken := &sealedStore{inner: cutting{m, after, fail}, key: objectsKey}
			_, err := get(broken, "k")
			must.ErrorIs(t, err, fail)
			must.False(t, errors.Is(err, ErrDamaged))
			_, err = getRange(broken, "k", plainSize+10, 2*segmentSize)
			must.ErrorIs(t, err, fail)
			must.False(t, errors.Is(err, ErrDamaged))
		}
	}
	_, err := getRange(s, "k", 2*segmentSize, 10) // now the header is known
	must.NoError(t, err)
	other := random(4 * segmentSize)
	must.NoError(t, m.Delete(t.Context(), "k"))
	put(t, &sealedStore{inner: m, key: objectsKey}, "k", other)
	got, err := getRange(s, "k", 2*segmentSize, 10)
	must.NoError(t, err)
	must.Eq(t, other[2*segmentSize:2*segmentSize+10], got)
	for i := range maxCiphers {
		s.ciphers[fmt.Sprint("many/", i)] = s.ciphers["k"]
	}
	put(t, s, "one more", plain)
	_, err = getRange(s, "one more", first, 1)
	must.NoError(t, err)
	must.MapLen(t, maxCiphers+1, s.ciphers) // one for one
	must.MapContainsKey(t, s.ciphers, "one more")
}

// cutting fails every read after so many bytes.
type cutting struct {
	store.Store
	after int64
	err   error
}

func (c cutting) cut(rc io.ReadCloser, err error) (io.ReadCloser, error) {
	if err != nil {
		return nil, err
	}
	return struct {
		io.Reader
		io.Closer
	}{io.MultiReader(io.LimitReader(rc, c.after), iotest.ErrReader(c.err)), rc}, nil
}

func (c cutting) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	return c.cut(c.Store.Get(ctx, key))
}

func (c cutting) GetRange(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	return c.cut(c.Store.GetRange(ctx, key, off, n))
}
