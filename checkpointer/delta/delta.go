package delta

import (
	"errors"
	"fmt"
)

// MaxElems is the largest number of elements in a block; with elements of 8 bytes a block has at most MaxBlock bytes.
const (
	MaxElems = 1 << 17
	MaxBlock = MaxElems * 8
)

// Elem says how the bytes of a block form elements (little-endian), and where their exponents are.
type Elem uint8

// The element types. Words are integers or floats of unknown layout.
const (
	Bytes  Elem = iota // single bytes, or anything that is no array of numbers
	F32                // IEEE 754 binary32
	BF16               // bfloat16: the upper half of a binary32
	F16                // IEEE 754 binary16
	F64                // IEEE 754 binary64
	Word16             // 2-byte integers
	Word32             // 4-byte integers
	Word64             // 8-byte integers
	elems              // how many there are
)

// Width is the number of bytes of one element.
func (e Elem) Width() int {
	switch e {
	case BF16, F16, Word16:
		return 2
	case F32, Word32:
		return 4
	case F64, Word64:
		return 8
	default:
		return 1
	}
}

// float tells whether the element starts with a sign bit and an exponent.
func (e Elem) float() bool { return e >= F32 && e <= F64 }

// Effort says how much work an Encoder spends on small output.
type Effort uint8

// The efforts. A decoder needs not know which one was used.
const (
	Auto  Effort = iota // contexts where they pay
	Fast                // one table per plane, planes that gain little stay raw
	Small               // more contexts, every plane that gains anything
	None                // everything stored as it is
)

// method is the transform of a block, the low bits of its first byte.
type method uint8

const (
	stored     method = iota // as it is
	planes                   // byte planes
	rotated                  // byte planes after a rotation by one bit
	xored                    // zstd of the exclusive or with the reference
	difference               // byte planes of the difference to the reference
	zipped                   // zstd
	methods                  // how many there are
)

var methodNames = [methods]string{"stored", "planes", "rotated", "xor", "difference", "bytes"}

// ErrCorrupt is in the chain of every error about an encoded block that no encoder wrote.
var ErrCorrupt = errors.New("corrupt block")

// ErrReference is in the chain of an error about a reference that is missing or of the wrong length.
var ErrReference = errors.New("reference does not fit")

func corrupt(what string) error { return fmt.Errorf("%w: %s", ErrCorrupt, what) }

// header is the first byte of a block: method in bits 0-2, element in bits 3-5, use of the reference by a method that
// would not need it in bit 6.
type header struct {
	method method
	elem   Elem
	hinted bool
}

func (h header) byte() byte {
	b := byte(h.method) | byte(h.elem)<<3
	if h.hinted {
		b |= 1 << 6
	}
	return b
}

func (h header) needsRef() bool { return h.method == xored || h.method == difference || h.hinted }

func parseHeader(enc []byte) (header, error) {
	if len(enc) == 0 {
		return header{}, corrupt("no header")
	}
	h := header{method: method(enc[0] & 7), elem: Elem(enc[0] >> 3 & 7), hinted: enc[0]&(1<<6) != 0}
	if enc[0]&(1<<7) != 0 || h.method >= methods {
		return header{}, corrupt("unknown method")
	}
	if h.hinted && h.method != planes && h.method != rotated {
		return header{}, corrupt("reference hinted where none is used")
	}
	if h.elem == Bytes && (h.method == rotated || h.method == difference) {
		return header{}, corrupt("method of numbers on bytes")
	}
	return h, nil
}

// NeedsRef tells whether decoding enc needs the reference that it was encoded with.
func NeedsRef(enc []byte) (bool, error) {
	h, err := parseHeader(enc)
	return h.needsRef(), err
}

// Method names the transform of an encoded block, for statistics: stored, planes, rotated, xor, difference or bytes
// (compressed as bytes), and "corrupt" for what is no block.
func Method(enc []byte) string {
	h, err := parseHeader(enc)
	if err != nil {
		return "corrupt"
	}
	return methodNames[h.method]
}
