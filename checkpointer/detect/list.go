package detect

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"os"
	"path"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"nomad-spotter/checkpointer/tensor"
)

// maxFiles bounds what one listing looks at.
const maxFiles = 1 << 20

// List looks at every entry of dir for which want is true. Symbolic links are not followed. probe tells whether to look
// into the files: whether somebody has them open for writing, and whether they are as long as their format says. That
// costs an open per file.
func List(dir string, want func(name string) bool, probe func(name string) bool) (out []Entry, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("list checkpoints: %w", err)
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	names, err := readNames(root, ".")
	if err != nil {
		return nil, fmt.Errorf("list checkpoints: %w", err)
	}
	files := 0
	for _, name := range names {
		if !want(name) {
			continue
		}
		l := look{root: root, hash: sha256.New(), files: &files, probe: probe(name), entry: Entry{Name: name, Renamed: true}}
		err := l.add(name)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errSpecial) {
			continue // went away while we looked, or is a link such as "latest"
		}
		if err != nil {
			return nil, fmt.Errorf("list checkpoint %q: %w", name, err)
		}
		l.entry.Partial = l.entry.Partial || l.entry.Dir && l.regular == 0
		l.entry.Signature = hex.EncodeToString(l.hash.Sum(nil)[:16])
		out = append(out, l.entry)
	}
	return out, nil
}

type look struct {
	root  *os.Root
	hash  hash.Hash
	files *int
	probe bool
	entry Entry

	regular int // files seen
}

// errSpecial says that an entry is neither a file nor a directory.
var errSpecial = errors.New("neither a file nor a directory")

func (l *look) add(p string) error {
	if *l.files++; *l.files > maxFiles {
		return fmt.Errorf("the directory holds more than %d files", maxFiles)
	}
	info, err := l.root.Lstat(p)
	if err != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fmt.Errorf("%q has no inode", p)
	}
	fmt.Fprintf(l.hash, "%q %d %d %d %d\n", p, st.Mode, st.Size, info.ModTime().UnixNano(), st.Ino)
	changed := time.Unix(st.Ctim.Unix())
	if changed.After(l.entry.Changed) {
		l.entry.Changed = changed
	}
	if p == l.entry.Name {
		// A rename changes the inode's ctime and leaves its mtime; a write sets both to the same time.
		l.entry.Renamed = changed.After(info.ModTime())
		l.entry.Dir = info.IsDir()
		if !info.IsDir() && !info.Mode().IsRegular() {
			return errSpecial
		}
	}
	if info.Mode().IsRegular() {
		l.regular++
	}
	switch {
	case info.IsDir():
		names, err := readNames(l.root, p)
		if err != nil {
			return err
		}
		for _, n := range names {
			l.entry.Partial = l.entry.Partial || temporary(n)
			if err := l.add(p + "/" + n); err != nil {
				return err
			}
		}
	case info.Mode().IsRegular() && l.probe:
		return l.look(p)
	}
	return nil
}

// look opens a file. One that has a writer is not read: it changes.
func (l *look) look(p string) (err error) {
	f, err := l.root.OpenFile(p, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	busy, known, err := hasWriter(f)
	if err != nil {
		return err
	}
	l.entry.Busy = l.entry.Busy || busy
	l.entry.NoLease = l.entry.NoLease || !known
	if l.entry.Busy || l.entry.Torn != "" {
		return nil
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	switch err := tensor.Complete(f, info.Size(), path.Base(p)); {
	case errors.Is(err, tensor.ErrIncomplete):
		l.entry.Torn = fmt.Sprintf("%s: %v", p, err)
	case err != nil:
		return fmt.Errorf("read %q: %w", p, err)
	}
	return nil
}

func readNames(root *os.Root, p string) ([]string, error) {
	d, err := root.Open(p)
	if err != nil {
		return nil, err
	}
	names, err := d.Readdirnames(-1)
	slices.Sort(names)
	return names, errors.Join(err, d.Close())
}

// hasWriter asks for a read lease, which the kernel refuses while somebody has the file open for writing (fcntl(2),
// F_SETLEASE). known is false where the file system has no leases.
func hasWriter(f *os.File) (busy, known bool, err error) {
	switch _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_RDLCK); {
	case err == nil:
		_, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_UNLCK)
		return false, true, err
	case errors.Is(err, unix.EAGAIN):
		return true, true, nil
	default:
		return false, false, nil
	}
}
