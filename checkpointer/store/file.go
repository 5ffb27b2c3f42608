package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"nomad-spotter/checkpointer/internal/ctxio"
)

// tempDir holds objects that are being written. What a crash leaves there is never read.
const tempDir = "tmp"

// File is a store in a directory of a file system. An object is written to a temporary file, synced, renamed without
// replacing, and its directories are synced up to the root. There are no locks. On a file system that several machines
// share, what another machine made is seen by the next call: see fresh.
type File struct {
	root   string
	fs     FS
	shared bool
	synced sync.Map // directories whose own entry this process has made durable
}

var _ Store = (*File)(nil)

// OpenFile opens the store in the directory root. With create it makes the directory, but not its parent, if missing, and
// sweeps away what writers that died a day or more ago have left.
func OpenFile(root string, fsys FS, create bool) (*File, error) {
	f := &File{root: root, fs: fsys}
	if create {
		switch err := f.mkdir(root); {
		case errors.Is(err, fs.ErrNotExist):
			return nil, fmt.Errorf("open store %s: %w: its parent directory must exist: is the right file system mounted there?", f.URL(), err)
		case err != nil:
			return nil, fmt.Errorf("open store %s: %w", f.URL(), err)
		}
	}
	switch _, dir, err := fsys.Stat(root); {
	case err != nil:
		return nil, missingError{fmt.Errorf("open store %s: no such directory: %w", f.URL(), err)}
	case !dir:
		return nil, missingError{fmt.Errorf("open store %s: it is not a directory: name one", f.URL())}
	}
	shared, err := fsys.Shared(root)
	if err != nil {
		return nil, fmt.Errorf("open store %s: %w", f.URL(), err)
	}
	f.shared = shared
	if create {
		if err := f.sweep(); err != nil {
			return nil, fmt.Errorf("open store %s: sweep %s: %w", f.URL(), tempDir, err)
		}
	}
	return f, nil
}

// missingError is an ErrNotFound that speaks of no object.
type missingError struct{ error }

func (e missingError) Unwrap() error { return e.error }

func (missingError) Is(target error) bool { return target == ErrNotFound }

// URL implements Store.
func (f *File) URL() string { return (&url.URL{Scheme: "file", Path: f.root}).String() }

// mkdir makes one directory and syncs its parent; one that exists is fine. It is synced too, once: whoever made it may have
// died before doing so.
func (f *File) mkdir(dir string) error {
	made := true
	if err := f.fs.Mkdir(dir); errors.Is(err, fs.ErrExist) {
		made = false
	} else if err != nil {
		return err
	}
	if _, ok := f.synced.Load(dir); ok && !made {
		return nil
	}
	if err := f.fs.SyncDir(filepath.Dir(dir)); err != nil {
		return err
	}
	f.synced.Store(dir, true)
	return nil
}

// mkdirs makes the directories of a key below the root.
func (f *File) mkdirs(key string) error {
	dir := f.root
	parts := strings.Split(key, "/")
	for _, part := range parts[:len(parts)-1] {
		dir = filepath.Join(dir, part)
		if err := f.mkdir(dir); err != nil {
			return err
		}
	}
	return nil
}

func (f *File) path(key string) string { return filepath.Join(f.root, filepath.FromSlash(key)) }

// Put implements Store.
func (f *File) Put(ctx context.Context, key string, r io.Reader) (int64, error) {
	n, err := f.put(ctx, key, r)
	if err != nil {
		return 0, fmt.Errorf("put %s into %s: %w", key, f.URL(), err)
	}
	return n, nil
}

func (f *File) put(ctx context.Context, key string, r io.Reader) (int64, error) {
	if err := CheckKey(key); err != nil {
		return 0, err
	}
	if err := f.mkdirs(key); err != nil {
		return 0, err
	}
	switch _, _, err := f.fs.Stat(f.path(key)); {
	case err == nil:
		return 0, f.exists(key)
	case !errors.Is(err, fs.ErrNotExist):
		return 0, err
	}
	if err := f.mkdir(filepath.Join(f.root, tempDir)); err != nil {
		return 0, err
	}
	tmp := filepath.Join(f.root, tempDir, randomName())
	n, err := f.writeTemp(ctx, tmp, r)
	if err != nil {
		return 0, errors.Join(err, f.remove(tmp))
	}
	if err := f.fs.Publish(tmp, f.path(key)); err != nil {
		if errors.Is(err, fs.ErrExist) {
			err = f.exists(key)
		}
		return 0, errors.Join(err, f.remove(tmp))
	}
	if err := f.fs.SyncDir(filepath.Dir(f.path(key))); err != nil {
		return 0, err
	}
	return n, nil
}

// exists returns ErrExists once the object that is there is durable: whoever made it may have died before syncing its
// directory, and the caller will rely on it.
func (f *File) exists(key string) error {
	if err := f.fs.SyncDir(filepath.Dir(f.path(key))); err != nil {
		return err
	}
	return ErrExists
}

// writeTemp writes and syncs a temporary file.
func (f *File) writeTemp(ctx context.Context, tmp string, r io.Reader) (n int64, err error) {
	w, err := f.fs.Create(tmp)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	if from, ok := r.(io.WriterTo); ok { // without a buffer in between
		n, err = from.WriteTo(ctxio.Writer(ctx, w))
	} else {
		n, err = io.Copy(w, ctxio.Reader(ctx, r))
	}
	if err != nil {
		return n, err
	}
	return n, w.Sync()
}

func (f *File) remove(path string) error {
	if err := f.fs.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Get implements Store.
func (f *File) Get(_ context.Context, key string) (io.ReadCloser, error) { return f.open(key) }

// GetRange implements Store.
func (f *File) GetRange(_ context.Context, key string, off, n int64) (io.ReadCloser, error) {
	if off < 0 || n < 0 {
		return nil, fmt.Errorf("get %s in %s: range of %d bytes from %d on", key, f.URL(), n, off)
	}
	r, err := f.open(key)
	if err != nil {
		return nil, err
	}
	return struct {
		io.Reader
		io.Closer
	}{io.NewSectionReader(r, off, n), r}, nil
}

func (f *File) open(key string) (Readable, error) {
	if _, err := f.stat(key); err != nil {
		return nil, f.readErr("get", key, err)
	}
	r, err := f.fs.Open(f.path(key))
	if err != nil {
		return nil, f.readErr("get", key, err)
	}
	return r, nil
}

// Stat implements Store.
func (f *File) Stat(_ context.Context, key string) (int64, error) {
	size, err := f.stat(key)
	if err != nil {
		return 0, f.readErr("stat", key, err)
	}
	return size, nil
}

func (f *File) stat(key string) (int64, error) {
	if err := CheckKey(key); err != nil {
		return 0, err
	}
	size, dir, err := f.fs.Stat(f.path(key))
	if f.shared && errors.Is(err, fs.ErrNotExist) {
		if err := f.freshPath(filepath.Dir(filepath.FromSlash(key))); err != nil {
			return 0, err
		}
		size, dir, err = f.fs.Stat(f.path(key))
	}
	if err == nil && dir {
		err = fs.ErrNotExist
	}
	return size, err
}

func (f *File) readErr(op, key string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		err = ErrNotFound
	}
	return fmt.Errorf("%s %s in %s: %w", op, key, f.URL(), err)
}

// List implements Store.
func (f *File) List(ctx context.Context, prefix string) ([]Entry, error) {
	if err := CheckPrefix(prefix); err != nil {
		return nil, err
	}
	var out []Entry
	// An empty listing of a file system that is not there would look like an empty store.
	if _, _, err := f.fs.Stat(f.root); err != nil {
		return nil, fmt.Errorf("list %s in %s: the store is gone: %w", prefix, f.URL(), err)
	}
	dir := strings.TrimSuffix(prefix, "/")
	if err := f.freshPath(filepath.Dir(filepath.FromSlash(dir))); err != nil {
		return nil, fmt.Errorf("list %s in %s: %w", prefix, f.URL(), err)
	}
	if err := f.list(ctx, dir, &out); err != nil {
		return nil, fmt.Errorf("list %s in %s: %w", prefix, f.URL(), err)
	}
	slices.SortFunc(out, func(a, b Entry) int { return strings.Compare(a.Key, b.Key) })
	return out, nil
}

func (f *File) list(ctx context.Context, key string, out *[]Entry) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := f.fresh(f.path(key)); err != nil {
		return err
	}
	names, err := f.fs.ReadDir(f.path(key))
	if errors.Is(err, fs.ErrNotExist) && key != "" {
		return nil
	}
	if err != nil {
		return err
	}
	for _, name := range names {
		child := name
		if key != "" {
			child = key + "/" + name
		}
		if child == tempDir || name == freshName {
			continue
		}
		size, dir, err := f.fs.Stat(f.path(child))
		switch {
		case errors.Is(err, fs.ErrNotExist): // deleted since
		case err != nil:
			return err
		case dir:
			if err := f.list(ctx, child, out); err != nil {
				return err
			}
		default:
			*out = append(*out, Entry{Key: child, Size: size})
		}
	}
	return nil
}

// Delete implements Store.
func (f *File) Delete(_ context.Context, key string) error {
	if err := CheckKey(key); err != nil {
		return err
	}
	if err := f.remove(f.path(key)); err != nil {
		return fmt.Errorf("delete %s in %s: %w", key, f.URL(), err)
	}
	if err := f.fs.SyncDir(filepath.Dir(f.path(key))); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("delete %s in %s: %w", key, f.URL(), err)
	}
	return nil
}
