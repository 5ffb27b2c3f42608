package repository

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"

	"golang.org/x/sys/unix"

	"nomad-spotter/checkpointer/api"
	"nomad-spotter/checkpointer/store"
)

// RestorePrefix starts the name that a checkpoint has while it is being restored. A reader of the target ignores such
// names; what a crash leaves there is removed by the next restore.
const RestorePrefix = ".spotter-restore-"

// Target says where a snapshot goes.
type Target struct {
	Dir      string // must exist; the checkpoint appears in it under its own name
	UID, GID int    // owner of what is restored; -1 leaves it as it is
}

// Newest restores the newest complete snapshot of a lineage. A damaged one is passed over and reported. Without any
// snapshot the manifest is nil; when all are damaged the error is ErrNoSnapshot.
func (r *Repository) Newest(ctx context.Context, lineage string, t Target) (*Manifest, []api.Damage, error) {
	list, err := r.Snapshots(ctx, lineage)
	if err != nil {
		return nil, nil, err
	}
	var damaged []api.Damage
	for _, s := range list {
		m, err := r.Restore(ctx, s, t)
		var d *DamageError
		if errors.As(err, &d) {
			damaged = append(damaged, d.Damage)
			continue
		}
		return m, damaged, err
	}
	if len(damaged) > 0 {
		return nil, damaged, fmt.Errorf("restore %s: all %d snapshots are damaged: %w", lineage, len(damaged), ErrNoSnapshot)
	}
	return nil, nil, nil
}

// Restore puts one snapshot into the target, whole and verified, or not at all.
func (r *Repository) Restore(ctx context.Context, s Snapshot, t Target) (*Manifest, error) {
	m, err := r.Manifest(ctx, s)
	if err != nil {
		return nil, err
	}
	if err := r.restore(ctx, m, t); err != nil {
		return nil, fmt.Errorf("restore snapshot %s of %s: %w", s.ID, s.Lineage, err)
	}
	return m, nil
}

// restore works below an os.Root, so that no link in the target leads out of it.
func (r *Repository) restore(ctx context.Context, m *Manifest, t Target) (err error) {
	root, err := os.OpenRoot(t.Dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	if err := removeLeftovers(root); err != nil {
		return err
	}
	var id [8]byte
	if _, err := rand.Read(id[:]); err != nil {
		return err
	}
	tmp := RestorePrefix + hex.EncodeToString(id[:])
	defer func() { err = errors.Join(err, root.RemoveAll(tmp)) }()
	for _, e := range m.Entries {
		if err := r.restoreEntry(ctx, root, path.Join(tmp, e.Path), m, e); err != nil {
			return err
		}
	}
	// Modes last and from the inside out: a directory may be read-only.
	for _, e := range slices.Backward(m.Entries) {
		if err := finish(root, path.Join(tmp, e.Path), e.Mode, t); err != nil {
			return err
		}
	}
	if err := install(root, tmp, m.Name); err != nil {
		return err
	}
	d, err := root.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// finish gives a restored file or directory its owner and mode and syncs it, all by one descriptor: the mode may forbid
// to open it again.
func finish(root *os.Root, p string, mode fs.FileMode, t Target) (err error) {
	f, err := root.Open(p)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if t.UID >= 0 || t.GID >= 0 {
		if err := f.Chown(t.UID, t.GID); err != nil {
			return err
		}
	}
	if err := f.Chmod(mode); err != nil {
		return err
	}
	return f.Sync()
}

func (r *Repository) restoreEntry(ctx context.Context, root *os.Root, p string, m *Manifest, e Entry) (err error) {
	if e.Dir {
		return root.Mkdir(p, 0o700)
	}
	key := objectKey(e.SHA256)
	rc, err := r.store.Get(ctx, key)
	if errors.Is(err, store.ErrNotFound) {
		return damage(m.ID(), m.Step, key, "missing")
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rc.Close()) }()
	f, err := root.OpenFile(p, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	// One byte more than there may be, so that an object that is too long is seen without being read to its end.
	n, err := io.Copy(f, io.LimitReader(&verifier{r: ctxReader{ctx, rc}, sum: e.SHA256, h: sha256.New()}, e.Size+1))
	switch {
	case errors.Is(err, errWrongContent):
		return damage(m.ID(), m.Step, key, err.Error())
	case err != nil:
		return err
	case n != e.Size:
		return damage(m.ID(), m.Step, key, fmt.Sprintf("%d bytes instead of %d", n, e.Size))
	}
	return nil
}

// install moves what was collected to its name, in one step even when something of that name is there: then the two
// change places, and the old one goes with the temporary name.
func install(root *os.Root, from, to string) error {
	d, err := root.Open(".")
	if err != nil {
		return err
	}
	fd := int(d.Fd())
	err = unix.Renameat2(fd, from, fd, to, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EEXIST) {
		err = unix.Renameat2(fd, from, fd, to, unix.RENAME_EXCHANGE)
	}
	if errors.Is(err, unix.EINVAL) { // the file system knows no flags; an empty place is all that rename(2) can take
		err = unix.Renameat(fd, from, fd, to)
	}
	return errors.Join(err, d.Close())
}

func removeLeftovers(root *os.Root) error {
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return err
	}
	for _, e := range entries {
		if len(e.Name()) > len(RestorePrefix) && e.Name()[:len(RestorePrefix)] == RestorePrefix {
			if err := root.RemoveAll(e.Name()); err != nil {
				return err
			}
		}
	}
	return nil
}
