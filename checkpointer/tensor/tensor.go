package tensor

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
)

// Kind says what a tensor is for: the values of tensors of one kind behave alike from step to step.
type Kind uint8

// The kinds.
const (
	Other    Kind = iota // none of those below, or not known
	Weight               // parameters of a model, and running statistics beside them
	Momentum             // an optimizer's first moment: exp_avg, momentum_buffer
	Variance             // an optimizer's second moment: exp_avg_sq
)

var kindNames = [...]string{Other: "", Weight: "w", Momentum: "m", Variance: "v"}

// String returns the short name that stored metadata use.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// ParseKind is the inverse of Kind.String.
func ParseKind(s string) (Kind, bool) {
	for k, name := range kindNames {
		if s == name {
			return Kind(k), true
		}
	}
	return Other, false
}

// DType is the type of a tensor's elements. Complex numbers are two elements each, unsigned integers of more than eight
// bits have the type of the signed ones.
type DType uint8

// The types.
const (
	Bytes DType = iota // unknown, or no tensor
	F32
	F16
	BF16
	F64
	I64
	I32
	I16
	I8
	U8
	Bool
	F8 // any of the 8-bit floating-point formats
)

var dtypes = [...]struct {
	name  string
	width int
}{
	Bytes: {"", 1}, F32: {"f32", 4}, F16: {"f16", 2}, BF16: {"bf16", 2}, F64: {"f64", 8}, I64: {"i64", 8},
	I32: {"i32", 4}, I16: {"i16", 2}, I8: {"i8", 1}, U8: {"u8", 1}, Bool: {"bool", 1}, F8: {"f8", 1},
}

// Width returns the bytes of one element; 1 for Bytes.
func (d DType) Width() int {
	if int(d) < len(dtypes) {
		return dtypes[d].width
	}
	return 1
}

// String returns the name that stored metadata use; it is empty for Bytes.
func (d DType) String() string {
	if int(d) < len(dtypes) {
		return dtypes[d].name
	}
	return fmt.Sprintf("dtype(%d)", uint8(d))
}

// ParseDType is the inverse of DType.String.
func ParseDType(s string) (DType, bool) {
	for d := range dtypes {
		if s == dtypes[d].name {
			return DType(d), true
		}
	}
	return Bytes, false
}

// float tells whether elements are floating-point numbers.
func (d DType) float() bool {
	switch d {
	case F32, F16, BF16, F64, F8:
		return true
	default:
		return false
	}
}

// Section is one run of bytes of a file: a tensor's data, or what lies between tensors, which has no name and is of type
// Bytes. Sections follow each other, so that the lengths before one give its offset.
type Section struct {
	Name  string // valid UTF-8, unique in the file
	Kind  Kind
	DType DType
	Len   int64 // bytes, > 0; a multiple of DType.Width()
}

// Values of Layout.Format.
const (
	FormatSafetensors = "safetensors"
	FormatTorch       = "torch" // also *.distcp
	FormatRaw         = "raw"
)

// Layout is what a file consists of, from its first byte to its last.
type Layout struct {
	Format   string
	Sections []Section
}

// Bounds on what is looked at. A file beyond them is bytes.
const (
	maxHeader   = 256 << 20 // bytes of a safetensors header, a pickle, a zip directory
	maxSections = 4 << 20
)

// ErrIncomplete is what Complete returns, wrapped, for a file that was cut short.
var ErrIncomplete = errors.New("the file is incomplete")

var localMagic = []byte("PK\x03\x04")

// Parse finds the tensors of a file of size bytes; name is the file's base name. It does not fail because of what the
// file holds: where that makes no sense, the layout is one section of bytes. An error means that r could not be read as
// far as size. The lengths of the sections always add up to size.
func Parse(r io.ReaderAt, size int64, name string) (Layout, error) {
	head, err := readAt(r, size, 0, min(size, 9))
	if err != nil {
		return Layout{}, err
	}
	var l Layout
	var ok bool
	switch {
	case bytes.HasPrefix(head, localMagic) && path.Ext(name) != ".distcp":
		l, ok, err = parseTorch(r, size)
	case path.Ext(name) == ".distcp":
		l, ok, err = parseItems(r, size)
	case len(head) == 9 && head[8] == '{':
		l, ok, err = parseSafetensors(r, size)
	}
	if err != nil {
		return Layout{}, err
	}
	if !ok {
		return raw(size), nil
	}
	return l, nil
}

// raw is the layout of a file that is not understood.
func raw(size int64) Layout {
	l := Layout{Format: FormatRaw}
	if size > 0 {
		l.Sections = []Section{{Len: size}}
	}
	return l
}

// Complete reports, for formats that tell it cheaply, that a file of size bytes was cut short while it was written: a
// safetensors file that ends before its header says so, a zip file without a directory at its end. The error then wraps
// ErrIncomplete; any other means that r could not be read. It is nil for files of other formats. A *.distcp file cut
// exactly between two of its items counts as complete.
func Complete(r io.ReaderAt, size int64, name string) error {
	head, err := readAt(r, size, 0, min(size, 9))
	if err != nil {
		return err
	}
	ext := strings.ToLower(path.Ext(name))
	switch {
	case ext == ".safetensors" || len(head) == 9 && head[8] == '{':
		return safetensorsComplete(r, size, ext == ".safetensors")
	case bytes.HasPrefix(head, localMagic):
		_, ok, err := findDirectory(r, size)
		if err == nil && !ok {
			err = fmt.Errorf("%w: a zip of %d bytes has no directory at its end", ErrIncomplete, size)
		}
		return err
	case len(head) < len(localMagic) && bytes.HasPrefix(localMagic, head):
		switch ext {
		case ".pt", ".pth", ".ckpt", ".distcp":
			return fmt.Errorf("%w: it has %d bytes", ErrIncomplete, size)
		case ".bin":
			if size > 0 {
				return fmt.Errorf("%w: it has %d bytes", ErrIncomplete, size)
			}
		}
	}
	return nil
}

// readAt reads n bytes at off of a file of size bytes; the caller has bounded n.
func readAt(r io.ReaderAt, size, off, n int64) ([]byte, error) {
	if off < 0 || n < 0 || n > size-off {
		return nil, fmt.Errorf("read %d bytes at %d of %d: outside the file", n, off, size)
	}
	b := make([]byte, n)
	got, err := r.ReadAt(b, off)
	if int64(got) == n {
		return b, nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return nil, fmt.Errorf("read %d bytes at %d of %d: %w", n, off, size, err)
}
