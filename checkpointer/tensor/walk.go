package tensor

import (
	"bytes"
	"encoding/binary"
	"io"
	"strings"
)

// maxGap bounds the bytes between two items of a file that are searched for the beginning of the second.
const maxGap = 256 << 20

// walker goes through the zips of torch.save that follow each other in a file.
type walker struct {
	r      io.ReaderAt
	size   int64
	budget int64 // bytes that may still be read: a file that holds what it should needs far less
}

// local is an entry's local header.
type local struct {
	name string
	data int64 // where its data begin
	len  int64 // bytes of data; -1 if the length follows the data
}

// read reads at most n bytes at off, fewer where the file ends or nothing may be read any more.
func (w *walker) read(off, n int64) ([]byte, error) {
	n = max(min(n, w.size-off, w.budget), 0)
	w.budget -= n
	return readAt(w.r, w.size, off, n)
}

// search finds the first magic that begins at or after at and before limit. It reports false if there is none, or the
// budget is used up.
func (w *walker) search(at, limit int64, magic []byte) (int64, bool, error) {
	overlap := int64(len(magic) - 1)
	for chunk := int64(4 << 10); at < limit; chunk = min(2*chunk, 1<<20) {
		b, err := w.read(at, min(chunk, limit-at)+overlap)
		if err != nil {
			return 0, false, err
		}
		if i := bytes.Index(b, magic); i >= 0 {
			return at + int64(i), true, nil
		}
		if int64(len(b)) <= overlap {
			break
		}
		at += int64(len(b)) - overlap
	}
	return 0, false, nil
}

// next finds where a zip of torch.save may begin, at or after at: a local header of an entry ARCHIVE/data.pkl, which
// torch.save writes first. It reports false if there is none.
func (w *walker) next(at int64) (int64, bool, error) {
	for limit := min(at+maxGap, w.size); ; {
		found, ok, err := w.search(at, limit, localMagic)
		if err != nil || !ok {
			return 0, false, err
		}
		h, ok, err := w.local(found)
		if err != nil || ok && strings.HasSuffix(h.name, "/data.pkl") {
			return found, ok, err
		}
		at = found + int64(len(localMagic))
	}
}

// local reads the local header at off. It reports false if it is damaged or of an entry that is not plain.
func (w *walker) local(off int64) (local, bool, error) {
	b, err := w.read(off, localSize)
	if err != nil || len(b) < localSize {
		return local{}, false, err
	}
	le := binary.LittleEndian
	flags := le.Uint16(b[6:])
	if flags&1 != 0 || le.Uint16(b[8:]) != 0 {
		return local{}, false, nil
	}
	n := int64(le.Uint16(b[26:]))
	rest, err := w.read(off+localSize, n+int64(le.Uint16(b[28:])))
	if err != nil || int64(len(rest)) < n+int64(le.Uint16(b[28:])) {
		return local{}, false, err
	}
	h := local{name: string(rest[:n]), data: off + localSize + int64(len(rest)), len: -1}
	if flags&8 == 0 {
		sizes := []uint64{uint64(le.Uint32(b[22:])), uint64(le.Uint32(b[18:]))}
		if !widen(rest[n:], sizes) || sizes[1] > uint64(w.size) {
			return local{}, false, nil
		}
		h.len = int64(sizes[1])
	}
	return h, true, nil
}

// descriptor tells whether the length n of data stands right behind them, and how many bytes that record has.
func (w *walker) descriptor(data, n int64) (int64, bool, error) {
	if n < 0 || n > w.size-data {
		return 0, false, nil
	}
	b, err := w.read(data+n, 28)
	if err != nil || len(b) < 20 || !bytes.HasPrefix(b, descriptorMagic) {
		return 0, false, err
	}
	le := binary.LittleEndian
	if len(b) == 28 && le.Uint64(b[8:]) == uint64(n) && le.Uint64(b[16:]) == uint64(n) &&
		bytes.HasPrefix(b[24:], localMagic[:2]) {
		return 24, true, nil
	}
	return 16, int64(le.Uint32(b[8:])) == n && int64(le.Uint32(b[12:])) == n, nil
}

// length returns the bytes of an entry's data, and of these with what follows them. guess is a length that is likely,
// or negative. It reports false if no length fits.
func (w *walker) length(h local, guess int64) (n, all int64, ok bool, err error) {
	if h.len >= 0 {
		return h.len, h.len, true, nil
	}
	if more, ok, err := w.descriptor(h.data, guess); err != nil || ok {
		return guess, guess + more, ok, err
	}
	for at := h.data; ; {
		found, ok, err := w.search(at, w.size, descriptorMagic)
		if err != nil || !ok {
			return 0, 0, false, err
		}
		n := found - h.data
		if more, ok, err := w.descriptor(h.data, n); err != nil || ok {
			return n, n + more, ok, err
		}
		at = found + int64(len(descriptorMagic))
	}
}

// end finds where the zip that begins at start ends. It goes from record to record: to search for the end would be to
// read all tensors, whose lengths the pickle tells. It reports false if a record is not what it should be.
func (w *walker) end(start int64) (int64, bool, error) {
	le := binary.LittleEndian
	var sizes map[string]*storage
	for at := start; ; {
		b, err := w.read(at, centralSize)
		if err != nil || len(b) < locator64Size {
			return 0, false, err
		}
		n := int64(locator64Size)
		switch {
		case bytes.HasPrefix(b, localMagic):
			var ok bool
			if n, ok, err = w.entry(at, &sizes); err != nil || !ok {
				return 0, false, err
			}
		case bytes.HasPrefix(b, centralMagic) && len(b) == centralSize:
			n = centralSize + int64(le.Uint16(b[28:])) + int64(le.Uint16(b[30:])) + int64(le.Uint16(b[32:]))
		case bytes.HasPrefix(b, end64Magic):
			n = 12 + int64(min(le.Uint64(b[4:]), uint64(w.size)))
		case bytes.HasPrefix(b, locator64Magic):
		case bytes.HasPrefix(b, endMagic) && len(b) >= endSize:
			end := at + endSize + int64(le.Uint16(b[20:]))
			return end, end <= w.size, nil
		default:
			return 0, false, nil
		}
		if n > w.size-at {
			return 0, false, nil
		}
		at += n
	}
}

// entry returns the bytes of the entry whose header is at off, with header and what follows. That of data.pkl sets
// sizes, which tell the lengths of those that come later.
func (w *walker) entry(off int64, sizes *map[string]*storage) (int64, bool, error) {
	h, ok, err := w.local(off)
	if err != nil || !ok {
		return 0, false, err
	}
	guess := int64(-1)
	if s := (*sizes)[h.name[strings.LastIndexByte(h.name, '/')+1:]]; s != nil {
		guess = s.bytes
	}
	n, all, ok, err := w.length(h, guess)
	if err != nil || !ok {
		return 0, false, err
	}
	if strings.HasSuffix(h.name, "/data.pkl") && n <= maxHeader && n <= w.budget {
		pickle, err := w.read(h.data, n)
		if err != nil {
			return 0, false, err
		}
		if o, ok := nameStorages(pickle); ok {
			*sizes = o.byKey
		}
	}
	return h.data - off + all, true, nil
}
