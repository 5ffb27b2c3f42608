package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

const (
	lanes     = 4 // vectors of 8 states
	scaleBits = 12
)

func loadStates() (reg.Register, [lanes]reg.VecVirtual) {
	states := Load(Param("states"), GP64())
	var x [lanes]reg.VecVirtual
	for j := range x {
		x[j] = YMM()
		VMOVDQU(Mem{Base: states, Disp: 32 * j}, x[j])
	}
	return states, x
}

func storeStates(states reg.Register, x [lanes]reg.VecVirtual) {
	for j := range x {
		VMOVDQU(x[j], Mem{Base: states, Disp: 32 * j})
	}
}

// ones is a vector of count ones at the low end of each 32-bit part, shifted left by up.
func ones(count, up int) reg.VecVirtual {
	v := YMM()
	VPCMPEQD(v, v, v)
	VPSRLD(Imm(uint64(32-count)), v, v)
	if up > 0 {
		VPSLLD(Imm(uint64(up)), v, v)
	}
	return v
}

// looked gathers table[ctx<<shift | index], in place.
func looked(table, ctx, at reg.Register, disp, shift int, index reg.VecVirtual, contexts bool) reg.VecVirtual {
	if contexts {
		c := YMM()
		VPMOVZXBD(Mem{Base: ctx, Index: at, Scale: 1, Disp: disp}, c)
		VPSLLD(Imm(uint64(shift)), c, c)
		VPOR(c, index, index)
	}
	e, mask := YMM(), YMM()
	VPCMPEQD(mask, mask, mask)
	VPGATHERDD(mask, Mem{Base: table, Index: index, Scale: 4}, e)
	return e
}

func name(base string, contexts bool) string {
	if contexts {
		return base + "ContextAVX2"
	}
	return base + "AVX2"
}

// putting encodes rows of 32 symbols, the last first, to before buf[end].
func putting(contexts bool) {
	TEXT(name("put", contexts), NOSPLIT,
		"func(states, table *uint32, syms, ctx *byte, rows int, buf *byte, end int, compact *byte) int")
	Pragma("noescape")
	states, x := loadStates()
	table, syms := Load(Param("table"), GP64()), Load(Param("syms"), GP64())
	var ctx reg.Register
	if contexts {
		ctx = Load(Param("ctx"), GP64())
	}
	at, buf, end := Load(Param("rows"), GP64()), Load(Param("buf"), GP64()), Load(Param("end"), GP64())
	compact := Load(Param("compact"), GP64())
	SHLQ(Imm(5), at)
	words, one := ones(16, 0), ones(1, 0)
	Label("loop")
	SUBQ(Imm(32), at)
	JLT(LabelRef("done"))
	for j := lanes - 1; j >= 0; j-- {
		index := YMM()
		VPMOVZXBD(Mem{Base: syms, Index: at, Scale: 1, Disp: 8 * j}, index)
		e := looked(table, ctx, at, 8*j, 8, index, contexts)
		f, start := YMM(), YMM()
		VPSRLD(Imm(16), e, f)
		VPAND(words, e, start)

		// States of f<<19 and more give off their low words.
		keep, set := YMM(), GP32()
		VPSLLD(Imm(31-scaleBits), f, keep)
		VPCMPGTD(x[j], keep, keep)
		VMOVMSKPS(keep, set)
		XORL(Imm(255), set)
		low, order := YMM(), YMM()
		VPAND(words, x[j], low)
		VPMOVZXBD(Mem{Base: compact, Index: set.As64(), Scale: 8}, order)
		VPERMD(low, order, low)
		VPACKUSDW(low, low, low)
		VPERMQ(Imm(0b1000), low, low)
		VMOVDQU(low.AsX(), Mem{Base: buf, Index: end, Scale: 1, Disp: -16})
		POPCNTL(set, set)
		ADDL(set, set)
		SUBQ(set.As64(), end)
		high := YMM()
		VPSRLD(Imm(16), x[j], high)
		VPBLENDVB(keep, x[j], high, x[j])

		// The quotient by f, in floats: wrong by one at most, which the remainder shows.
		q, divisor, r := YMM(), YMM(), YMM()
		VCVTDQ2PS(x[j], q)
		VCVTDQ2PS(f, divisor)
		VDIVPS(divisor, q, q)
		VCVTTPS2DQ(q, q)
		VPMULLD(f, q, r)
		VPSUBD(r, x[j], r)
		fix := YMM()
		VPSRAD(Imm(31), r, fix)
		VPADDD(fix, q, q)
		VPAND(f, fix, fix)
		VPADDD(fix, r, r)
		less := YMM()
		VPCMPGTD(r, f, less)
		VPADDD(less, q, q)
		VPADDD(one, q, q)
		VPANDN(f, less, less)
		VPSUBD(less, r, r)

		VPSLLD(Imm(scaleBits), q, q)
		VPADDD(start, r, r)
		VPADDD(r, q, x[j])
	}
	JMP(LabelRef("loop"))
	Label("done")
	storeStates(states, x)
	VZEROUPPER()
	Store(end, ReturnIndex(0))
	RET()
}

// rowOrder is the order in which packing leaves the quarters of a row.
func rowOrder() Mem {
	m := GLOBL("interleave", RODATA|NOPTR)
	for i, v := range []int{0, 4, 1, 5, 2, 6, 3, 7} {
		DATA(4*i, U32(v))
	}
	return m
}

// getting decodes rows of 32 symbols as long as in has 80 bytes more, and returns the rows and the bytes used.
func getting(contexts bool, inOrder Mem) {
	TEXT(name("get", contexts), NOSPLIT,
		"func(states, table *uint32, syms, ctx *byte, rows int, in *byte, n int, spread *byte) (done, used int)")
	Pragma("noescape")
	states, x := loadStates()
	table, syms := Load(Param("table"), GP64()), Load(Param("syms"), GP64())
	var ctx reg.Register
	if contexts {
		ctx = Load(Param("ctx"), GP64())
	}
	rows, in, n := Load(Param("rows"), GP64()), Load(Param("in"), GP64()), Load(Param("n"), GP64())
	spread := Load(Param("spread"), GP64())
	SHLQ(Imm(5), rows)
	SUBQ(Imm(80), n)
	at, used := GP64(), GP64()
	XORQ(at, at)
	XORQ(used, used)
	slots, lowest := ones(scaleBits, 0), ones(1, 15)
	Label("loop")
	CMPQ(at, rows)
	JGE(LabelRef("done"))
	CMPQ(used, n)
	JGT(LabelRef("done"))
	var out [lanes]reg.VecVirtual
	for j := range lanes {
		index := YMM()
		VPAND(slots, x[j], index)
		e := looked(table, ctx, at, 8*j, scaleBits, index, contexts)
		f, place := YMM(), YMM()
		VPSRLD(Imm(20), e, f)
		VPSRLD(Imm(scaleBits), x[j], x[j])
		VPMULLD(f, x[j], x[j])
		VPSRLD(Imm(8), e, place)
		VPAND(slots, place, place)
		VPADDD(place, x[j], x[j])
		out[j] = e

		// States below the lowest take in a word each, in order.
		take, set := YMM(), GP32()
		VPCMPGTD(x[j], lowest, take)
		VMOVMSKPS(take, set)
		word, order, high := YMM(), YMM(), YMM()
		VPMOVZXWD(Mem{Base: in, Index: used, Scale: 1}, word)
		VPMOVZXBD(Mem{Base: spread, Index: set.As64(), Scale: 8}, order)
		VPERMD(word, order, word)
		VPSLLD(Imm(16), x[j], high)
		VPOR(word, high, high)
		VPBLENDVB(take, high, x[j], x[j])
		POPCNTL(set, set)
		ADDL(set, set)
		ADDQ(set.As64(), used)
	}
	bytes := ones(8, 0)
	for j := range out {
		VPAND(bytes, out[j], out[j])
	}
	VPACKUSDW(out[1], out[0], out[0])
	VPACKUSDW(out[3], out[2], out[2])
	VPACKUSWB(out[2], out[0], out[0])
	order := YMM()
	VMOVDQU(inOrder, order)
	VPERMD(out[0], order, out[0])
	VMOVDQU(out[0], Mem{Base: syms, Index: at, Scale: 1})
	ADDQ(Imm(32), at)
	JMP(LabelRef("loop"))
	Label("done")
	storeStates(states, x)
	VZEROUPPER()
	SHRQ(Imm(5), at)
	Store(at, ReturnIndex(0))
	Store(used, ReturnIndex(1))
	RET()
}
