// Package object makes a store.Store of a bucket: keys under a prefix, retries, whole bodies or an error, and errors that
// say what to do. What differs between vendors lies behind Bucket and Vendor. The package names no vendor's SDK.
package object

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/thanos-io/objstore"

	"nomad-spotter/checkpointer/store"
)

// Bucket is what is used of objstore.Bucket.
type Bucket interface {
	Get(ctx context.Context, name string) (io.ReadCloser, error)
	GetRange(ctx context.Context, name string, off, length int64) (io.ReadCloser, error)
	Attributes(ctx context.Context, name string) (objstore.ObjectAttributes, error)
	Delete(ctx context.Context, name string) error
}

// Vendor is what objstore.Bucket lacks: creation that never replaces, listings with sizes, and errors that can be told
// apart. None of the methods retries.
type Vendor interface {
	// Create puts an object with owner in its metadata, atomically, if there is none of that name. Otherwise its error is a
	// Problem of the kind "exists".
	Create(ctx context.Context, name string, body *io.SectionReader, owner string) error
	// Owner returns what Create put into an object's metadata, or nothing if there is no such thing.
	Owner(ctx context.Context, name string) (string, error)
	// List calls f with every object whose name begins with prefix, and its size in bytes.
	List(ctx context.Context, prefix string, f func(name string, size int64)) error
	// Problem returns what the store answered, if err is its answer.
	Problem(err error) Problem
}

// MaxBuffered is how much of a reader of unknown size Put takes into memory, in bytes.
const MaxBuffered = 256 << 20

// MaxObject is the largest object in bytes that one request puts at every vendor: 5 GiB at S3, OSS and COS, 5,000 MiB at
// Azure.
const MaxObject = 5000 << 20

// Config says how to reach a bucket.
type Config struct {
	Location store.Location
	Bucket   Bucket
	Vendor   Vendor
	Hint     string // where the vendor's SDK looks for credentials, as "set A and B, or …"
	Settings Settings
}

// Store is a store in a bucket. It is safe for use by several goroutines.
type Store struct {
	url      string
	prefix   string // empty, or with a slash at its end
	bucket   Bucket
	vendor   Vendor
	hint     string
	attempts int
	timeout  time.Duration
	small    int64 // size up to which an object is read in one go before Get returns, in bytes
	buffered int64 // how much of a reader of unknown size is taken into memory, in bytes
}

var _ store.Store = (*Store)(nil)

// New returns the store. It does not talk to the bucket.
func New(c Config) *Store {
	s := &Store{
		url: c.Location.String(), bucket: c.Bucket, vendor: c.Vendor, hint: c.Hint,
		attempts: c.Settings.Attempts, timeout: c.Settings.Timeout, small: 1 << 20, buffered: MaxBuffered,
	}
	if c.Location.Path != "" {
		s.prefix = c.Location.Path + "/"
	}
	return s
}

// URL implements store.Store.
func (s *Store) URL() string { return s.url }

// Put implements store.Store. What can be read again (an io.ReaderAt that is an io.Seeker, too) is read as it is sent, once
// for its sum and once for each attempt. Any other reader is read into memory first, MaxBuffered bytes at most. A creation whose answer is lost is repeated; the object that the repetition finds is
// taken for ours if it bears the mark that the first attempt gave it or, where a store keeps no marks, if it has just our
// content.
func (s *Store) Put(ctx context.Context, key string, r io.Reader) (int64, error) {
	if err := store.CheckKey(key); err != nil {
		return 0, err
	}
	if err := ctx.Err(); err != nil {
		return 0, s.explain("put", key, err)
	}
	body, err := s.content(ctx, r)
	if err != nil {
		return 0, s.explain("put", key, err)
	}
	var id [16]byte
	if _, err := rand.Read(id[:]); err != nil {
		return 0, s.explain("put", key, err)
	}
	if err := s.create(ctx, key, body, hex.EncodeToString(id[:])); err != nil {
		return 0, s.explain("put", key, err)
	}
	return body.Size(), nil
}

func (s *Store) create(caller context.Context, key string, body *content, owner string) error {
	limit := s.timeout + time.Duration(body.Size()/slowest)*time.Second
	attempts := 0
	return s.retry(caller, limit, func(ctx context.Context) error {
		attempts++
		if _, err := body.Seek(0, io.SeekStart); err != nil {
			return err
		}
		err := s.vendor.Create(ctx, s.prefix+key, body.SectionReader, owner)
		switch {
		case err == nil:
			return nil
		case body.failed() != nil:
			return body.failed()
		case s.kindOf(err) == exists && attempts == 1:
			return store.ErrExists
		case s.kindOf(err) == exists:
			return s.settle(ctx, key, body.SectionReader, owner)
		case s.vendor.Problem(err).Status != 0:
			return err
		}
		// Without an answer the object may be there all the same: the answer was lost, or the store refused the object
		// before it had read all of it, which a client that is still sending does not hear.
		var serr error
		if oerr := s.once(caller, s.timeout, func(ctx context.Context) error {
			serr = s.settle(ctx, key, body.SectionReader, owner)
			return serr
		}); oerr == nil || errors.Is(serr, store.ErrExists) {
			return serr
		}
		return err
	})
}

// settle returns nil if the object that is there was made by an earlier attempt, and ErrExists if it was not.
func (s *Store) settle(ctx context.Context, key string, body *io.SectionReader, owner string) error {
	ours, err := s.ours(ctx, key, body, owner)
	if err == nil && !ours {
		return store.ErrExists
	}
	return err
}

// ours tells whether the object that is there was made by an earlier attempt.
func (s *Store) ours(ctx context.Context, key string, body *io.SectionReader, owner string) (bool, error) {
	mark, err := s.vendor.Owner(ctx, s.prefix+key)
	if err != nil {
		return false, fmt.Errorf("find out whose object is there: %w", err)
	}
	if mark != "" {
		return mark == owner, nil
	}
	r, err := s.bucket.Get(ctx, s.prefix+key)
	if err != nil {
		return false, fmt.Errorf("find out whose object is there: %w", err)
	}
	same, err := equal(r, io.NewSectionReader(body, 0, body.Size()))
	if err := errors.Join(err, r.Close()); err != nil {
		return false, fmt.Errorf("compare with the object that is there: %w", err)
	}
	return same, nil
}

// equal tells whether two readers hold the same bytes.
func equal(a, b io.Reader) (bool, error) {
	x, y := make([]byte, 64<<10), make([]byte, 64<<10)
	for {
		n, aerr := io.ReadFull(a, x)
		m, berr := io.ReadFull(b, y)
		if !bytes.Equal(x[:n], y[:m]) {
			return false, nil
		}
		for _, err := range []error{aerr, berr} {
			if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
				return false, err
			}
		}
		if aerr != nil || berr != nil {
			return aerr != nil && berr != nil, nil
		}
	}
}

// Stat implements store.Store. The answer to a question for the head alone has no body, and so tells neither a missing
// object from a missing bucket nor an expired token from a bad request: reading one byte does.
func (s *Store) Stat(ctx context.Context, key string) (int64, error) {
	if err := store.CheckKey(key); err != nil {
		return 0, err
	}
	size, err := s.stat(ctx, key)
	return size, s.explain("stat", key, err)
}

func (s *Store) stat(ctx context.Context, key string) (size int64, err error) {
	err = s.retry(ctx, s.timeout, func(ctx context.Context) error {
		a, err := s.bucket.Attributes(ctx, s.prefix+key)
		if err == nil || s.kindOf(err) == transient {
			size = a.Size
			return err
		}
		r, err := s.bucket.GetRange(ctx, s.prefix+key, 0, 1)
		if err == nil {
			err = r.Close()
		}
		if err != nil && s.kindOf(err) != noRange {
			return err
		}
		a, err = s.bucket.Attributes(ctx, s.prefix+key) // created just now
		size = a.Size
		return err
	})
	return size, err
}

// List implements store.Store.
func (s *Store) List(ctx context.Context, prefix string) ([]store.Entry, error) {
	if err := store.CheckPrefix(prefix); err != nil {
		return nil, err
	}
	var out []store.Entry
	limit := 10 * s.timeout // many pages; each has the transport's time-out besides
	err := s.retry(ctx, limit, func(ctx context.Context) error {
		out = nil
		return s.vendor.List(ctx, s.prefix+prefix, func(name string, size int64) {
			key, ok := strings.CutPrefix(name, s.prefix)
			// Not ours: what others keep in the same bucket, such as the empty objects by which consoles show folders.
			if ok && store.CheckKey(key) == nil {
				out = append(out, store.Entry{Key: key, Size: size})
			}
		})
	})
	if err != nil {
		return nil, s.explain("list", prefix, err)
	}
	slices.SortFunc(out, func(a, b store.Entry) int { return strings.Compare(a.Key, b.Key) })
	return slices.Compact(out), nil
}

// Delete implements store.Store.
func (s *Store) Delete(ctx context.Context, key string) error {
	if err := store.CheckKey(key); err != nil {
		return err
	}
	err := s.retry(ctx, s.timeout, func(ctx context.Context) error {
		err := s.bucket.Delete(ctx, s.prefix+key)
		if err != nil && s.kindOf(err) == notFound {
			return nil
		}
		return err
	})
	return s.explain("delete", key, err)
}
