//go:build amd64

package delta

import (
	"math/bits"

	"golang.org/x/sys/cpu"
)

//go:generate sh -c "cd internal/asm && go run . -out ../../kernel_amd64.s -stubs ../../kernel_amd64_stub.go -pkg delta"

// vectors tells whether the kernels in assembly are used; tests turn it off.
var vectors = cpu.X86.HasAVX2 && cpu.X86.HasPOPCNT

// spread and compact are permutations of eight lanes, by a mask of the lanes that are meant: spread gives the k-th lane
// meant the k-th word, compact gathers the lanes meant at the upper end.
var spread, compact = func() (spread, compact [256][8]byte) {
	for mask := range 256 {
		k, free := 0, 8-bits.OnesCount(uint(mask))
		for lane := range 8 {
			if mask>>lane&1 != 0 {
				spread[mask][lane] = byte(k)
				compact[mask][free+k] = byte(lane)
				k++
			}
		}
	}
	return spread, compact
}()

// rotateWide and those that follow do as many bytes as vectors fit into, and return how many.
func rotateWide(dst, src []byte, width int) int {
	n := len(src) &^ 31
	if !vectors || n == 0 || width == 1 {
		return 0
	}
	_ = dst[n-1]
	switch width {
	case 2:
		rotateAVX216(&dst[0], &src[0], n)
	case 4:
		rotateAVX232(&dst[0], &src[0], n)
	default:
		rotateAVX264(&dst[0], &src[0], n)
	}
	return n
}

func unrotateWide(b []byte, width int) int {
	n := len(b) &^ 31
	if !vectors || n == 0 || width == 1 {
		return 0
	}
	switch width {
	case 2:
		unrotateAVX216(&b[0], &b[0], n)
	case 4:
		unrotateAVX232(&b[0], &b[0], n)
	default:
		unrotateAVX264(&b[0], &b[0], n)
	}
	return n
}

func subtractWide(dst, cur, ref []byte, width int) int {
	n := len(cur) &^ 31
	if !vectors || n == 0 || width == 1 {
		return 0
	}
	_, _ = dst[n-1], ref[n-1]
	switch width {
	case 2:
		subtractAVX216(&dst[0], &cur[0], &ref[0], n)
	case 4:
		subtractAVX232(&dst[0], &cur[0], &ref[0], n)
	default:
		subtractAVX264(&dst[0], &cur[0], &ref[0], n)
	}
	return n
}

func addWide(b, ref []byte, width int) int {
	n := len(b) &^ 31
	if !vectors || n == 0 || width == 1 {
		return 0
	}
	_ = ref[n-1]
	switch width {
	case 2:
		addAVX216(&b[0], &ref[0], n)
	case 4:
		addAVX232(&b[0], &ref[0], n)
	default:
		addAVX264(&b[0], &ref[0], n)
	}
	return n
}

// room checks that the first width planes hold n elements from at on.
func (p *planeSet) room(at, n, width int) {
	for k := range width {
		_ = p[k][at : at+n]
	}
}

func splitWide(p *planeSet, at int, src []byte, width int) int {
	n := len(src) / width &^ 31
	if !vectors || n == 0 || width == 1 {
		return 0
	}
	p.room(at, n, width)
	planes := (*[8][]byte)(p)
	switch width {
	case 2:
		splitAVX216(planes, at, &src[0], n)
	case 4:
		splitAVX232(planes, at, &src[0], n)
	default:
		splitAVX264(planes, at, &src[0], n)
	}
	return n * width
}

func mergeWide(dst []byte, p *planeSet, at, width int) int {
	n := len(dst) / width &^ 31
	if !vectors || n == 0 || width == 1 {
		return 0
	}
	p.room(at, n, width)
	planes := (*[8][]byte)(p)
	switch width {
	case 2:
		mergeAVX216(&dst[0], planes, at, n)
	case 4:
		mergeAVX232(&dst[0], planes, at, n)
	default:
		mergeAVX264(&dst[0], planes, at, n)
	}
	return n * width
}

// exponentsWide returns how many elements it did.
func exponentsWide(dst, src []byte, width, shift int) int {
	n := len(dst) &^ 31
	if !vectors || n == 0 {
		return 0
	}
	_ = src[n*width-1]
	if width == 2 {
		exponentsAVX216(&dst[0], &src[0], n, uint64(shift))
	} else {
		exponentsAVX232(&dst[0], &src[0], n, uint64(shift))
	}
	return n
}

// contextsWide returns how many elements it did.
func contextsWide(ctx, x, cls []byte, of *[classes * 256]uint8) int {
	n := len(x) &^ 31
	if !vectors || n == 0 {
		return 0
	}
	_ = ctx[n-1]
	var bounds [maxRows][16]uint16
	count, known := 0, len(of)
	if cls == nil {
		known = 256
	}
	for i := 1; i < known; i++ {
		if of[i|7] == of[i-1] { // none among those up to i|7
			i |= 7
			continue
		}
		if of[i] != of[i-1] && count < maxRows {
			for j := range bounds[count] {
				bounds[count][j] = uint16(i)
			}
			count++
		}
	}
	if cls == nil {
		contextsAVX2(&ctx[0], &x[0], n, &bounds[0], count)
	} else {
		_ = cls[n-1]
		contextsClassAVX2(&ctx[0], &x[0], &cls[0], n, &bounds[0], count)
	}
	return n
}

// classifyWide returns how many elements it did.
func classifyWide(cls, plane []byte) int {
	n := len(cls) &^ 31
	if !vectors || n == 0 {
		return 0
	}
	_ = plane[n-1]
	classifyAVX2(&cls[0], &plane[0], n)
	return n
}

// putRows encodes syms, whole rows of 32, and returns how many it did and where the words now start.
func (r *rans) putRows(buf []byte, end int, syms, ctx []byte) (done, newEnd int) {
	if !vectors || len(syms) == 0 {
		return 0, end
	}
	rows := len(syms) / wideLanes
	_ = buf[end-1]
	if end < 2*len(syms)+reach {
		return 0, end
	}
	if ctx == nil {
		return len(syms), putAVX2(&r.states[0], &r.encode[0], &syms[0], nil, rows, &buf[0], end, &compact[0][0])
	}
	_ = ctx[len(syms)-1]
	return len(syms), putContextAVX2(&r.states[0], &r.encode[0], &syms[0], &ctx[0], rows, &buf[0], end, &compact[0][0])
}

// getRows decodes rows of 32 symbols while in is long enough to be read without checks, and returns how many symbols
// it did and what is left of in.
func (r *rans) getRows(syms, ctx, in []byte) (done int, rest []byte) {
	if !vectors || len(syms) == 0 || len(in) == 0 {
		return 0, in
	}
	var rows, used int
	if ctx == nil {
		rows, used = getAVX2(&r.states[0], &r.decode[0], &syms[0], nil, len(syms)/wideLanes, &in[0], len(in), &spread[0][0])
	} else {
		_ = ctx[len(syms)-1]
		rows, used = getContextAVX2(&r.states[0], &r.decode[0], &syms[0], &ctx[0], len(syms)/wideLanes, &in[0], len(in), &spread[0][0])
	}
	return rows * wideLanes, in[used:]
}
