package tensor

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// span is a tensor's place in a file.
type span struct {
	off, len int64 // bytes
	name     string
	kind     Kind
	dtype    DType
}

// assemble makes a layout of the spans of a file of size bytes and the gaps between them. It reports false if spans
// overlap, lie outside the file, or are too many.
func assemble(format string, size int64, spans []span) (Layout, bool) {
	spans = slices.DeleteFunc(spans, func(s span) bool { return s.len == 0 })
	slices.SortStableFunc(spans, func(a, b span) int { return cmp.Compare(a.off, b.off) })
	if len(spans) > maxSections {
		return Layout{}, false
	}
	l := Layout{Format: format, Sections: make([]Section, 0, 2*len(spans)+1)}
	at := int64(0)
	for _, s := range spans {
		if s.off < at || s.len < 0 || s.len > size-s.off {
			return Layout{}, false
		}
		if s.off > at {
			l.Sections = append(l.Sections, Section{Len: s.off - at})
		}
		if s.len%int64(s.dtype.Width()) != 0 {
			s.dtype = Bytes
		}
		l.Sections = append(l.Sections, Section{Name: s.name, Kind: s.kind, DType: s.dtype, Len: s.len})
		at = s.off + s.len
	}
	if at < size {
		l.Sections = append(l.Sections, Section{Len: size - at})
	}
	return l, len(l.Sections) <= maxSections
}

// names gives out names that differ from each other.
type names map[string]int

// unique returns name, or name#1, name#2, … if it has been given out.
func (n names) unique(name string) string {
	name = strings.ToValidUTF8(name, "\uFFFD")
	count, taken := n[name]
	for taken {
		count++
		n[name] = count
		next := name + "#" + strconv.Itoa(count)
		if _, taken = n[next]; !taken {
			name = next
		}
	}
	n[name] = 0
	return name
}
