package tensor

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"strings"
)

// Sizes of the fixed parts of a zip's records, in bytes (APPNOTE.TXT 4.3).
const (
	localSize     = 30
	centralSize   = 46
	endSize       = 22
	end64Size     = 56
	locator64Size = 20
)

var (
	centralMagic    = []byte("PK\x01\x02")
	endMagic        = []byte("PK\x05\x06")
	end64Magic      = []byte("PK\x06\x06")
	locator64Magic  = []byte("PK\x06\x07")
	descriptorMagic = []byte("PK\x07\x08")
)

// directory is where a zip's list of entries lies.
type directory struct {
	off, len int64 // bytes, from the file's start
	base     int64 // where the zip begins: its own offsets count from there
}

// entry is one entry of a zip.
type entry struct {
	name   string
	plain  bool  // stored as it is: neither compressed nor encrypted
	len    int64 // bytes of its data in the file
	header int64 // where its local header is, from the zip's start
	record int64 // where its record in the directory is, from the file's start
}

// findDirectory finds the directory of the zip that ends where the file ends. It reports false if there is none.
func findDirectory(r io.ReaderAt, size int64) (directory, bool, error) {
	n := min(size, endSize+1<<16-1+locator64Size+end64Size)
	tail, err := readAt(r, size, size-n, n)
	if err != nil {
		return directory{}, false, err
	}
	le := binary.LittleEndian
	for at := bytes.LastIndex(tail, endMagic); at >= 0; at = bytes.LastIndex(tail[:at], endMagic) {
		rec := tail[at:]
		if len(rec) < endSize || len(rec) != endSize+int(le.Uint16(rec[20:])) {
			continue
		}
		d := directory{len: int64(le.Uint32(rec[12:])), off: int64(le.Uint32(rec[16:]))}
		end := size - int64(len(rec)) // of the directory
		if before := at - locator64Size - end64Size; before >= 0 && bytes.HasPrefix(tail[before:], end64Magic) &&
			bytes.HasPrefix(tail[at-locator64Size:], locator64Magic) {
			rec = tail[before:]
			length, off := le.Uint64(rec[40:]), le.Uint64(rec[48:])
			if length > uint64(size) || off > uint64(size) {
				continue
			}
			d.len, d.off = int64(length), int64(off)
			end -= locator64Size + end64Size
		}
		d.base = end - d.len - d.off
		if d.base < 0 {
			continue
		}
		d.off += d.base
		ok, err := begins(r, size, d.off, centralMagic)
		if err != nil {
			return directory{}, false, err
		}
		if ok || d.len == 0 {
			return d, true, nil
		}
	}
	return directory{}, false, nil
}

// begins tells whether magic lies at off.
func begins(r io.ReaderAt, size, off int64, magic []byte) (bool, error) {
	if off < 0 || size-off < int64(len(magic)) {
		return false, nil
	}
	b, err := readAt(r, size, off, int64(len(magic)))
	return bytes.Equal(b, magic), err
}

// entries reads a zip's directory. It reports false if that is too large or damaged.
func (d directory) entries(r io.ReaderAt, size int64) ([]entry, bool, error) {
	if d.len > maxHeader {
		return nil, false, nil
	}
	b, err := readAt(r, size, d.off, d.len)
	if err != nil {
		return nil, false, err
	}
	le := binary.LittleEndian
	var list []entry
	for whole := int64(len(b)); len(b) > 0; {
		if len(b) < centralSize || !bytes.HasPrefix(b, centralMagic) || len(list) == maxSections {
			return nil, false, nil
		}
		name, extra := int(le.Uint16(b[28:])), int(le.Uint16(b[30:]))
		total := centralSize + name + extra + int(le.Uint16(b[32:]))
		if total > len(b) {
			return nil, false, nil
		}
		sizes := [3]uint64{uint64(le.Uint32(b[24:])), uint64(le.Uint32(b[20:])), uint64(le.Uint32(b[42:]))}
		if !widen(b[centralSize+name:centralSize+name+extra], sizes[:]) {
			return nil, false, nil
		}
		if sizes[1] > uint64(size) || sizes[2] > uint64(size) {
			return nil, false, nil
		}
		list = append(list, entry{
			name:   string(b[centralSize : centralSize+name]),
			plain:  le.Uint16(b[10:]) == 0 && le.Uint16(b[8:])&1 == 0 && sizes[0] == sizes[1],
			len:    int64(sizes[1]),
			header: int64(sizes[2]),
			record: d.off + whole - int64(len(b)),
		})
		b = b[total:]
	}
	return list, true, nil
}

// widen replaces those fields that are 2³²-1 by the values in the zip64 extra field, which holds only them, in this
// order (4.5.3). It reports false if the extra field lacks one.
func widen(extra []byte, fields []uint64) bool {
	const full = 1<<32 - 1
	var wide []byte
	for len(extra) >= 4 {
		id, n := binary.LittleEndian.Uint16(extra), int(binary.LittleEndian.Uint16(extra[2:]))
		if n > len(extra)-4 {
			break
		}
		if id == 1 {
			wide = extra[4 : 4+n]
			break
		}
		extra = extra[4+n:]
	}
	for i, f := range fields {
		if f != full {
			continue
		}
		if len(wide) < 8 {
			return false
		}
		fields[i] = binary.LittleEndian.Uint64(wide)
		wide = wide[8:]
	}
	return true
}

// dataOffset reads the local header of an entry of a zip that begins where the file begins, and returns where the
// entry's data begin. It reports false if the header is not there or the data do not end before limit.
func (e entry) dataOffset(r io.ReaderAt, size, limit int64) (int64, bool, error) {
	if limit > size || e.header > limit-localSize {
		return 0, false, nil
	}
	b, err := readAt(r, size, e.header, localSize)
	if err != nil {
		return 0, false, fmt.Errorf("read the header of entry %q: %w", e.name, err)
	}
	off := e.header + localSize + int64(binary.LittleEndian.Uint16(b[26:])) + int64(binary.LittleEndian.Uint16(b[28:]))
	return off, bytes.HasPrefix(b, localMagic) && off <= limit && e.len <= limit-off, nil
}

// archive is the folder under which torch.save has put everything, with the slash. It reports false if the entries are
// not those of such a file.
func archive(list []entry) (string, bool) {
	for _, e := range list {
		if folder, ok := strings.CutSuffix(e.name, "data.pkl"); ok && strings.Count(folder, "/") == 1 &&
			strings.HasSuffix(folder, "/") {
			return folder, true
		}
	}
	return "", false
}
