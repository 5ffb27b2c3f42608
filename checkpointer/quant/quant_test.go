package quant_test

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/shoenig/test/must"

	"nomad-spotter/checkpointer/quant"
	"nomad-spotter/checkpointer/tensor"
)

var all = map[string]*quant.Rounding{"momentum": quant.Momentum, "variance": quant.Variance}

func encode(u ...uint32) []byte {
	var b []byte
	for _, x := range u {
		b = binary.LittleEndian.AppendUint32(b, x)
	}
	return b
}

func round(r *quant.Rounding, u uint32) uint32 {
	b := encode(u)
	r.Round(b)
	return binary.LittleEndian.Uint32(b)
}

func TestOf(t *testing.T) {
	for k := tensor.Other; k <= tensor.Variance; k++ {
		for d := tensor.Bytes; d <= tensor.F8; d++ {
			var want *quant.Rounding
			switch {
			case d == tensor.F32 && k == tensor.Momentum:
				want = quant.Momentum
			case d == tensor.F32 && k == tensor.Variance:
				want = quant.Variance
			}
			must.True(t, want == quant.Of(k, d), must.Sprint(k, d))
		}
	}
}

// limit is where numbers from a to b must be parted for 1/sqrt(x) to keep its mean.
func limit(a, b float64) float64 {
	fa, fb := 1/math.Sqrt(a), 1/math.Sqrt(b)
	return a * math.Exp((2*(fa-fb)-fb*math.Log(b/a))/(fa-fb))
}

func TestRound(t *testing.T) {
	f := math.Float32bits
	low, high := limit(1, 1.5), limit(1.5, 2)
	const eps = 2e-7
	for name, c := range map[string]struct{ in, momentum, variance uint32 }{
		"zero":                   {f(0), f(0), f(0)},
		"negative zero":          {1 << 31, 1 << 31, 1 << 31},
		"one":                    {f(1), f(1), f(1)},
		"tie to even, down":      {f(1.125), f(1), f(1)},
		"above a tie":            {f(1.125) + 1, f(1.25), f(1)},
		"below a tie":            {f(1.375) - 1, f(1.25), f(1.5)},
		"tie to even, up":        {f(1.375), f(1.5), f(1.5)},
		"negative":               {f(-1.2), f(-1.25), f(-1)},
		"into the next octave":   {f(1.99), f(2), f(2)},
		"below the low limit":    {f(float32(low - eps)), f(1.25), f(1)},
		"above the low limit":    {f(float32(low + eps)), f(1.25), f(1.5)},
		"below the high limit":   {f(float32(high - eps)), f(1.75), f(1.5)},
		"above the high limit":   {f(float32(high + eps)), f(1.75), f(2)},
		"another octave":         {f(float32(high+eps) / 1024), f(1.75 / 1024), f(2. / 1024)},
		"infinity":               {0x7f800000, 0x7f800000, 0x7f800000},
		"minus infinity":         {0xff800000, 0xff800000, 0xff800000},
		"quiet NaN":              {0x7fc00001, 0x7fc00001, 0x7fc00001},
		"signalling NaN":         {0xff800001, 0xff800001, 0xff800001},
		"largest":                {f(math.MaxFloat32), 0x7f600000, 0x7f400000},
		"largest, negative":      {f(-math.MaxFloat32), 0xff600000, 0xff400000},
		"smallest normal":        {0x00800000, 0x00800000, 0x00800000},
		"just above the normals": {0x00800001, 0x00800000, 0x00800000},
		"largest subnormal":      {0x007fffff, 0x007fffff, 0x007fffff},
		"smallest subnormal":     {1, 1, 1},
	} {
		must.EqOp(t, c.momentum, round(quant.Momentum, c.in), must.Sprint(name))
		must.EqOp(t, c.variance, round(quant.Variance, c.in), must.Sprint(name))
	}
}

// check compares a number with what has become of it, and with what becomes of that.
func check(t *testing.T, r *quant.Rounding, u uint32) {
	t.Helper()
	v := round(r, u)
	must.EqOp(t, v, round(r, v), must.Sprintf("%x is rounded to %x, and that once more", u, v))
	must.EqOp(t, u>>31, v>>31)
	x, y := float64(math.Float32frombits(u)), float64(math.Float32frombits(v))
	if e := u >> 23 & 255; e == 0 || e == 255 {
		must.EqOp(t, u, v)
		return
	}
	must.EqOp(t, 0, v<<(9+r.Bits()), must.Sprintf("%x is rounded to %x", u, v))
	must.False(t, math.IsInf(y, 0))
	bound := r.Bound()
	if top := 2 - 1/float64(int(1)<<r.Bits()); math.Abs(x) > top*0x1p127 { // held below infinity
		bound = 1 - top/2
	}
	must.LessEq(t, bound*math.Abs(x), math.Abs(y-x), must.Sprintf("%x is rounded to %x", u, v))
}

// Every binary32 of which the upper 12 bits and what lies around each limit can be chosen keeps its bound and is left alone
// by a second rounding.
func TestRound_Everywhere(t *testing.T) {
	must.Eq(t, 1./9, quant.Momentum.Bound())
	must.Between(t, .2331, quant.Variance.Bound(), .2333)
	for _, r := range all {
		for top := range uint32(1 << 12) {
			for _, low := range []uint32{0, 1, 0x7ffff, 0x80000, 0x80001, 0xfffff} {
				check(t, r, top<<20|low)
			}
		}
	}
}

// A larger number never becomes the smaller one.
func TestRound_Order(t *testing.T) {
	for _, r := range all {
		last := float32(0)
		for u := uint32(0); u < 0x7f800000; u += 4099 {
			v := math.Float32frombits(round(r, u))
			must.GreaterEq(t, last, v)
			last = v
		}
	}
}

// What an optimizer divides by is neither larger nor smaller on average, nor is what it divides.
func TestRound_Mean(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	const n = 1 << 20
	var v, m []byte
	for range n {
		x := math.Float32bits(float32(math.Exp2(8*r.Float64() - 30)))
		v = binary.LittleEndian.AppendUint32(v, x)
		m = binary.LittleEndian.AppendUint32(m, math.Float32bits(float32(r.NormFloat64()))&^(1<<31))
	}
	mean := func(b []byte, f func(x float64) float64) (sum float64) {
		for ; len(b) > 0; b = b[4:] {
			sum += f(float64(math.Float32frombits(binary.LittleEndian.Uint32(b))))
		}
		return sum / n
	}
	step := func(x float64) float64 { return 1 / math.Sqrt(x) }
	same := func(x float64) float64 { return x }
	v0, m0 := mean(v, step), mean(m, same)
	quant.Variance.Round(v)
	quant.Momentum.Round(m)
	must.Between(t, .9998, mean(v, step)/v0, 1.0002)
	must.Between(t, .995, mean(m, same)/m0, 1.005) // to the nearest is a little less: cells are half as wide below a power of two
}

// Whatever the bytes are, a second rounding changes nothing, what follows the last whole number stays, and each number keeps
// its bound.
func FuzzRound(f *testing.F) {
	f.Add([]byte{})
	f.Add(encode(0x7f7fffff, 0xff7fffff, 0x7f800000, 0x7fc00001, 1, 0x3f880000))
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7})
	f.Fuzz(func(t *testing.T, in []byte) {
		for _, r := range all {
			got := bytes.Clone(in)
			r.Round(got)
			whole := len(in) / 4 * 4
			must.Eq(t, in[whole:], got[whole:])
			for i := 0; i < whole; i += 4 {
				u := binary.LittleEndian.Uint32(in[i:])
				must.EqOp(t, round(r, u), binary.LittleEndian.Uint32(got[i:]))
				check(t, r, u)
			}
		}
	})
}

// Bytes before and beside those that are rounded stay as they are, wherever they lie in memory.
func TestRound_Unaligned(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	in := make([]byte, 4096+3)
	for i := range in {
		in[i] = byte(r.Uint32())
	}
	want := bytes.Clone(in[3:])
	quant.Momentum.Round(want)
	got := bytes.Clone(in)
	quant.Momentum.Round(got[3:])
	must.Eq(t, want, got[3:])
	must.Eq(t, in[:3], got[:3])
}

func BenchmarkRound(b *testing.B) {
	buf := make([]byte, 512<<10)
	for i := 0; i < len(buf); i += 4 {
		binary.LittleEndian.PutUint32(buf[i:], math.Float32bits(float32(i)*1e-9))
	}
	b.SetBytes(int64(len(buf)))
	for b.Loop() {
		quant.Variance.Round(buf)
	}
}
