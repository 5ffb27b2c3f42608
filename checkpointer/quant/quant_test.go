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

func TestRound(t *testing.T) {
	f := math.Float32bits
	for name, c := range map[string]struct{ in, momentum uint32 }{
		"zero":                   {f(0), f(0)},
		"negative zero":          {1 << 31, 1 << 31},
		"one":                    {f(1), f(1)},
		"tie to even, down":      {f(1.125), f(1)},
		"above a tie":            {f(1.125) + 1, f(1.25)},
		"below a tie":            {f(1.375) - 1, f(1.25)},
		"tie to even, up":        {f(1.375), f(1.5)},
		"negative":               {f(-1.2), f(-1.25)},
		"into the next octave":   {f(1.99), f(2)},
		"another octave":         {f(1.7 / 1024), f(1.75 / 1024)},
		"infinity":               {0x7f800000, 0x7f800000},
		"minus infinity":         {0xff800000, 0xff800000},
		"quiet NaN":              {0x7fc00001, 0x7fc00001},
		"signalling NaN":         {0xff800001, 0xff800001},
		"largest":                {f(math.MaxFloat32), 0x7f600000},
		"largest, negative":      {f(-math.MaxFloat32), 0xff600000},
		"smallest normal":        {0x00800000, 0x00800000},
		"just above the normals": {0x00800001, 0x00800000},
		"largest subnormal":      {0x007fffff, 0x007fffff},
		"smallest subnormal":     {1, 1},
	} {
		must.EqOp(t, c.momentum, round(quant.Momentum, c.in), must.Sprint(name))
		switch v := round(quant.Variance, c.in); {
		case c.in<<11 == 0, c.in&0x7f800000 == 0, c.in&0x7f800000 == 0x7f800000:
			must.EqOp(t, c.in, v, must.Sprint(name))
		case c.in&0x7fe00000 == 0x7f600000:
			must.EqOp(t, c.in>>21<<21, v, must.Sprint(name))
		default:
			must.SliceContains(t, []uint32{c.in >> 21 << 21, c.in>>21<<21 + 1<<21}, v, must.Sprint(name))
		}
	}
	for in, want := range map[float32]float32{ // the same number always becomes the same
		1.1e-9: 9.313225746154785e-10, 1.2e-9: 1.1641532182693481e-09, 1.3e-9: 1.3969838619232178e-09, 1.4e-9: 1.3969838619232178e-09,
	} {
		must.EqOp(t, f(want), round(quant.Variance, f(in)), must.Sprint(in))
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
	must.EqOp(t, 1./9, quant.Momentum.Bound())
	must.EqOp(t, .25, quant.Variance.Bound())
	for _, r := range all {
		for top := range uint32(1 << 12) {
			for _, low := range []uint32{0, 1, 0x7ffff, 0x80000, 0x80001, 0xfffff} {
				check(t, r, top<<20|low)
			}
		}
	}
}

// A larger number never becomes the smaller one, of those that go to the nearest.
func TestRound_Order(t *testing.T) {
	last := float32(0)
	for u := uint32(0); u < 0x7f800000; u += 4099 {
		v := math.Float32frombits(round(quant.Momentum, u))
		must.GreaterEq(t, last, v)
		last = v
	}
}

// Second moments keep their mean, wherever they lie between two numbers that stay; hence so do the steps that are divided by
// their roots, nearly. First moments keep theirs nearly.
func TestRound_Mean(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	mean := func(b []byte, f func(x float64) float64) (sum float64) {
		for n := len(b) / 4; len(b) > 0; b = b[4:] {
			sum += f(float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))) / float64(n)
		}
		return sum
	}
	same := func(x float64) float64 { return x }
	around := func(n int, x func() float64) (b []byte) {
		for range n {
			b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(x())))
		}
		return b
	}
	for i := range 100 { // a hundredth of an octave
		v := around(1<<16, func() float64 { return 1e-9 * math.Exp2((float64(i)+r.Float64())/100) })
		before := mean(v, same)
		quant.Variance.Round(v)
		must.Between(t, .998, mean(v, same)/before, 1.002)
	}
	step := func(x float64) float64 { return 1 / math.Sqrt(x) }
	v := around(1<<20, func() float64 { return math.Exp2(8*r.Float64() - 30) })
	before := mean(v, step)
	quant.Variance.Round(v)
	must.Between(t, 1, mean(v, step)/before, 1.003)
	m := around(1<<20, func() float64 { return math.Abs(r.NormFloat64()) })
	before = mean(m, same)
	quant.Momentum.Round(m)
	must.Between(t, .995, mean(m, same)/before, 1.005)
}

// A second moment that changes by little is not held where it is by being rounded again and again: it goes where it would
// have gone.
func TestRound_Again(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	const n, times = 1 << 12, 100
	held, free := make([]byte, 4*n), make([]float32, n)
	put := func(i int, x float32) { binary.LittleEndian.PutUint32(held[4*i:], math.Float32bits(x)) }
	get := func(i int) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(held[4*i:])) }
	for i := range n {
		free[i] = 1e-8 * (1 + r.Float32())
		put(i, free[i])
	}
	for range times {
		quant.Variance.Round(held)
		for i := range n {
			square := 1e-9 * float32(r.ExpFloat64()) // of a gradient
			free[i] = .99*free[i] + .01*square
			put(i, .99*get(i)+.01*square)
		}
	}
	sums := [2]float64{}
	for i := range n {
		sums[0] += float64(free[i])
		sums[1] += float64(get(i))
	}
	must.Less(t, .7e-8*n, sums[0]) // less than half of what it was
	must.Between(t, .95, sums[1]/sums[0], 1.05)
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
