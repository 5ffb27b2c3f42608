package delta

import "math/bits"

const (
	scaleBits = 12 // probabilities are multiples of 1/4096
	scale     = 1 << scaleBits
	maxToken  = 4*scaleBits + 1
	maxTables = 32 // tables of one plane
	classes   = 3  // what the higher bytes of a difference are: 0, 1, more
)

// quarter holds 2^(i/4) in units of 1/1024.
var quarter = [4]uint32{1024, 1218, 1448, 1722}

// token is a count on a scale of quarter octaves, 0 for none and maxToken for the whole: the model of a plane says no
// more about a count, which costs less than two thousandths of a bit per symbol.
func token(count, total uint32) uint8 {
	if count == 0 {
		return 0
	}
	t := (int32(log2(count)) - int32(log2(total)) + scaleBits<<16 + 1<<13) >> 14
	return uint8(min(max(t, 0), maxToken-1) + 1)
}

// frequencies turns tokens into probabilities of 1/4096 that sum to 1: each at least 1 where the token is not 0, none
// above 4095.
func frequencies(f *[256]uint16, tokens *[256]uint8) {
	var weight [256]uint32
	var sum uint32
	top := 0
	for i, t := range tokens {
		if t != 0 {
			weight[i] = quarter[(t-1)&3] << ((t - 1) >> 2)
			sum += weight[i]
			if weight[i] > weight[top] {
				top = i
			}
		}
	}
	*f = [256]uint16{}
	if sum == 0 {
		sum, weight[0] = 1, 1
	}
	left := int32(scale)
	for i, w := range weight {
		if w != 0 {
			f[i] = uint16(max(1, uint64(w)*scale/uint64(sum)))
			left -= int32(f[i])
		}
	}
	if left >= 0 {
		f[top] += uint16(left)
	}
	for left < 0 { // at most 255 too many: some symbol has 16 or more
		for i := range f {
			if f[i] > f[top] {
				top = i
			}
		}
		take := min(-left, int32(f[top]/2))
		f[top] -= uint16(take)
		left += take
	}
	if f[top] == scale {
		f[top]--
		f[(top+1)&255] = 1
	}
}

// tableModel is what a decoder must know of a plane's tables: their tokens, and which context has which table. A
// context is class*256 + the context byte; tables go up with contexts, so a bit per context says whether the next
// begins.
type tableModel struct {
	tables  int
	tokens  [maxTables][256]uint8
	classes int // 1 or 3; 0 for a plane with one table
	table   [classes * 256]uint8
}

// modelChances are the adaptive probabilities for the code of a tableModel.
type modelChances struct {
	next     chance
	empty    [2][2]chance
	zero     [8][2][2]chance
	bucket   [2][8]chance
	mantissa [8][32]chance
}

func newModelChances() *modelChances {
	c := &modelChances{next: 64, empty: [2][2]chance{{evens, evens}, {evens, evens}}}
	for i := range c.zero {
		for j := range c.zero[i] {
			c.zero[i][j] = [2]chance{evens, evens}
		}
	}
	for i := range c.bucket {
		for j := range c.bucket[i] {
			c.bucket[i][j] = evens
		}
	}
	for i := range c.mantissa {
		for j := range c.mantissa[i] {
			c.mantissa[i][j] = evens
		}
	}
	return c
}

// zeroContext is chosen by the two tokens before and the same symbol's token in the table before.
func (c *modelChances) zeroContext(t1, t2, above uint8) *chance {
	z := 0
	if t1 != 0 {
		z = 1 + int(t1>>3)
	}
	return &c.zero[z][min(t2, 1)][min(above, 1)]
}

const span = 16 // symbols that are declared empty together

const firstToken = 8 // the guess after a token of 0

func guess(t1 uint8) int {
	if t1 == 0 {
		return firstToken
	}
	return int(t1)
}

func zigzag(d int) uint32   { return uint32(d<<1 ^ d>>31) }
func unzigzag(z uint32) int { return int(z>>1) ^ -int(z&1) }

// write appends the model to out.
func (m *tableModel) write(out []byte) []byte {
	w, c := newBitWriter(out), newModelChances()
	for i := 1; i < m.classes*256; i++ {
		w.put(&c.next, uint32(m.table[i]-m.table[i-1]))
	}
	var none [256]uint8
	above, emptyAbove := &none, [256 / span]uint32{}
	for k := range m.tables {
		var t1, t2 uint8
		var emptyBefore uint32
		for at := 0; at < 256; at += span {
			tokens := m.tokens[k][at : at+span]
			var empty uint32
			if [span]uint8(tokens) == ([span]uint8{}) {
				empty = 1
			}
			w.put(&c.empty[emptyBefore][emptyAbove[at/span]], empty)
			emptyBefore, emptyAbove[at/span] = empty, empty
			if empty != 0 {
				t1, t2 = 0, 0
				continue
			}
			for i, t := range tokens {
				c.writeToken(&w, t, t1, t2, above[at+i])
				t1, t2 = t, t1
			}
		}
		above = &m.tokens[k]
	}
	return w.finish()
}

// writeToken codes t after t1 and t2, and under above.
func (c *modelChances) writeToken(w *bitWriter, t, t1, t2, above uint8) {
	w.put(c.zeroContext(t1, t2, above), uint32(min(t, 1)))
	if t == 0 {
		return
	}
	z := zigzag(int(t)-guess(t1)) + 1
	bucket := bits.Len32(z) - 1
	chances := &c.bucket[min(t1, 1)]
	for b := range bucket {
		w.put(&chances[b], 1)
	}
	w.put(&chances[bucket], 0)
	for b := bucket - 1; b >= 0; b-- {
		w.put(&c.mantissa[bucket][z>>(b+1)&31], z>>b&1)
	}
}

// readToken undoes writeToken; it gives false for a token that there is not.
func (c *modelChances) readToken(r *bitReader, t1, t2, above uint8) (uint8, bool) {
	if r.get(c.zeroContext(t1, t2, above)) == 0 {
		return 0, true
	}
	chances := &c.bucket[min(t1, 1)]
	bucket := 0
	for bucket < 7 && r.get(&chances[bucket]) != 0 {
		bucket++
	}
	z := uint32(1)
	for range bucket {
		z = z<<1 | r.get(&c.mantissa[bucket][z&31])
	}
	t := guess(t1) + unzigzag(z-1)
	return uint8(t), t >= 1 && t <= maxToken
}

// read reads a model whose number of context classes is known.
func (m *tableModel) read(in []byte) error {
	r, c := newBitReader(in), newModelChances()
	m.tables = 1
	for i := range m.classes * 256 {
		if i > 0 && r.get(&c.next) != 0 {
			if m.tables == maxTables {
				return corrupt("too many tables")
			}
			m.tables++
		}
		m.table[i] = uint8(m.tables - 1)
	}
	var none [256]uint8
	above, emptyAbove := &none, [256 / span]uint32{}
	for k := range m.tables {
		var t1, t2 uint8
		var emptyBefore uint32
		for at := 0; at < 256; at += span {
			tokens := m.tokens[k][at : at+span]
			empty := r.get(&c.empty[emptyBefore][emptyAbove[at/span]])
			emptyBefore, emptyAbove[at/span] = empty, empty
			if empty != 0 {
				clear(tokens)
				t1, t2 = 0, 0
				continue
			}
			for i := range tokens {
				t, ok := c.readToken(&r, t1, t2, above[at+i])
				if !ok {
					return corrupt("frequency out of range")
				}
				tokens[i] = t
				t1, t2 = t, t1
			}
		}
		above = &m.tokens[k]
	}
	return nil
}
