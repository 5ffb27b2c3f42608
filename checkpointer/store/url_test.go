package store_test

import (
	"testing"

	"github.com/shoenig/test/must"

	"nomad-spotter/checkpointer/store"
)

func TestParse(t *testing.T) {
	for _, c := range []struct{ url, path, err string }{
		{url: "file:///a", path: "/a"},
		{url: "file:/a", path: "/a"},
		{url: "FILE:///a", path: "/a"},
		{url: "file:///a/b/", path: "/a/b"},
		{url: "file:///a/../b", path: "/b"},
		{url: "file:///with%20space", path: "/with space"},
		{url: "file:///", path: "/"},
		{url: "", err: `store "" has no scheme`},
		{url: "/a", err: `store "/a" has no scheme`},
		{url: "a/b", err: `store "a/b" has no scheme`},
		{url: "file:a", err: `store "file:a" is not absolute`},
		{url: "file://", err: `store "file://" is not absolute`},
		{url: "file://a/b", err: `store "file://a/b" names a host, "a"`},
		{url: "file://u@/b", err: `store "file://u@/b" names a host`},
		{url: "s3://bucket/a", err: `store scheme "s3" of "s3://bucket/a" is not built into this program`},
		{url: "file:///a?x=1", err: `store "file:///a?x=1" has a query`},
		{url: "file:///a#x", err: `store "file:///a#x" has a query or fragment`},
		{url: "file:///a%zz", err: `store "file:///a%zz" is not a URL`},
		{url: "file:///a%00b", err: `store "file:///a%00b" has a zero byte`},
	} {
		scheme, path, err := store.Parse(c.url)
		if c.err == "" {
			must.NoError(t, err)
			must.EqOp(t, "file", scheme)
			must.EqOp(t, c.path, path)
			continue
		}
		must.ErrorContains(t, err, c.err)
		must.ErrorContains(t, err, "file:///absolute/path") // the next step
	}
}

// What parses is a store whose URL parses to the same.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"file:///a", "file:/a b", "file:///a%2Fb/%41", "file:////x//y", "file:///é%ff", "s3://b", "file://h/x", ":", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		scheme, path, err := store.Parse(raw)
		if err != nil {
			return
		}
		s, err := store.OpenFile(path, present{}, false)
		must.NoError(t, err)
		scheme2, path2, err := store.Parse(s.URL())
		must.NoError(t, err)
		must.EqOp(t, scheme, scheme2)
		must.EqOp(t, path, path2)
	})
}

// present is a file system that has every directory.
type present struct{ store.OS }

func (present) Stat(string) (int64, bool, error) { return 0, true, nil }
