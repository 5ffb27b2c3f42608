package store

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

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
	ModTime(path string) (time.Time, error)             // by the file system's clock; fs.ErrNotExist
	Shared(path string) (bool, error)                   // whether other machines may change the file system, too
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

// Publish implements FS by renameat2(2) with RENAME_NOREPLACE; where the file system lacks it (NFS, CephFS), by link(2),
// which does not replace either. Both are one operation of the server of a network file system.
func (OS) Publish(from, to string) error {
	err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
	switch {
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EOPNOTSUPP):
		return publishByLink(from, to)
	case err != nil:
		return &fs.PathError{Op: "rename", Path: to, Err: err}
	}
	return nil
}

func publishByLink(from, to string) error {
	if err := os.Link(from, to); err != nil {
		switch {
		case errors.Is(err, fs.ErrExist) && sameFile(from, to):
			// An NFS client that sends a request again, because the answer was lost, is told of its own link.
		case errors.Is(err, unix.EPERM), errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EOPNOTSUPP):
			return fmt.Errorf("the file system can neither rename without replacing nor link, so that two writers could replace each other's objects: keep the store on another, as ext4, xfs, NFS, CephFS or Lustre: %w", err)
		default:
			return err
		}
	}
	if err := os.Remove(from); err != nil && !errors.Is(err, fs.ErrNotExist) { // a sweep may have been first
		return err
	}
	return nil
}

func sameFile(a, b string) bool {
	x, err := os.Lstat(a)
	if err != nil {
		return false
	}
	y, err := os.Lstat(b)
	return err == nil && os.SameFile(x, y)
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

// ModTime implements FS.
func (OS) ModTime(path string) (time.Time, error) {
	info, err := os.Stat(path)
	if err != nil {
		return time.Time{}, err
	}
	return info.ModTime(), nil
}

// sharedMagic are the types of file systems that several machines may mount at once (statfs(2), linux/magic.h, and the
// sources of Lustre, GPFS and BeeGFS). FUSE is among them because much of what it carries is remote.
var sharedMagic = map[uint32]bool{
	unix.NFS_SUPER_MAGIC: true, unix.CEPH_SUPER_MAGIC: true, 0x0bd00bd0 /* Lustre */ : true, 0x47504653 /* GPFS */ : true,
	0x19830326 /* BeeGFS */ : true, unix.FUSE_SUPER_MAGIC: true, unix.SMB_SUPER_MAGIC: true, unix.SMB2_SUPER_MAGIC: true,
	unix.CIFS_SUPER_MAGIC: true, unix.AFS_SUPER_MAGIC: true, unix.AFS_FS_MAGIC: true, unix.CODA_SUPER_MAGIC: true,
	unix.OCFS2_SUPER_MAGIC: true, 0x01161970 /* GFS2 */ : true, unix.V9FS_MAGIC: true,
}

// Shared implements FS by the type of the file system.
func (OS) Shared(path string) (bool, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return false, &fs.PathError{Op: "statfs", Path: path, Err: err}
	}
	return sharedMagic[uint32(st.Type)], nil //nolint:gosec // the type is 32 bits wide, in a field as wide as a word
}
