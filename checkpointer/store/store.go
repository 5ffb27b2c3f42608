// Package store keeps named objects. An object is created once, whole or not at all, and is durable when Put returns;
// it is never changed, only deleted. The package knows nothing of checkpoints.
package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Errors that callers branch on.
var (
	ErrExists   = errors.New("object exists already")
	ErrNotFound = errors.New("object not found")
	// ErrNotConditional says that a store lets a second writer replace an object. Such a store cannot tell which of several
	// writers came first: their order must come from elsewhere.
	ErrNotConditional = errors.New("the store does not create objects conditionally: a second writer replaces the first one's object")
)

// ErrDamaged says that an object is not what was put under its key. Only a store that can tell returns it, when the object
// is opened or read; never for an object that could not be read.
var ErrDamaged = errors.New("object is damaged")

// Errors that a person must mend. What the store said is wrapped beside them.
var (
	ErrBucket      = errors.New("the bucket does not exist or is not reachable here: create it, or correct its name, region or endpoint")
	ErrCredentials = errors.New("the credentials are missing, wrong or expired")
	ErrDenied      = errors.New("access is denied: allow reading, writing, listing and deleting objects below the store's prefix, and check that credentials were found")
	ErrClock       = errors.New("this machine's clock differs too much from the store's: set it, as with chrony or ntpd")
	ErrFull        = errors.New("the store is out of space or quota: free some or raise it")
)

// Entry is one object of a listing.
type Entry struct {
	Key  string
	Size int64 // bytes
}

// Store is a flat space of keys such as "objects/ab/abcd…". A key is a slash-separated relative path in UTF-8 without
// empty, ".", ".." or ".fresh" elements, and not below "tmp".
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

// CheckKey rejects what is not a clean relative path, and the names that are kept for objects that are being written.
func CheckKey(key string) error {
	if key == tempDir || strings.HasPrefix(key, tempDir+"/") {
		return fmt.Errorf("object key %q is reserved for objects that are being written", key)
	}
	if err := checkPath(key); err != nil {
		return fmt.Errorf("object key %q %w", key, err)
	}
	return nil
}

var errPath = errors.New("is not a clean relative path")

func checkPath(path string) error {
	for part := range strings.SplitSeq(path, "/") {
		switch {
		case part == "", part == ".", part == "..", part == freshName, strings.ContainsRune(part, 0), !utf8.ValidString(part):
			return errPath
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
