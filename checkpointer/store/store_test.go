package store_test

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

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
	_, err = store.Open("file://"+root+"/below", true) // its parent is not made
	must.Error(t, err)
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
