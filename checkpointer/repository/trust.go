package repository

import (
	"context"
	"errors"
	"strings"

	"nomad-spotter/checkpointer/internal/ctxio"
	"nomad-spotter/checkpointer/pack"
	"nomad-spotter/checkpointer/store"
)

// usable opens a snapshot to code against; nil if it is damaged or being removed.
func (w *Writer) usable(ctx context.Context, s Snapshot) (*view, error) {
	if leaving, err := w.repo.leaving(ctx, s); err != nil || leaving {
		return nil, err
	}
	v, err := w.repo.open(ctx, s)
	if err == nil {
		err = v.trust(ctx)
	}
	var d *DamageError
	if errors.As(err, &d) || errors.Is(err, ErrNoSnapshot) {
		return nil, nil //nolint:nilnil // there is none, and that is no failure
	}
	return v, err
}

// trust makes sure of all packs of a snapshot before another relies on them. What this process wrote or read whole is not
// read again. In a file store the rest is read and hashed; an object store keeps sums of its own, there it must only exist
// in its full length, which reading its index has shown.
func (v *view) trust(ctx context.Context) error {
	for _, p := range v.manifest.Packs {
		key := packKey(v.snapshot.Lineage, p.Name)
		if _, ok := v.repo.trusted.Load(key); ok || v.repo.keepsSums() {
			continue
		}
		if err := v.repo.checkPack(ctx, v.snapshot, p); err != nil {
			return err
		}
		v.repo.trusted.Store(key, true)
	}
	return nil
}

// keepsSums tells whether the store itself makes sure of what it holds. A file system does not.
func (r *Repository) keepsSums() bool { return !strings.HasPrefix(r.URL(), "file:") }

// checkPack reads and hashes a whole pack.
func (r *Repository) checkPack(ctx context.Context, s Snapshot, p PackRef) error {
	key := packKey(s.Lineage, p.Name)
	_, want, _ := parsePackName(p.Name) // the manifest was checked
	rc, err := r.store.Get(ctx, key)
	if errors.Is(err, store.ErrNotFound) {
		return r.missing(ctx, s, key)
	}
	if err != nil {
		return s.found(key, err)
	}
	err = pack.Verify(ctxio.Reader(ctx, rc), p.Bytes, p.Index, want)
	if errors.Is(err, pack.ErrDamaged) {
		err = damage(s.ID, s.Step, key, strings.TrimPrefix(err.Error(), pack.ErrDamaged.Error()+": "))
	}
	return errors.Join(s.found(key, err), rc.Close())
}
