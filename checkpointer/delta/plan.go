package delta

import (
	"bytes"
	"math/bits"
)

// plan is how a block will be encoded: its method, whether the reference gives contexts to a method that would not need
// it, and each plane's kind, the least significant first.
type plan struct {
	method method
	hinted bool
	kind   [8]kind
	bits   uint64 // estimate for the sample, in bits/65536
}

// uses tells whether any of the planes is of kind k.
func (p *plan) uses(k kind, width int) bool { return p.lowest(k, width) < width }

// lowest is the lowest plane of kind k, or width.
func (p *plan) lowest(k kind, width int) int {
	for i := range width {
		if p.kind[i] == k {
			return i
		}
	}
	return width
}

const piece = 256 // elements in a row of a sample

// sampler holds a sample of a block, and of its reference.
type sampler struct {
	cur, ref, exps, cls, ctx, coarse []byte

	planes planeSet
	part   uint64 // of 1024: what part of the block the sample is
}

// take samples pieces spread evenly over b, or all of it.
func take(into, b []byte, width, pieces int) []byte {
	n := len(b) / width
	into = into[:0]
	if n <= piece*pieces {
		return append(into, b[:n*width]...)
	}
	for i := range pieces {
		at := (n - piece) / (pieces - 1) * i * width
		into = append(into, b[at:at+piece*width]...)
	}
	return into
}

// plan chooses by a sample.
func (e *Encoder) plan(cur, ref []byte, elem Elem) plan {
	width := elem.Width()
	if len(cur) < width {
		return plan{method: stored}
	}
	s := &e.sample
	s.cur = take(s.cur, cur, width, e.pieces)
	n := len(s.cur) / width
	s.part = uint64(n) << 10 / uint64(len(cur)/width)
	for k := range width {
		s.planes[k] = sized(s.planes[k], n)
	}
	s.ctx, s.cls, s.coarse = sized(s.ctx, n), sized(s.cls, n), sized(s.coarse, n)
	raw := uint64(len(s.cur)) * 8 << 16
	base := planes
	if elem.float() {
		base = rotated
	}
	best := e.planBase(base, elem)
	if ref != nil {
		s.ref = take(s.ref, ref, width, e.pieces)
		s.exps = sized(s.exps, n)
		exponents(s.exps, s.ref, elem)
		needed := raw / 1024 * e.related
		most := raw
		if e.MaxDelta > 0 && e.MaxDelta < len(cur) {
			most = uint64(float64(raw) * float64(e.MaxDelta) / float64(len(cur)))
		}
		if hinted := e.planHinted(best, elem); hinted.bits+needed < best.bits && hinted.bits <= most {
			best, needed = hinted, 0
		}
		if width > 1 { // contexts of a byte tell as much as its difference
			if d := e.planDifference(elem); d.bits+needed < best.bits && d.bits <= most {
				best = d
			}
		}
	}
	if best.bits >= raw {
		return plan{method: stored}
	}
	return best
}

// planBase estimates a method that needs no reference. It leaves the sample's planes.
func (e *Encoder) planBase(m method, elem Elem) plan {
	s, width := &e.sample, elem.Width()
	p := plan{method: m}
	e.transform(&s.planes, s.cur, nil, elem, m)
	for k := width - 1; k >= 0; k-- {
		bits, gain := e.alone(s.planes[k]), uint64(0)
		if k == width-2 && e.groups > 0 && elem.float() {
			gain = e.gain(s.planes[k], s.planes[k+1], nil, 1, true)
		}
		p.settle(k, bits, gain, kindAbove, len(s.ctx), e.settings)
	}
	return p
}

// planHinted is base with the reference's exponents as contexts of the first plane, of which planBase has left the
// sample.
func (e *Encoder) planHinted(base plan, elem Elem) plan {
	if e.groups == 0 {
		return base
	}
	s, top := &e.sample, elem.Width()-1
	gain := e.gain(s.planes[top], s.exps, nil, 1, false)
	before := e.alone(s.planes[top])
	if base.kind[top] == kindRaw {
		before = uint64(len(s.ctx)) * 8 << 16
	}
	p := base
	p.bits -= min(p.bits, before)
	p.settle(top, e.alone(s.planes[top]), gain, kindRef, len(s.ctx), e.settings)
	p.hinted = p.kind[top] == kindRef
	return p
}

func (e *Encoder) planDifference(elem Elem) plan {
	s, width := &e.sample, elem.Width()
	p := plan{method: difference}
	e.transform(&s.planes, s.cur, s.ref, elem, difference)
	clear(s.cls)
	for k := width - 1; k >= 0; k-- {
		bits, gain, source := e.alone(s.planes[k]), uint64(0), kindRef
		// Below a larger number all bytes are about as likely, whatever the contexts.
		larger := bytes.Count(s.cls, []byte{classes - 1})
		switch {
		case e.groups == 0 || larger > len(s.cls)*63/64:
		case k == width-1:
			gain = e.gain(s.planes[k], s.exps, nil, 1, true)
		default:
			gain, source = e.gain(s.planes[k], s.exps, s.cls, classes, true), kindClass
		}
		p.settle(k, bits, gain, source, len(s.ctx), e.settings)
		if k > 0 {
			classify(s.cls, s.planes[k])
		}
	}
	return p
}

// settle decides a plane's kind: bits is its estimate with one table, gain what contexts from source save of that.
func (p *plan) settle(k int, bits, gain uint64, source kind, n int, e settings) {
	raw := uint64(n) * 8 << 16
	p.kind[k] = kindPlain
	if gain > min(raw/1024*e.gains, bits/16) {
		p.kind[k] = source
		bits -= min(bits, gain)
	}
	if bits+raw/1024*e.worth >= raw {
		p.kind[k], bits = kindRaw, raw
	}
	p.bits += bits
}

// alone estimates a plane of the sample, coded with one table, in bits/65536.
func (e *Encoder) alone(syms []byte) uint64 {
	e.fit.count(syms, nil)
	symbols := uint64(0)
	for _, c := range e.fit.counted(0) {
		if c != 0 {
			symbols++
		}
	}
	table := uint64(tableBits) + symbols*symbolHalfBits/2 + 8*4*uint64(lanesFor(len(syms)))
	return e.fit.estimate() + table*e.sample.part<<6
}

// gain estimates what contexts save on a plane of the sample, in bits/65536: the information that the contexts hold of
// the symbols, which coarse makes by octaves, too few for the sample to be thin in any.
func (e *Encoder) gain(syms, x, cls []byte, classes int, coarse bool) uint64 {
	s := &e.sample
	groups := 8
	if coarse {
		for i, b := range syms {
			s.coarse[i] = octaves[b]
		}
		syms = s.coarse
		groups = 5
	}
	e.fit.count(syms, nil)
	without := e.fit.estimate()
	e.fit.group(x, classes, groups)
	e.fit.context(s.ctx, x, cls)
	e.fit.count(syms, s.ctx)
	with := e.fit.estimate() + uint64(tableBits+100)*uint64(e.fit.rows/2)*s.part<<6
	return without - min(without, with)
}

// octaves numbers the bytes up to 15 by themselves, the others by four to an octave.
var octaves = func() (t [256]uint8) {
	for i := range t {
		if t[i] = uint8(i); i >= 16 {
			n := bits.Len8(uint8(i))
			t[i] = uint8(16 + 4*(n-5) + i>>(n-3)&3)
		}
	}
	return t
}()
