package quant

import (
	"encoding/binary"

	"nomad-spotter/checkpointer/tensor"
)

// Rounding says how binary32 numbers become numbers with a shorter mantissa.
type Rounding struct {
	bits   uint // of mantissa that are kept
	spread bool // up with a probability, not to the nearest
}

const (
	mantissa = 23         // bits of a binary32's
	exponent = 0xff << 23 // its exponent's place; all ones are infinities and NaNs
)

// The roundings of a compact snapshot.
var (
	Momentum = &Rounding{bits: 2}
	Variance = &Rounding{bits: 2, spread: true}
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
	step := 1 / float64(uint32(1)<<r.bits) // from 1 to the next
	if r.spread {
		return step
	}
	return step / 2 / (1 + step/2)
}

// Round rounds the little-endian binary32 numbers of b in place. Infinities, NaNs, zeros and subnormal numbers stay as they
// are, and what would become infinite takes the largest finite value there is after rounding. Bytes after the last whole
// number stay as they are.
func (r *Rounding) Round(b []byte) {
	drop := mantissa - r.bits
	mask := uint32(1)<<drop - 1
	for ; len(b) >= 4; b = b[4:] {
		u := binary.LittleEndian.Uint32(b)
		e := u & exponent
		if e-1<<mantissa >= exponent-1<<mantissa {
			continue
		}
		low := u & mask
		down := u - low
		var up uint32 // 1 if it goes up
		if r.spread {
			up = (u*scatter>>(32-drop) - low) >> 31
		} else {
			up = (low + mask>>1 + down>>drop&1) >> drop
		}
		v := down + up<<drop
		if v&exponent == exponent {
			v = down
		}
		binary.LittleEndian.PutUint32(b, v)
	}
}

// scatter makes of a number one that is as good as random where the numbers' last bits are: its product's upper bits
// (Knuth, The Art of Computer Programming 3, 6.4: the golden ratio of 2³²).
const scatter = 0x9e3779b1
