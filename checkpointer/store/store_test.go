package store_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/shoenig/test/must"

	"nomad-spotter/checkpointer/store"
	"nomad-spotter/checkpointer/store/storetest"
)

// backend is one store to hold to the contract. junk puts a file beside the objects, behind the store's back.
type backend struct {
	store store.Store
	junk  func(t *testing.T, key string)
}

func backends() map[string]func(t *testing.T) backend {
	return map[string]func(t *testing.T) backend{
		"file on the operating system": func(t *testing.T) backend {
			root := filepath.Join(t.TempDir(), "store")
			s, err := store.OpenFile(root, store.OS{}, true)
			must.NoError(t, err)
			return backend{s, func(t *testing.T, key string) {
				must.NoError(t, os.WriteFile(filepath.Join(root, key), []byte("junk"), 0o600))
			}}
		},
		"file on a simulated disk": func(t *testing.T) backend {
			sim := storetest.New()
			s, err := store.OpenFile("/store", sim, true)
			must.NoError(t, err)
			return backend{s, func(t *testing.T, key string) {
				f, err := sim.Create("/store/" + key)
				must.NoError(t, err)
				_, err = f.Write([]byte("junk"))
				must.NoError(t, err)
			}}
		},
	}
}

func TestContract(t *testing.T) {
	for name, open := range backends() {
		t.Run(name, func(t *testing.T) {
			for _, c := range []struct {
				name string
				f    func(t *testing.T, b backend)
			}{
				{"put and get", contractPutGet},
				{"put never replaces", contractExists},
				{"concurrent puts have one winner", contractConcurrent},
				{"a failing reader leaves nothing", contractFailingReader},
				{"a cancelled put leaves nothing", contractCancelled},
				{"missing objects", contractMissing},
				{"keys that are refused", contractKeys},
				{"list", contractList},
				{"delete", contractDelete},
			} {
				t.Run(c.name, func(t *testing.T) { c.f(t, open(t)) })
			}
		})
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

func keys(t *testing.T, s store.Store, prefix string) []string {
	t.Helper()
	list, err := s.List(t.Context(), prefix)
	must.NoError(t, err)
	out := make([]string, len(list))
	for i, e := range list {
		out[i] = e.Key
	}
	return out
}

func contractPutGet(t *testing.T, b backend) {
	// Sizes around the buffer of io.Copy, 32 KiB.
	for _, size := range []int{0, 1, 32<<10 - 1, 32 << 10, 32<<10 + 1, 100_000} {
		key := fmt.Sprintf("a/b/%d", size)
		content := bytes.Repeat([]byte("spot"), size/4+1)[:size]
		n, err := b.store.Put(t.Context(), key, iotest.HalfReader(bytes.NewReader(content)))
		must.NoError(t, err)
		must.Eq(t, int64(size), n)
		must.EqOp(t, string(content), get(t, b.store, key))
		n, err = b.store.Stat(t.Context(), key)
		must.NoError(t, err)
		must.Eq(t, int64(size), n)
	}
}

func contractExists(t *testing.T, b backend) {
	put(t, b.store, "a", "old")
	_, err := b.store.Put(t.Context(), "a", strings.NewReader("new"))
	must.ErrorIs(t, err, store.ErrExists)
	must.EqOp(t, "old", get(t, b.store, "a"))
}

func contractConcurrent(t *testing.T, b backend) {
	const writers = 16
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		won  []string
		errs []error
	)
	for i := range writers {
		wg.Go(func() {
			content := strings.Repeat(fmt.Sprintf("%02d", i), 50_000)
			_, err := b.store.Put(t.Context(), "objects/one", strings.NewReader(content))
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				won = append(won, content)
			} else {
				errs = append(errs, err)
			}
		})
	}
	wg.Wait()
	must.Len(t, 1, won)
	must.Len(t, writers-1, errs)
	for _, err := range errs {
		must.ErrorIs(t, err, store.ErrExists)
	}
	must.True(t, won[0] == get(t, b.store, "objects/one"), must.Sprint("the object is not the winner's"))
}

func contractFailingReader(t *testing.T, b backend) {
	broken := errors.New("broken")
	_, err := b.store.Put(t.Context(), "a/b", io.MultiReader(strings.NewReader("half"), iotest.ErrReader(broken)))
	must.ErrorIs(t, err, broken)
	_, err = b.store.Stat(t.Context(), "a/b")
	must.ErrorIs(t, err, store.ErrNotFound)
	must.SliceEmpty(t, keys(t, b.store, ""))
	put(t, b.store, "a/b", "whole")
}

func contractCancelled(t *testing.T, b backend) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := b.store.Put(ctx, "a", strings.NewReader("x"))
	must.ErrorIs(t, err, context.Canceled)
	must.SliceEmpty(t, keys(t, b.store, ""))
}

func contractMissing(t *testing.T, b backend) {
	put(t, b.store, "dir/a", "x")
	for _, key := range []string{"none", "none/none", "dir/none", "dir"} { // a directory is no object
		_, err := b.store.Get(t.Context(), key)
		must.ErrorIs(t, err, store.ErrNotFound, must.Sprint(key))
		_, err = b.store.Stat(t.Context(), key)
		must.ErrorIs(t, err, store.ErrNotFound, must.Sprint(key))
	}
	must.SliceEmpty(t, keys(t, b.store, "none/"))
}

func contractKeys(t *testing.T, b backend) {
	for _, key := range []string{"", "/a", "a/", "a//b", ".", "..", "a/../b", "a/./b", "../a", "a\x00", "tmp", "tmp/a"} {
		_, err := b.store.Put(t.Context(), key, strings.NewReader("x"))
		must.ErrorContains(t, err, fmt.Sprintf("object key %q", key))
		_, err = b.store.Get(t.Context(), key)
		must.Error(t, err, must.Sprint(key))
		_, err = b.store.Stat(t.Context(), key)
		must.Error(t, err, must.Sprint(key))
		must.Error(t, b.store.Delete(t.Context(), key), must.Sprint(key))
	}
	_, err := b.store.List(t.Context(), "../")
	must.Error(t, err)
	must.SliceEmpty(t, keys(t, b.store, ""))
	put(t, b.store, "temporary", "x") // only the name itself is reserved
	put(t, b.store, "a/tmp/b", "x")
}

func contractList(t *testing.T, b backend) {
	want := []string{"a-b", "a/1", "a/2", "a/b/3", "ab/4", "b"}
	for _, key := range []string{"b", "a/2", "ab/4", "a/b/3", "a-b", "a/1"} {
		put(t, b.store, key, key)
	}
	b.junk(t, "tmp/leftover")
	must.Eq(t, want, keys(t, b.store, ""))
	must.True(t, slices.IsSorted(keys(t, b.store, "")))
	must.Eq(t, []string{"a/1", "a/2", "a/b/3"}, keys(t, b.store, "a/"))
	list, err := b.store.List(t.Context(), "a/b/")
	must.NoError(t, err)
	must.Eq(t, []store.Entry{{Key: "a/b/3", Size: 5}}, list)
}

func contractDelete(t *testing.T, b backend) {
	put(t, b.store, "a/b", "x")
	for range 2 {
		must.NoError(t, b.store.Delete(t.Context(), "a/b"))
	}
	must.NoError(t, b.store.Delete(t.Context(), "none/none"))
	_, err := b.store.Stat(t.Context(), "a/b")
	must.ErrorIs(t, err, store.ErrNotFound)
	put(t, b.store, "a/b", "y")
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
