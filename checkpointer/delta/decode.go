package delta

import (
	"encoding/binary"
	"fmt"
)

// Decoder decodes blocks. It keeps scratch memory only, and is not safe for concurrent use.
type Decoder struct {
	model                   tableModel
	rans                    rans
	scratch                 planeSet
	exponents, classes, ctx []byte
	unzip                   unzipper
}

// NewDecoder makes a decoder.
func NewDecoder() *Decoder { return &Decoder{} }

// Decode writes the block that enc encodes into dst, whose length, at most MaxBlock, is the block's. ref is the
// reference that it was encoded with; it may be nil where NeedsRef says so. After an error (ErrCorrupt, ErrReference)
// dst holds anything.
func (d *Decoder) Decode(dst, enc, ref []byte) error {
	h, err := parseHeader(enc)
	if err != nil {
		return err
	}
	enc = enc[1:]
	if len(dst) > MaxElems*h.elem.Width() && h.method != stored {
		return fmt.Errorf("%w: %d bytes are longer than a block", ErrCorrupt, len(dst))
	}
	if !h.needsRef() {
		ref = nil
	} else if ref == nil || len(ref) != len(dst) {
		return fmt.Errorf("%w: %d bytes for a block of %d", ErrReference, len(ref), len(dst))
	}
	switch h.method {
	case stored:
		if len(enc) != len(dst) {
			return corrupt("stored block of another length")
		}
		copy(dst, enc)
		return nil
	case zipped, xored:
		return d.unzip.decode(dst, enc, ref)
	default:
		return d.decodePlanes(dst, enc, ref, h)
	}
}

// decodePlanes undoes encodePlanes.
func (d *Decoder) decodePlanes(dst, enc, ref []byte, h header) error {
	width := h.elem.Width()
	n := len(dst) / width
	if len(enc) < entrySize*width {
		return corrupt("directory cut short")
	}
	var p plan
	var size [8]int
	directory := enc[:entrySize*width]
	enc = enc[entrySize*width:]
	for k := width - 1; k >= 0; k-- {
		entry := binary.LittleEndian.Uint32(directory[entrySize*(width-1-k):])
		p.kind[k], size[k] = kind(entry&255), int(entry>>8)
		if p.kind[k] >= kinds {
			return corrupt("unknown kind of plane")
		}
		if ref == nil && (p.kind[k] == kindRef || p.kind[k] == kindClass) {
			return corrupt("contexts of a reference in a block without")
		}
		if p.kind[k] == kindAbove && k == width-1 {
			return corrupt("contexts of a plane above the first")
		}
	}
	var set planeSet
	for k := width - 1; k >= 0; k-- {
		if p.kind[k] == kindRaw {
			if len(enc) < n {
				return corrupt("raw plane cut short")
			}
			set[k], enc = enc[:n], enc[n:]
		}
	}
	tail := dst[n*width:]
	if len(enc) < len(tail) {
		return corrupt("last bytes cut short")
	}
	enc = enc[copy(tail, enc):]

	if ref != nil && (p.uses(kindRef, width) || p.uses(kindClass, width)) {
		d.exponents = sized(d.exponents, n)
		exponents(d.exponents, ref[:n*width], h.elem)
	}
	low := p.lowest(kindClass, width)
	if low < width {
		d.classes = sized(d.classes, n)
		clear(d.classes)
	}
	for k := width - 1; k >= 0; k-- {
		if p.kind[k] != kindRaw {
			d.scratch[k] = sized(d.scratch[k], n)
			set[k] = d.scratch[k]
			used, err := d.decodePlane(&set, k, p.kind[k], size[k], enc)
			if err != nil {
				return fmt.Errorf("plane %d: %w", k, err)
			}
			enc = enc[used:]
		}
		if k > low {
			classify(d.classes, set[k])
		}
	}
	if len(enc) != 0 {
		return corrupt("bytes after the last plane")
	}
	for at := 0; at < n*width; at += chunk {
		end := min(at+chunk, n*width)
		merge(dst[at:end], &set, at/width, width)
		switch h.method {
		case rotated:
			unrotate(dst[at:end], width)
		case difference:
			add(dst[at:end], ref[at:end], width)
		default:
		}
	}
	return nil
}

// decodePlane fills set[k] from the start of enc and returns how much of it was used.
func (d *Decoder) decodePlane(set *planeSet, k int, how kind, size int, enc []byte) (int, error) {
	syms := set[k]
	if how == kindConstant {
		if size > 255 {
			return 0, corrupt("constant of more than a byte")
		}
		for i := range syms {
			syms[i] = byte(size)
		}
		return 0, nil
	}
	if size > len(enc) {
		return 0, corrupt("plane cut short")
	}
	if how == kindLate {
		if size != len(syms) {
			return 0, corrupt("raw plane of another length")
		}
		copy(syms, enc)
		return size, nil
	}
	enc = enc[:size]
	if len(enc) < 2 {
		return 0, corrupt("model cut short")
	}
	model := int(binary.LittleEndian.Uint16(enc))
	enc = enc[2:]
	if model > len(enc) {
		return 0, corrupt("model cut short")
	}
	d.model.classes = 0
	var x, cls, ctx []byte
	switch how {
	case kindRef:
		x, d.model.classes = d.exponents, 1
	case kindAbove:
		x, d.model.classes = set[k+1], 1
	case kindClass:
		x, cls, d.model.classes = d.exponents, d.classes, classes
	default:
	}
	if err := d.model.read(enc[:model]); err != nil {
		return 0, err
	}
	d.rans.decodeTables(&d.model)
	if x != nil {
		d.ctx = sized(d.ctx, len(syms))
		ctx = d.ctx
		contexts(ctx, x, cls, &d.model.table)
	}
	return size, d.rans.get(syms, ctx, enc[model:])
}
