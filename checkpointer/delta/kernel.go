package delta

import (
	"encoding/binary"
)

// Kernels: loops over all elements of a block. Each exists in plain Go here and, for AVX2, in assembly
// (kernel_amd64.s); both write the same bytes. All take whole elements, little-endian.

// rotate writes the elements of src rotated left by one bit: the sign goes last, the exponent becomes the first bits.
func rotate(dst, src []byte, width int) {
	n := rotateWide(dst, src, width)
	dst, src = dst[n:len(src)], src[n:]
	switch width {
	case 2:
		for ; len(src) >= 2; dst, src = dst[2:], src[2:] {
			x := binary.LittleEndian.Uint16(src)
			binary.LittleEndian.PutUint16(dst, x<<1|x>>15)
		}
	case 4:
		for ; len(src) >= 4; dst, src = dst[4:], src[4:] {
			x := binary.LittleEndian.Uint32(src)
			binary.LittleEndian.PutUint32(dst, x<<1|x>>31)
		}
	case 8:
		for ; len(src) >= 8; dst, src = dst[8:], src[8:] {
			x := binary.LittleEndian.Uint64(src)
			binary.LittleEndian.PutUint64(dst, x<<1|x>>63)
		}
	}
}

// unrotate undoes rotate, in place.
func unrotate(b []byte, width int) {
	b = b[unrotateWide(b, width):]
	switch width {
	case 2:
		for ; len(b) >= 2; b = b[2:] {
			x := binary.LittleEndian.Uint16(b)
			binary.LittleEndian.PutUint16(b, x>>1|x<<15)
		}
	case 4:
		for ; len(b) >= 4; b = b[4:] {
			x := binary.LittleEndian.Uint32(b)
			binary.LittleEndian.PutUint32(b, x>>1|x<<31)
		}
	case 8:
		for ; len(b) >= 8; b = b[8:] {
			x := binary.LittleEndian.Uint64(b)
			binary.LittleEndian.PutUint64(b, x>>1|x<<63)
		}
	}
}

// Signed integers in the order of the floats: the magnitude of a negative one is inverted. The map is its own inverse.
func order16(x uint16) uint16 { return x ^ uint16(int16(x)>>15)>>1 }
func order32(x uint32) uint32 { return x ^ uint32(int32(x)>>31)>>1 }
func order64(x uint64) uint64 { return x ^ uint64(int64(x)>>63)>>1 }

// subtract writes cur-ref of the ordered integers, zigzag: 0, -1, 1, -2 … become 0, 1, 2, 3 ….
func subtract(dst, cur, ref []byte, width int) {
	n := subtractWide(dst, cur, ref, width)
	dst, cur, ref = dst[n:len(cur)], cur[n:], ref[n:]
	switch width {
	case 2:
		for ; len(cur) >= 2; dst, cur, ref = dst[2:], cur[2:], ref[2:] {
			d := order16(binary.LittleEndian.Uint16(cur)) - order16(binary.LittleEndian.Uint16(ref))
			binary.LittleEndian.PutUint16(dst, d<<1^uint16(int16(d)>>15))
		}
	case 4:
		for ; len(cur) >= 4; dst, cur, ref = dst[4:], cur[4:], ref[4:] {
			d := order32(binary.LittleEndian.Uint32(cur)) - order32(binary.LittleEndian.Uint32(ref))
			binary.LittleEndian.PutUint32(dst, d<<1^uint32(int32(d)>>31))
		}
	case 8:
		for ; len(cur) >= 8; dst, cur, ref = dst[8:], cur[8:], ref[8:] {
			d := order64(binary.LittleEndian.Uint64(cur)) - order64(binary.LittleEndian.Uint64(ref))
			binary.LittleEndian.PutUint64(dst, d<<1^uint64(int64(d)>>63))
		}
	}
}

// add undoes subtract, in place.
func add(b, ref []byte, width int) {
	n := addWide(b, ref, width)
	b, ref = b[n:], ref[n:]
	switch width {
	case 2:
		for ; len(b) >= 2; b, ref = b[2:], ref[2:] {
			z := binary.LittleEndian.Uint16(b)
			y := z>>1 ^ -(z & 1) + order16(binary.LittleEndian.Uint16(ref))
			binary.LittleEndian.PutUint16(b, order16(y))
		}
	case 4:
		for ; len(b) >= 4; b, ref = b[4:], ref[4:] {
			z := binary.LittleEndian.Uint32(b)
			y := (z>>1 ^ -(z & 1)) + order32(binary.LittleEndian.Uint32(ref))
			binary.LittleEndian.PutUint32(b, order32(y))
		}
	case 8:
		for ; len(b) >= 8; b, ref = b[8:], ref[8:] {
			z := binary.LittleEndian.Uint64(b)
			y := (z>>1 ^ -(z & 1)) + order64(binary.LittleEndian.Uint64(ref))
			binary.LittleEndian.PutUint64(b, order64(y))
		}
	}
}

// planeSet holds the byte planes of a block, the least significant byte's first.
type planeSet [8][]byte

// split writes the bytes of src's elements to p, from element at on.
func split(p *planeSet, at int, src []byte, width int) {
	n := splitWide(p, at, src, width)
	at, src = at+n/width, src[n:]
	for k := range width {
		plane := p[k][at : at+len(src)/width]
		for i := range plane {
			plane[i] = src[i*width+k]
		}
	}
}

// merge undoes split.
func merge(dst []byte, p *planeSet, at, width int) {
	n := mergeWide(dst, p, at, width)
	at, dst = at+n/width, dst[n:]
	for k := range width {
		plane := p[k][at : at+len(dst)/width]
		for i, b := range plane {
			dst[i*width+k] = b
		}
	}
}

// exponents writes a byte for each element of src that tells its magnitude: of floats the eight bits after the sign, of
// binary64 the exponent, 2^-191 to 2^64, the nearer of these for others, of everything else the most significant byte.
func exponents(dst, src []byte, elem Elem) {
	switch elem {
	case BF16, F16, Word16:
		shift := 8
		if elem.float() {
			shift = 7
		}
		for i := exponentsWide(dst, src, 2, shift); i < len(dst); i++ {
			dst[i] = byte(binary.LittleEndian.Uint16(src[2*i:]) >> shift)
		}
	case F32, Word32:
		shift := 24
		if elem.float() {
			shift = 23
		}
		for i := exponentsWide(dst, src, 4, shift); i < len(dst); i++ {
			dst[i] = byte(binary.LittleEndian.Uint32(src[4*i:]) >> shift)
		}
	case F64:
		for i := range dst {
			e := int(binary.LittleEndian.Uint64(src[8*i:]) >> 52 & 0x7ff)
			dst[i] = byte(min(max(e-1023+191, 0), 255))
		}
	case Word64:
		for i := range dst {
			dst[i] = src[8*i+7]
		}
	default:
		copy(dst, src)
	}
}

// contexts writes of[class<<8 | x] for each element; of goes up by one at most from one to the next. cls may be nil: all
// classes are 0 then.
func contexts(ctx, x, cls []byte, of *[classes * 256]uint8) {
	n := contextsWide(ctx, x, cls, of)
	ctx, x = ctx[n:len(x)], x[n:]
	if cls == nil {
		for i, b := range x {
			ctx[i] = of[b]
		}
		return
	}
	cls = cls[n : n+len(x)]
	for i, b := range x {
		ctx[i] = of[min(int(cls[i]), classes-1)<<8|int(b)]
	}
}

// classify gives the class of the next lower plane from the class so far and a byte: the bytes above are together 0, 1
// or more, class 2.
func classify(cls, plane []byte) {
	n := classifyWide(cls, plane)
	cls, plane = cls[n:], plane[n:len(cls)]
	for i, c := range cls {
		cls[i] = max(min(2*c, 2), min(plane[i], 2))
	}
}
