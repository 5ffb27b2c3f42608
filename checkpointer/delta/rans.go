package delta

import "encoding/binary"

// A range coder over asymmetric numeral systems (J. Duda, "Asymmetric numeral systems: entropy coding combining speed
// of Huffman coding with compression rate of arithmetic coding", arXiv:1311.2540; the range variant, interleaved:
// F. Giesen, "Interleaved entropy coders", arXiv:1402.3392). Symbol i belongs to lane i mod lanes; the lanes share one
// stream of 16-bit words. States lie in [2^15, 2^31) and start at 2^15, so that they, too, check the data.
const (
	wideLanes   = 32   // for planes of at least wideSymbols
	narrowLanes = 4    // for the others: fewer states to write down
	wideSymbols = 2048 //
	lowest      = 1 << 15
	highest     = 1<<31 - 1
	reach       = 80 // bytes that a vector kernel may touch past its place
)

func lanesFor(symbols int) int {
	if symbols >= wideSymbols {
		return wideLanes
	}
	return narrowLanes
}

// codedLimit bounds the bytes that n symbols may take: a symbol takes at most one word, and the states.
func codedLimit(n int) int { return 2*n + 4*wideLanes + reach }

// rans is what encoding or decoding one plane needs. ctx gives each symbol its table, nil means table 0 for all.
type rans struct {
	states [wideLanes]uint32
	encode [maxTables * 256]uint32 // frequency<<16 | start
	decode []uint32                // tables*scale of frequency<<20 | place in the symbol's range<<8 | symbol
	freqs  [256]uint16
}

func (r *rans) encodeTables(m *tableModel) {
	for k := range m.tables {
		frequencies(&r.freqs, &m.tokens[k])
		start := uint32(0)
		for i, f := range r.freqs {
			r.encode[k<<8|i] = uint32(f)<<16 | start
			start += uint32(f)
		}
	}
}

func (r *rans) decodeTables(m *tableModel) {
	if n := m.tables * scale; len(r.decode) < n {
		r.decode = make([]uint32, n)
	}
	for k := range m.tables {
		frequencies(&r.freqs, &m.tokens[k])
		t := r.decode[k*scale : (k+1)*scale]
		for i, f := range r.freqs {
			entry := uint32(f)<<20 | uint32(i)
			for j := range t[:f] {
				t[j] = entry
				entry += 1 << 8
			}
			t = t[f:]
		}
	}
}

// put encodes syms backwards into the end of buf, which has codedLimit(len(syms)) bytes, and returns the part written:
// the states, then the words in the order in which a decoder wants them.
func (r *rans) put(buf, syms, ctx []byte) []byte {
	lanes := lanesFor(len(syms))
	for i := range r.states {
		r.states[i] = lowest
	}
	end := len(buf)
	whole := len(syms) / lanes * lanes
	end = r.putSome(buf, end, syms[whole:], from(ctx, whole), lanes)
	done := 0
	if lanes == wideLanes {
		done, end = r.putRows(buf, end, syms[:whole], from(ctx, 0))
	}
	end = r.putSome(buf, end, syms[:whole-done], from(ctx, 0), lanes)
	for i := lanes - 1; i >= 0; i-- {
		end -= 4
		binary.LittleEndian.PutUint32(buf[end:], r.states[i])
	}
	return buf[end:]
}

// from is b[n:], nil for a nil b.
func from(b []byte, n int) []byte {
	if b == nil {
		return nil
	}
	return b[n:]
}

// putSome encodes syms, whose first belongs to lane 0, from the last to the first.
func (r *rans) putSome(buf []byte, end int, syms, ctx []byte, lanes int) int {
	for i := len(syms) - 1; i >= 0; i-- {
		at := int(syms[i])
		if ctx != nil {
			at |= int(ctx[i]) << 8
		}
		e := r.encode[at]
		f, start := e>>16, e&0xffff
		x := r.states[i&(lanes-1)]
		if x >= f<<(31-scaleBits) {
			end -= 2
			binary.LittleEndian.PutUint16(buf[end:], uint16(x))
			x >>= 16
		}
		q := x / f
		r.states[i&(lanes-1)] = q<<scaleBits + x - q*f + start
	}
	return end
}

// get decodes len(syms) symbols and accepts only an input that is used up, with every state back at its start.
func (r *rans) get(syms, ctx, in []byte) error {
	lanes := lanesFor(len(syms))
	if len(in) < 4*lanes {
		return corrupt("states cut short")
	}
	for i := range lanes {
		r.states[i] = binary.LittleEndian.Uint32(in[4*i:])
		if r.states[i] < lowest || r.states[i] > highest {
			return corrupt("state out of range")
		}
	}
	in = in[4*lanes:]
	done := 0
	if lanes == wideLanes {
		done, in = r.getRows(syms[:len(syms)/lanes*lanes], ctx, in)
	}
	for i := done; i < len(syms); i++ {
		x := r.states[i&(lanes-1)]
		at := x & (scale - 1)
		if ctx != nil {
			at |= uint32(ctx[i]) << scaleBits
		}
		e := r.decode[at]
		syms[i] = byte(e)
		x = e>>20*(x>>scaleBits) + e>>8&(scale-1)
		if x < lowest {
			if len(in) < 2 {
				return corrupt("symbols cut short")
			}
			x = x<<16 | uint32(binary.LittleEndian.Uint16(in))
			in = in[2:]
		}
		r.states[i&(lanes-1)] = x
	}
	for i := range lanes {
		if r.states[i] != lowest {
			return corrupt("symbols do not add up")
		}
	}
	if len(in) != 0 {
		return corrupt("bytes after the last symbol")
	}
	return nil
}
