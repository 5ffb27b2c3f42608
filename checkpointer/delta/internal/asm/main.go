// Command asm writes the AVX2 kernels of package delta. It is a module of its own, so that the product does not depend
// on the assembler.
package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

func main() {
	ConstraintExpr("amd64")
	for _, width := range []int{2, 4, 8} {
		rotation("rotateAVX2", width, 1)
		rotation("unrotateAVX2", width, 8*width-1)
		subtraction(width)
		addition(width)
		splitting(width)
		merging(width)
	}
	exponent(2)
	exponent(4)
	classifying()
	choosing(false)
	choosing(true)
	interleave := rowOrder()
	for _, contexts := range []bool{false, true} {
		putting(contexts)
		getting(contexts, interleave)
	}
	Generate()
}

func suffix(width int) string { return map[int]string{2: "16", 4: "32", 8: "64"}[width] }

// pick returns the instruction for the width.
func pick(width int, f16, f32, f64 func(...Op)) func(...Op) {
	return map[int]func(...Op){2: f16, 4: f32, 8: f64}[width]
}

var (
	shiftLeft  = func(w int) func(...Op) { return pick(w, VPSLLW, VPSLLD, VPSLLQ) }
	shiftRight = func(w int) func(...Op) { return pick(w, VPSRLW, VPSRLD, VPSRLQ) }
	plus       = func(w int) func(...Op) { return pick(w, VPADDW, VPADDD, VPADDQ) }
	minus      = func(w int) func(...Op) { return pick(w, VPSUBW, VPSUBD, VPSUBQ) }
)

// signs sets out to all ones where x is negative.
func signs(width int, x, out, zero reg.VecVirtual) {
	pick(width, VPCMPGTW, VPCMPGTD, VPCMPGTQ)(x, zero, out)
}

// each runs body for every 32 bytes, count of them in the parameter n (bytes, a multiple of 32).
func each(n reg.Register, body func(at reg.Register)) {
	at := GP64()
	XORQ(at, at)
	Label("loop")
	CMPQ(at, n)
	JGE(LabelRef("done"))
	body(at)
	ADDQ(Imm(32), at)
	JMP(LabelRef("loop"))
	Label("done")
	VZEROUPPER()
	RET()
}

func rotation(name string, width, left int) {
	TEXT(name+suffix(width), NOSPLIT, "func(dst, src *byte, n int)")
	Pragma("noescape")
	dst, src, n := Load(Param("dst"), GP64()), Load(Param("src"), GP64()), Load(Param("n"), GP64())
	each(n, func(at reg.Register) {
		x, y := YMM(), YMM()
		VMOVDQU(Mem{Base: src, Index: at, Scale: 1}, x)
		shiftRight(width)(Imm(uint64(8*width-left)), x, y)
		shiftLeft(width)(Imm(uint64(left)), x, x)
		VPOR(x, y, x)
		VMOVDQU(x, Mem{Base: dst, Index: at, Scale: 1})
	})
}

// order maps x to ordered integers in place.
func order(width int, x, zero reg.VecVirtual) {
	s := YMM()
	signs(width, x, s, zero)
	shiftRight(width)(Imm(1), s, s)
	VPXOR(s, x, x)
}

func zeroed() reg.VecVirtual {
	zero := YMM()
	VPXOR(zero, zero, zero)
	return zero
}

func subtraction(width int) {
	TEXT("subtractAVX2"+suffix(width), NOSPLIT, "func(dst, cur, ref *byte, n int)")
	Pragma("noescape")
	dst, cur, ref := Load(Param("dst"), GP64()), Load(Param("cur"), GP64()), Load(Param("ref"), GP64())
	n, zero := Load(Param("n"), GP64()), zeroed()
	each(n, func(at reg.Register) {
		x, y, s := YMM(), YMM(), YMM()
		VMOVDQU(Mem{Base: cur, Index: at, Scale: 1}, x)
		VMOVDQU(Mem{Base: ref, Index: at, Scale: 1}, y)
		order(width, x, zero)
		order(width, y, zero)
		minus(width)(y, x, x)
		signs(width, x, s, zero)
		plus(width)(x, x, x)
		VPXOR(s, x, x)
		VMOVDQU(x, Mem{Base: dst, Index: at, Scale: 1})
	})
}

func addition(width int) {
	TEXT("addAVX2"+suffix(width), NOSPLIT, "func(b, ref *byte, n int)")
	Pragma("noescape")
	b, ref := Load(Param("b"), GP64()), Load(Param("ref"), GP64())
	n, zero := Load(Param("n"), GP64()), zeroed()
	each(n, func(at reg.Register) {
		z, y, s := YMM(), YMM(), YMM()
		VMOVDQU(Mem{Base: b, Index: at, Scale: 1}, z)
		VMOVDQU(Mem{Base: ref, Index: at, Scale: 1}, y)
		order(width, y, zero)
		shiftLeft(width)(Imm(uint64(8*width-1)), z, s) // the lowest bit, as a sign
		signs(width, s, s, zero)
		shiftRight(width)(Imm(1), z, z)
		VPXOR(s, z, z)
		plus(width)(y, z, z)
		order(width, z, zero)
		VMOVDQU(z, Mem{Base: b, Index: at, Scale: 1})
	})
}

// sortBytes makes a constant that brings the k-th bytes of a 16-byte lane's elements together, in both lanes, or undoes
// that.
func sortBytes(name string, width int, undo bool) Mem {
	m := GLOBL(name+suffix(width), RODATA|NOPTR)
	for i := range 32 {
		from := i%16%(16/width)*width + i%16/(16/width)
		if undo {
			from = i%width*(16/width) + i%16/width
		}
		DATA(i, U8(from))
	}
	return m
}

// transpose exchanges rows and columns of the width x width matrix whose rows are the vectors and whose columns are
// their parts, in each 128-bit lane.
func transpose(v []reg.VecVirtual) []reg.VecVirtual {
	stages := [][2]func(...Op){{VPUNPCKLWD, VPUNPCKHWD}, {VPUNPCKLDQ, VPUNPCKHDQ}, {VPUNPCKLQDQ, VPUNPCKHQDQ}}
	stages = stages[map[int]int{2: 2, 4: 1, 8: 0}[len(v)]:]
	// After each stage, vectors hold columns of twice as many rows, of half as many columns.
	rows := len(v)
	groups := make([][]reg.VecVirtual, rows) // one per set of rows done, each a list by columns
	for i := range v {
		groups[i] = []reg.VecVirtual{v[i]}
	}
	for _, unpack := range stages {
		var next [][]reg.VecVirtual
		for i := 0; i < len(groups); i += 2 {
			var out []reg.VecVirtual
			for c := range groups[i] {
				even, odd, low := groups[i][c], groups[i+1][c], YMM()
				unpack[0](odd, even, low)
				unpack[1](odd, even, even)
				out = append(out, low, even)
			}
			next = append(next, out)
		}
		groups = next
	}
	return groups[0]
}

// loadLanes loads element groups so that lane 0 of the width vectors holds the first half of 32 elements, lane 1 the
// second: what is then done within lanes leaves the elements in order.
func loadLanes(src reg.Register, width int) []reg.VecVirtual {
	v := make([]reg.VecVirtual, width)
	for i := range v {
		v[i] = YMM()
		VMOVDQU(Mem{Base: src, Disp: 16 * i}, v[i].AsX())
		VINSERTI128(Imm(1), Mem{Base: src, Disp: 16*width + 16*i}, v[i], v[i])
	}
	return v
}

func planePointers(p reg.Register, width int) []reg.Register {
	planes := make([]reg.Register, width)
	for k := range planes {
		r := GP64()
		MOVQ(Mem{Base: p, Disp: 24 * k}, r)
		planes[k] = r
	}
	return planes
}

// splitting takes 32 elements at a time.
func splitting(width int) {
	mask := sortBytes("sort", width, false)
	TEXT("splitAVX2"+suffix(width), NOSPLIT, "func(p *[8][]byte, at int, src *byte, n int)")
	Pragma("noescape")
	planes := planePointers(Load(Param("p"), GP64()), width)
	src, n, at := Load(Param("src"), GP64()), Load(Param("n"), GP64()), Load(Param("at"), GP64())
	ADDQ(at, n)
	perm := YMM()
	VMOVDQU(mask, perm)
	Label("loop")
	CMPQ(at, n)
	JGE(LabelRef("done"))
	v := loadLanes(src, width)
	for i := range v {
		VPSHUFB(perm, v[i], v[i])
	}
	for k, x := range transpose(v) {
		VMOVDQU(x, Mem{Base: planes[k], Index: at, Scale: 1})
	}
	ADDQ(U32(32*width), src)
	ADDQ(Imm(32), at)
	JMP(LabelRef("loop"))
	Label("done")
	VZEROUPPER()
	RET()
}

// merging undoes splitting.
func merging(width int) {
	mask := sortBytes("unsort", width, true)
	TEXT("mergeAVX2"+suffix(width), NOSPLIT, "func(dst *byte, p *[8][]byte, at int, n int)")
	Pragma("noescape")
	planes := planePointers(Load(Param("p"), GP64()), width)
	dst, n, at := Load(Param("dst"), GP64()), Load(Param("n"), GP64()), Load(Param("at"), GP64())
	ADDQ(at, n)
	perm := YMM()
	VMOVDQU(mask, perm)
	Label("loop")
	CMPQ(at, n)
	JGE(LabelRef("done"))
	v := make([]reg.VecVirtual, width)
	for k := range v {
		v[k] = YMM()
		VMOVDQU(Mem{Base: planes[k], Index: at, Scale: 1}, v[k])
	}
	for i, x := range transpose(v) {
		VPSHUFB(perm, x, x)
		VMOVDQU(x.AsX(), Mem{Base: dst, Disp: 16 * i})
		VEXTRACTI128(Imm(1), x, Mem{Base: dst, Disp: 16*width + 16*i})
	}
	ADDQ(U32(32*width), dst)
	ADDQ(Imm(32), at)
	JMP(LabelRef("loop"))
	Label("done")
	VZEROUPPER()
	RET()
}

// exponent takes 32 elements at a time, n of them.
func exponent(width int) {
	TEXT("exponentsAVX2"+suffix(width), NOSPLIT, "func(dst, src *byte, n int, shift uint64)")
	Pragma("noescape")
	dst, src, n := Load(Param("dst"), GP64()), Load(Param("src"), GP64()), Load(Param("n"), GP64())
	shift, at, low := XMM(), GP64(), YMM()
	MOVQ(Load(Param("shift"), GP64()), shift)
	VPCMPEQD(low, low, low)
	shiftRight(width)(Imm(uint64(8*width-8)), low, low)
	XORQ(at, at)
	Label("loop")
	CMPQ(at, n)
	JGE(LabelRef("done"))
	v := loadLanes(src, width)
	for i := range v {
		shiftRight(width)(shift, v[i], v[i])
		VPAND(low, v[i], v[i])
	}
	if width == 4 {
		VPACKUSDW(v[1], v[0], v[0])
		VPACKUSDW(v[3], v[2], v[1])
	}
	VPACKUSWB(v[1], v[0], v[0])
	VMOVDQU(v[0], Mem{Base: dst, Index: at, Scale: 1})
	ADDQ(U32(32*width), src)
	ADDQ(Imm(32), at)
	JMP(LabelRef("loop"))
	Label("done")
	VZEROUPPER()
	RET()
}
