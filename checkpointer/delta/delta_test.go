package delta

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/shoenig/test/must"
)

// blockKinds are shapes of data that blocks have, each made of n elements.
var blockKinds = map[string]func(r *rand.Rand, elem Elem, n int) (cur, ref []byte){
	"weights": func(r *rand.Rand, elem Elem, n int) (cur, ref []byte) {
		for range n {
			x := r.NormFloat64() * .02
			ref = appendFloat(ref, elem, x)
			cur = appendFloat(cur, elem, x+r.NormFloat64()*1e-4)
		}
		return cur, ref
	},
	"quiet": func(r *rand.Rand, elem Elem, n int) (cur, ref []byte) {
		for range n {
			x := r.NormFloat64() * .02
			ref = appendFloat(ref, elem, x)
			cur = appendFloat(cur, elem, x+r.NormFloat64()*1e-7)
		}
		return cur, ref
	},
	"unrelated": func(r *rand.Rand, elem Elem, n int) (cur, ref []byte) {
		for range n {
			cur = appendFloat(cur, elem, r.NormFloat64())
			ref = appendFloat(ref, elem, math.Exp(r.NormFloat64()*8))
		}
		return cur, ref
	},
	"special": func(r *rand.Rand, elem Elem, n int) (cur, ref []byte) {
		values := []float64{0, math.Copysign(0, -1), math.NaN(), math.Inf(1), math.Inf(-1), 5e-324, 1e-40, -1e-7, 1, 65504, math.MaxFloat64}
		for range n {
			cur = appendFloat(cur, elem, values[r.IntN(len(values))])
			ref = appendFloat(ref, elem, values[r.IntN(len(values))])
		}
		return cur, ref
	},
	"noise": func(r *rand.Rand, elem Elem, n int) (cur, ref []byte) {
		cur, ref = make([]byte, n*elem.Width()), make([]byte, n*elem.Width())
		for i := range cur {
			cur[i], ref[i] = byte(r.Uint32()), byte(r.Uint32())
		}
		return cur, ref
	},
	"zeros": func(_ *rand.Rand, elem Elem, n int) (cur, ref []byte) {
		return make([]byte, n*elem.Width()), make([]byte, n*elem.Width())
	},
	"equal": func(r *rand.Rand, elem Elem, n int) (cur, ref []byte) {
		for range n {
			cur = appendFloat(cur, elem, r.NormFloat64())
		}
		return cur, bytes.Clone(cur)
	},
	"sparse": func(r *rand.Rand, elem Elem, n int) (cur, ref []byte) {
		for range n {
			ref = appendFloat(ref, elem, r.NormFloat64())
		}
		cur = bytes.Clone(ref)
		for range n / 100 {
			cur[r.IntN(len(cur))]++
		}
		return cur, ref
	},
	"text": func(r *rand.Rand, elem Elem, n int) (cur, ref []byte) {
		for len(cur) < n*elem.Width() {
			cur = fmt.Appendf(cur, "layer.%d.weight ", r.IntN(100))
		}
		cur = cur[:n*elem.Width()]
		ref = bytes.Clone(cur)
		if n > 0 {
			ref[len(ref)/2]++
		}
		return cur, ref
	},
}

func appendFloat(b []byte, elem Elem, x float64) []byte {
	switch elem {
	case F32:
		return binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(x)))
	case BF16:
		return binary.LittleEndian.AppendUint16(b, uint16((math.Float32bits(float32(x))+0x7fff)>>16))
	case F16: // truncated, which is near enough
		f := math.Float32bits(float32(x))
		return binary.LittleEndian.AppendUint16(b, uint16(f>>16&0x8000)|uint16(int32(f<<1)>>14+f32to16bias&0x7fff))
	case F64:
		return binary.LittleEndian.AppendUint64(b, math.Float64bits(x))
	case Word16:
		return binary.LittleEndian.AppendUint16(b, uint16(int16(min(max(x, -1), 1)*3000)))
	case Word32:
		return binary.LittleEndian.AppendUint32(b, uint32(int32(min(max(x, -1), 1)*3e6)))
	case Word64:
		return binary.LittleEndian.AppendUint64(b, uint64(int64(min(max(x, -1), 1)*3e6)))
	default:
		return append(b, byte(int8(min(max(x, -1), 1)*100)))
	}
}

const f32to16bias = -112 << 10

func roundTrip(t *testing.T, e *Encoder, d *Decoder, cur, ref []byte, elem Elem) []byte {
	t.Helper()
	enc, needs := e.Encode([]byte("before"), cur, ref, elem)
	must.Eq(t, "before", string(enc[:6]))
	enc = enc[6:]
	must.LessEq(t, len(cur)+8, len(enc))
	got, err := NeedsRef(enc)
	must.NoError(t, err)
	must.Eq(t, needs, got)
	if !needs {
		ref = nil
	}
	out := make([]byte, len(cur))
	must.NoError(t, d.Decode(out, enc, ref))
	if !bytes.Equal(cur, out) {
		t.Fatalf("%s block of %d bytes decodes to something else", Method(enc), len(cur))
	}
	if needs {
		must.ErrorIs(t, d.Decode(out, enc, nil), ErrReference)
	}
	return bytes.Clone(enc)
}

func TestRoundTrip(t *testing.T) {
	d := NewDecoder()
	for effort := Auto; effort <= None; effort++ {
		e := NewEncoder(effort)
		for name, make := range blockKinds {
			for elem := Bytes; elem < elems; elem++ {
				t.Run(fmt.Sprintf("%s/%d/%d", name, elem, effort), func(t *testing.T) {
					r := rand.New(rand.NewPCG(1, uint64(elem)))
					for _, n := range []int{0, 1, 2, 7, 33, 100, 700, 2050} {
						cur, ref := make(r, elem, n)
						for tail := range min(elem.Width(), 1+1000/(n+400)) {
							extra := []byte("abcdefgh")[:tail]
							a, b := append(bytes.Clone(cur), extra...), append(bytes.Clone(ref), extra...)
							roundTrip(t, e, d, a, nil, elem)
							roundTrip(t, e, d, a, b, elem)
						}
					}
				})
			}
		}
	}
}
