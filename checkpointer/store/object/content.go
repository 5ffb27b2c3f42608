package object

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"nomad-spotter/checkpointer/internal/ctxio"
)

// content is what Put sends, as often as needed.
type content struct {
	*io.SectionReader
	src *rereader // nil: it is in memory
}

// failed returns the error of reading, which no SDK is trusted to pass on.
func (c *content) failed() error {
	if c.src == nil {
		return nil
	}
	return c.src.failed()
}

// rereadable is a reader of a known size that can be read more than once.
type rereadable interface {
	io.ReaderAt
	io.Seeker
}

// rereader remembers why it could not be read. A content that ends early is an error: some SDKs would send what there is.
type rereader struct {
	r   io.ReaderAt
	end int64 // offset

	mu  sync.Mutex
	err error
}

// ReadAt implements io.ReaderAt.
func (r *rereader) ReadAt(p []byte, off int64) (int, error) {
	n, err := r.r.ReadAt(p, off)
	if errors.Is(err, io.EOF) && off+int64(n) < r.end {
		err = io.ErrUnexpectedEOF
	}
	if err != nil && !errors.Is(err, io.EOF) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.err = err
	}
	return n, err
}

func (r *rereader) failed() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		return nil
	}
	return fmt.Errorf("read what to put: %w: %w", errWrong, r.err)
}

// content returns what r has left as something that can be read again.
func (s *Store) content(ctx context.Context, r io.Reader) (*content, error) {
	f, ok := r.(rereadable)
	if !ok {
		return s.buffer(ctx, r)
	}
	at, err := f.Seek(0, io.SeekCurrent)
	if err != nil { // such as a pipe
		return s.buffer(ctx, r)
	}
	end, err := f.Seek(0, io.SeekEnd)
	if err == nil {
		_, err = f.Seek(at, io.SeekStart)
	}
	if err != nil {
		return nil, fmt.Errorf("find out the size of what to put: %w: %w", errWrong, err)
	}
	n := max(end-at, 0)
	if n > MaxObject {
		return nil, fmt.Errorf("object of %d bytes is larger than %d: %w", n, int64(MaxObject), errWrong)
	}
	src := &rereader{r: f, end: at + n}
	return &content{io.NewSectionReader(src, at, n), src}, nil
}

// buffer takes what r has left into memory.
func (s *Store) buffer(ctx context.Context, r io.Reader) (*content, error) {
	b, err := io.ReadAll(io.LimitReader(ctxio.Reader(ctx, r), s.buffered+1))
	if err != nil {
		return nil, fmt.Errorf("read what to put: %w: %w", errWrong, err)
	}
	if int64(len(b)) > s.buffered {
		return nil, fmt.Errorf("object is larger than the %d bytes that are buffered of a reader of unknown size: %w", s.buffered, errWrong)
	}
	return &content{io.NewSectionReader(bytes.NewReader(b), 0, int64(len(b))), nil}, nil
}
