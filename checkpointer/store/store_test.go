package store_test

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/shoenig/test/must"

	"nomad-spotter/checkpointer/store"
	"nomad-spotter/checkpointer/store/storetest"
)

func TestContract(t *testing.T) {
	for name, open := range map[string]func(t *testing.T) store.Store{
		"file on the operating system": func(t *testing.T) store.Store {
			s, err := store.OpenFile(filepath.Join(t.TempDir(), "store"), store.OS{}, true)
			must.NoError(t, err)
			return s
		},
		"file on a simulated disk": func(t *testing.T) store.Store {
			s, err := store.OpenFile("/store", storetest.New(), true)
			must.NoError(t, err)
			return s
		},
		"file on a file system that machines share": func(t *testing.T) store.Store {
			s, err := store.OpenFile("/store", storetest.NewNode(storetest.New()), true)
			must.NoError(t, err)
			return s
		},
		"memory":                 func(*testing.T) store.Store { return &storetest.Memory{} },
		"faulty without a fault": func(*testing.T) store.Store { return storetest.NewFaulty(&storetest.Memory{}) },
	} {
		t.Run(name, func(t *testing.T) { storetest.Contract(t, open) })
	}
}

func put(t *testing.T, s store.Store, key, content string) {
	t.Helper()
	n, err := s.Put(t.Context(), key, strings.NewReader(content))
	must.NoError(t, err)
	must.Eq(t, int64(len(content)), n)
}

func get(t *testing.T, s store.Store, key string) string {
	t.Helper()
	r, err := s.Get(t.Context(), key)
	must.NoError(t, err)
	b, err := io.ReadAll(r)
	must.NoError(t, err)
	must.NoError(t, r.Close())
	return string(b)
}

// A store that went away, as a file system that is not mounted, is an error and not an empty store.
func TestGone(t *testing.T) {
	root := filepath.Join(t.TempDir(), "store")
	s, err := store.Open("file://"+root, true)
	must.NoError(t, err)
	put(t, s, "a", "x")
	must.NoError(t, os.Rename(root, root+".away"))
	_, err = s.List(t.Context(), "")
	must.ErrorContains(t, err, "the store is gone")
	_, err = store.Open("file://"+root, false)
	must.ErrorIs(t, err, store.ErrNotFound)
	must.EqError(t, err, "open store file://"+root+": no such directory: stat "+root+": no such file or directory")
	_, err = store.Open("file://"+root+"/below", true) // its parent is not made
	must.ErrorContains(t, err, "below: no such file or directory: its parent directory must exist: is the right file system mounted there?")
	must.NoError(t, os.WriteFile(root, nil, 0o600))
	_, err = store.Open("file://"+root, false)
	must.ErrorIs(t, err, store.ErrNotFound)
	must.EqError(t, err, "open store file://"+root+": it is not a directory: name one")
}

// No file of a finished or failed Put stays behind in tmp.
func TestNoLeftovers(t *testing.T) {
	root := filepath.Join(t.TempDir(), "store")
	s, err := store.Open("file://"+root, true)
	must.NoError(t, err)
	put(t, s, "a", "x")
	_, err = s.Put(t.Context(), "a", strings.NewReader("y"))
	must.ErrorIs(t, err, store.ErrExists)
	_, err = s.Put(t.Context(), "b", iotest.ErrReader(io.ErrUnexpectedEOF))
	must.Error(t, err)
	left, err := os.ReadDir(filepath.Join(root, "tmp"))
	must.NoError(t, err)
	must.SliceEmpty(t, left)
}

// What was put before a crash at any effect is there after it; what was not, is there whole or not at all.
func TestCrashEverywhere(t *testing.T) {
	const content = "content"
	for _, survive := range []bool{false, true} {
		for n := 1; ; n++ {
			sim := storetest.New()
			s, err := store.OpenFile("/store", sim, true)
			must.NoError(t, err)
			put(t, s, "before", content)
			sim.CrashAt(n)
			_, err = s.Put(t.Context(), "a/b/c", strings.NewReader(content))
			durable := err == nil
			sim.Reboot(func() bool { return survive })
			must.EqOp(t, content, get(t, s, "before"))
			r, err := s.Get(t.Context(), "a/b/c")
			if err == nil {
				b, err := io.ReadAll(r)
				must.NoError(t, err)
				must.EqOp(t, content, string(b))
			} else {
				must.ErrorIs(t, err, store.ErrNotFound)
				must.False(t, durable, must.Sprintf("effect %d: a durable object is gone", n))
				put(t, s, "a/b/c", content) // and can be put again
			}
			if durable {
				must.Greater(t, 5, n)
				break
			}
		}
	}
}

// A writer that was killed, without a crash of the machine, may leave an object that is not durable. Whoever is told that
// it exists must be able to rely on it.
func TestExistsIsDurable(t *testing.T) {
	for n := 1; ; n++ {
		sim := storetest.New()
		s, err := store.OpenFile("/store", sim, true)
		must.NoError(t, err)
		sim.CrashAt(n)
		_, first := s.Put(t.Context(), "a/b", strings.NewReader("x"))
		sim.CrashAt(0) // the process is dead, the machine is not
		_, err = s.Put(t.Context(), "a/b", strings.NewReader("x"))
		if err != nil {
			must.ErrorIs(t, err, store.ErrExists)
		}
		sim.Reboot(func() bool { return false })
		must.EqOp(t, "x", get(t, s, "a/b"), must.Sprintf("killed at effect %d", n))
		if first == nil {
			return
		}
	}
}

// What one machine puts, the next call on another sees, however little that other looks again by itself.
func TestShared(t *testing.T) {
	disk := storetest.New()
	open := func() store.Store {
		s, err := store.OpenFile("/store", storetest.NewNode(disk), true)
		must.NoError(t, err)
		return s
	}
	one, two := open(), open()
	list := func(s store.Store, prefix string) int {
		entries, err := s.List(t.Context(), prefix)
		must.NoError(t, err)
		return len(entries)
	}
	for i, key := range []string{"a", "b/c", "b/d", "e/f/g", "b/h/i/j"} {
		_, err := two.Stat(t.Context(), key)
		must.ErrorIs(t, err, store.ErrNotFound, must.Sprint(key))
		must.EqOp(t, i, list(two, ""), must.Sprint(key))
		must.EqOp(t, 0, list(two, key+"/"))
		put(t, one, key, key)
		must.EqOp(t, i+1, list(two, ""), must.Sprint(key))
		must.EqOp(t, key, get(t, two, key))
		_, err = two.Put(t.Context(), key, strings.NewReader("theirs"))
		must.ErrorIs(t, err, store.ErrExists)
	}
	must.EqOp(t, 3, list(two, "b/"))
	must.NoError(t, two.Delete(t.Context(), "b/h/i/j"))
	must.EqOp(t, 2, list(one, "b/"))
	_, err := one.Stat(t.Context(), "b/h/i/j")
	must.ErrorIs(t, err, store.ErrNotFound)
	names, err := disk.ReadDir("/store")
	must.NoError(t, err)
	must.SliceContainsAll(t, []string{"a", "b", "e", "tmp"}, names) // nothing stays of the looks
}

// A look that broke off half-way is mended by the next; its file is no object.
func TestShared_leftLook(t *testing.T) {
	disk := storetest.New()
	s, err := store.OpenFile("/store", storetest.NewNode(disk), true)
	must.NoError(t, err)
	put(t, s, "a/b", "x")
	_, err = disk.Create("/store/a/.fresh")
	must.NoError(t, err)
	entries, err := s.List(t.Context(), "")
	must.NoError(t, err)
	must.Eq(t, []store.Entry{{Key: "a/b", Size: 1}}, entries)
	_, err = s.Put(t.Context(), "a/.fresh", strings.NewReader("x"))
	must.Error(t, err)
	names, err := disk.ReadDir("/store/a")
	must.NoError(t, err)
	must.Eq(t, []string{"b"}, names)
}

// What a writer left a day ago is swept; a writer at work, and objects, are not touched.
func TestSweep(t *testing.T) {
	disk := storetest.New()
	s, err := store.OpenFile("/store", disk, true)
	must.NoError(t, err)
	put(t, s, "object", "x")
	for _, c := range []struct {
		name string
		age  time.Duration
		want bool
	}{{"dead", 24 * time.Hour, false}, {"slow", 24*time.Hour - time.Second, true}, {"new", 0, true}} {
		w, err := disk.Create("/store/tmp/" + c.name)
		must.NoError(t, err)
		_, err = w.Write([]byte("half"))
		must.NoError(t, err)
		disk.Advance(c.age)
		_, err = store.OpenFile("/store", disk, false) // only who may create sweeps
		must.NoError(t, err)
		_, err = disk.ModTime("/store/tmp/" + c.name)
		must.NoError(t, err)
		_, err = store.OpenFile("/store", disk, true)
		must.NoError(t, err)
		_, err = disk.ModTime("/store/tmp/" + c.name)
		must.EqOp(t, c.want, err == nil, must.Sprint(c.name))
	}
	disk.Advance(1000 * time.Hour)
	_, err = store.OpenFile("/store", disk, true)
	must.NoError(t, err)
	must.EqOp(t, "x", get(t, s, "object"))
	names, err := disk.ReadDir("/store/tmp")
	must.NoError(t, err)
	must.SliceEmpty(t, names)
}

// A writer whose temporary file was swept while it stood still fails, and nothing is there.
func TestSweep_writerStandsStill(t *testing.T) {
	disk := storetest.New()
	s, err := store.OpenFile("/store", disk, true)
	must.NoError(t, err)
	_, err = s.Put(t.Context(), "a", io.MultiReader(strings.NewReader("half"), readerFunc(func([]byte) (int, error) {
		disk.Advance(48 * time.Hour)
		_, err := store.OpenFile("/store", disk, true)
		must.NoError(t, err)
		return 0, io.EOF
	})))
	must.Error(t, err)
	_, err = s.Stat(t.Context(), "a")
	must.ErrorIs(t, err, store.ErrNotFound)
	put(t, s, "a", "whole")
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
