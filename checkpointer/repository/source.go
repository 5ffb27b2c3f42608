package repository

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"

	"nomad-spotter/checkpointer/layout"
	"nomad-spotter/checkpointer/tensor"
)

// Entry is one file or directory of a checkpoint on the local disk.
type Entry struct {
	Path string // slash-separated, relative to the checkpoint; "" is the checkpoint itself
	Dir  bool
	Mode fs.FileMode // permission bits
	Size int64       // bytes; 0 for a directory
}

// File is an opened file of a checkpoint.
type File interface {
	io.ReaderAt
	io.Closer
}

// Source is one finished checkpoint on the local disk.
type Source interface {
	// Name is the checkpoint's base name.
	Name() string
	// Entries lists it, a directory before what is in it, the checkpoint itself first.
	Entries() []Entry
	// Open opens the file of an entry. It is called by several goroutines.
	Open(path string) (File, error)
	// Check fails if anything changed since the source was made.
	Check() error
}

// reader reads the files of a source.
type reader struct {
	src     Source
	entries []Entry
	files   *handles[File]

	rounding *rounding // nil: what is read is what is in the files
}

func newReader(src Source) *reader {
	r := &reader{src: src, entries: src.Entries()}
	r.files = newHandles(func(i int) (File, error) { return src.Open(r.entries[i].Path) })
	return r
}

func (r *reader) close() error { return r.files.close() }

// layout finds out what the files consist of.
func (r *reader) layout() (*layout.Layout, error) {
	l := &layout.Layout{Entries: make([]layout.Entry, len(r.entries))}
	for i, e := range r.entries {
		l.Entries[i] = layout.Entry{Path: e.Path, Dir: e.Dir, Mode: e.Mode}
		if e.Dir {
			continue
		}
		name := r.src.Name()
		if e.Path != "" {
			name = path.Base(e.Path)
		}
		err := r.files.use(i, func(f File) error {
			got, err := tensor.Parse(f, e.Size, name)
			l.Entries[i].Format, l.Entries[i].Sections = got.Format, got.Sections
			return err
		})
		if err != nil {
			return nil, r.explain(fmt.Errorf("file %q: %w", e.Path, err))
		}
	}
	return l, nil
}

// read fills buf with the bytes of a block.
func (r *reader) read(b layout.Block, buf []byte) error {
	at := 0
	for _, p := range b.Pieces {
		err := r.files.use(p.Entry, func(f File) error {
			n, err := f.ReadAt(buf[at:at+p.Len], p.Off)
			if n == p.Len {
				return nil
			}
			if errors.Is(err, io.EOF) {
				return fmt.Errorf("has %d bytes, had %d when it was finished", p.Off+int64(n), r.entries[p.Entry].Size)
			}
			return err
		})
		if err != nil {
			return r.explain(fmt.Errorf("file %q: %w", r.entries[p.Entry].Path, err))
		}
		r.rounding.apply(p, buf[at:at+p.Len])
		at += p.Len
	}
	return nil
}

// explain says that the source has changed, if that is why it could not be read.
func (r *reader) explain(err error) error {
	if changed := r.src.Check(); changed != nil {
		return fmt.Errorf("%w (%w)", changed, err)
	}
	return err
}
