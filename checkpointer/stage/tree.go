// Package stage takes a crash-safe local copy of a finished checkpoint, so that the task may delete or replace it while
// it is uploaded. A copy is the complete old set of files or it is refused; it is never a mixture.
package stage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"nomad-spotter/checkpointer/repository"
)

// ErrChanged says that a checkpoint is not what it was when it was finished.
var ErrChanged = errors.New("checkpoint changed while it was being read")

// ErrUnfit says that an entry can never be staged, however often it is tried.
var ErrUnfit = errors.New("no checkpoint")

// maxFiles bounds a checkpoint.
const maxFiles = 1 << 20

// Stat is what must not change about a file: a write in place changes its time, a replacement its inode.
type Stat struct {
	Path    string      `json:"path"` // relative to the checkpoint, "" for itself
	Mode    fs.FileMode `json:"mode"`
	Size    int64       `json:"size"`
	MTimeNS int64       `json:"mtime_ns"`
	Inode   uint64      `json:"inode"`
}

func statOf(path string, info fs.FileInfo) Stat {
	s := Stat{Path: path, Mode: info.Mode() & (fs.ModePerm | fs.ModeDir), MTimeNS: info.ModTime().UnixNano()}
	if !info.IsDir() {
		s.Size = info.Size()
	}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		s.Inode = sys.Ino
	}
	return s
}

// matches tells whether an opened file is the one that was scanned, and unchanged.
func (s Stat) matches(info fs.FileInfo) bool {
	return info.Mode().IsRegular() && statOf(s.Path, info) == s
}

// Tree is a checkpoint on disk as it was when Scan saw it.
type Tree struct {
	dir   string // its parent directory
	name  string
	stats []Stat
}

var _ repository.Source = (*Tree)(nil)

// Scan lists the checkpoint dir/name. It follows no symbolic link and refuses whatever is neither file nor directory.
func Scan(dir, name string) (t *Tree, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	t = &Tree{dir: dir, name: name}
	if err := t.scan(root, name, ""); err != nil {
		return nil, fmt.Errorf("scan checkpoint %s: %w", filepath.Join(dir, name), err)
	}
	return t, nil
}

func (t *Tree) scan(root *os.Root, p, rel string) error {
	info, err := root.Lstat(p)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() && !info.IsDir() {
		return fmt.Errorf("%w: %q is neither a file nor a directory (%v): checkpoints hold only those", ErrUnfit, p, info.Mode().Type())
	}
	s := statOf(rel, info)
	if len(t.stats) == maxFiles {
		return fmt.Errorf("%w: more than %d files and directories", ErrUnfit, maxFiles)
	}
	t.stats = append(t.stats, s)
	if !info.IsDir() {
		return nil
	}
	d, err := root.Open(p)
	if err != nil {
		return err
	}
	names, err := d.Readdirnames(-1)
	if err = errors.Join(err, d.Close()); err != nil {
		return err
	}
	slices.Sort(names)
	for _, n := range names {
		if err := t.scan(root, p+"/"+n, strings.TrimPrefix(rel+"/"+n, "/")); err != nil {
			return err
		}
	}
	return nil
}

// Name implements repository.Source.
func (t *Tree) Name() string { return t.name }

// Stats returns what Check compares with. The caller must not change it.
func (t *Tree) Stats() []Stat { return t.stats }

// RawBytes is the size of the checkpoint's files.
func (t *Tree) RawBytes() int64 {
	var n int64
	for _, s := range t.stats {
		n += s.Size
	}
	return n
}

// Entries implements repository.Source.
func (t *Tree) Entries() []repository.Entry {
	out := make([]repository.Entry, len(t.stats))
	for i, s := range t.stats {
		out[i] = repository.Entry{Path: s.Path, Dir: s.Mode.IsDir(), Mode: s.Mode.Perm(), Size: s.Size}
	}
	return out
}

// Open implements repository.Source.
func (t *Tree) Open(path string) (repository.File, error) {
	f, err := openBeneath(t.dir, filepath.Join(t.name, path))
	if err != nil {
		return nil, asChanged(err)
	}
	return f, nil
}

// asChanged says that a checkpoint is not what it was, unless err is this machine's own trouble: that passes.
func asChanged(err error) error {
	for _, passing := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EIO, syscall.EINTR} {
		if errors.Is(err, passing) {
			return err
		}
	}
	return fmt.Errorf("%w: %w", ErrChanged, err)
}

// openBeneath opens a regular file for reading without leaving dir and without waiting, as for a pipe's other end.
func openBeneath(dir, path string) (*os.File, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	f, err := root.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err = errors.Join(err, root.Close()); err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%q is no regular file (%v)", path, info.Mode().Type())
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Check implements repository.Source: it scans again and compares.
func (t *Tree) Check() error {
	now, err := Scan(t.dir, t.name)
	if err != nil {
		return asChanged(err)
	}
	if !slices.Equal(t.stats, now.stats) {
		return fmt.Errorf("%w: %s", ErrChanged, filepath.Join(t.dir, t.name))
	}
	return nil
}
