package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-spotter/checkpointer/store"
)

// Reply is how a vendor says that something is wrong.
type Reply struct {
	Status int
	Header http.Header
	Body   string
}

// Network holds a store to what it promises when the network and the server do not work. target is the server, and open
// returns the store through an endpoint, http://HOST:PORT, with three attempts, a time-out of half a second, and nothing
// in it. replies are the vendor's words for the errors that a person must mend.
func Network(t *testing.T, target string, open func(t *testing.T, endpoint string) store.Store, replies map[error]Reply) {
	for _, c := range []struct {
		name string
		f    func(t *testing.T, s store.Store, p *Proxy)
	}{
		{"what passes is tried again", networkRetry},
		{"what does not pass is an error, and nothing is there", networkDown},
		{"the answer to a put is lost", networkLost},
		{"the answer to a put of another's object is lost", networkLostOther},
		{"bodies break off", networkHalf},
		{"the store falls silent", networkSilent},
		{"the caller ends it", networkCancel},
		{"a missing bucket is no missing object", func(t *testing.T, s store.Store, p *Proxy) { networkReplies(t, s, p, replies) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel() // they mostly wait
			p := NewProxy(t, target)
			c.f(t, open(t, p.URL), p)
		})
	}
}

var (
	writes = []string{http.MethodPut, http.MethodPost}
	reads  = []string{http.MethodGet, http.MethodHead}
)

// each calls every method of a store that has the object "a".
func each(t *testing.T, s store.Store, content string) map[string]error {
	t.Helper()
	errs := map[string]error{}
	_, errs["put"] = s.Put(t.Context(), "b", strings.NewReader(content))
	_, errs["stat"] = s.Stat(t.Context(), "a")
	_, errs["list"] = s.List(t.Context(), "")
	errs["get"] = readSame(content)(s.Get(t.Context(), "a"))
	errs["get range"] = readSame(content[2:4])(s.GetRange(t.Context(), "a", 2, 2))
	errs["delete"] = s.Delete(t.Context(), "a")
	return errs
}

func readSame(want string) func(io.ReadCloser, error) error {
	return func(r io.ReadCloser, err error) error {
		if err != nil {
			return err
		}
		got, err := io.ReadAll(r)
		if err := errors.Join(err, r.Close()); err != nil {
			if !strings.HasPrefix(want, string(got)) {
				return errors.Join(err, fmt.Errorf("wrong bytes before the error"))
			}
			return err
		}
		if string(got) != want {
			return fmt.Errorf("got %d bytes, want %d others", len(got), len(want))
		}
		return nil
	}
}

func networkRetry(t *testing.T, s store.Store, p *Proxy) {
	for _, m := range []Mishap{
		{Wire: Answer, Status: http.StatusServiceUnavailable},
		{Wire: Answer, Status: http.StatusInternalServerError},
		{Wire: Answer, Status: http.StatusTooManyRequests},
		{Wire: ResetBefore},
		{Wire: ResetAfter},
	} {
		put(t, s, "a", "content")
		var mishaps []Mishap
		for _, method := range []string{http.MethodPut, http.MethodPost, http.MethodHead, http.MethodDelete} {
			m.Methods, m.N = []string{method}, 1
			mishaps = append(mishaps, m)
		}
		for n := 1; n < 20; n += 2 { // stat, list and both gets
			m.Methods, m.N = []string{http.MethodGet}, n
			mishaps = append(mishaps, m)
		}
		p.Set(mishaps...)
		for op, err := range each(t, s, "content") {
			must.NoError(t, err, must.Sprintf("%s after %+v", op, m))
		}
		p.Set()
		must.Eq(t, []string{"b"}, keys(t, s, ""))
		must.EqOp(t, "content", get(t, s, "b"))
		must.NoError(t, s.Delete(t.Context(), "b"))
	}
}

func networkDown(t *testing.T, s store.Store, p *Proxy) {
	put(t, s, "a", "content")
	for _, m := range []Mishap{
		{Wire: Answer, Status: http.StatusServiceUnavailable},
		{Wire: ResetBefore},
	} {
		p.Set(m)
		for op, err := range each(t, s, "content") {
			must.Error(t, err, must.Sprint(op))
			must.False(t, errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrExists), must.Sprint(op, err))
		}
		must.Less(t, 60, len(p.Requests()))
		p.Set()
		must.Eq(t, []string{"a"}, keys(t, s, ""))
	}
}

func networkLost(t *testing.T, s store.Store, p *Proxy) {
	for i, content := range []string{"", "content", strings.Repeat("0123456789abcdef", 200_000)} {
		key := fmt.Sprintf("k/%d", i)
		p.Set(Mishap{Methods: writes, N: 1, Wire: ResetAfter})
		put(t, s, key, content)
		must.EqOp(t, content, get(t, s, key))
		_, err := s.Put(t.Context(), key, strings.NewReader(content))
		must.ErrorIs(t, err, store.ErrExists)
		p.Set()
	}
}

func networkLostOther(t *testing.T, s store.Store, p *Proxy) {
	for _, content := range []string{"theirs", "ours"} { // even the same content was put by them
		put(t, s, "a/"+content, content)
		p.Set(Mishap{Methods: writes, N: 1, Wire: ResetAfter})
		_, err := s.Put(t.Context(), "a/"+content, strings.NewReader("ours"))
		must.ErrorIs(t, err, store.ErrExists)
		p.Set()
		must.EqOp(t, content, get(t, s, "a/"+content))
		// What exists is not tried again.
		p.Set()
		_, err = s.Put(t.Context(), "a/"+content, strings.NewReader(content))
		must.ErrorIs(t, err, store.ErrExists)
		must.Len(t, 1, p.Requests())
	}
}

func networkHalf(t *testing.T, s store.Store, p *Proxy) {
	large := make([]byte, 3<<20)
	for i := range large {
		large[i] = byte(i>>13) ^ byte(i)
	}
	for key, content := range map[string]string{"small": "some content", "large": string(large)} {
		put(t, s, key, content)
		for _, n := range []int64{int64(len(content)), int64(len(content)) - 1} {
			p.Set(Mishap{Methods: []string{http.MethodGet}, N: 1, Wire: HalfBody})
			must.NoError(t, readSame(content[:n])(s.GetRange(t.Context(), key, 0, n)), must.Sprint(key))
			p.Set(Mishap{Methods: []string{http.MethodGet}, N: 1, Wire: HalfBody}, Mishap{Methods: []string{http.MethodGet}, N: 2, Wire: HalfBody})
			must.NoError(t, readSame(content)(s.Get(t.Context(), key)), must.Sprint(key))
		}
	}
	p.Set(Mishap{Methods: []string{http.MethodGet}, Wire: HalfBody})
	must.Error(t, readSame("some content")(s.Get(t.Context(), "small")))
	// An object that disappears while it is read is an error and no short object.
	p.Set(Mishap{Methods: []string{http.MethodGet}, N: 1, Wire: HalfBody}, Mishap{Methods: []string{http.MethodGet}, Wire: ResetBefore})
	must.Error(t, readSame(string(large))(s.Get(t.Context(), "large")))
}

func networkSilent(t *testing.T, s store.Store, p *Proxy) {
	large := string(bytes.Repeat([]byte("spot"), 1<<19))
	put(t, s, "a", large)
	p.Set(Mishap{Methods: []string{http.MethodGet}, N: 1, Wire: Stall})
	must.NoError(t, readSame(large)(s.Get(t.Context(), "a")))
	p.Set(Mishap{Methods: append(slices.Clone(reads), writes...), N: 1, Wire: Silent})
	must.NoError(t, readSame(large)(s.Get(t.Context(), "a")))
	p.Set(Mishap{Methods: writes, N: 1, Wire: Silent})
	put(t, s, "b", "content")
}

func networkCancel(t *testing.T, s store.Store, p *Proxy) {
	put(t, s, "a", "content")
	p.Set(Mishap{Wire: Silent})
	for name, call := range map[string]func(ctx context.Context) error{
		"put":    func(ctx context.Context) error { _, err := s.Put(ctx, "b", strings.NewReader("x")); return err },
		"get":    func(ctx context.Context) error { _, err := s.Get(ctx, "a"); return err },
		"stat":   func(ctx context.Context) error { _, err := s.Stat(ctx, "a"); return err },
		"list":   func(ctx context.Context) error { _, err := s.List(ctx, ""); return err },
		"delete": func(ctx context.Context) error { return s.Delete(ctx, "a") },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		must.ErrorIs(t, call(ctx), context.DeadlineExceeded, must.Sprint(name))
		cancel()
	}
	p.Set()
	must.EqOp(t, "content", get(t, s, "a"))
}

func networkReplies(t *testing.T, s store.Store, p *Proxy, replies map[error]Reply) {
	must.MapContainsKeys(t, replies, []error{store.ErrBucket, store.ErrCredentials, store.ErrDenied, store.ErrClock, store.ErrFull})
	put(t, s, "a", "content")
	for want, reply := range replies {
		m := Mishap{Wire: Answer, Status: reply.Status, Header: reply.Header, Body: reply.Body}
		p.Set(m)
		for op, err := range each(t, s, "content") {
			must.ErrorIs(t, err, want, must.Sprintf("%s: %v", op, err))
			must.False(t, errors.Is(err, store.ErrNotFound), must.Sprintf("%s: %v", op, err))
		}
		// What does not pass is not tried again.
		must.LessEq(t, 20, len(p.Requests()), must.Sprintf("%v: %v", want, p.Requests()))
	}
	p.Set()
	must.Eq(t, []string{"a"}, keys(t, s, ""))
}
