package delta

// A small adaptive binary arithmetic coder, for the models of planes: bits are coded with 12-bit probabilities that
// move by a sixteenth after each, in a 32-bit interval that gives off its leading bytes as soon as both ends agree on
// them.

// chance is the probability of a one, of 4096.
type chance uint16

const evens chance = 2048

func (c *chance) learn(bit uint32) {
	if bit != 0 {
		*c += (4096 - *c) >> 4
	} else {
		*c -= *c >> 4
	}
}

// bitWriter appends coded bits to out.
type bitWriter struct {
	low, high uint32
	out       []byte
}

func newBitWriter(out []byte) bitWriter { return bitWriter{high: ^uint32(0), out: out} }

func (w *bitWriter) put(c *chance, bit uint32) {
	mid := w.low + (w.high-w.low)>>12*uint32(*c)
	if bit != 0 {
		w.high = mid
	} else {
		w.low = mid + 1
	}
	c.learn(bit)
	for (w.low^w.high)>>24 == 0 {
		w.out = append(w.out, byte(w.high>>24))
		w.low <<= 8
		w.high = w.high<<8 | 255
	}
}

// finish ends the code so that zeros after it decode the same.
func (w *bitWriter) finish() []byte { return append(w.out, byte(w.high>>24)) }

// bitReader reads what a bitWriter wrote. Past the end it reads zeros: its caller checks what comes out.
type bitReader struct {
	low, high, code uint32
	in              []byte
}

func newBitReader(in []byte) bitReader {
	r := bitReader{high: ^uint32(0), in: in}
	for range 4 {
		r.shift()
	}
	return r
}

func (r *bitReader) shift() {
	r.code <<= 8
	if len(r.in) > 0 {
		r.code |= uint32(r.in[0])
		r.in = r.in[1:]
	}
}

func (r *bitReader) get(c *chance) uint32 {
	mid := r.low + (r.high-r.low)>>12*uint32(*c)
	var bit uint32
	if r.code <= mid {
		bit, r.high = 1, mid
	} else {
		r.low = mid + 1
	}
	c.learn(bit)
	for (r.low^r.high)>>24 == 0 {
		r.low <<= 8
		r.high = r.high<<8 | 255
		r.shift()
	}
	return bit
}
