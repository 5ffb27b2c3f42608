// Package delta codes blocks of tensors without loss: byte planes of the numbers, or of their differences to the same
// numbers one checkpoint earlier, each plane stored as it is or entropy coded with tables chosen by the exponents of
// the earlier numbers. It does no I/O, never trusts an encoded block, and its output depends on its input and effort
// alone, not on the processor.
//
// # Why so
//
// The low mantissa bytes of trained weights and of the moments of Adam are random: they are copied, once. What can be
// saved is in the exponents and, against an earlier checkpoint, in the size of the change, measured in units of the last
// place. An optimizer step is about as large for small weights as for large ones, so the earlier exponent tells much
// about that size; it chooses the table. Both is known to a decoder before the plane, hence all of a plane's symbols
// can be decoded side by side.
//
// # Format of a block
//
// The raw length of a block and its reference are known from elsewhere. Integers are little-endian. The first byte:
//
//	bits 0-2  method: 0 stored, 1 planes, 2 rotated, 3 xor, 4 difference, 5 bytes
//	bits 3-5  element: 0 Bytes, 1 F32, 2 BF16, 3 F16, 4 F64, 5 Word16, 6 Word32, 7 Word64
//	bit 6     planes or rotated with contexts from the reference
//	bit 7     0
//
// Stored is followed by the raw bytes; bytes by one zstd frame (RFC 8878) of them; xor by one of their exclusive or
// with the reference. Methods 3 and 4, and bit 6, need the reference, which is as long as the block.
//
// The other methods split a block into width planes (1, 2, 4 or 8), the k-th of the k-th bytes, counted from the least
// significant, of all n whole elements after a transform:
//
//	planes      none
//	rotated     rotation left by one bit, which takes the sign to the end and makes a byte of the exponent
//	difference  zigzag(order(x) - order(reference)), modulo 2^(8*width), where order(x) inverts all bits but the first
//	            if the first is set (so that integers are in the order of the floats), and zigzag(d) is 2d for d >= 0
//	            as a signed integer, -2d-1 for d < 0
//
// Then follow
//
//	directory     4 bytes per plane, the most significant plane first: its kind, and 24 bits of value
//	raw planes    those of kind 0, in that order
//	tail          the bytes after the last whole element
//	other planes  in that order
//
// Kinds of planes:
//
//	0  raw
//	1  constant: the value is the byte
//	2  as it is, but among the other planes; the value is its length
//	3  coded with one table; the value is the length of the code, here and below
//	4  coded; the context of an element is exponent(reference)
//	5  coded; it is the element's byte of the plane above
//	6  coded; it is class*256 + exponent(reference), where class is 0, 1 or 2 as the bytes of all planes above, as one
//	   number, are 0, 1 or more
//
// exponent(x) is the byte after the sign bit for F32, BF16 and F16; for F64 the exponent field minus 832, at least 0 and
// at most 255; for the others the most significant byte. Word types and Bytes never are rotated, Bytes never a
// difference.
//
// # A coded plane
//
//	2 bytes  length of the model
//	model    contexts and tables, see below
//	states   lanes of 4 bytes; 32 lanes for planes of at least 2,048 symbols, else 4
//	words    of 2 bytes
//
// Symbol i belongs to lane i mod lanes. Its table gives each symbol s a frequency f(s), of 4,096 in all, and start(s),
// the sum of the frequencies of smaller symbols. To decode it from the lane's state x:
//
//	slot = x mod 4096
//	s    = the symbol with start(s) <= slot < start(s) + f(s)
//	x    = f(s) * (x / 4096) + slot - start(s)
//	if x < 2^15: x = x * 2^16 + the next word
//
// A state is in [2^15, 2^31) at the beginning and 2^15 at the end, where no word is left.
//
// # A model
//
// Bits are decoded one after the other by an adaptive binary coder: low = 0, high = 2^32-1, and code, the next 4 bytes,
// most significant first (zeros after the end of the model). For a probability p, at first 2,048 unless said otherwise:
//
//	mid = low + (high - low) / 4096 * p
//	the bit is 1 if code <= mid, then high = mid and p += (4096 - p) / 16; else low = mid + 1 and p -= p / 16
//	while low and high have the first byte in common: shift all three left by 8 bits, filling low with zeros, high
//	with ones and code with the next byte
//
// For kinds 4 and 5 (256 contexts) and 6 (768), each context but the first has a bit, all with one probability, at
// first 64: 1 says that it begins the next table, 0 that it shares the one before. There are at most 32 tables. Kind 3
// has one table and no such bits.
//
// Then each table in turn has a token for each of 256 symbols in turn. Each 16 symbols begin with a bit that says
// whether all their tokens are 0 and not coded; its probability is chosen by the same bit of the 16 before in this table,
// and of these 16 in the table before (0 if there are none). With t1 and t2 the tokens of the two symbols before (0 at
// first) and a the same symbol's token in the table before (0 in the first table):
//
//   - a bit says whether the token is not 0; its probability is chosen by z, min(t2, 1) and min(a, 1), where z is 0 for
//     t1 = 0, else 1 + t1/8;
//   - if so, a number v follows: k ones and, unless k is 7, a zero, the j-th of these bits with a probability chosen by
//     min(t1, 1) and j; then k bits of v below its leading one, from the most significant on, with a probability chosen
//     by k and the low five bits of the part of v that is known already;
//   - the token is guess + unzigzag(v - 1), where guess is t1, or 8 for t1 = 0; it is in [1, 49].
//
// The weight of a token t > 0 is q[(t-1) mod 4] * 2^((t-1)/4), with q = 1024, 1218, 1448, 1722; W is the sum of all
// weights. The frequency of a symbol is max(1, floor(weight * 4096 / W)). If the frequencies sum to less than 4,096 the
// rest is added to the first symbol of the greatest weight. As long as they sum to more, the symbol of the greatest
// frequency (of several the one that gave off last or has the greatest weight, else the first) gives off what is too
// many, but at most half of its own, rounded down. A frequency of 4,096 becomes 4,095, and the next
// symbol (0 after 255) gets 1. A table without tokens has symbol 0 alone.
package delta
