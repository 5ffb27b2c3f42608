package pack

import (
	"bytes"
	"errors"
	"io"
	"sort"
)

// Content is the bytes of a pack, in pieces of memory.
type Content struct {
	parts  [][]byte
	size   int64
	copied bool    // the last part is one that Add may append to
	starts []int64 // of the parts, once the pack is finished
}

var _ io.ReaderAt = (*Content)(nil)

// Size is the length of the pack in bytes.
func (c *Content) Size() int64 { return c.size }

// Parts returns the memory that the pack is made of, for whoever wants to use it again. The pack must not be used any more.
func (c *Content) Parts() [][]byte { return c.parts }

// Reader reads the pack from its start. What is written to a file goes there without a copy.
func (c *Content) Reader() *Reader { return &Reader{io.NewSectionReader(c, 0, c.size), c} }

// Reader reads a pack.
type Reader struct {
	*io.SectionReader
	content *Content
}

// WriteTo implements io.WriterTo, part by part.
func (r *Reader) WriteTo(w io.Writer) (n int64, err error) {
	at, err := r.Seek(0, io.SeekCurrent)
	if err != nil {
		return 0, err
	}
	for i, p := range r.content.parts {
		if skip := at - r.content.starts[i]; skip > 0 {
			p = p[min(skip, int64(len(p))):]
		}
		if len(p) == 0 {
			continue
		}
		k, err := w.Write(p)
		if n += int64(k); err != nil {
			return n, err
		}
	}
	_, err = r.Seek(0, io.SeekEnd)
	return n, err
}

// ReadAt implements io.ReaderAt.
func (c *Content) ReadAt(p []byte, off int64) (n int, err error) {
	if off < 0 {
		return 0, errors.New("negative offset")
	}
	i := sort.Search(len(c.starts), func(i int) bool { return c.starts[i] > off }) - 1
	for ; n < len(p) && i < len(c.parts); i++ {
		if at := off + int64(n) - c.starts[i]; at < int64(len(c.parts[i])) {
			n += copy(p[n:], c.parts[i][at:])
		}
	}
	if n < len(p) {
		err = io.EOF
	}
	return n, err
}

// Equal tells whether r yields exactly the bytes of the pack.
func (c *Content) Equal(r io.Reader) (bool, error) {
	buf := make([]byte, chunkBytes)
	for _, p := range c.parts {
		for len(p) > 0 {
			b := buf[:min(len(buf), len(p))]
			if _, err := io.ReadFull(r, b); err != nil {
				if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
					err = nil
				}
				return false, err
			}
			if !bytes.Equal(b, p[:len(b)]) {
				return false, nil
			}
			p = p[len(b):]
		}
	}
	n, err := io.ReadFull(r, buf[:1])
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return n == 0, err
}

// settle notes where the parts begin.
func (c *Content) settle() {
	at := int64(0)
	for _, p := range c.parts {
		c.starts = append(c.starts, at)
		at += int64(len(p))
	}
}
