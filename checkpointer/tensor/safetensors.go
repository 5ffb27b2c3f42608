package tensor

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/bits"
)

// safeType is what a type name of safetensors means. A type that is not listed (those of less than a byte) is Bytes, and
// its size is not checked.
type safeType struct {
	dtype DType
	bytes uint64 // per element of the shape
}

var safeTypes = map[string]safeType{
	"F64": {F64, 8}, "F32": {F32, 4}, "F16": {F16, 2}, "BF16": {BF16, 2}, "C64": {F32, 8},
	"F8_E5M2": {F8, 1}, "F8_E4M3": {F8, 1}, "F8_E8M0": {F8, 1},
	"F8_E5M2FNUZ": {F8, 1}, "F8_E4M3FNUZ": {F8, 1},
	"I64": {I64, 8}, "I32": {I32, 4}, "I16": {I16, 2}, "I8": {I8, 1},
	"U64": {I64, 8}, "U32": {I32, 4}, "U16": {I16, 2}, "U8": {U8, 1}, "BOOL": {Bool, 1},
}

// safeTensor is the header's entry of one tensor.
type safeTensor struct {
	DType   string   `json:"dtype"`
	Shape   []uint64 `json:"shape"`
	Offsets []uint64 `json:"data_offsets"` // begin and end, bytes after the header
}

// parseSafetensors finds the tensors of a safetensors file; it reports false for any other.
func parseSafetensors(r io.ReaderAt, size int64) (Layout, bool, error) {
	start, ok, err := safetensorsStart(r, size)
	if err != nil || !ok || start > size {
		return Layout{}, false, err
	}
	spans, _, ok, err := safetensorsSpans(r, size, start)
	if err != nil || !ok {
		return Layout{}, false, err
	}
	l, ok := assemble(FormatSafetensors, size, spans)
	return l, ok, nil
}

// safetensorsStart returns where the data begin. It reports false if the first eight bytes give no sensible length.
func safetensorsStart(r io.ReaderAt, size int64) (int64, bool, error) {
	b, err := readAt(r, size, 0, 8)
	if err != nil {
		return 0, false, err
	}
	n := binary.LittleEndian.Uint64(b)
	if n < 2 || n > maxHeader {
		return 0, false, nil
	}
	return 8 + int64(n), true, nil
}

// safetensorsSpans reads the header that ends at start, and returns the tensors and where the last of them ends. It
// reports false if that is no header.
func safetensorsSpans(r io.ReaderAt, size, start int64) (spans []span, end int64, ok bool, err error) {
	header, err := readAt(r, size, 8, start-8)
	if err != nil {
		return nil, 0, false, err
	}
	d := json.NewDecoder(bytes.NewReader(header))
	if token(d) != json.Delim('{') {
		return nil, 0, false, nil
	}
	seen := names{}
	end = start
	for d.More() {
		name, isText := token(d).(string)
		if !isText || len(spans) >= maxSections {
			return nil, 0, false, nil
		}
		if name == "__metadata__" {
			var ignored json.RawMessage
			if !decode(d, &ignored) {
				return nil, 0, false, nil
			}
			continue
		}
		var t safeTensor
		if !decode(d, &t) || name == "" || seen.unique(name) != name {
			return nil, 0, false, nil
		}
		s, ok := t.span(name, start)
		if !ok {
			return nil, 0, false, nil
		}
		spans = append(spans, s)
		end = max(end, s.off+s.len)
	}
	closed := token(d) == json.Delim('}')
	_, err = d.Token()
	return spans, end, closed && errors.Is(err, io.EOF), nil
}

// token returns the next token, nil where there is none.
func token(d *json.Decoder) json.Token {
	t, err := d.Token()
	if err != nil {
		return nil
	}
	return t
}

// decode sets v to the next value, and reports whether that worked.
func decode(d *json.Decoder, v any) bool { return d.Decode(v) == nil }

// span returns the tensor's place in a file whose data begin at start. It reports false if the entry contradicts itself.
func (t safeTensor) span(name string, start int64) (span, bool) {
	if len(t.Offsets) != 2 || t.Offsets[0] > t.Offsets[1] || t.Offsets[1] > 1<<62 {
		return span{}, false
	}
	off, n := t.Offsets[0], t.Offsets[1]-t.Offsets[0]
	known := safeTypes[t.DType]
	if known.bytes > 0 {
		want := known.bytes
		for _, d := range t.Shape {
			hi, lo := bits.Mul64(want, d)
			if hi != 0 {
				return span{}, false
			}
			want = lo
		}
		if want != n {
			return span{}, false
		}
	}
	kind := kindOf(name, known.dtype, int64(n)/int64(known.dtype.Width()))
	return span{off: start + int64(off), len: int64(n), name: name, kind: kind, dtype: known.dtype}, true
}

// safetensorsComplete is Complete for what may be a safetensors file; named says that its name claims so.
func safetensorsComplete(r io.ReaderAt, size int64, named bool) error {
	short := func(end int64) error {
		return fmt.Errorf("%w: it has %d of %d bytes", ErrIncomplete, size, end)
	}
	if size < 8 {
		return short(8)
	}
	start, ok, err := safetensorsStart(r, size)
	switch {
	case err != nil:
		return err
	case !ok:
		return nil
	case start > size && named:
		return short(start)
	case start > size:
		return nil
	}
	_, end, ok, err := safetensorsSpans(r, size, start)
	if err != nil || !ok || end <= size {
		return err
	}
	return short(end)
}
