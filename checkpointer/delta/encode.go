package delta

import "encoding/binary"

// kind says how a plane is coded, and what gives its contexts.
type kind uint8

const (
	kindRaw      kind = iota // as it is, before all coded planes
	kindConstant             // one byte for all, in the directory
	kindLate                 // as it is, where its code would be
	kindPlain                // coded with one table
	kindRef                  // coded; contexts are the reference's exponents
	kindAbove                // coded; contexts are the bytes of the plane above
	kindClass                // coded; contexts are the reference's exponents and the class of the planes above
	kinds                    // how many there are
)

const (
	chunk     = 8 << 10 // bytes transformed at a time, within the first-level cache
	entrySize = 4       // bytes of a plane's entry in the directory: kind, then 3 of value or length
)

// settings are an effort in numbers.
type settings struct {
	pieces  int    // of 256 elements in a sample
	groups  int    // of context bytes, 0 for no contexts
	tables  int    // of a plane
	worth   uint64 // of 1024: what a plane must save to be coded
	gains   uint64 // of 1024: what contexts must save to be used
	related uint64 // of 1024: what the reference must save to be needed
}

var effortSettings = [...]settings{
	Auto:  {pieces: 16, groups: 10, tables: 12, worth: 24, gains: 16, related: 6},
	Fast:  {pieces: 16, groups: 0, tables: 1, worth: 40, related: 10},
	Small: {pieces: 32, groups: maxGroups, tables: 24, worth: 3, gains: 2, related: 1},
}

// Encoder encodes blocks. It keeps scratch memory, nothing that changes its output, and is not safe for concurrent use.
type Encoder struct {
	// MaxDelta is how many bytes a block may take for which its reference is needed; 0: any number. If it would take more it
	// is coded without.
	MaxDelta int

	effort Effort
	settings
	fit                            fitter
	rans                           rans
	scratch                        planeSet
	work                           [chunk]byte
	exponents, classes, ctx, coded []byte
	sample                         sampler
	zip                            zipper
}

// NewEncoder makes an encoder that spends the given effort.
func NewEncoder(effort Effort) *Encoder {
	e := &Encoder{effort: effort}
	if int(effort) < len(effortSettings) {
		e.settings = effortSettings[effort]
	}
	return e
}

// Encode appends the encoded form of cur to dst. ref is the block that a decoder will have, or nil; a reference of
// another length is ignored. needsRef tells whether decoding needs it. At most len(cur)+8 bytes are appended.
func (e *Encoder) Encode(dst, cur, ref []byte, elem Elem) (out []byte, needsRef bool) {
	base := len(dst)
	if len(ref) != len(cur) {
		ref = nil
	}
	if elem >= elems {
		elem = Bytes
	}
	h := header{elem: elem}
	if e.effort < None && len(cur) > 2*entrySize && len(cur) <= MaxElems*elem.Width() {
		if elem == Bytes {
			h.method = e.zip.choose(cur, ref, e.MaxDelta)
		}
		switch {
		case h.method != stored:
			dst = e.zip.encode(append(dst, h.byte()), h.method, cur, ref)
		default:
			p := e.plan(cur, ref, elem)
			h.method, h.hinted = p.method, p.hinted
			if h.method != stored {
				dst = e.encodePlanes(append(dst, h.byte()), cur, ref, elem, &p)
			}
		}
		if h.needsRef() && e.MaxDelta > 0 && len(dst)-base > e.MaxDelta { // the sample promised less
			return e.Encode(dst[:base], cur, nil, elem)
		}
		if h.method != stored && len(dst)-base <= len(cur) {
			return dst, h.needsRef()
		}
	}
	dst = append(dst[:base], header{method: stored, elem: elem}.byte())
	return append(dst, cur...), false
}

// encodePlanes appends the directory, the raw planes, the bytes after the last whole element and the coded planes.
func (e *Encoder) encodePlanes(dst, cur, ref []byte, elem Elem, p *plan) []byte {
	width := elem.Width()
	n := len(cur) / width
	directory := len(dst)
	raw := 0
	for k := range width {
		if p.kind[k] == kindRaw {
			raw += n
		}
	}
	dst = grow(dst, entrySize*width+raw)
	var set planeSet
	at := directory + entrySize*width
	clear(dst[directory:at])
	for k := width - 1; k >= 0; k-- {
		if p.kind[k] == kindRaw {
			set[k] = dst[at : at+n]
			at += n
		} else {
			e.scratch[k] = sized(e.scratch[k], n)
			set[k] = e.scratch[k]
		}
	}
	e.transform(&set, cur, ref, elem, p.method)
	dst = append(dst, cur[n*width:]...)

	if p.uses(kindRef, width) || p.uses(kindClass, width) {
		e.exponents = sized(e.exponents, n)
		exponents(e.exponents, ref[:n*width], elem)
	}
	lowest := p.lowest(kindClass, width)
	if lowest < width {
		e.classes = sized(e.classes, n)
		clear(e.classes)
	}
	for k := width - 1; k >= 0; k-- {
		if p.kind[k] != kindRaw {
			got, value := p.kind[k], uint32(0)
			before := len(dst)
			dst, got, value = e.encodePlane(dst, set[k], &set, k, got)
			if got != kindConstant {
				value = uint32(len(dst) - before)
			}
			binary.LittleEndian.PutUint32(dst[directory+entrySize*(width-1-k):], value<<8|uint32(got))
		}
		if k > lowest {
			classify(e.classes, set[k])
		}
	}
	return dst
}

// transform fills the planes, a chunk at a time.
func (e *Encoder) transform(set *planeSet, cur, ref []byte, elem Elem, m method) {
	width := elem.Width()
	whole := len(cur) / width * width
	for at := 0; at < whole; at += chunk {
		end := min(at+chunk, whole)
		part := cur[at:end]
		switch m {
		case rotated:
			rotate(e.work[:], part, width)
			part = e.work[:len(part)]
		case difference:
			subtract(e.work[:], part, ref[at:end], width)
			part = e.work[:len(part)]
		default:
		}
		split(set, at/width, part, width)
	}
}

// encodePlane appends a plane's code, or nothing for a constant one, whose value it returns.
func (e *Encoder) encodePlane(dst, syms []byte, set *planeSet, k int, want kind) ([]byte, kind, uint32) {
	var x, cls, ctx []byte
	n, classes := len(syms), 0
	if want != kindPlain {
		x, classes = e.exponents, 1
		switch want {
		case kindAbove:
			x = set[k+1]
		case kindClass:
			cls, classes = e.classes, 3
		default:
		}
		e.fit.group(x, classes, e.groups)
		e.ctx = sized(e.ctx, n)
		ctx = e.ctx
		e.fit.context(ctx, x, cls)
	}
	e.fit.count(syms, ctx)
	if value, ok := e.fit.single(); ok {
		return dst, kindConstant, uint32(value)
	}
	e.fit.merge(classes, e.tables)
	if e.fit.model.tables == 1 {
		want, ctx, e.fit.model.classes = kindPlain, nil, 0
	}
	before := len(dst)
	dst = e.fit.model.write(append(dst, 0, 0))
	binary.LittleEndian.PutUint16(dst[before:], uint16(len(dst)-before-2))
	e.rans.encodeTables(&e.fit.model)
	if ctx != nil {
		contexts(ctx, x, cls, &e.fit.model.table)
	}
	e.coded = sized(e.coded, codedLimit(n))
	dst = append(dst, e.rans.put(e.coded, syms, ctx)...)
	if len(dst)-before >= n {
		return append(dst[:before], syms...), kindLate, 0
	}
	return dst, want, 0
}

// grow is b with n more bytes of any value.
func grow(b []byte, n int) []byte {
	if cap(b)-len(b) >= n {
		return b[:len(b)+n]
	}
	bigger := make([]byte, len(b)+n, 2*len(b)+n+n/2)
	copy(bigger, b)
	return bigger
}

// sized is a slice of n bytes of any value, b's memory where it is enough.
func sized(b []byte, n int) []byte {
	if cap(b) >= n {
		return b[:n]
	}
	return make([]byte, n)
}
