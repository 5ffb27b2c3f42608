package repository

import (
	"context"
	"errors"

	"nomad-spotter/checkpointer/delta"
	"nomad-spotter/checkpointer/layout"
	"nomad-spotter/checkpointer/pack"
)

// parent is the snapshot that a new one is coded against.
type parent struct {
	view    *view
	encoded []byte // its layout
	places  *layout.Map
	local   *reader // its files on this machine; nil: they are gone
}

// coder codes the blocks of one save, one at a time.
type coder struct {
	e       *encoding
	encoder *delta.Encoder
	decoder *decoder // of the parent's blocks
}

func newCoder(e *encoding, w *windows) *coder {
	c := &coder{e: e, encoder: delta.NewEncoder(e.opts.Effort)}
	if e.parent != nil {
		c.decoder = newDecoder(e.parent.view, w)
	}
	return c
}

// code reads a block, and codes it unless it is the same as before.
func (c *coder) code(ctx context.Context, t *task) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	b := c.e.plan[t.index]
	t.buf.cur = t.buf.cur[:b.Len]
	if err := c.e.src.read(b, t.buf.cur); err != nil {
		return err
	}
	desc := pack.Block{Raw: b.Len, Elem: b.Elem, Sum: pack.SumOf(t.buf.cur)}
	var ref []byte
	var base []basePiece
	links := 0
	if c.e.parent != nil {
		places := c.e.match[t.index]
		if same := c.same(places, desc); same != nil {
			t.out = coded{reuse: same}
			c.progress(b.Len)
			return nil
		}
		var err error
		var left int
		if base, links, left = c.base(places, b.Len); base != nil {
			if ref, err = c.reference(ctx, t.buf, places, base, b.Len); err != nil {
				return err
			}
		}
		c.encoder.MaxDelta = left
	}
	enc, delta := c.encoder.Encode(t.buf.enc[:0], t.buf.cur, ref, b.Elem)
	t.buf.enc = enc
	t.out = coded{enc: enc, desc: desc}
	if delta {
		t.out.base, t.out.desc.Links = base, links
	}
	c.progress(b.Len)
	return nil
}

func (c *coder) progress(n int) {
	done := c.e.done.Add(int64(n))
	if c.e.opts.Progress != nil {
		c.e.opts.Progress(done)
	}
}

func (c *coder) desc(a address) *pack.Block { return &c.e.parent.view.packs[a.pack].Blocks[a.block] }

// same returns the parent's block at the same place if it has the same bytes.
func (c *coder) same(places []layout.Place, d pack.Block) *address {
	if len(places) != 1 {
		return nil
	}
	a := c.e.parent.view.blocks[places[0].Block]
	if old := c.desc(a); old.Sum == d.Sum && old.Raw == d.Raw && old.Elem == d.Elem && places[0].Len == d.Raw {
		return &a
	}
	return nil
}

// wantedSteps is how many blocks a restore may have to decode for one, at most, however many small tensors from however
// many blocks it is coded against.
const wantedSteps = 64

// base says what a block may be coded against: its earlier self in the parent; or, where that has as many links as are
// allowed, the block that stands alone at the other end of the chain. The decay of a difference with distance is what the
// encoder then measures: once it does not pay, the block stands alone itself. left is how many bytes the difference may
// take; 0: any number.
func (c *coder) base(places []layout.Place, n int) (out []basePiece, links, left int) {
	if len(places) == 0 || c.e.opts.Effort == delta.None {
		return nil, 0, 0
	}
	v := c.e.parent.view
	steps, read := 0, 0
	for i, p := range places {
		a := v.blocks[p.Block]
		links = max(links, c.desc(a).Links+1)
		out = append(out, basePiece{at: a, off: p.Off, len: p.Len})
		if (i == 0 || a != out[i-1].at) && steps <= wantedSteps {
			blocks, size := v.cost(a, wantedSteps)
			steps, read = steps+blocks, read+size
		}
	}
	if steps > wantedSteps { // tensors from all over the place
		return nil, 0, 0
	}
	// What a difference takes is not known before: as much as the last one.
	expected := n / 4
	if d := c.desc(out[0].at); d.Links > 0 && len(out) == 1 {
		expected = d.Len
	}
	if !c.e.opts.mayLink(links, read+expected, n) {
		a, ok := c.end(out, n)
		if !ok {
			return nil, 0, 0
		}
		out, links, read, expected = []basePiece{{at: a, len: n}}, 1, c.desc(a).Len, n/4
	}
	if c.e.opts.Effort != delta.Fast {
		return out, links, 0
	}
	if left = n - read; left < expected { // a restore never reads more than the raw size
		return nil, 0, 0
	}
	return out, links, left
}

// end is the block that stands alone at the other end of a chain.
func (c *coder) end(base []basePiece, n int) (a address, ok bool) {
	if len(base) != 1 || base[0].len != n || base[0].off != 0 {
		return a, false
	}
	v := c.e.parent.view
	a = base[0].at
	for c.desc(a).Links > 0 {
		d := c.desc(a)
		if len(d.Base) != 1 || d.Base[0].Off != 0 || d.Base[0].Len != n {
			return a, false
		}
		next := address{v.packs[a.pack].Packs[d.Base[0].Pack], d.Base[0].Block}
		if !v.mayUse(a, next) || c.desc(next).Raw != n {
			return a, false
		}
		a = next
	}
	return a, true
}

// reference returns the bytes of a base; nil if they are damaged in the store.
func (c *coder) reference(ctx context.Context, buf *buffers, places []layout.Place, base []basePiece, n int) ([]byte, error) {
	if cap(buf.ref) < n { // it was changed for a smaller one, below
		buf.ref = make([]byte, n)
	}
	buf.ref = buf.ref[:n]
	at := 0
	var b []byte
	for i, p := range base {
		if i == 0 || p.at != base[i-1].at {
			if i > 0 {
				c.decoder.free(b)
			}
			own := c.e.parent.view.blocks[places[i].Block]
			var err error
			b, err = c.parentBlock(ctx, places[i].Block, own == p.at, p.at)
			var d *DamageError
			if errors.As(err, &d) {
				return nil, nil
			}
			if err != nil {
				return nil, err
			}
		}
		if p.len == n && len(b) == n {
			c.decoder.free(buf.ref)
			buf.ref = b
			return b, nil
		}
		at += copy(buf.ref[at:], b[p.off:p.off+p.len])
	}
	c.decoder.free(b)
	return buf.ref, nil
}

// parentBlock returns a block of the parent, from its files on this machine if they are still what was saved, else from the
// store.
func (c *coder) parentBlock(ctx context.Context, block int, local bool, a address) ([]byte, error) {
	p := c.e.parent
	if local && p.local != nil {
		b := p.view.plan[block]
		buf := c.decoder.buffer(b.Len)
		if err := p.local.read(b, buf); err == nil && pack.SumOf(buf) == c.desc(a).Sum {
			return buf, nil
		}
		c.decoder.free(buf)
	}
	return c.decoder.block(ctx, a)
}
