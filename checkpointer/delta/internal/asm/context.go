package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// choosing counts, for 32 elements at a time, the bounds that class<<8 | x reaches; a bound is 16 equal words.
func choosing(classes bool) {
	name, signature := "contextsAVX2", "func(ctx, x *byte, n int, bounds *[16]uint16, count int)"
	if classes {
		name, signature = "contextsClassAVX2", "func(ctx, x, cls *byte, n int, bounds *[16]uint16, count int)"
	}
	TEXT(name, NOSPLIT, signature)
	Pragma("noescape")
	ctx, x, n := Load(Param("ctx"), GP64()), Load(Param("x"), GP64()), Load(Param("n"), GP64())
	bounds, count := Load(Param("bounds"), GP64()), Load(Param("count"), GP64())
	cls := x
	if classes {
		cls = Load(Param("cls"), GP64())
	}
	all, upper := YMM(), YMM()
	MOVQ(count, all.AsX())
	VPBROADCASTW(all.AsX(), all)
	SHLQ(Imm(5), count)
	at, bound := GP64(), GP64()
	XORQ(at, at)
	VPXOR(upper, upper, upper)
	Label("loop")
	CMPQ(at, n)
	JGE(LabelRef("done"))
	in, low, high, a, b := YMM(), YMM(), YMM(), YMM(), YMM()
	VMOVDQU(Mem{Base: x, Index: at, Scale: 1}, in)
	if classes {
		VMOVDQU(Mem{Base: cls, Index: at, Scale: 1}, upper)
	}
	VPUNPCKLBW(upper, in, low)
	VPUNPCKHBW(upper, in, high)
	VMOVDQA(all, a)
	VMOVDQA(all, b)
	XORQ(bound, bound)
	Label("bounds")
	CMPQ(bound, count)
	JGE(LabelRef("store"))
	this, beyond := YMM(), YMM()
	VMOVDQU(Mem{Base: bounds, Index: bound, Scale: 1}, this)
	VPCMPGTW(low, this, beyond)
	VPADDW(beyond, a, a)
	VPCMPGTW(high, this, beyond)
	VPADDW(beyond, b, b)
	ADDQ(Imm(32), bound)
	JMP(LabelRef("bounds"))
	Label("store")
	VPACKUSWB(b, a, a)
	VMOVDQU(a, Mem{Base: ctx, Index: at, Scale: 1})
	ADDQ(Imm(32), at)
	JMP(LabelRef("loop"))
	Label("done")
	VZEROUPPER()
	RET()
}

// classifying turns classes into those of the next lower plane.
func classifying() {
	TEXT("classifyAVX2", NOSPLIT, "func(cls, plane *byte, n int)")
	Pragma("noescape")
	cls, plane, n := Load(Param("cls"), GP64()), Load(Param("plane"), GP64()), Load(Param("n"), GP64())
	two := YMM()
	VPCMPEQB(two, two, two)
	VPADDB(two, two, two)
	VPABSB(two, two)
	each(n, func(at reg.Register) {
		c, p := YMM(), YMM()
		VMOVDQU(Mem{Base: cls, Index: at, Scale: 1}, c)
		VPADDB(c, c, c)
		VPMINUB(two, c, c)
		VPMINUB(Mem{Base: plane, Index: at, Scale: 1}, two, p)
		VPMAXUB(p, c, c)
		VMOVDQU(c, Mem{Base: cls, Index: at, Scale: 1})
	})
}
