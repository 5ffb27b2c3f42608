package layout

import (
	"fmt"

	"nomad-spotter/checkpointer/delta"
	"nomad-spotter/checkpointer/tensor"
)

// BlockBytes is the most that a block holds.
const BlockBytes = 512 << 10

// poolBelow is the length below which a section shares blocks with others of its class. Coding a short block alone costs a
// table of its own; sharing makes a change of one section a change of the whole block.
const poolBelow = 128 << 10

// Piece is a run of bytes of one section in a block.
type Piece struct {
	Entry   int   // index of the file in the layout
	Section int   // index of the section in the file
	Off     int64 // in the file
	Len     int
	At      int64 // offset in the section
}

// Block is what is coded as a whole: pieces of one class after each other.
type Block struct {
	Elem   delta.Elem
	Len    int
	Pieces []Piece
}

// class is what the sections of one block have in common.
type class struct {
	kind  tensor.Kind
	dtype tensor.DType
}

func classOf(s tensor.Section) class {
	if s.DType.Width() == 0 || s.Len%int64(s.DType.Width()) != 0 {
		return class{s.Kind, tensor.Bytes}
	}
	return class{s.Kind, s.DType}
}

// elem is how the codec sees a type of element.
func elem(d tensor.DType) delta.Elem {
	switch {
	case d == tensor.F32:
		return delta.F32
	case d == tensor.F16:
		return delta.F16
	case d == tensor.BF16:
		return delta.BF16
	case d == tensor.F64:
		return delta.F64
	case d.Width() == 2:
		return delta.Word16
	case d.Width() == 4:
		return delta.Word32
	case d.Width() == 8:
		return delta.Word64
	}
	return delta.Bytes
}

func (c class) capacity() int { return min(BlockBytes, delta.MaxElems*c.dtype.Width()) }

// Plan cuts a layout into blocks. The rule is part of the format: in the order of entries and sections, a section of 128 KiB
// or more becomes blocks of its own; a shorter one joins the open block of its class, which ends when the next section
// does not fit. Open blocks end, in the order in which they were opened, after the last section.
func Plan(l *Layout) []Block {
	var out []Block
	open := map[class]*Block{}
	var order []class
	for i, e := range l.Entries {
		var off int64
		for j, s := range e.Sections {
			c := classOf(s)
			room := c.capacity()
			if s.Len >= poolBelow {
				for at := int64(0); at < s.Len; {
					n := int(min(int64(room), s.Len-at))
					out = append(out, Block{Elem: elem(c.dtype), Len: n, Pieces: []Piece{{Entry: i, Section: j, Off: off + at, Len: n, At: at}}})
					at += int64(n)
				}
				off += s.Len
				continue
			}
			b := open[c]
			if b == nil {
				b = &Block{Elem: elem(c.dtype)}
				open[c] = b
				order = append(order, c)
			}
			if b.Len+int(s.Len) > room {
				out = append(out, *b)
				*b = Block{Elem: b.Elem}
			}
			b.Pieces = append(b.Pieces, Piece{Entry: i, Section: j, Off: off, Len: int(s.Len)})
			b.Len += int(s.Len)
			off += s.Len
		}
	}
	for _, c := range order {
		if b := open[c]; b.Len > 0 {
			out = append(out, *b)
		}
	}
	return out
}

// Place is a run of bytes of a block.
type Place struct {
	Block int // index in the plan
	Off   int // in the block
	Len   int
}

// Map finds sections of a snapshot by their keys.
type Map struct {
	places map[string]found
}

type found struct {
	class  class
	size   int64
	places []Place // in the order of the section's bytes
}

// NewMap returns where in a plan the sections of its layout lie. step is the snapshot's.
func NewMap(l *Layout, plan []Block, step int64) *Map {
	m := &Map{places: map[string]found{}}
	keys := keysOf(l, step)
	for i, b := range plan {
		at := 0
		for _, p := range b.Pieces {
			k := keys[p.Entry][p.Section]
			f := m.places[k]
			s := l.Entries[p.Entry].Sections[p.Section]
			f.class, f.size = classOf(s), s.Len
			f.places = append(f.places, Place{Block: i, Off: at, Len: p.Len})
			m.places[k] = f
			at += p.Len
		}
	}
	return m
}

// Match returns, for each block of a plan, where in m's snapshot the same bytes lay; nil for a block of which a part has no
// earlier self of the same class and size.
func (m *Map) Match(l *Layout, plan []Block, step int64) [][]Place {
	out := make([][]Place, len(plan))
	keys := keysOf(l, step)
	for i, b := range plan {
		out[i] = m.match(l, b, keys)
	}
	return out
}

func (m *Map) match(l *Layout, b Block, keys [][]string) []Place {
	var out []Place
	for _, p := range b.Pieces {
		s := l.Entries[p.Entry].Sections[p.Section]
		f, ok := m.places[keys[p.Entry][p.Section]]
		if !ok || f.class != classOf(s) || f.size != s.Len {
			return nil
		}
		at, skip, want := 0, p.At, p.Len
		for at < len(f.places) && skip >= int64(f.places[at].Len) {
			skip -= int64(f.places[at].Len)
			at++
		}
		for want > 0 {
			if at == len(f.places) {
				return nil
			}
			pl := f.places[at]
			n := min(want, pl.Len-int(skip))
			out = appendPlace(out, Place{Block: pl.Block, Off: pl.Off + int(skip), Len: n})
			want -= n
			skip = 0
			at++
		}
	}
	return out
}

// appendPlace joins a place to the one before where it goes on.
func appendPlace(out []Place, p Place) []Place {
	if n := len(out); n > 0 && out[n-1].Block == p.Block && out[n-1].Off+out[n-1].Len == p.Off {
		out[n-1].Len += p.Len
		return out
	}
	return append(out, p)
}

// keysOf returns the key of every section: the file's path without the step, and the tensor's name or, for what lies between
// tensors, how many such runs came before it in the file.
func keysOf(l *Layout, step int64) [][]string {
	out := make([][]string, len(l.Entries))
	paths := map[string]int{}
	for i, e := range l.Entries {
		if e.Dir {
			continue
		}
		base := stable(e.Path, step) + "\x00"
		n := paths[base]
		paths[base]++
		if n > 0 { // two paths that differ only in this
			base = fmt.Sprintf("%s%d\x00", base, n)
		}
		out[i] = make([]string, len(e.Sections))
		names := map[string]int{}
		nameless := 0
		for j, s := range e.Sections {
			if s.Name == "" {
				out[i][j] = fmt.Sprintf("%s\x00%d", base, nameless)
				nameless++
				continue
			}
			out[i][j] = base + s.Name
			if n := names[s.Name]; n > 0 {
				out[i][j] = fmt.Sprintf("%s%s\x00%d", base, s.Name, n)
			}
			names[s.Name]++
		}
	}
	return out
}
