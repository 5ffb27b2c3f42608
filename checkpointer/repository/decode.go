package repository

import (
	"context"
	"errors"
	"fmt"
	"math/bits"

	"nomad-spotter/checkpointer/delta"
	"nomad-spotter/checkpointer/pack"
	"nomad-spotter/checkpointer/store"
)

// decoder decodes blocks of one snapshot. It is not safe for concurrent use; several may share their windows.
type decoder struct {
	view    *view
	windows *windows
	codec   *delta.Decoder
	spare   [][]byte
	steps   int // blocks that may still be decoded for the present one
}

// maxSteps bounds the blocks that are decoded for one. Writers stay far below.
const maxSteps = 16 * wantedSteps

func newDecoder(v *view, w *windows) *decoder {
	return &decoder{view: v, windows: w, codec: delta.NewDecoder()}
}

func (d *decoder) close() { d.spare = nil }

// buffer returns n bytes of any content.
func (d *decoder) buffer(n int) []byte {
	if k := len(d.spare); k > 0 {
		b := d.spare[k-1]
		d.spare = d.spare[:k-1]
		if cap(b) >= n {
			return b[:n]
		}
	}
	return newMemory(1 << bits.Len(uint(max(n, 4<<10)-1)))[:n]
}

// free gives a buffer back.
func (d *decoder) free(b []byte) { d.spare = append(d.spare, b) }

// block returns the raw bytes of a block, verified. A *DamageError tells that they are not what was saved.
func (d *decoder) block(ctx context.Context, a address) ([]byte, error) {
	d.steps = maxSteps
	return d.linked(ctx, a, pack.MaxLinks)
}

// linked decodes a block at the end of at most links links.
func (d *decoder) linked(ctx context.Context, a address, links int) ([]byte, error) {
	ix := d.view.packs[a.pack]
	key := packKey(d.view.snapshot.Lineage, a.pack)
	desc := &ix.Blocks[a.block]
	if desc.Links > links {
		return nil, d.view.damaged(key, fmt.Errorf("block %d has more links than what refers to it allows", a.block))
	}
	if d.steps--; d.steps < 0 {
		return nil, d.view.damaged(key, fmt.Errorf("more than %d blocks must be decoded for one", maxSteps))
	}
	var ref []byte
	if len(desc.Base) > 0 {
		var err error
		if ref, err = d.base(ctx, ix, key, a, desc); err != nil {
			return nil, err
		}
		defer d.free(ref)
	}
	enc, release, err := d.windows.bytes(ctx, a.pack, desc)
	if errors.Is(err, store.ErrNotFound) {
		return nil, d.view.damaged(key, errors.New("missing"))
	}
	if errors.Is(err, errShortObject) {
		return nil, d.view.damaged(key, err)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", key, err)
	}
	defer release()
	out := d.buffer(desc.Raw)
	err = d.codec.Decode(out, enc, ref)
	if err == nil && pack.SumOf(out) != desc.Sum {
		err = errors.New("content does not match its hash")
	}
	if err != nil {
		return nil, d.view.damaged(key, fmt.Errorf("block %d: %w", a.block, err))
	}
	return out, nil
}

// base puts together the reference of a block.
func (d *decoder) base(ctx context.Context, ix *pack.Index, key string, a address, desc *pack.Block) ([]byte, error) {
	out := d.buffer(desc.Raw)
	at := 0
	var last address
	var b []byte
	for i, p := range desc.Base {
		name := ix.Packs[p.Pack]
		other := d.view.packs[name]
		if other == nil || p.Block >= len(other.Blocks) || p.Off+p.Len > other.Blocks[p.Block].Raw {
			return nil, d.view.damaged(key, fmt.Errorf("block %d refers to bytes that do not exist in pack %s", a.block, name))
		}
		if from := (address{name, p.Block}); i == 0 || from != last {
			if i > 0 {
				d.free(b)
			}
			var err error
			if b, err = d.linked(ctx, from, desc.Links-1); err != nil {
				return nil, err
			}
			last = from
		}
		if p.Len == desc.Raw && p.Off == 0 && len(b) == desc.Raw {
			d.free(out)
			return b, nil
		}
		at += copy(out[at:], b[p.Off:p.Off+p.Len])
	}
	d.free(b)
	return out, nil
}
