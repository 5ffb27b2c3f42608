package repository

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"reflect"
	"time"

	"nomad-spotter/checkpointer/store"
)

// Source is one finished checkpoint on the local disk.
type Source interface {
	// Name is the checkpoint's base name.
	Name() string
	// Entries lists it, a directory before what is in it, the checkpoint itself first; without hashes.
	Entries() []Entry
	// Open opens the file of an entry.
	Open(path string) (io.ReadCloser, error)
	// Check fails if anything changed since the source was made.
	Check() error
}

// Writer publishes snapshots of one lineage in one epoch. It is not safe for concurrent use.
type Writer struct {
	Lineage string
	Epoch   uint64

	repo       *Repository
	unreported int64 // bytes written for no snapshot in particular
}

// Published tells what a publication did.
type Published struct {
	ID          string
	RawBytes    int64
	StoredBytes int64 // new bytes in the store, metadata included
}

// Publish makes a snapshot of src durable. It fails with ErrSuperseded when a newer epoch exists. Publishing the same
// content again under the same step is harmless; other content under a step of this epoch is ErrConflict.
func (w *Writer) Publish(ctx context.Context, step int64, src Source, now time.Time) (Published, error) {
	p, err := w.publish(ctx, step, src, now)
	if err != nil {
		return Published{}, fmt.Errorf("publish step %d of %s: %w", step, w.Lineage, err)
	}
	return p, nil
}

func (w *Writer) publish(ctx context.Context, step int64, src Source, now time.Time) (Published, error) {
	if err := w.current(ctx); err != nil {
		return Published{}, err
	}
	m := &Manifest{Format: Format, Lineage: w.Lineage, Epoch: w.Epoch, Step: step, Name: src.Name(), Created: now.UTC(), Entries: src.Entries()}
	for i := range m.Entries {
		e := &m.Entries[i]
		if e.Dir {
			continue
		}
		if err := w.object(ctx, src, e); err != nil {
			return Published{}, fmt.Errorf("file %q: %w", e.Path, err)
		}
	}
	if err := src.Check(); err != nil {
		return Published{}, err
	}
	b, err := m.Encode()
	if err != nil {
		return Published{}, err
	}
	if err := w.current(ctx); err != nil {
		return Published{}, err
	}
	n, err := w.repo.store.Put(ctx, manifestKey(w.Lineage, m.ID()), bytes.NewReader(b))
	if errors.Is(err, store.ErrExists) {
		err = w.same(ctx, m)
	}
	if err != nil {
		return Published{}, err
	}
	// A successor that claimed in between may not have seen this snapshot: only what it has seen counts.
	if err := w.current(ctx); err != nil {
		return Published{}, err
	}
	out := Published{ID: m.ID(), RawBytes: m.RawBytes(), StoredBytes: w.unreported + n}
	w.unreported = 0
	return out, nil
}

// current fails when a newer epoch was claimed, or when this writer's own claim is not there: then something else is
// mounted in the store's place.
func (w *Writer) current(ctx context.Context) error {
	last, err := w.repo.lastEpoch(ctx, w.Lineage)
	switch {
	case err != nil:
		return err
	case last > w.Epoch:
		return fmt.Errorf("%w: %d, this writer has %d", ErrSuperseded, last, w.Epoch)
	case last < w.Epoch:
		return fmt.Errorf("%s does not hold the claim of epoch %d any more: is the right file system mounted there?", w.repo.URL(), w.Epoch)
	}
	return nil
}

// same fails unless the snapshot that is there already has the content of m.
func (w *Writer) same(ctx context.Context, m *Manifest) error {
	old, err := w.repo.Manifest(ctx, Snapshot{Lineage: m.Lineage, ID: m.ID(), Epoch: m.Epoch, Step: m.Step})
	if err != nil {
		return err
	}
	if old.Name != m.Name || !reflect.DeepEqual(old.Entries, m.Entries) {
		return ErrConflict
	}
	return nil
}

// object hashes a file and puts it into the store unless its content is there. Content that is there is read again
// before it is relied on; damaged content is replaced.
func (w *Writer) object(ctx context.Context, src Source, e *Entry) error {
	sum, size, err := hashFile(ctx, src, e.Path)
	if err != nil {
		return err
	}
	if size != e.Size {
		return fmt.Errorf("has %d bytes, had %d when it was finished", size, e.Size)
	}
	e.SHA256 = sum
	for attempt := 0; ; attempt++ {
		f, err := src.Open(e.Path)
		if err != nil {
			return err
		}
		n, err := w.repo.store.Put(ctx, objectKey(sum), &verifier{r: f, sum: sum, h: sha256.New()})
		err = errors.Join(err, f.Close())
		switch {
		case err == nil:
			w.unreported += n
			return nil
		case !errors.Is(err, store.ErrExists) || attempt > 1:
			return err
		}
		switch err := w.repo.checkObject(ctx, *e); {
		case err == nil:
			return nil
		case errors.Is(err, errWrongContent):
			if err := w.repo.store.Delete(ctx, objectKey(sum)); err != nil {
				return err
			}
		case !errors.Is(err, store.ErrNotFound):
			return err
		}
	}
}

func hashFile(ctx context.Context, src Source, path string) (sum string, size int64, err error) {
	f, err := src.Open(path)
	if err != nil {
		return "", 0, err
	}
	h := sha256.New()
	size, err = io.Copy(h, ctxReader{ctx, f})
	if err = errors.Join(err, f.Close()); err != nil {
		return "", 0, err
	}
	return hex.EncodeToString(h.Sum(nil)), size, nil
}

// errWrongContent says that an object's bytes are not those of its name.
var errWrongContent = errors.New("content does not match its hash")

// checkObject reads an entry's object and compares its size and hash.
func (r *Repository) checkObject(ctx context.Context, e Entry) error {
	rc, err := r.store.Get(ctx, objectKey(e.SHA256))
	if err != nil {
		return err
	}
	n, err := io.Copy(io.Discard, &verifier{r: ctxReader{ctx, rc}, sum: e.SHA256, h: sha256.New()})
	if err = errors.Join(err, rc.Close()); err != nil {
		return err
	}
	if n != e.Size {
		return fmt.Errorf("%w: %d bytes instead of %d", errWrongContent, n, e.Size)
	}
	return nil
}

// verifier passes bytes through and fails at their end if they do not hash to sum.
type verifier struct {
	r   io.Reader
	sum string
	h   hash.Hash
}

func (v *verifier) Read(p []byte) (int, error) {
	n, err := v.r.Read(p)
	v.h.Write(p[:n])
	if errors.Is(err, io.EOF) && hex.EncodeToString(v.h.Sum(nil)) != v.sum {
		return n, errWrongContent
	}
	return n, err
}

// ctxReader ends with the context's error once that is done.
type ctxReader struct {
	ctx context.Context //nolint:containedctx // lives for one copy
	r   io.Reader
}

func (c ctxReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}
