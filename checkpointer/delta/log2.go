package delta

import "math/bits"

// Decisions are made in whole numbers, so that they are the same on every processor: no float is rounded, fused or
// approximated differently anywhere.

const logTable = 11 // bits of mantissa looked up

// log2s holds log2(1 + i/2048) in units of 1/65536.
var log2s = func() (t [1<<logTable + 1]uint32) {
	for i := range t {
		x := uint64(1)<<31 + uint64(i)<<(31-logTable) // fixed point, 31 bits
		var l uint32
		if x >= 1<<32 {
			t[i] = 1 << 16
			continue
		}
		for range 17 { // squaring doubles the logarithm: its bits come off one by one
			x = x * x >> 31
			l <<= 1
			if x >= 1<<32 {
				l, x = l|1, x>>1
			}
		}
		t[i] = (l + 1) >> 1
	}
	return t
}()

// plogp holds n*log2(n), in bits/65536, for small n.
var plogp = func() (t [2048]uint64) {
	for i := range t {
		t[i] = uint64(i) * uint64(log2(uint32(i)))
	}
	return t
}()

// log2 is the binary logarithm of n in units of 1/65536, 0 for 0.
func log2(n uint32) uint32 {
	if n == 0 {
		return 0
	}
	e := bits.Len32(n) - 1
	m := n << (31 - e) << 1
	i, rest := m>>(32-logTable), m<<logTable>>16
	return uint32(e)<<16 + log2s[i] + (log2s[i+1]-log2s[i])*rest>>16
}

// nlogn is n*log2(n) in bits/65536.
func nlogn(n uint32) uint64 {
	if n < uint32(len(plogp)) {
		return plogp[n]
	}
	return uint64(n) * uint64(log2(n))
}

// entropy is the least number of bits, in 1/65536, that a code for exactly these counts needs.
func entropy(counts *[256]uint32) uint64 {
	var total uint32
	var sum uint64
	for _, c := range counts {
		total += c
		sum += nlogn(c)
	}
	return nlogn(total) - min(nlogn(total), sum)
}
