package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/shoenig/test/must"

	"nomad-spotter/checkpointer/store"
)

// Contract holds an implementation of store.Store to what the interface promises. open returns an empty store.
func Contract(t *testing.T, open func(t *testing.T) store.Store) {
	for _, c := range []struct {
		name string
		f    func(t *testing.T, s store.Store)
	}{
		{"put and get", contractPutGet},
		{"ranges", contractRange},
		{"put never replaces", contractExists},
		{"concurrent puts have one winner", contractConcurrent},
		{"a failing reader leaves nothing", contractFailingReader},
		{"a cancelled put leaves nothing", contractCancelled},
		{"missing objects", contractMissing},
		{"keys that are refused", contractKeys},
		{"keys that need care on the wire", contractNames},
		{"list", contractList},
		{"a long list", contractLongList},
		{"delete", contractDelete},
		{"probe", contractProbe},
	} {
		t.Run(c.name, func(t *testing.T) { c.f(t, open(t)) })
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

func contractPutGet(t *testing.T, s store.Store) {
	// Sizes around the buffer of io.Copy, 32 KiB.
	for _, size := range []int{0, 1, 32<<10 - 1, 32 << 10, 32<<10 + 1, 100_000} {
		key := fmt.Sprintf("a/b/%d", size)
		content := bytes.Repeat([]byte("spot"), size/4+1)[:size]
		n, err := s.Put(t.Context(), key, iotest.HalfReader(bytes.NewReader(content)))
		must.NoError(t, err)
		must.Eq(t, int64(size), n)
		must.EqOp(t, string(content), get(t, s, key))
		n, err = s.Stat(t.Context(), key)
		must.NoError(t, err)
		must.Eq(t, int64(size), n)
	}
}

func contractExists(t *testing.T, s store.Store) {
	put(t, s, "a", "old")
	_, err := s.Put(t.Context(), "a", strings.NewReader("new"))
	must.ErrorIs(t, err, store.ErrExists)
	must.EqOp(t, "old", get(t, s, "a"))
}

func contractConcurrent(t *testing.T, s store.Store) {
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
			_, err := s.Put(t.Context(), "objects/one", strings.NewReader(content))
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
	must.True(t, won[0] == get(t, s, "objects/one"), must.Sprint("the object is not the winner's"))
}

func contractFailingReader(t *testing.T, s store.Store) {
	broken := errors.New("broken")
	_, err := s.Put(t.Context(), "a/b", io.MultiReader(strings.NewReader("half"), iotest.ErrReader(broken)))
	must.ErrorIs(t, err, broken)
	_, err = s.Stat(t.Context(), "a/b")
	must.ErrorIs(t, err, store.ErrNotFound)
	must.SliceEmpty(t, keys(t, s, ""))
	put(t, s, "a/b", "whole")
}

func contractCancelled(t *testing.T, s store.Store) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.Put(ctx, "a", strings.NewReader("x"))
	must.ErrorIs(t, err, context.Canceled)
	must.SliceEmpty(t, keys(t, s, ""))
}

func contractMissing(t *testing.T, s store.Store) {
	put(t, s, "dir/a", "x")
	for _, key := range []string{"none", "none/none", "dir/none", "dir"} { // a directory is no object
		_, err := s.Get(t.Context(), key)
		must.ErrorIs(t, err, store.ErrNotFound, must.Sprint(key))
		_, err = s.Stat(t.Context(), key)
		must.ErrorIs(t, err, store.ErrNotFound, must.Sprint(key))
	}
	must.SliceEmpty(t, keys(t, s, "none/"))
}

func contractKeys(t *testing.T, s store.Store) {
	for _, key := range []string{"", "/a", "a/", "a//b", ".", "..", "a/../b", "a/./b", "../a", "a\x00", "tmp", "tmp/a"} {
		_, err := s.Put(t.Context(), key, strings.NewReader("x"))
		must.ErrorContains(t, err, fmt.Sprintf("object key %q", key))
		_, err = s.Get(t.Context(), key)
		must.Error(t, err, must.Sprint(key))
		_, err = s.Stat(t.Context(), key)
		must.Error(t, err, must.Sprint(key))
		must.Error(t, s.Delete(t.Context(), key), must.Sprint(key))
	}
	_, err := s.List(t.Context(), "../")
	must.Error(t, err)
	must.SliceEmpty(t, keys(t, s, ""))
	put(t, s, "temporary", "x") // only the name itself is reserved
	put(t, s, "a/tmp/b", "x")
}

func contractList(t *testing.T, s store.Store) {
	want := []string{"a-b", "a/1", "a/2", "a/b/3", "ab/4", "b"}
	for _, key := range []string{"b", "a/2", "ab/4", "a/b/3", "a-b", "a/1"} {
		put(t, s, key, key)
	}
	must.Eq(t, want, keys(t, s, ""))
	must.True(t, slices.IsSorted(keys(t, s, "")))
	must.Eq(t, []string{"a/1", "a/2", "a/b/3"}, keys(t, s, "a/"))
	list, err := s.List(t.Context(), "a/b/")
	must.NoError(t, err)
	must.Eq(t, []store.Entry{{Key: "a/b/3", Size: 5}}, list)
}

func contractDelete(t *testing.T, s store.Store) {
	put(t, s, "a/b", "x")
	for range 2 {
		must.NoError(t, s.Delete(t.Context(), "a/b"))
	}
	must.NoError(t, s.Delete(t.Context(), "none/none"))
	_, err := s.Stat(t.Context(), "a/b")
	must.ErrorIs(t, err, store.ErrNotFound)
	put(t, s, "a/b", "y")
}

func contractRange(t *testing.T, s store.Store) {
	put(t, s, "a/b", "0123456789")
	put(t, s, "empty", "")
	for _, c := range []struct {
		key    string
		off, n int64
		want   string
	}{
		{"a/b", 0, 10, "0123456789"},
		{"a/b", 0, 1, "0"},
		{"a/b", 3, 4, "3456"},
		{"a/b", 9, 1, "9"},
		{"a/b", 9, 2, "9"},
		{"a/b", 5, 1 << 40, "56789"},
		{"a/b", 10, 1, ""}, // behind the end
		{"a/b", 11, 5, ""},
		{"a/b", 0, 0, ""},
		{"a/b", 7, 0, ""},
		{"empty", 0, 1, ""},
		{"empty", 0, 0, ""},
		{"empty", 3, 3, ""},
	} {
		r, err := s.GetRange(t.Context(), c.key, c.off, c.n)
		must.NoError(t, err, must.Sprintf("%+v", c))
		b, err := io.ReadAll(r)
		must.NoError(t, err, must.Sprintf("%+v", c))
		must.NoError(t, r.Close())
		must.EqOp(t, c.want, string(b), must.Sprintf("%+v", c))
	}
	for _, n := range []int64{0, 1} {
		_, err := s.GetRange(t.Context(), "a/none", 0, n)
		must.ErrorIs(t, err, store.ErrNotFound)
	}
	for _, c := range [][2]int64{{-1, 1}, {0, -1}} {
		_, err := s.GetRange(t.Context(), "a/b", c[0], c[1])
		must.ErrorContains(t, err, "range of")
	}
}

// Keys that a URL, a signature or a listing in XML could mangle.
func contractNames(t *testing.T, s store.Store) {
	names := []string{
		"a b", "a+b", "a%20b", "a%2Fb", "a&b=c", "a?b", "a#b", "é/ü", "日本", "a'b\"c", "<a>", "~", "a:b", "a;b,c", "...", "a..b", "-", "$!*()@",
	}
	for _, name := range names {
		put(t, s, "n/"+name, name)
	}
	slices.Sort(names)
	for _, name := range names {
		must.EqOp(t, name, get(t, s, "n/"+name), must.Sprint(name))
		size, err := s.Stat(t.Context(), "n/"+name)
		must.NoError(t, err)
		must.EqOp(t, int64(len(name)), size)
	}
	var want []string
	for _, name := range names {
		want = append(want, "n/"+name)
	}
	slices.Sort(want)
	must.Eq(t, want, keys(t, s, "n/"))
	for _, name := range names {
		must.NoError(t, s.Delete(t.Context(), "n/"+name), must.Sprint(name))
	}
	must.SliceEmpty(t, keys(t, s, ""))
}

// contractLongList has more objects than one page of any vendor's listing (1,000; Azure 5,000 at most), made small by the
// fakes.
func contractLongList(t *testing.T, s store.Store) {
	var want []string
	for i := range 23 {
		key := fmt.Sprintf("objects/%02x/%04d", i%4, i)
		put(t, s, key, "x")
		want = append(want, key)
	}
	put(t, s, "objects-too", "x")
	slices.Sort(want)
	must.Eq(t, want, keys(t, s, "objects/"))
}

func contractProbe(t *testing.T, s store.Store) {
	must.NoError(t, store.Probe(t.Context(), s))
	must.SliceEmpty(t, keys(t, s, "")) // nothing stays
}
