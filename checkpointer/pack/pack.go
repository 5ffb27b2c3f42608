// Package pack is the form in which blocks lie in a store: many encoded blocks in one object, followed by an index of
// them. It is pure.
//
// A pack is
//
//	body    encoded blocks one after another
//	index   what and where they are (below)
//	footer  length of the index, 8 bytes little-endian; XXH3-128 of the index, 16 bytes big-endian; Magic, 8 bytes
//
// and its index, all whole numbers as unsigned varints (encoding/binary),
//
//	sum     XXH3-128 of the body, 16 bytes
//	packs   how many other packs it refers to; of each, length and bytes of its name
//	blocks  how many blocks; of each:
//	        encoded bytes, raw bytes, type of element (1 byte), links (1 byte), XXH3-128 of the raw bytes (16 bytes),
//	        how many pieces its base has; of each: pack (number in packs), block, offset, bytes
//
// XXH3 (https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md) tells accidents, not forgery. Whoever may write to a
// store could as well replace a snapshot whole; where that matters, an encrypted repository authenticates every object.
package pack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/zeebo/xxh3"

	"nomad-spotter/checkpointer/delta"
)

// Magic ends every pack of this version.
const Magic = "SPOTPACK"

// FooterLen is the length of the footer in bytes.
const FooterLen = 8 + SumLen + 8

// SumLen is the length of a Sum in bytes.
const SumLen = 16

// Limits on what an index may claim.
const (
	MaxIndex = 256 << 20 // bytes
	MaxLinks = 64        // blocks that must be decoded before one
	// MaxRaw is the most that a block may hold, in bytes.
	MaxRaw = 8 * delta.MaxElems
	// maxEncoded is more than any block has once it is encoded, in bytes.
	maxEncoded = 2 * MaxRaw
)

// Sum is an XXH3-128, most significant byte first.
type Sum [SumLen]byte

// SumOf returns the sum of b.
func SumOf(b []byte) Sum {
	return xxh3.Hash128(b).Bytes()
}

// Piece is a run of raw bytes of a block in another pack.
type Piece struct {
	Pack  int // index in Index.Packs
	Block int // in that pack
	Off   int // of raw bytes
	Len   int
}

// Block describes one block of a pack.
type Block struct {
	Off   int64 // of the encoded bytes in the pack
	Len   int   // encoded bytes
	Raw   int   // raw bytes
	Elem  delta.Elem
	Links int     // how many blocks lie between this one and one that stands alone; 0 if it does itself
	Sum   Sum     // of the raw bytes
	Base  []Piece // what its reference is put together from; nil if it stands alone
}

// Index describes a pack.
type Index struct {
	Body   int64 // bytes
	Sum    Sum   // of the body
	Packs  []string
	Blocks []Block
}

// Builder assembles a pack. Its zero value is an empty one.
type Builder struct {
	// Memory returns memory for at least n bytes, of length 0, that Add copies into; nil: it is allocated.
	Memory func(n int) []byte

	content Content
	sum     xxh3.Hasher
	index   Index
	names   map[string]int
}

// Len is the length of the body in bytes.
func (b *Builder) Len() int { return int(b.content.size) }

// Blocks counts the blocks.
func (b *Builder) Blocks() int { return len(b.index.Blocks) }

// Pack returns the number by which pieces refer to a pack.
func (b *Builder) Pack(name string) int {
	n, ok := b.names[name]
	if !ok {
		if b.names == nil {
			b.names = map[string]int{}
		}
		n = len(b.index.Packs)
		b.names[name] = n
		b.index.Packs = append(b.index.Packs, name)
	}
	return n
}

// chunkBytes is the size of the memory that Add copies into.
const chunkBytes = 256 << 10

// Add appends an encoded block, copied, and returns its number. Off and Len of the description are filled in.
func (b *Builder) Add(enc []byte, d Block) int {
	c := &b.content
	if n := len(c.parts); n == 0 || !c.copied || cap(c.parts[n-1])-len(c.parts[n-1]) < len(enc) {
		c.parts = append(c.parts, b.memory(len(enc)))
		c.copied = true
	}
	last := &c.parts[len(c.parts)-1]
	*last = append(*last, enc...)
	return b.describe(enc, d)
}

func (b *Builder) memory(n int) []byte {
	if b.Memory != nil {
		return b.Memory(n)
	}
	return make([]byte, 0, max(chunkBytes, n))
}

// Take is Add without a copy: the memory of enc belongs to the pack from now on.
func (b *Builder) Take(enc []byte, d Block) int {
	b.content.parts = append(b.content.parts, enc)
	b.content.copied = false
	return b.describe(enc, d)
}

func (b *Builder) describe(enc []byte, d Block) int {
	d.Off, d.Len = b.content.size, len(enc)
	b.content.size += int64(len(enc))
	_, _ = b.sum.Write(enc) // a hash takes everything
	b.index.Blocks = append(b.index.Blocks, d)
	return len(b.index.Blocks) - 1
}

// Finish returns the pack, its index, and the length and sum of the index's bytes. The builder is empty afterwards.
func (b *Builder) Finish() (pack *Content, index *Index, indexLen int, indexSum Sum) {
	c, ix := b.content, b.index
	ix.Body, ix.Sum = c.size, b.sum.Sum128().Bytes()
	end := ix.encode()
	indexLen, indexSum = len(end), SumOf(end)
	end = binary.LittleEndian.AppendUint64(end, uint64(indexLen))
	end = append(end, indexSum[:]...)
	end = append(end, Magic...)
	c.parts = append(c.parts, end)
	c.size += int64(len(end))
	c.settle()
	*b = Builder{Memory: b.Memory}
	return &c, &ix, indexLen, indexSum
}

func (ix *Index) encode() []byte {
	out := append([]byte(nil), ix.Sum[:]...)
	out = binary.AppendUvarint(out, uint64(len(ix.Packs)))
	for _, name := range ix.Packs {
		out = binary.AppendUvarint(out, uint64(len(name)))
		out = append(out, name...)
	}
	out = binary.AppendUvarint(out, uint64(len(ix.Blocks)))
	for _, d := range ix.Blocks {
		out = binary.AppendUvarint(out, uint64(d.Len))
		out = binary.AppendUvarint(out, uint64(d.Raw))
		out = append(out, byte(d.Elem), byte(d.Links))
		out = append(out, d.Sum[:]...)
		out = binary.AppendUvarint(out, uint64(len(d.Base)))
		for _, p := range d.Base {
			for _, n := range []int{p.Pack, p.Block, p.Off, p.Len} {
				out = binary.AppendUvarint(out, uint64(n))
			}
		}
	}
	return out
}

var errShort = errors.New("index ends too early")

// reader takes values from an index; the first fault sticks.
type reader struct {
	b   []byte
	err error
}

func (r *reader) uint(what string, limit uint64) int {
	v, n := binary.Uvarint(r.b)
	switch {
	case r.err != nil:
		return 0
	case n <= 0:
		r.err = fmt.Errorf("%s: %w", what, errShort)
		return 0
	case v > limit:
		r.err = fmt.Errorf("%s: %d exceeds %d", what, v, limit)
		return 0
	}
	r.b = r.b[n:]
	return int(v)
}

func (r *reader) take(what string, n int) []byte {
	if r.err == nil && n > len(r.b) {
		r.err = fmt.Errorf("%s: %w", what, errShort)
	}
	if r.err != nil {
		return make([]byte, SumLen)
	}
	out := r.b[:n]
	r.b = r.b[n:]
	return out
}

// ParseIndex reads an index whose bytes have the given sum. body is the length of the pack's body. It refuses what Finish
// would not have written.
func ParseIndex(enc []byte, want Sum, body int64) (*Index, error) {
	if SumOf(enc) != want {
		return nil, errors.New("index does not match its sum")
	}
	r := &reader{b: enc}
	ix := &Index{Body: body}
	copy(ix.Sum[:], r.take("sum", SumLen))
	for range r.uint("packs", uint64(len(enc))) {
		name := r.take("name of a pack", r.uint("name of a pack", 1024))
		if r.err != nil {
			break
		}
		ix.Packs = append(ix.Packs, string(name))
	}
	var off int64
	const smallest = 2 + 2 + SumLen + 1
	blocks := r.uint("blocks", uint64(len(enc)/smallest))
	for i := range blocks {
		d := Block{Off: off}
		d.Len = r.uint("encoded bytes", uint64(min(body-off, maxEncoded)))
		off += int64(d.Len)
		d.Raw = r.uint("raw bytes", MaxRaw)
		two := r.take("element and links", 2)
		d.Elem, d.Links = delta.Elem(two[0]), int(two[1])
		copy(d.Sum[:], r.take("sum of a block", SumLen))
		total := 0
		for range r.uint("pieces", uint64(len(r.b)/4)) {
			p := Piece{Pack: r.uint("pack of a piece", uint64(max(len(ix.Packs)-1, 0))), Block: r.uint("block of a piece", MaxIndex), Off: r.uint("offset of a piece", MaxRaw), Len: r.uint("bytes of a piece", MaxRaw)}
			total += p.Len
			d.Base = append(d.Base, p)
			if r.err != nil || total > d.Raw {
				break
			}
		}
		if r.err != nil {
			return nil, fmt.Errorf("block %d: %w", i, r.err)
		}
		if err := d.check(len(ix.Packs), total); err != nil {
			return nil, fmt.Errorf("block %d: %w", i, err)
		}
		ix.Blocks = append(ix.Blocks, d)
	}
	switch {
	case r.err != nil:
		return nil, r.err
	case off != body:
		return nil, fmt.Errorf("blocks have %d bytes, the body has %d", off, body)
	case len(r.b) > 0:
		return nil, fmt.Errorf("%d bytes after the last block", len(r.b))
	}
	return ix, nil
}

func (d *Block) check(packs, base int) error {
	switch {
	case d.Raw == 0:
		return errors.New("it is empty")
	case d.Links > MaxLinks:
		return fmt.Errorf("%d links exceed %d", d.Links, MaxLinks)
	case (d.Links == 0) != (len(d.Base) == 0):
		return fmt.Errorf("%d links, and a base of %d pieces", d.Links, len(d.Base))
	case len(d.Base) > 0 && (base != d.Raw || packs == 0):
		return fmt.Errorf("its base has %d bytes, it has %d", base, d.Raw)
	case slices.ContainsFunc(d.Base, func(p Piece) bool { return p.Len == 0 }):
		return errors.New("a piece of its base is empty")
	}
	return nil
}

// ParseFooter reads the last FooterLen bytes of a pack.
func ParseFooter(b []byte) (indexLen int64, sum Sum, err error) {
	if len(b) != FooterLen || string(b[FooterLen-8:]) != Magic {
		return 0, sum, errors.New("it does not end like a pack")
	}
	n := binary.LittleEndian.Uint64(b)
	if n > MaxIndex {
		return 0, sum, fmt.Errorf("index of %d bytes exceeds %d", n, MaxIndex)
	}
	copy(sum[:], b[8:])
	return int64(n), sum, nil
}

// Verify reads a whole pack of size bytes and compares it with the sum of its index: every byte of it is covered.
func Verify(r io.Reader, size int64, indexLen int64, want Sum) error {
	body := size - indexLen - FooterLen
	if body < 0 || indexLen > MaxIndex {
		return fmt.Errorf("it has %d bytes, its index alone %d", size, indexLen)
	}
	h := xxh3.New()
	n, err := io.Copy(h, io.LimitReader(r, body))
	if err != nil {
		return err
	}
	if n < body {
		return fmt.Errorf("%w: it ends after %d of %d bytes", ErrDamaged, n, size)
	}
	rest, err := io.ReadAll(io.LimitReader(r, indexLen+FooterLen+1))
	if err != nil {
		return err
	}
	if int64(len(rest)) != indexLen+FooterLen {
		return fmt.Errorf("%w: it has not %d bytes", ErrDamaged, size)
	}
	gotLen, sum, err := ParseFooter(rest[indexLen:])
	if err != nil || gotLen != indexLen || sum != want {
		return fmt.Errorf("%w: its end is not what was written", ErrDamaged)
	}
	ix, err := ParseIndex(rest[:indexLen], want, body)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if Sum(h.Sum128().Bytes()) != ix.Sum {
		return fmt.Errorf("%w: content does not match its hash", ErrDamaged)
	}
	return nil
}

// ErrDamaged says that a pack is not what was written.
var ErrDamaged = errors.New("damaged")
