package store_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/shoenig/test/must"

	"nomad-spotter/checkpointer/store"
	"nomad-spotter/checkpointer/store/storetest"
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
	for _, s := range []string{"file:///a", "file:/a b", "file:///a%2Fb/%41", "file:////x//y", "file:///é%ff", "s3://b", "test://bucket/a%20b?color=blue&free=%26", "test://bucket/%61/b/", "file://h/x", ":", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		scheme, path, err := store.Parse(raw)
		if err != nil {
			return
		}
		l, err := store.ParseLocation(raw)
		must.NoError(t, err)
		if scheme == "file" {
			s, err := store.OpenFile(path, present{}, false)
			must.NoError(t, err)
			must.EqOp(t, l.String(), s.URL())
		}
		scheme2, path2, err := store.Parse(l.String())
		must.NoError(t, err)
		must.EqOp(t, scheme, scheme2)
		must.EqOp(t, path, path2)
	})
}

// present is a file system that has every directory.
type present struct{ store.OS }

func (present) Stat(string) (int64, bool, error) { return 0, true, nil }

func (present) Shared(string) (bool, error) { return false, nil }

func init() {
	store.Register("test", []store.Option{
		{Name: "color", Type: "a color", Default: "red", Check: func(v string) error {
			if v != "red" && v != "blue" {
				return errors.New("want red or blue")
			}
			return nil
		}},
		{Name: "free", Type: "anything"},
	}, func(l store.Location) (store.Store, error) {
		if l.Option("free") == "broken" {
			return nil, errors.New("it is broken")
		}
		return &storetest.Memory{}, nil
	})
}

func TestParseLocation(t *testing.T) {
	for _, c := range []struct{ url, path, color, again, err string }{
		{url: "test://bucket", path: "bucket", color: "red", again: "test://bucket"},
		{url: "TEST://bucket/", path: "bucket", color: "red", again: "test://bucket"},
		{url: "test://Bucket-1.x_y/a/b/?color=blue", path: "Bucket-1.x_y/a/b", color: "blue", again: "test://Bucket-1.x_y/a/b?color=blue"},
		{url: "test://bucket/a%20b?free=x%26y", path: "bucket/a b", color: "red", again: "test://bucket/a%20b?free=x%26y"},
		{url: "test://", err: "names no bucket: use test://BUCKET/PREFIX"},
		{url: "test:bucket", err: "names no bucket: use test://BUCKET/PREFIX"},
		{url: "test:///bucket", err: "names no bucket"},
		{url: "test://bucket:9000/a", err: `bucket "bucket:9000" of store`},
		{url: "test://b", err: `bucket "b" of store`},
		{url: "test://a-b", path: "a-b", color: "red", again: "test://a-b"},
		{url: "test://ab-", err: `bucket "ab-" of store`},
		{url: "test://.ab", err: `bucket ".ab" of store`},
		{url: "test://a~b", err: `bucket "a~b" of store`},
		{url: "test://" + strings.Repeat("b", 223), err: "is no bucket's name"},
		{url: "test://bucket/a//b", err: `prefix "a//b" of store`},
		{url: "test://bucket/../b", err: `prefix "../b" of store`},
		{url: "test://bucket/a%00", err: "prefix"},
		{url: "test://bucket/a%ff", err: "is not a clean relative path"},
		{url: "test://bucket/a#b", err: `has a fragment, "b"`},
		{url: "test://bucket?color=green", err: `option color of store "test://bucket?color=green" is "green": want red or blue`},
		{url: "test://bucket?color=", err: "option color of store \"test://bucket?color=\" is empty: give a value (a color) or leave it out"},
		{url: "test://bucket?color=red&color=blue", err: `is given twice, as "red" and "blue": give it once`},
		{url: "test://bucket?colour=red", err: `option "colour" of store "test://bucket?colour=red" is unknown: test takes color, free`},
		{url: "test://bucket?colour=red&color=green", err: "want red or blue"}, // all faults together
		{url: "test://bucket?a=%zz", err: `query "a=%zz" of store`},
		{url: "other://bucket", err: `store scheme "other" of "other://bucket" is not supported: use one of file, test`},
		{url: "gs://bucket", err: `store scheme "gs" of "gs://bucket" is not built into this program, which has file, test: import nomad-spotter/checkpointer/store/gs`},
	} {
		l, err := store.ParseLocation(c.url)
		if c.err != "" {
			must.ErrorContains(t, err, c.err, must.Sprint(c.url))
			_, err = store.Open(c.url, true)
			must.ErrorContains(t, err, c.err)
			continue
		}
		must.NoError(t, err, must.Sprint(c.url))
		must.EqOp(t, c.again, l.String())
		must.EqOp(t, c.color, l.Option("color"))
		scheme, path, err := store.Parse(c.url)
		must.NoError(t, err)
		must.EqOp(t, "test", scheme)
		must.EqOp(t, c.path, path)
	}
	_, err := store.Open("test://bucket?free=broken", true)
	must.ErrorContains(t, err, "open store test://bucket?free=broken: it is broken")
	must.Eq(t, []string{"file", "test"}, store.Schemes())
	must.Len(t, 2, store.Options("test"))
}

// No user and no password is taken from a URL, and none is repeated in an error.
func TestParse_userinfo(t *testing.T) {
	for _, url := range []string{
		"test://key:hunter2@bucket/a", "test://key@bucket", "gs://key:hunter2@bucket", "test://key:hunter2@bucket/%zz", "://key:hunter2@bucket",
	} {
		_, _, err := store.Parse(url)
		must.Error(t, err, must.Sprint(url))
		must.StrNotContains(t, err.Error(), "hunter2")
	}
	_, _, err := store.Parse("test://key:hunter2@bucket")
	must.ErrorContains(t, err, "credentials come from the environment")
}
