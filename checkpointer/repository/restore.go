package repository

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"nomad-spotter/checkpointer/api"
	"nomad-spotter/checkpointer/layout"
)

// RestorePrefix starts the name that a checkpoint has while it is being restored. A reader of the target ignores such
// names; what a crash leaves there is removed by the next restore.
const RestorePrefix = ".spotter-restore-"

// Target says where a snapshot goes.
type Target struct {
	Dir      string // must exist; the checkpoint appears in it under its own name
	UID, GID int    // owner of what is restored; -1 leaves it as it is
	Rank     int    // whose part is restored
	Ranks    int    // how many there are, the same as when it was saved; 0 or 1: there are no ranks
	Workers  int    // how many blocks are decoded at once; 0: as many as there are CPUs
	// Progress is called with the bytes written since the last call, by several goroutines.
	Progress func(bytes int64)
}

// Newest restores the newest complete snapshot of a lineage. A damaged one is passed over and reported. Without any
// snapshot the manifest is nil, and forks of the lineage are looked at too; when all are damaged the error is ErrNoSnapshot.
//
// All ranks of a gang must go on from the same step. So a snapshot of which any rank's manifest is damaged or any pack is
// missing is passed over by all; damage inside of a pack, which only the rank that reads it can see, is an error. A newest
// snapshot of another number of ranks is a *RanksError.
func (r *Repository) Newest(ctx context.Context, lineage string, t Target) (*Manifest, []api.Damage, error) {
	m, _, damaged, err := NewestOf(ctx, []*Repository{r}, lineage, t)
	return m, damaged, err
}

// NewestOf is Newest over several repositories, and tells from which one it restored. Of one that holds the same snapshot as
// another, the one that comes first in the list is preferred; where its copy is damaged, the other's is taken.
func NewestOf(ctx context.Context, repos []*Repository, lineage string, t Target) (*Manifest, *Repository, []api.Damage, error) {
	for try := 1; ; try++ {
		m, r, damaged, err := newestOf(ctx, repos, lineage, t)
		// What was listed may have been removed in favour of a newer one.
		if !errors.Is(err, ErrNoSnapshot) || len(damaged) > 0 || try == restoreTries {
			return m, r, damaged, err
		}
	}
}

// restoreTries is how often a restore lists the snapshots anew when the one that it reads is removed meanwhile.
const restoreTries = 5

func newestOf(ctx context.Context, repos []*Repository, lineage string, t Target) (*Manifest, *Repository, []api.Damage, error) {
	type held struct {
		Snapshot
		in *Repository
	}
	var all []held
	for _, r := range repos {
		list, err := r.History(ctx, lineage)
		if err != nil {
			return nil, nil, nil, fmt.Errorf("%s: %w", r.URL(), err)
		}
		for _, s := range list {
			all = append(all, held{s, r})
		}
	}
	slices.SortStableFunc(all, func(a, b held) int {
		return cmp.Or(cmp.Compare(b.Epoch, a.Epoch), cmp.Compare(b.Step, a.Step))
	})
	var damaged []api.Damage
	for i, s := range all {
		var m *Manifest
		gang := s.Ranks > 1
		_, err := s.forRank(t.Rank, t.Ranks)
		if err == nil && gang {
			err = s.in.sound(ctx, s.Snapshot)
		}
		passed := err != nil
		if !passed {
			m, err = s.in.Restore(ctx, s.Snapshot, t)
		}
		var d *DamageError
		if errors.As(err, &d) {
			damaged = append(damaged, d.Damage)
			if again := i+1 < len(all) && all[i+1].Snapshot == s.Snapshot; gang && !passed && !again {
				return nil, nil, damaged, fmt.Errorf("%w: all ranks must restore the same step, restore an older one by all of them", err)
			}
			continue
		}
		return m, s.in, damaged, err
	}
	if len(damaged) > 0 {
		return nil, nil, damaged, fmt.Errorf("restore %s: all %d snapshots are damaged: %w", lineage, len(damaged), ErrNoSnapshot)
	}
	return nil, nil, nil, nil
}

// Restore puts one snapshot, or one rank's part of it, into the target, whole and verified, or not at all. A *RanksError
// tells that it is of another number of ranks.
func (r *Repository) Restore(ctx context.Context, s Snapshot, t Target) (*Manifest, error) {
	s, err := s.forRank(t.Rank, t.Ranks)
	if err != nil {
		return nil, err
	}
	v, err := r.open(ctx, s)
	if err != nil {
		return nil, err
	}
	if err := v.restore(ctx, t); err != nil {
		return nil, fmt.Errorf("restore snapshot %s of %s: %w", s.ID, s.Lineage, err)
	}
	return v.manifest, nil
}

// restore works below an os.Root, so that no link in the target leads out of it.
func (v *view) restore(ctx context.Context, t Target) (err error) {
	root, err := os.OpenRoot(t.Dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	lock, err := lockDir(ctx, root)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	if err := removeLeftovers(root); err != nil {
		return err
	}
	var id [8]byte
	if _, err := rand.Read(id[:]); err != nil {
		return err
	}
	tmp := RestorePrefix + hex.EncodeToString(id[:])
	defer func() { err = errors.Join(err, root.RemoveAll(tmp)) }()
	if err := v.write(ctx, root, tmp, t); err != nil {
		return err
	}
	// Modes last and from the inside out: a directory may be read-only.
	for _, e := range slices.Backward(v.layout.Entries) {
		if err := finish(root, path.Join(tmp, e.Path), e.Mode, t); err != nil {
			return err
		}
	}
	if err := install(root, tmp, v.manifest.Name); err != nil {
		return err
	}
	d, err := root.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// write makes the files, without their modes.
func (v *view) write(ctx context.Context, root *os.Root, tmp string, t Target) (err error) {
	for _, e := range v.layout.Entries {
		p := path.Join(tmp, e.Path)
		if e.Dir {
			if err := root.Mkdir(p, 0o700); err != nil {
				return err
			}
			continue
		}
		f, err := root.OpenFile(p, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
	files := newHandles(func(i int) (*os.File, error) {
		return root.OpenFile(path.Join(tmp, v.layout.Entries[i].Path), os.O_WRONLY, 0)
	})
	defer func() { err = errors.Join(err, files.close()) }()
	return v.decode(ctx, t.Workers, func(b layout.Block, raw []byte) error {
		at := 0
		for _, p := range b.Pieces {
			err := files.use(p.Entry, func(f *os.File) error {
				_, err := f.WriteAt(raw[at:at+p.Len], p.Off)
				if p.Len >= flushBytes { // so that the sync at the end has little left to do; if it fails that does it all
					_ = unix.SyncFileRange(int(f.Fd()), p.Off, int64(p.Len), unix.SYNC_FILE_RANGE_WRITE)
				}
				return err
			})
			if err != nil {
				return err
			}
			at += p.Len
		}
		if t.Progress != nil {
			t.Progress(int64(b.Len))
		}
		return nil
	})
}

// flushBytes is the least that is handed to the disk at once while a restore goes on.
const flushBytes = 64 << 10

// Read passes the content of a snapshot to f piece by piece, verified, in any order and several at once: the bytes of a
// file, which f must not keep, from an offset on. It returns the layout, which also names what is empty.
func (r *Repository) Read(ctx context.Context, s Snapshot, f func(path string, off int64, b []byte) error) (*Manifest, *layout.Layout, error) {
	v, err := r.open(ctx, s)
	if err != nil {
		return nil, nil, err
	}
	err = v.decode(ctx, 0, func(b layout.Block, raw []byte) error {
		at := 0
		for _, p := range b.Pieces {
			if err := f(v.layout.Entries[p.Entry].Path, p.Off, raw[at:at+p.Len]); err != nil {
				return err
			}
			at += p.Len
		}
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("read snapshot %s of %s: %w", s.ID, s.Lineage, err)
	}
	return v.manifest, v.layout, nil
}

// windowMemory bounds what a restore or verification keeps of packs that it does not need at the moment.
const windowMemory = 128 << 20

// decode decodes every block of the snapshot, verified, and passes it to f, in any order, several at once.
func (v *view) decode(ctx context.Context, workers int, f func(b layout.Block, raw []byte) error) error {
	if workers <= 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	w := newWindows(v, windowMemory)
	defer w.wait()
	w.want(v.blocks)
	var next atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	for range min(workers, max(len(v.plan), 1)) {
		g.Go(func() error {
			d := newDecoder(v, w)
			for {
				i := int(next.Add(1)) - 1
				if i >= len(v.plan) {
					return nil
				}
				if err := ctx.Err(); err != nil {
					return err
				}
				b, err := d.block(ctx, v.blocks[i])
				if err != nil {
					return err
				}
				if err := f(v.plan[i], b); err != nil {
					return err
				}
				d.free(b)
			}
		})
	}
	return g.Wait()
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

// lockDir lets one restore at a time work in a directory, until the file that it returns is closed: another's leftovers
// must not be taken for those of a dead one. Where the file system has no such locks it does nothing.
func lockDir(ctx context.Context, root *os.Root) (*os.File, error) {
	d, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	for {
		err := unix.Flock(int(d.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return d, nil
		}
		t := time.NewTimer(20 * time.Millisecond)
		select {
		case <-ctx.Done():
			t.Stop()
			return nil, errors.Join(ctx.Err(), d.Close())
		case <-t.C:
		}
	}
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
