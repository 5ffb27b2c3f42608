package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/shoenig/test/must"

	"nomad-spotter/checkpointer/store"
	"nomad-spotter/checkpointer/store/storetest"
)

// implementations of store.Store; each call makes an empty one.
var implementations = map[string]func(t *testing.T) store.Store{
	"file": func(t *testing.T) store.Store {
		s, err := store.Open("file://"+filepath.Join(t.TempDir(), "store"), true)
		must.NoError(t, err)
		return s
	},
	"simulated": func(t *testing.T) store.Store {
		s, err := store.OpenFile("/store", storetest.New(), true)
		must.NoError(t, err)
		return s
	},
}

// contract is what every store must do.
var contract = map[string]func(t *testing.T, s store.Store){
	"what is put is got": func(t *testing.T, s store.Store) {
		for _, size := range []int{0, 1, 32<<10 - 1, 32 << 10, 32<<10 + 1, 1 << 20} {
			key := fmt.Sprintf("objects/ab/%d", size)
			data := bytes.Repeat([]byte{byte(size), 7, 255}, size/3+1)[:size]
			n, err := s.Put(t.Context(), key, oddReader{bytes.NewReader(data)})
			must.NoError(t, err)
			must.Eq(t, int64(size), n)
			must.Eq(t, data, get(t, s, key))
			n, err = s.Stat(t.Context(), key)
			must.NoError(t, err)
			must.Eq(t, int64(size), n)
		}
	},
	"an object is never replaced": func(t *testing.T, s store.Store) {
		_, err := s.Put(t.Context(), "a/b", strings.NewReader("first"))
		must.NoError(t, err)
		_, err = s.Put(t.Context(), "a/b", strings.NewReader("second"))
		must.ErrorIs(t, err, store.ErrExists)
		must.Eq(t, "first", string(get(t, s, "a/b")))
	},
	"one of many creators wins": func(t *testing.T, s store.Store) {
		var won atomic.Int64
		var wg sync.WaitGroup
		for i := range 16 {
			wg.Go(func() {
				_, err := s.Put(context.Background(), "lineages/l/1", strings.NewReader(strings.Repeat(fmt.Sprint(i%10), 5000)))
				if err == nil {
					won.Add(1)
				} else if !errors.Is(err, store.ErrExists) {
					t.Errorf("put: %v", err)
				}
			})
		}
		wg.Wait()
		must.Eq(t, 1, won.Load())
		got := get(t, s, "lineages/l/1")
		must.Eq(t, strings.Repeat(string(got[:1]), 5000), string(got))
	},
	"nothing is created when the source fails": func(t *testing.T, s store.Store) {
		broken := errors.New("broken source")
		_, err := s.Put(t.Context(), "a", io.MultiReader(strings.NewReader("half"), failing{broken}))
		must.ErrorIs(t, err, broken)
		_, err = s.Stat(t.Context(), "a")
		must.ErrorIs(t, err, store.ErrNotFound)
		list, err := s.List(t.Context(), "")
		must.NoError(t, err)
		must.SliceEmpty(t, list)
		_, err = s.Put(t.Context(), "a", strings.NewReader("whole"))
		must.NoError(t, err)
	},
	"a done context stops a put": func(t *testing.T, s store.Store) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := s.Put(ctx, "a", strings.NewReader("x"))
		must.ErrorIs(t, err, context.Canceled)
		_, err = s.Stat(t.Context(), "a")
		must.ErrorIs(t, err, store.ErrNotFound)
	},
	"what is missing is not found": func(t *testing.T, s store.Store) {
		_, err := s.Get(t.Context(), "no/such")
		must.ErrorIs(t, err, store.ErrNotFound)
		_, err = s.Put(t.Context(), "dir/file", strings.NewReader("x"))
		must.NoError(t, err)
		_, err = s.Stat(t.Context(), "dir")
		must.ErrorIs(t, err, store.ErrNotFound, must.Sprint("a part of a key is no object"))
	},
	"a listing is sorted and below its prefix": func(t *testing.T, s store.Store) {
		for _, key := range []string{"b/2", "b/1", "b/c/3", "bb/4", "a"} {
			_, err := s.Put(t.Context(), key, strings.NewReader(key))
			must.NoError(t, err)
		}
		all, err := s.List(t.Context(), "")
		must.NoError(t, err)
		must.Eq(t, []store.Entry{{Key: "a", Size: 1}, {Key: "b/1", Size: 3}, {Key: "b/2", Size: 3}, {Key: "b/c/3", Size: 5}, {Key: "bb/4", Size: 4}}, all)
		some, err := s.List(t.Context(), "b/")
		must.NoError(t, err)
		must.Len(t, 3, some)
		none, err := s.List(t.Context(), "c/")
		must.NoError(t, err)
		must.SliceEmpty(t, none)
	},
	"deleting twice is fine": func(t *testing.T, s store.Store) {
		_, err := s.Put(t.Context(), "a/b", strings.NewReader("x"))
		must.NoError(t, err)
		must.NoError(t, s.Delete(t.Context(), "a/b"))
		must.NoError(t, s.Delete(t.Context(), "a/b"))
		must.NoError(t, s.Delete(t.Context(), "never/was"))
		_, err = s.Get(t.Context(), "a/b")
		must.ErrorIs(t, err, store.ErrNotFound)
		_, err = s.Put(t.Context(), "a/b", strings.NewReader("y"))
		must.NoError(t, err)
	},
	"no key leaves the store": func(t *testing.T, s store.Store) {
		for _, key := range []string{"", "/etc/passwd", "../x", "a/../../x", "a//b", "a/./b", "a/", "a\x00b"} {
			_, err := s.Put(t.Context(), key, strings.NewReader("x"))
			must.ErrorContains(t, err, "clean relative path", must.Sprintf("key %q", key))
			_, err = s.Get(t.Context(), key)
			must.Error(t, err)
			_, err = s.Stat(t.Context(), key)
			must.Error(t, err)
			must.Error(t, s.Delete(t.Context(), key))
		}
	},
}

func TestContract(t *testing.T) {
	for kind, open := range implementations {
		for name, check := range contract {
			t.Run(kind+"/"+name, func(t *testing.T) { check(t, open(t)) })
		}
	}
}

// oddReader returns its bytes in pieces of odd sizes.
type oddReader struct{ r io.Reader }

func (o oddReader) Read(p []byte) (int, error) { return o.r.Read(p[:min(len(p), 4093)]) }

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func get(t *testing.T, s store.Store, key string) []byte {
	t.Helper()
	rc, err := s.Get(t.Context(), key)
	must.NoError(t, err)
	b, err := io.ReadAll(rc)
	must.NoError(t, errors.Join(err, rc.Close()))
	return b
}

func TestOpen_missing(t *testing.T) {
	root := filepath.Join(t.TempDir(), "none")
	_, err := store.Open("file://"+root, false)
	must.ErrorContains(t, err, "no such directory")
	must.ErrorIs(t, err, store.ErrNotFound)
	_, err = os.Stat(root)
	must.ErrorIs(t, err, os.ErrNotExist, must.Sprint("reading makes nothing"))
}

// A file system that goes away must never look like an empty store.
func TestFile_rootGone(t *testing.T) {
	root := filepath.Join(t.TempDir(), "store")
	s, err := store.Open("file:"+root, true)
	must.NoError(t, err)
	_, err = s.Put(t.Context(), "a/b", strings.NewReader("x"))
	must.NoError(t, err)
	must.NoError(t, os.Rename(root, root+".away"))
	_, err = s.List(t.Context(), "a/")
	must.ErrorContains(t, err, "the store is gone")
	_, err = s.Put(t.Context(), "a/c", strings.NewReader("y"))
	must.Error(t, err)
	_, err = os.Stat(root)
	must.ErrorIs(t, err, os.ErrNotExist, must.Sprint("a put does not make the store again"))
	must.NoError(t, os.Rename(root+".away", root))
	_, err = s.Put(t.Context(), "a/c", strings.NewReader("y"))
	must.NoError(t, err)
}

func TestParse(t *testing.T) {
	for raw, want := range map[string]string{
		"file:///mnt/store":      "/mnt/store",
		"file:/mnt/store":        "/mnt/store",
		"file:///":               "/",
		"file:///mnt/a%20b/":     "/mnt/a b",
		"FILE:///mnt/./x/../y":   "/mnt/y",
		"file:///mnt/checkpoint": "/mnt/checkpoint",
	} {
		scheme, path, err := store.Parse(raw)
		must.NoError(t, err, must.Sprint(raw))
		must.Eq(t, "file", scheme)
		must.Eq(t, want, path)
	}
	for raw, want := range map[string]string{
		"":                 "has no scheme",
		"/mnt/store":       "has no scheme",
		"ftp://host/x":     `scheme "ftp" of "ftp://host/x" is not supported`,
		"s3://bucket":      "is not supported",
		"file:relative":    "is not absolute",
		"file://host/x":    `names a host, "host"`,
		"file://":          "is not absolute",
		"file:///x?y=1":    "query or fragment",
		"file:///x#y":      "query or fragment",
		"file:///x%00y":    "zero byte",
		"file:///x\x7f":    "is not a URL",
		"file://u@/x":      "names a host",
		"://":              "is not a URL",
		"file:///bad%zzet": "is not a URL",
	} {
		_, _, err := store.Parse(raw)
		must.ErrorContains(t, err, want, must.Sprintf("URL %q", raw))
		must.ErrorContains(t, err, "file:///", must.Sprint("the message says what to write instead"))
	}
}

// Whatever is accepted prints as a URL that means the same.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{"file:///mnt/store", "file:/a", "file:///a%20b", "file:///a%2Fb", "ftp://x/y", "file:rel", "file:///../..", "file:///%3f%23"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		_, path, err := store.Parse(raw)
		if err != nil {
			return
		}
		if !filepath.IsAbs(path) || filepath.Clean(path) != path {
			t.Fatalf("Parse(%q) gave the path %q", raw, path)
		}
		sim := storetest.New()
		for i := range strings.Count(path, "/") - 1 {
			parts := strings.SplitN(path, "/", i+3)
			if err := sim.Mkdir("/" + filepath.Join(parts[:i+2]...)); err != nil {
				return
			}
		}
		s, err := store.OpenFile(path, sim, true)
		if err != nil {
			return
		}
		_, again, err := store.Parse(s.URL())
		if err != nil || again != path {
			t.Fatalf("%q is printed as %q, which is %q, %v", raw, s.URL(), again, err)
		}
	})
}

// An object that Put called durable is there after a loss of power at any later moment, and one that it did not is
// there whole or not at all. The process may be killed at one effect and be retried before the power is lost.
func TestFile_powerLoss(t *testing.T) {
	const data = "the content"
	for n := 1; ; n++ {
		for _, keep := range []bool{false, true} {
			sim := storetest.New()
			put := func() error {
				s, err := store.OpenFile("/store", sim, true)
				if err != nil {
					return err
				}
				_, err = s.Put(t.Context(), "a/b/c", strings.NewReader(data))
				return err
			}
			sim.CrashAt(n)
			first := put()
			if first == nil {
				must.Greater(t, 8, n, must.Sprint("every effect was tried"))
				return
			}
			sim.CrashAt(0) // the process is gone, the machine lives: what was written is still visible
			if err := put(); err != nil && !errors.Is(err, store.ErrExists) {
				t.Fatalf("retry after a kill at effect %d: %v", n, err)
			}
			sim.Reboot(func() bool { return keep })
			s, err := store.OpenFile("/store", sim, false)
			must.NoError(t, err, must.Sprintf("killed at effect %d", n))
			must.Eq(t, data, string(get(t, s, "a/b/c")), must.Sprintf("killed at effect %d", n))
		}
	}
}
