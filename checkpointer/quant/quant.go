package quant

import (
	"encoding/binary"

	"nomad-spotter/checkpointer/tensor"
)

// Rounding says how binary32 numbers become numbers with a shorter mantissa. The numbers from one that stays to the next,
// a cell, are parted at a limit: those below it become the lower one, the others the upper one.
type Rounding struct {
	bits uint          // of mantissa that are kept, at most maxBits
	up   [cells]uint32 // by the cell within its octave: how far the limit is from the upper end, in units of the last place
}

const (
	mantissa = 23         // bits of a binary32's
	exponent = 0xff << 23 // its exponent's place; all ones are infinities and NaNs
	maxBits  = 3
	cells    = 1 << maxBits
)

// The roundings of a compact snapshot.
var (
	// Momentum keeps two bits and rounds to the nearest, ties to even.
	Momentum = &Rounding{bits: 2, up: [cells]uint32{1<<20 - 1, 1 << 20, 1<<20 - 1, 1 << 20}}
	// Variance keeps one bit. Its limits are such that 1/sqrt(x) keeps its mean where all x of a cell are equally frequent
	// by octaves: with the limit t in the cell from a to b,
	//
	//	ln(t/a)/sqrt(a) + ln(b/t)/sqrt(b) = 2/sqrt(a) - 2/sqrt(b)
	Variance = &Rounding{bits: 1, up: [cells]uint32{2_379_096, 2_297_720}}
)

// Of tells how a compact snapshot rounds a tensor; nil: not at all.
func Of(kind tensor.Kind, dtype tensor.DType) *Rounding {
	switch {
	case dtype != tensor.F32:
		return nil
	case kind == tensor.Momentum:
		return Momentum
	case kind == tensor.Variance:
		return Variance
	}
	return nil
}

// Bits is how many bits of mantissa are kept.
func (r *Rounding) Bits() int { return int(r.bits) }

// Bound is the largest error that a rounded number can have, relative to what it was. It does not hold for numbers that would
// round to infinity, see Round.
func (r *Rounding) Bound() float64 {
	bound := 0.0
	step := 1 / float64(uint32(1)<<r.bits)
	for i, up := range r.up[:1<<r.bits] {
		lower, upper := 1+float64(i)*step, 1+float64(i+1)*step
		limit := upper - float64(up)/(1<<mantissa)
		last := limit - 1./(1<<mantissa) // that becomes the lower one
		bound = max(bound, (last-lower)/last, (upper-limit)/limit)
	}
	return bound
}

// Round rounds the little-endian binary32 numbers of b in place. Infinities, NaNs, zeros and subnormal numbers stay as they
// are, and what would become infinite takes the largest finite value there is after rounding. Bytes after the last whole
// number stay as they are.
func (r *Rounding) Round(b []byte) {
	drop := mantissa - r.bits
	mask := uint32(1)<<drop - 1
	last := uint32(1)<<r.bits - 1
	for ; len(b) >= 4; b = b[4:] {
		u := binary.LittleEndian.Uint32(b)
		e := u & exponent
		if e-1<<mantissa >= exponent-1<<mantissa {
			continue
		}
		v := (u + r.up[u>>drop&last&(cells-1)]) &^ mask
		if v&exponent == exponent {
			v = u &^ mask
		}
		binary.LittleEndian.PutUint32(b, v)
	}
}
