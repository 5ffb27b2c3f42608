// Package layout says which bytes of which files a snapshot consists of, and cuts them into blocks. It is pure.
//
// A checkpoint's files are runs of bytes, sections: a tensor, or what lies between tensors. Sections are laid into blocks
// by class, that is by kind and type of element, so that bytes that behave alike are coded together; a section of the next
// checkpoint finds its earlier self by its key, wherever in whatever file it lies then.
package layout

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path"
	"strconv"
	"strings"
	"unicode/utf8"

	"nomad-spotter/checkpointer/tensor"
)

// Limits on what a layout may claim, so that a damaged or hostile one cannot exhaust memory.
const (
	MaxBytes    = 1 << 30 // of its encoding
	MaxEntries  = 1 << 20 // files and directories of one checkpoint
	MaxSections = 1 << 22 // in all files
)

// Entry is one file or directory of a checkpoint.
type Entry struct {
	Path     string           // slash-separated, relative to the checkpoint; "" is the checkpoint itself
	Dir      bool             //
	Mode     fs.FileMode      // permission bits
	Format   string           // what the file was understood as, such as "torch"; "" for a directory
	Sections []tensor.Section // they follow each other from the file's start to its end
}

// Size is the length of a file in bytes.
func (e Entry) Size() int64 {
	var n int64
	for _, s := range e.Sections {
		n += s.Len
	}
	return n
}

// Layout is what a snapshot consists of: the checkpoint itself first, a directory before what is in it.
type Layout struct {
	Entries []Entry
}

// RawBytes is the size of all files.
func (l *Layout) RawBytes() int64 {
	var n int64
	for _, e := range l.Entries {
		n += e.Size()
	}
	return n
}

// Files counts the files.
func (l *Layout) Files() int {
	n := 0
	for _, e := range l.Entries {
		if !e.Dir {
			n++
		}
	}
	return n
}

// The encoding: one JSON object. Sections are runs of four values.
type wireEntry struct {
	Path     string        `json:"path"`
	Dir      bool          `json:"dir,omitempty"`
	Mode     fs.FileMode   `json:"mode"`
	Format   string        `json:"format,omitempty"`
	Sections []wireSection `json:"sections,omitempty"`
}

type wireSection struct{ tensor.Section }

// MarshalJSON implements json.Marshaler: [name, kind, type, bytes], and [bytes] for what is no tensor.
func (s wireSection) MarshalJSON() ([]byte, error) {
	if s.Section == (tensor.Section{Len: s.Len}) {
		return json.Marshal([]int64{s.Len})
	}
	return json.Marshal([]any{s.Name, s.Kind.String(), s.DType.String(), s.Len})
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *wireSection) UnmarshalJSON(b []byte) error {
	var parts []json.RawMessage
	if err := json.Unmarshal(b, &parts); err != nil {
		return err
	}
	s.Section = tensor.Section{}
	switch len(parts) {
	case 1:
		return json.Unmarshal(parts[0], &s.Len)
	case 4:
	default:
		return fmt.Errorf("section has %d values", len(parts))
	}
	var kind, dtype string
	if err := errors.Join(json.Unmarshal(parts[0], &s.Name), json.Unmarshal(parts[1], &kind), json.Unmarshal(parts[2], &dtype), json.Unmarshal(parts[3], &s.Len)); err != nil {
		return err
	}
	var ok bool
	if s.Kind, ok = tensor.ParseKind(kind); !ok {
		return fmt.Errorf("kind of tensor %q is not known", kind)
	}
	if s.DType, ok = tensor.ParseDType(dtype); !ok {
		return fmt.Errorf("type of element %q is not known", dtype)
	}
	return nil
}

// Encode returns the layout's bytes.
func (l *Layout) Encode() ([]byte, error) {
	if err := l.check(); err != nil {
		return nil, fmt.Errorf("layout: %w", err)
	}
	out := make([]wireEntry, len(l.Entries))
	for i, e := range l.Entries {
		out[i] = wireEntry{Path: e.Path, Dir: e.Dir, Mode: e.Mode, Format: e.Format, Sections: make([]wireSection, len(e.Sections))}
		for j, s := range e.Sections {
			out[i].Sections[j] = wireSection{s}
		}
	}
	b, err := json.Marshal(out)
	if err != nil {
		return nil, fmt.Errorf("encode layout: %w", err)
	}
	if len(b) > MaxBytes {
		return nil, fmt.Errorf("layout of %d entries has %d bytes, more than %d: put fewer files into one checkpoint", len(l.Entries), len(b), MaxBytes)
	}
	return b, nil
}

// Parse reads what Encode wrote and refuses what it would not have written: a path outside the checkpoint, a size below zero.
func Parse(b []byte) (*Layout, error) {
	if err := checkSize(b); err != nil {
		return nil, fmt.Errorf("layout: %w", err)
	}
	var in []wireEntry
	if err := json.Unmarshal(b, &in); err != nil {
		return nil, fmt.Errorf("decode layout: %w", err)
	}
	l := &Layout{Entries: make([]Entry, len(in))}
	for i, e := range in {
		l.Entries[i] = Entry{Path: e.Path, Dir: e.Dir, Mode: e.Mode, Format: e.Format}
		for _, s := range e.Sections {
			l.Entries[i].Sections = append(l.Entries[i].Sections, s.Section)
		}
	}
	if err := l.check(); err != nil {
		return nil, fmt.Errorf("layout: %w", err)
	}
	return l, nil
}

// checkSize counts what would take memory, before any is taken: an entry or a section takes many times the bytes that it
// has at least in JSON.
func checkSize(b []byte) error {
	if len(b) > MaxBytes {
		return fmt.Errorf("%d bytes exceed %d", len(b), MaxBytes)
	}
	entries, lists, values := 0, 0, 0
	text := false
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case text && c == '\\':
			i++
		case c == '"':
			text = !text
		case text:
		case c == '{':
			entries++
		case c == '[':
			lists++
		case c == ',':
			values++
		}
	}
	if entries > MaxEntries || lists > 1+MaxEntries+MaxSections || values > 5*MaxEntries+4*MaxSections {
		return fmt.Errorf("more than %d entries or %d sections", MaxEntries, MaxSections)
	}
	return nil
}

func (l *Layout) check() error {
	if len(l.Entries) == 0 || l.Entries[0].Path != "" {
		return errors.New("the first entry is not the checkpoint itself")
	}
	if len(l.Entries) > MaxEntries {
		return fmt.Errorf("%d entries exceed %d", len(l.Entries), MaxEntries)
	}
	var total int64
	sections := 0
	dirs, seen := map[string]bool{}, make(map[string]bool, len(l.Entries))
	for i, e := range l.Entries {
		if i > 0 && (!fs.ValidPath(e.Path) || e.Path == "." || strings.ContainsRune(e.Path, 0) || !utf8.ValidString(e.Path)) {
			return fmt.Errorf("path %q is not a path in UTF-8 within the checkpoint", e.Path)
		}
		if seen[e.Path] {
			return fmt.Errorf("path %q occurs twice", e.Path)
		}
		seen[e.Path] = true
		if i > 0 && !dirs[parent(e.Path)] {
			return fmt.Errorf("path %q comes before its directory", e.Path)
		}
		if e.Mode != e.Mode.Perm() {
			return fmt.Errorf("path %q has mode %v: only permission bits are kept", e.Path, e.Mode)
		}
		if e.Dir {
			dirs[e.Path] = true
			if len(e.Sections) > 0 {
				return fmt.Errorf("directory %q has content", e.Path)
			}
			continue
		}
		if sections += len(e.Sections); sections > MaxSections {
			return fmt.Errorf("more than %d sections", MaxSections)
		}
		for _, s := range e.Sections {
			if s.Len <= 0 {
				return fmt.Errorf("file %q has a section %q of %d bytes", e.Path, s.Name, s.Len)
			}
			if total > math.MaxInt64-s.Len {
				return fmt.Errorf("file %q makes the checkpoint larger than %d bytes", e.Path, int64(math.MaxInt64))
			}
			total += s.Len
		}
	}
	return nil
}

// parent is the directory of an entry's path; that of a top-level entry is the checkpoint itself, "".
func parent(p string) string {
	if d := path.Dir(p); d != "." {
		return d
	}
	return ""
}

// stable is a file's path with every number that is the step replaced, so that successive checkpoints have the same.
func stable(p string, step int64) string {
	if p == "" {
		return ""
	}
	var b strings.Builder
	for i := 0; i < len(p); {
		j := i
		for j < len(p) && p[j] >= '0' && p[j] <= '9' {
			j++
		}
		if j == i {
			b.WriteByte(p[i])
			i++
			continue
		}
		if n, err := strconv.ParseInt(p[i:j], 10, 64); err == nil && n == step {
			b.WriteByte('#')
		} else {
			b.WriteString(p[i:j])
		}
		i = j
	}
	return b.String()
}
