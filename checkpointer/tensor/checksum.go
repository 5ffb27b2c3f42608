package tensor

import (
	"bytes"
	"encoding/binary"
	"io"
)

// Checksum is the CRC-32 (IEEE 802.3) that a zip file keeps of one entry's data.
type Checksum struct {
	Off, Len int64   // of the data in the file, in bytes
	Fields   []int64 // offsets of the four bytes, little-endian, that hold it
}

// Checksums returns the checksums of the entries of a zip file that torch.save has written, in the order of the zip's
// directory. There are none for any other file, and for an entry that is compressed, encrypted, or not where the directory
// says. An error means that r could not be read.
func Checksums(r io.ReaderAt, size int64) ([]Checksum, error) {
	d, ok, err := findDirectory(r, size)
	if err != nil || !ok || d.base != 0 {
		return nil, err
	}
	list, ok, err := d.entries(r, size)
	if err != nil || !ok {
		return nil, err
	}
	if _, ok := archive(list); !ok {
		return nil, nil
	}
	var out []Checksum
	for _, e := range list {
		if !e.plain {
			continue
		}
		off, ok, err := e.dataOffset(r, size, d.off)
		if err != nil {
			return nil, err
		}
		if !ok {
			continue
		}
		c := Checksum{Off: off, Len: e.len, Fields: []int64{e.record + 16}} // 4.3.12
		crc, err := readAt(r, size, e.record+16, 4)
		if err != nil {
			return nil, err
		}
		// The local header has it too (4.3.7), or a descriptor after the data (4.3.9).
		head, err := readAt(r, size, e.header, localSize)
		if err != nil {
			return nil, err
		}
		if bytes.Equal(head[14:18], crc) {
			c.Fields = append(c.Fields, e.header+14)
		}
		if end := off + e.len; binary.LittleEndian.Uint16(head[6:])&(1<<3) != 0 && end+8 <= d.off {
			after, err := readAt(r, size, end, 8)
			if err != nil {
				return nil, err
			}
			if bytes.HasPrefix(after, descriptorMagic) && bytes.Equal(after[4:], crc) {
				c.Fields = append(c.Fields, end+4)
			}
		}
		out = append(out, c)
	}
	return out, nil
}
