package delta

// plan is how a block will be encoded: its method, whether the reference gives contexts to a method that would not need
// it, and each plane's kind, the least significant first.
type plan struct {
	method method
	hinted bool
	kind   [8]kind
	bits   uint64 // estimate for the sample, in bits/65536
}

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

const (
	piece     = 256  // elements in a row of a sample
	maxSample = 8192 // elements
)

// sampler holds a sample of a block, and of its reference.
type sampler struct {
	cur, ref, work, exps, cls, ctx []byte
	planes                         planeSet
}

// take samples pieces spread evenly over b, or all of it.
func take(into, b []byte, width, pieces int) []byte {
	n := len(b) / width
	into = into[:0]
	if n <= 2*piece*pieces && n <= maxSample {
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
	raw := uint64(len(s.cur)) * 8 << 16
	base := planes
	if elem.float() {
		base = rotated
	}
	best := e.planFor(base, elem, false)
	if ref != nil {
		s.ref = take(s.ref, ref, width, e.pieces)
		s.exps = sized(s.exps, len(s.ref)/width)
		exponents(s.exps, s.ref, elem)
		needed := raw / 1024 * e.related
		hinted := e.planFor(base, elem, true)
		if hinted.bits+needed < best.bits {
			best = hinted
			needed = 0
		}
		if width == 1 { // contexts of a byte tell as much as its difference
			return worthwhile(best, raw)
		}
		if d := e.planFor(difference, elem, true); d.bits+needed < best.bits {
			best = d
		}
	}
	return worthwhile(best, raw)
}

func worthwhile(p plan, raw uint64) plan {
	if p.bits >= raw {
		return plan{method: stored}
	}
	return p
}

// planFor estimates one method.
func (e *Encoder) planFor(m method, elem Elem, related bool) plan {
	s, width := &e.sample, elem.Width()
	n := len(s.cur) / width
	p := plan{method: m, hinted: related && m != difference}
	for k := range width {
		s.planes[k] = sized(s.planes[k], n)
	}
	e.transform(&s.planes, s.cur, s.ref, elem, m)
	s.ctx, s.cls = sized(s.ctx, n), sized(s.cls, n)
	clear(s.cls)
	raw := uint64(n) * 8 << 16
	for k := width - 1; k >= 0; k-- {
		want := kindPlain
		e.fit.count(s.planes[k], nil)
		least := e.fit.estimate()
		if source := e.source(m, elem, k, related); source != kindPlain {
			x, cls, classes := s.exps, []byte(nil), 1
			switch source {
			case kindAbove:
				x = s.planes[k+1]
			case kindClass:
				cls, classes = s.cls, 3
			default:
			}
			e.fit.group(x, classes, e.groups)
			e.fit.context(s.ctx, x, cls)
			e.fit.count(s.planes[k], s.ctx)
			if bits := e.fit.estimate(); bits+raw/1024*2 < least {
				least, want = bits, source
			}
		}
		if least+raw/1024*e.worth >= raw {
			least, want = raw, kindRaw
		}
		p.kind[k] = want
		p.bits += least
		if m == difference && k > 0 {
			classify(s.cls, s.planes[k])
		}
	}
	if p.hinted && !p.uses(kindRef, width) {
		p.hinted = false
	}
	return p
}

// source is what could give a plane contexts.
func (e *Encoder) source(m method, elem Elem, k int, related bool) kind {
	top := elem.Width() - 1
	switch {
	case e.groups == 0:
		return kindPlain
	case m == difference && k == top, m != difference && k == top && related:
		return kindRef
	case m == difference:
		return kindClass
	case k == top-1:
		return kindAbove
	default:
		return kindPlain
	}
}
