//go:build amd64

package delta

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/shoenig/test/must"
)

// plainly runs f without the vector kernels.
func plainly(f func()) {
	before := vectors
	vectors = false
	defer func() { vectors = before }()
	f()
}

func noise(r *rand.Rand, n, align int) []byte {
	b := make([]byte, n+align)
	for i := range b {
		b[i] = byte(r.Uint32()) & byte(r.Uint32()|uint32(i&1)*255)
	}
	return b[align:]
}

// TestKernels compares each kernel in assembly with the one in Go, at odd lengths and addresses.
func TestKernels(t *testing.T) {
	if !vectors {
		t.Skip("no AVX2 here")
	}
	r := rand.New(rand.NewPCG(3, 4))
	both := func(n int, f func(out []byte)) {
		t.Helper()
		a, b := make([]byte, n+8), make([]byte, n+8)
		f(a[:n])
		plainly(func() { f(b[:n]) })
		must.True(t, bytes.Equal(a, b))
	}
	for range 300 {
		for elem := F32; elem < elems; elem++ {
			width := elem.Width()
			n := r.IntN(300)
			cur, ref := noise(r, n*width, r.IntN(9)), noise(r, n*width, r.IntN(9))
			both(n*width, func(out []byte) { rotate(out, cur, width) })
			both(n*width, func(out []byte) { copy(out, cur); unrotate(out, width) })
			both(n*width, func(out []byte) { subtract(out, cur, ref, width) })
			both(n*width, func(out []byte) { copy(out, cur); add(out, ref, width) })
			both(n, func(out []byte) { exponents(out, cur, elem) })
			cls := noise(r, n, r.IntN(9))
			for i := range cls {
				cls[i] %= classes
			}
			both(n, func(out []byte) { copy(out, cls); classify(out, cur[:n]) })
			var of [classes * 256]uint8
			for i := 1; i < len(of) && of[i-1] < maxRows-1; i++ {
				of[i] = of[i-1] + uint8(r.IntN(9)/8)
			}
			for i := 1; i < len(of); i++ {
				of[i] = max(of[i], of[i-1])
			}
			both(n, func(out []byte) { contexts(out, cur[:n], cls, &of) })
			both(n, func(out []byte) { contexts(out, cur[:n], nil, &of) })
			at := r.IntN(5)
			var set planeSet
			both((n+at)*width, func(out []byte) {
				for k := range width {
					set[k] = out[k*(n+at) : (k+1)*(n+at)]
				}
				split(&set, at, cur, width)
			})
			for k := range width {
				set[k] = noise(r, n+at, r.IntN(9))
			}
			both(n*width, func(out []byte) { merge(out, &set, at, width) })
		}
	}
}

// TestSamePlain encodes and decodes with and without vector kernels: the same blocks either way, and each reads the
// other's.
func TestSamePlain(t *testing.T) {
	if !vectors {
		t.Skip("no AVX2 here")
	}
	for name, blocks := range blockKinds {
		for _, effort := range []Effort{Fast, Small} {
			e, d := NewEncoder(effort), NewDecoder()
			for elem := Bytes; elem < elems; elem++ {
				r := rand.New(rand.NewPCG(5, uint64(elem)))
				cur, ref := blocks(r, elem, 4096+r.IntN(100))
				fast := roundTrip(t, e, d, cur, ref, elem)
				plainly(func() {
					slow := roundTrip(t, e, d, cur, ref, elem)
					must.True(t, bytes.Equal(fast, slow), must.Sprintf("%s of element %d", name, elem))
					out := make([]byte, len(cur))
					must.NoError(t, d.Decode(out, fast, ref))
					must.True(t, bytes.Equal(cur, out))
				})
			}
		}
	}
}
