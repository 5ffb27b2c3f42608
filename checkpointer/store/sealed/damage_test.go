package sealed

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/shoenig/test/must"

	"nomad-spotter/checkpointer/store/storetest"
)

// refused holds every way of reading an object to ErrDamaged. Ranges are read by segments, each alone and with all after
// it; those that come out all the same must be what the plaintext has there, and at least one must not.
func refused(t *testing.T, s *sealedStore, key string, plain []byte, what string) {
	t.Helper()
	got, err := get(s, key)
	must.ErrorIs(t, err, ErrDamaged, must.Sprint(what))
	must.True(t, bytes.HasPrefix(plain, got), must.Sprint(what))
	bad := 0
	for off := 0; off <= len(plain)+plainSize; off += plainSize {
		for _, n := range []int{plainSize, len(plain) + plainSize} {
			got, err := getRange(s, key, int64(off), int64(n))
			if err == nil {
				from, to := min(off, len(plain)), min(off+n, len(plain))
				must.True(t, bytes.Equal(plain[from:to], got), must.Sprintf("%s, %d bytes from %d", what, n, off))
				continue
			}
			must.ErrorIs(t, err, ErrDamaged, must.Sprint(what))
			bad++
		}
	}
	must.Positive(t, bad, must.Sprint(what))
}

// damaged seals plain, changes what is stored, and expects it to be refused. It reads with headers known and unknown.
func damaged(t *testing.T, plain []byte, what string, change func([]byte) []byte) {
	t.Helper()
	s, m := memory()
	put(t, s, "k", plain)
	if len(plain) > first {
		_, err := getRange(s, "k", first, 1) // the header is known from here on
		must.NoError(t, err)
	}
	must.True(t, m.Damage("k", change))
	refused(t, s, "k", plain, what)
	refused(t, &sealedStore{inner: m, key: objectsKey}, "k", plain, what)
}

// Every byte of a small object, and bytes of every part of a large one.
func TestTampering(t *testing.T) {
	small := random(100)
	for i := range headerSize + len(small) + tagSize {
		damaged(t, small, "a bit", func(b []byte) []byte {
			b[i] ^= 1 << (i % 8)
			return b
		})
	}
	large := random(first + plainSize + 9)
	for _, i := range []int{
		0, 1, headerSize - 1, headerSize, segmentSize - 1, segmentSize, 2*segmentSize - 1, 2 * segmentSize, 2*segmentSize + 9 + tagSize - 1,
	} {
		damaged(t, large, "a bit", func(b []byte) []byte {
			b[i] ^= 1
			return b
		})
	}
}

func TestTruncationAndExtension(t *testing.T) {
	for _, n := range []int{0, 1000, first, first + 1, first + plainSize} {
		plain := random(n)
		s, m := memory()
		size := int(put(t, s, "k", plain))
		whole, err := get(m, "k")
		must.NoError(t, err)
		cuts := map[int]bool{0: true, 1: true, headerSize: true, headerSize + tagSize: true, size - 1: true, size - tagSize: true}
		for b := segmentSize; b < size+tagSize; b += segmentSize {
			for _, d := range []int{-1, 0, 1, tagSize, tagSize + 1} {
				cuts[b+d] = true
			}
		}
		for cut := range cuts {
			if cut < size {
				damaged(t, plain, "cut", func(b []byte) []byte { return b[:cut] })
			}
		}
		for _, more := range [][]byte{{0}, make([]byte, tagSize), make([]byte, segmentSize), whole, whole[headerSize:]} {
			damaged(t, plain, "extended", func(b []byte) []byte { return append(b, more...) })
		}
	}
}

// Segments that are moved, doubled or taken from another object of the same name and key.
func TestSplicing(t *testing.T) {
	plain := random(first + 3*plainSize)
	other, m := memory()
	put(t, other, "k", plain)
	foreign, err := get(m, "k")
	must.NoError(t, err)
	seg := func(b []byte, i int) []byte { return bytes.Clone(b[i*segmentSize : (i+1)*segmentSize]) }
	for what, change := range map[string]func([]byte) []byte{
		"two segments exchanged": func(b []byte) []byte {
			one, two := seg(b, 1), seg(b, 2)
			copy(b[segmentSize:], two)
			copy(b[2*segmentSize:], one)
			return b
		},
		"a segment left out": func(b []byte) []byte { return append(b[:segmentSize], b[2*segmentSize:]...) },
		"a segment doubled": func(b []byte) []byte {
			return append(append(b[:2*segmentSize:2*segmentSize], seg(b, 1)...), b[2*segmentSize:]...)
		},
		"the last without those before": func(b []byte) []byte { return append(b[:headerSize], b[3*segmentSize:]...) },
		"a segment of another object":   func(b []byte) []byte { copy(b[segmentSize:], seg(foreign, 1)); return b },
		"the header of another object":  func(b []byte) []byte { copy(b, foreign[:headerSize]); return b },
		"an object that was not sealed": func([]byte) []byte { return bytes.Repeat([]byte(`{"format":1}`), 20) },
		"nothing but the first byte":    func([]byte) []byte { return bytes.Repeat([]byte{headerSize}, 3*segmentSize) },
	} {
		t.Run(what, func(t *testing.T) { damaged(t, plain, what, change) })
	}
}

// There is one way to cut a plaintext into segments: an empty last one is refused even if it is authentic.
func TestEmptySegment(t *testing.T) {
	s, m := memory()
	header := append([]byte{headerSize}, random(headerSize-1)...)
	c, err := newObjectCipher(objectsKey, "k", header)
	must.NoError(t, err)
	nonce := append(bytes.Clone(c.prefix[:]), 0, 0, 0, 0, 0)
	b := c.aead.Seal(header, nonce, random(first), nil)
	nonce[prefixSize+3], nonce[nonceSize-1] = 1, 1
	b = c.aead.Seal(b, nonce, nil, nil)
	put(t, m, "k", b)
	got, err := get(s, "k")
	must.ErrorIs(t, err, ErrDamaged)
	must.True(t, bytes.Equal(random(first), got))
	_, err = getRange(s, "k", first, 1)
	must.ErrorIs(t, err, ErrDamaged)
}

// An object is good under its own name and with its own key only.
func TestMoved(t *testing.T) {
	s, m := memory()
	put(t, s, "a/b", random(100))
	put(t, s, "a/c", random(100))
	b, err := get(m, "a/b")
	must.NoError(t, err)
	must.True(t, m.Damage("a/c", func([]byte) []byte { return b }))
	_, err = get(s, "a/c")
	must.ErrorIs(t, err, ErrDamaged)
	put(t, m, "b", b)
	_, err = get(s, "b")
	must.ErrorIs(t, err, ErrDamaged)
	_, err = get(&sealedStore{inner: m, key: make([]byte, 32)}, "a/b")
	must.ErrorIs(t, err, ErrDamaged)
	got, err := get(s, "a/b")
	must.NoError(t, err)
	must.Eq(t, random(100), got)
}

// Sizes that no sealed object has.
func TestImpossibleSize(t *testing.T) {
	s, m := memory()
	put(t, m, "k", make([]byte, headerSize))
	_, err := s.Stat(t.Context(), "k")
	must.ErrorIs(t, err, ErrDamaged)
	list, err := s.List(t.Context(), "")
	must.NoError(t, err)
	must.Len(t, 1, list)
	must.Zero(t, list[0].Size)
}

// FuzzOpenObject reads hostile bytes as an object: whole and in ranges, nothing but ErrDamaged comes of it. With valid, the
// bytes are sealed first, and come back.
func FuzzOpenObject(f *testing.F) {
	for _, n := range []int{0, 1, 100, first, first + 1} {
		s, m := memory()
		put(f, s, "k", random(n))
		b, err := get(m, "k")
		must.NoError(f, err)
		f.Add(b, int64(0), int64(10), false)
		f.Add(b, int64(n), int64(1)<<62, false)
		f.Add(random(n), int64(n/2), int64(n), true)
	}
	f.Add(bytes.Repeat([]byte{headerSize}, 2*segmentSize+3), int64(segmentSize), int64(7), false)
	f.Fuzz(func(t *testing.T, b []byte, off, n int64, valid bool) {
		s, m := memory()
		if valid {
			put(t, s, "k", b)
			got, err := get(s, "k")
			must.NoError(t, err)
			must.True(t, bytes.Equal(b, got))
			if off >= 0 && n >= 0 {
				got, err = getRange(s, "k", off, n)
				must.NoError(t, err)
				from := min(off, int64(len(b)))
				must.True(t, bytes.Equal(b[from:from+min(n, int64(len(b))-from)], got))
			}
			return
		}
		put(t, m, "k", b)
		if _, err := get(s, "k"); err != nil {
			must.ErrorIs(t, err, ErrDamaged)
		}
		if _, err := getRange(s, "k", off, n); err != nil && off >= 0 && n >= 0 {
			must.ErrorIs(t, err, ErrDamaged)
		}
	})
}

// The store below gives nothing although the object is long enough.
func TestEmptyAnswer(t *testing.T) {
	s, m := memory()
	put(t, s, "k", random(3*segmentSize))
	s.inner = storetest.NewFaulty(m, storetest.Fault{Op: storetest.GetRange, N: 2, Kind: storetest.Truncate, At: 0})
	_, err := getRange(s, "k", segmentSize, 10)
	must.Error(t, err)
	must.False(t, errors.Is(err, ErrDamaged))
	must.False(t, errors.Is(err, io.EOF))
}
