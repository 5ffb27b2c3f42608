// Package store keeps named objects. An object is created once, whole or not at all, and is durable when Put returns;
// it is never changed, only deleted. The package knows nothing of checkpoints.
package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"path/filepath"
	"strings"
)

// Errors that callers branch on.
var (
	ErrExists   = errors.New("object exists already")
	ErrNotFound = errors.New("object not found")
)

// Entry is one object of a listing.
type Entry struct {
	Key  string
	Size int64 // bytes
}

// Store is a flat space of keys such as "objects/ab/abcd…". A key is a slash-separated relative path without empty, "."
// or ".." elements, and not below "tmp".
type Store interface {
	// URL is the store's name for people and for Open.
	URL() string
	// Put creates an object if there is none of that key (ErrExists otherwise) and returns its size in bytes. When r
	// fails, nothing is created. When Put returns nil or ErrExists, the object that is there survives a crash of the
	// machine.
	Put(ctx context.Context, key string, r io.Reader) (int64, error)
	// Get opens an object; ErrNotFound if there is none.
	Get(ctx context.Context, key string) (io.ReadCloser, error)
	// GetRange opens n bytes of an object from off on; where it is shorter, what there is, possibly nothing.
	GetRange(ctx context.Context, key string, off, n int64) (io.ReadCloser, error)
	// Stat returns an object's size in bytes; ErrNotFound if there is none.
	Stat(ctx context.Context, key string) (int64, error)
	// List returns the objects below a prefix that ends with a slash or is empty, sorted by key.
	List(ctx context.Context, prefix string) ([]Entry, error)
	// Delete removes an object; one that is missing is no error.
	Delete(ctx context.Context, key string) error
}

// Parse splits a store URL into scheme and path. It accepts file:///ABSOLUTE and file:ABSOLUTE.
func Parse(raw string) (scheme, path string, err error) {
	u, err := url.Parse(raw)
	if err != nil {
		return "", "", fmt.Errorf("store %q is not a URL: use file:///absolute/path", raw)
	}
	switch {
	case u.Scheme == "":
		return "", "", fmt.Errorf("store %q has no scheme: use file:///absolute/path", raw)
	case u.Scheme != "file":
		return "", "", fmt.Errorf("store scheme %q of %q is not supported: use file:///absolute/path", u.Scheme, raw)
	case u.Host != "" || u.User != nil:
		return "", "", fmt.Errorf("store %q names a host, %q: a file store is a path on this machine, file:///absolute/path", raw, u.Host)
	case u.RawQuery != "" || u.Fragment != "":
		return "", "", fmt.Errorf("store %q has a query or fragment: use file:///absolute/path", raw)
	case u.Opaque != "" || !strings.HasPrefix(u.Path, "/"):
		return "", "", fmt.Errorf("store %q is not absolute: use file:///absolute/path", raw)
	case strings.ContainsRune(u.Path, 0):
		return "", "", fmt.Errorf("store %q has a zero byte in its path: use file:///absolute/path", raw)
	}
	return u.Scheme, filepath.Clean(u.Path), nil
}

// Open returns the store at a URL. With create, a file store's directory is made if its parent exists.
func Open(raw string, create bool) (Store, error) {
	_, path, err := Parse(raw)
	if err != nil {
		return nil, err
	}
	return OpenFile(path, OS{}, create)
}

// CheckKey rejects what is not a clean relative path, and the names that are kept for objects that are being written.
func CheckKey(key string) error {
	if key == tempDir || strings.HasPrefix(key, tempDir+"/") {
		return fmt.Errorf("object key %q is reserved for objects that are being written", key)
	}
	for part := range strings.SplitSeq(key, "/") {
		if part == "" || part == "." || part == ".." || strings.ContainsRune(part, 0) {
			return fmt.Errorf("object key %q is not a clean relative path", key)
		}
	}
	return nil
}

// CheckPrefix rejects a listing's prefix that is neither empty nor a clean relative path with a slash at its end.
func CheckPrefix(prefix string) error {
	if prefix == "" {
		return nil
	}
	if !strings.HasSuffix(prefix, "/") {
		return fmt.Errorf("prefix %q does not end with a slash", prefix)
	}
	return CheckKey(strings.TrimSuffix(prefix, "/"))
}
