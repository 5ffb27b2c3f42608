package tensor

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

// image is a file of which only the pieces are kept that are not zero.
type image struct {
	size   int64
	pieces []piece // sorted by offset
}

type piece struct {
	off  int64
	data []byte
}

func (m *image) write(b []byte) {
	m.pieces = append(m.pieces, piece{m.size, bytes.Clone(b)})
	m.size += int64(len(b))
}

func (m *image) zeros(n int64) { m.size += n }

// ReadAt implements io.ReaderAt.
func (m *image) ReadAt(b []byte, off int64) (int, error) {
	n := int64(len(b))
	var err error
	if off+n > m.size {
		n, err = max(m.size-off, 0), io.EOF
	}
	clear(b[:n])
	first, _ := slices.BinarySearchFunc(m.pieces, off, func(p piece, off int64) int {
		if p.off+int64(len(p.data)) <= off {
			return -1
		}
		return 1
	})
	for _, p := range m.pieces[first:] {
		if p.off >= off+n {
			break
		}
		if p.off >= off {
			copy(b[p.off-off:n], p.data)
		} else {
			copy(b[:n], p.data[off-p.off:])
		}
	}
	return int(n), err
}

// bytes returns a small image as a whole.
func (m *image) bytes() []byte {
	b := make([]byte, m.size)
	_, _ = m.ReadAt(b, 0)
	return b
}

// record is one entry of a zip to build. zeros stands for so many zero bytes instead of data.
type record struct {
	name   string
	data   []byte
	zeros  int64
	method uint16
	known  bool // the length stands before the data, not behind
	wide   bool // the length behind the data has eight bytes
}

func (r record) len() int64 { return int64(len(r.data)) + r.zeros }

// zip writes a zip as PyTorch's writer does: lengths behind the data, data aligned to 64 bytes from the zip's start, an
// end in the zip64 form.
func (m *image) zip(records ...record) {
	le := binary.LittleEndian
	base := m.size
	var central []byte
	for _, r := range records {
		at := m.size - base
		flags, size := uint16(0x0808), uint32(0)
		if r.known {
			flags, size = 0x0800, uint32(r.len())
		}
		pad := (64 - (at+localSize+int64(len(r.name))+4)%64) % 64
		b := []byte("PK\x03\x04\x00\x00")
		b = le.AppendUint16(b, flags)
		b = le.AppendUint16(b, r.method)
		b = append(b, make([]byte, 8)...)
		b = le.AppendUint32(b, size)
		b = le.AppendUint32(b, size)
		b = le.AppendUint16(b, uint16(len(r.name)))
		b = le.AppendUint16(b, uint16(pad)+4)
		b = append(b, r.name...)
		b = append(b, 'F', 'B')
		b = le.AppendUint16(b, uint16(pad))
		b = append(b, bytes.Repeat([]byte("Z"), int(pad))...)
		m.write(b)
		if r.data != nil {
			m.write(r.data)
		}
		m.zeros(r.zeros)
		sum := crc32.ChecksumIEEE(r.data)
		if !r.known {
			b = le.AppendUint32([]byte("PK\x07\x08"), sum)
			if r.wide || r.len() > math.MaxUint32 {
				b = le.AppendUint64(le.AppendUint64(b, uint64(r.len())), uint64(r.len()))
			} else {
				b = le.AppendUint32(le.AppendUint32(b, uint32(r.len())), uint32(r.len()))
			}
			m.write(b)
		}
		b = []byte("PK\x01\x02\x00\x00\x00\x00")
		b = le.AppendUint16(b, flags)
		b = le.AppendUint16(b, r.method)
		b = append(b, make([]byte, 4)...)
		b = le.AppendUint32(b, sum)
		var extra []byte
		for _, v := range []int64{r.len(), r.len()} {
			b = le.AppendUint32(b, uint32(min(v, math.MaxUint32)))
			if v >= math.MaxUint32 {
				extra = le.AppendUint64(extra, uint64(v))
			}
		}
		if at >= math.MaxUint32 {
			extra = le.AppendUint64(extra, uint64(at))
		}
		if extra != nil {
			extra = append(le.AppendUint16([]byte{1, 0}, uint16(len(extra))), extra...)
		}
		b = le.AppendUint16(b, uint16(len(r.name)))
		b = le.AppendUint16(b, uint16(len(extra)))
		b = append(b, make([]byte, 10)...)
		b = le.AppendUint32(b, uint32(min(at, math.MaxUint32)))
		central = append(append(append(central, b...), r.name...), extra...)
	}
	at := m.size - base
	m.write(central)
	end := m.size - base
	b := append([]byte("PK\x06\x06"), 44, 0, 0, 0, 0, 0, 0, 0)
	b = append(b, make([]byte, 12)...)
	for _, v := range []int64{int64(len(records)), int64(len(records)), int64(len(central)), at} {
		b = le.AppendUint64(b, uint64(v))
	}
	b = append(b, "PK\x06\x07\x00\x00\x00\x00"...)
	b = le.AppendUint64(b, uint64(end))
	b = append(b, 1, 0, 0, 0)
	b = append(b, "PK\x05\x06\x00\x00\x00\x00"...)
	b = le.AppendUint16(b, uint16(len(records)))
	b = le.AppendUint16(b, uint16(len(records)))
	b = le.AppendUint32(b, uint32(min(len(central), math.MaxUint32)))
	b = le.AppendUint32(b, uint32(min(at, math.MaxUint32)))
	m.write(append(b, 0, 0))
}

// stored is a storage to pickle.
type stored struct {
	key      string
	class    string // FloatStorage, …
	elements int64
}

// pair is an item of a dictionary to pickle; a slice of them keeps the order.
type pair struct {
	key   any
	value any
}

// pickled writes a value as a pickle of protocol 2: string, int, nil, stored, []pair, []any, or raw opcodes.
func pickled(v any) []byte {
	return append(appendValue([]byte{0x80, 2}, v), '.')
}

func appendValue(b []byte, v any) []byte {
	le := binary.LittleEndian
	switch v := v.(type) {
	case nil:
		return append(b, 'N')
	case string:
		return append(le.AppendUint32(append(b, 'X'), uint32(len(v))), v...)
	case int:
		return le.AppendUint32(append(b, 'J'), uint32(v))
	case []byte:
		return append(b, v...)
	case stored:
		b = append(b, "ctorch._utils\n_rebuild_tensor_v2\n(("...)
		b = appendValue(b, "storage")
		b = append(b, "ctorch\n"+v.class+"\n"...)
		b = appendValue(appendValue(b, v.key), "cpu")
		b = le.AppendUint64(append(b, 0x8a, 8), uint64(v.elements))
		return append(b, "tQK\x00K\x01\x85K\x01\x85\x89ccollections\nOrderedDict\n)RtR"...)
	case []pair:
		b = append(b, '}', '(')
		for _, p := range v {
			b = appendValue(appendValue(b, p.key), p.value)
		}
		return append(b, 'u')
	case []any:
		b = append(b, ']', '(')
		for _, item := range v {
			b = appendValue(b, item)
		}
		return append(b, 'e')
	}
	panic("no such value in a pickle")
}

// floats is a storage of float32 under a key.
func floats(key string, elements int64) stored { return stored{key, "FloatStorage", elements} }

// torchFile is a file as torch.save writes it: the folder is the file's base name, storages are sorted by key as text.
func torchFile(folder string, object any, data map[string]int64) *image {
	m := &image{}
	records := []record{{name: folder + "/data.pkl", data: pickled(object)}}
	keys := make([]string, 0, len(data))
	for k := range data {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for i, k := range keys {
		r := record{name: folder + "/data/" + k, zeros: data[k]}
		if data[k] < 1<<20 {
			r.data, r.zeros = bytes.Repeat([]byte{byte(i + 1)}, int(data[k])), 0
		}
		records = append(records, r)
	}
	m.zip(append(records, record{name: folder + "/version", data: []byte("3\n")})...)
	return m
}

// safetensorsFile is a safetensors file with this header and n bytes of data.
func safetensorsFile(header string, n int) []byte {
	for len(header)%8 != 0 {
		header += " "
	}
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(b, header...), make([]byte, n)...)
}

// describe writes a layout as text: the format, then of each tensor name, kind, type and length.
func describe(l Layout) string {
	parts := []string{l.Format}
	for _, s := range l.Sections {
		if s.Name != "" {
			parts = append(parts, s.Name+":"+s.Kind.String()+":"+s.DType.String()+":"+strconv.FormatInt(s.Len, 10))
		}
	}
	return strings.Join(parts, " ")
}
