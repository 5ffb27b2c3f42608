package store

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// freshName is the file that fresh makes and removes. No key has an element of this name.
const freshName = ".fresh"

// fresh makes sure that the next look into a directory of a shared file system sees what other machines did there. A
// client of NFS remembers which names there are and are not until it sees that the directory's modification time has
// changed, for which it may wait for half a minute and more (nfs(5), "Directory entry caching"). A change of its own tells
// it at once: the answer holds the directory's attributes from before and after (RFC 1813, wcc_data; RFC 8881,
// change_info4), and names are forgotten where the former are not those that it remembers. So a file is made and removed.
// The name is always the same, so that one that a crash has left goes with the next call; with two machines at work at
// once, one makes or removes what the other has.
//
// Where nothing may be written, as on a mount that is read-only, what is remembered must do.
func (f *File) fresh(dir string) error {
	if !f.shared {
		return nil
	}
	path := filepath.Join(dir, freshName)
	for range 3 {
		w, err := f.fs.Create(path)
		changed := err == nil
		switch {
		case err == nil:
			if err := w.Close(); err != nil {
				return err
			}
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission), errors.Is(err, unix.EROFS):
			return nil // no directory, which the look itself will tell; or none of ours to change
		case !errors.Is(err, fs.ErrExist):
			return err
		}
		err = f.fs.Remove(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if changed || err == nil {
			return nil
		}
	}
	return nil // others change the directory all the time, and every answer told
}

// freshPath is fresh for the directories from the root to one below it, from above: what is not there is not seen.
func (f *File) freshPath(dir string) error {
	path := f.root
	if err := f.fresh(path); err != nil || dir == "." {
		return err
	}
	for part := range strings.SplitSeq(filepath.ToSlash(dir), "/") {
		path = filepath.Join(path, part)
		if err := f.fresh(path); err != nil {
			return err
		}
	}
	return nil
}

// leftover is the age at which a temporary file is swept.
const leftover = 24 * time.Hour

// sweep removes temporary files that were not written to for a day. It is safe against writers at work, whatever they do:
// a temporary file's name is random and never used again, so that no sweep removes another file than the one whose age it
// saw; a writer of which the file is removed, because it stood still for a day between two writes, finds no file to rename
// and fails its Put, of which nothing was promised; and what was renamed is no longer there to be removed. Ages are taken
// by the file system's own clock, of which a new file tells the time, so that the clocks of the machines do not matter.
func (f *File) sweep() error {
	dir := filepath.Join(f.root, tempDir)
	names, err := f.fs.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) || (err == nil && len(names) == 0) {
		return nil
	}
	if err != nil {
		return err
	}
	now, err := f.now(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		path := filepath.Join(dir, name)
		t, err := f.fs.ModTime(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // finished or swept since
		}
		if err != nil {
			return err
		}
		if now.Sub(t) < leftover {
			continue
		}
		if err := f.remove(path); err != nil {
			return err
		}
	}
	return nil
}

// now returns the time of the file system's clock.
func (f *File) now(dir string) (time.Time, error) {
	path := filepath.Join(dir, randomName())
	w, err := f.fs.Create(path)
	if err != nil {
		return time.Time{}, err
	}
	t, err := f.fs.ModTime(path)
	return t, errors.Join(err, w.Close(), f.remove(path))
}

// randomName returns a name that was never used before.
func randomName() string {
	var id [12]byte
	_, _ = rand.Read(id[:]) // never fails
	return hex.EncodeToString(id[:])
}
