package delta

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/shoenig/test/must"
)

// TestDecodeDamaged decodes every kind of block cut short and with bytes changed: an error, or other data, never a panic.
func TestDecodeDamaged(t *testing.T) {
	e, d := NewEncoder(Small), NewDecoder()
	for name, blocks := range blockKinds {
		for _, elem := range []Elem{Bytes, F32, BF16, F64} {
			r := rand.New(rand.NewPCG(7, 8))
			cur, ref := blocks(r, elem, 4096)
			enc, _ := e.Encode(nil, cur, ref, elem)
			out := make([]byte, len(cur))
			for _, n := range []int{0, 1, 2, 5, len(enc) / 2, len(enc) - 1} {
				if n < len(enc) {
					must.Error(t, d.Decode(out, enc[:n], ref), must.Sprintf("%s cut to %d", name, n))
				}
			}
			must.Error(t, d.Decode(out, append(bytes.Clone(enc), 0), ref))
			must.Error(t, d.Decode(out[:len(out)-1], enc, ref))
			for range 60 {
				bad := bytes.Clone(enc)
				bad[r.IntN(min(len(bad), 300))] ^= 1 << r.IntN(8)
				_ = d.Decode(out, bad, ref)
			}
		}
	}
}

func FuzzDecode(f *testing.F) {
	e := NewEncoder(Small)
	for _, blocks := range blockKinds {
		for _, elem := range []Elem{Bytes, F32, BF16, Word64} {
			cur, ref := blocks(rand.New(rand.NewPCG(1, 1)), elem, 64)
			enc, _ := e.Encode(nil, cur, ref, elem)
			f.Add(enc, uint16(len(cur)))
			cur, ref = blocks(rand.New(rand.NewPCG(1, 1)), elem, 2200)
			enc, _ = e.Encode(nil, cur, ref, elem)
			f.Add(enc, uint16(len(cur)))
		}
	}
	d := NewDecoder()
	f.Fuzz(func(t *testing.T, enc []byte, n uint16) {
		out, ref := make([]byte, n), bytes.Repeat([]byte("0123456789ab\x3c\xbd"), int(n)/14+1)[:n]
		if err := d.Decode(out, enc, ref); err != nil {
			return
		}
		again := make([]byte, n)
		must.NoError(t, NewDecoder().Decode(again, enc, ref))
		must.True(t, bytes.Equal(out, again))
		needs, err := NeedsRef(enc)
		must.NoError(t, err)
		if !needs {
			must.NoError(t, d.Decode(again, enc, nil))
			must.True(t, bytes.Equal(out, again))
		}
	})
}

func FuzzRoundTrip(f *testing.F) {
	for _, blocks := range blockKinds {
		cur, ref := blocks(rand.New(rand.NewPCG(1, 1)), F32, 100)
		f.Add(cur, ref, byte(F32), byte(Small))
	}
	d, encoders := NewDecoder(), [...]*Encoder{NewEncoder(Auto), NewEncoder(Fast), NewEncoder(Small), NewEncoder(None)}
	f.Fuzz(func(t *testing.T, cur, ref []byte, elem, effort byte) {
		e := encoders[effort%4]
		roundTrip(t, e, d, cur, nil, Elem(elem)%elems)
		ref = append(ref, make([]byte, max(0, len(cur)-len(ref)))...)[:len(cur)]
		roundTrip(t, e, d, cur, ref, Elem(elem)%elems)
	})
}
