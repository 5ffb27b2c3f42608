package store

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// FS is what File needs of a file system, one method per effect, so that a test can stop between any two of them and
// forget what was not synced.
type FS interface {
	Mkdir(path string) error                            // fs.ErrExist if there is one
	Create(path string) (Writable, error)               // a new file; fs.ErrExist if there is one
	Publish(from, to string) error                      // rename that never replaces: fs.ErrExist
	Remove(path string) error                           // fs.ErrNotExist
	SyncDir(path string) error                          // makes the directory's entries durable
	Open(path string) (Readable, error)                 // fs.ErrNotExist
	Stat(path string) (size int64, dir bool, err error) // fs.ErrNotExist
	ReadDir(path string) ([]string, error)              // names; fs.ErrNotExist
}

// Writable is a file being written.
type Writable interface {
	io.WriteCloser
	Sync() error
}

// Readable is a file being read.
type Readable interface {
	io.ReadCloser
	io.ReaderAt
}

// OS is the operating system's file system.
type OS struct{}

var _ FS = OS{}

// Mkdir implements FS.
func (OS) Mkdir(path string) error { return os.Mkdir(path, 0o750) }

// Create implements FS.
func (OS) Create(path string) (Writable, error) {
	return os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o640)
}

// Publish implements FS by renameat2(2) with RENAME_NOREPLACE; where the file system lacks it (NFS), by link(2), which
// does not replace either.
func (OS) Publish(from, to string) error {
	err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
	if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOSYS) {
		if err != nil {
			return &fs.PathError{Op: "rename", Path: to, Err: err}
		}
		return nil
	}
	if err := os.Link(from, to); err != nil {
		return err
	}
	return os.Remove(from)
}

// Remove implements FS.
func (OS) Remove(path string) error { return os.Remove(path) }

// SyncDir implements FS.
func (OS) SyncDir(path string) (err error) {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("sync directory %s: %w", path, err)
	}
	return nil
}

// Open implements FS.
func (OS) Open(path string) (Readable, error) { return os.Open(path) }

// Stat implements FS.
func (OS) Stat(path string) (int64, bool, error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, false, err
	}
	return info.Size(), info.IsDir(), nil
}

// ReadDir implements FS.
func (OS) ReadDir(path string) ([]string, error) {
	d, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	names, err := d.Readdirnames(-1)
	return names, errors.Join(err, d.Close())
}
