package object

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/shoenig/test/must"
	"github.com/thanos-io/objstore"
	"pgregory.net/rapid"

	"nomad-spotter/checkpointer/store"
	"nomad-spotter/checkpointer/store/storetest"
)

// said is an answer of the bucket below.
type said struct{ Problem }

func (s said) Error() string { return fmt.Sprintf("%d %s", s.Status, s.Code) }

// memory is a bucket that keeps no marks, so that a lost answer must be settled by content; before is called at every call.
type memory struct {
	mu      sync.Mutex
	objects map[string][]byte
	before  func(op string) error // of the call
	after   func(op string) error // instead of its result
	bend    func(r io.Reader) io.Reader
	sizeOff int64 // added to what is announced
}

func (m *memory) call(op string, f func() error) error {
	if m.before != nil {
		if err := m.before(op); err != nil {
			return err
		}
	}
	m.mu.Lock()
	err := f()
	m.mu.Unlock()
	if m.after != nil {
		if lost := m.after(op); lost != nil {
			return lost
		}
	}
	return err
}

func (m *memory) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	return m.GetRange(ctx, name, 0, math.MaxInt32)
}

func (m *memory) GetRange(_ context.Context, name string, off, n int64) (r io.ReadCloser, err error) {
	err = m.call("get", func() error {
		b, ok := m.objects[name]
		if !ok {
			return said{Problem{Status: http.StatusNotFound, Code: "NoSuchKey"}}
		}
		if off >= int64(len(b)) && off > 0 {
			return said{Problem{Status: http.StatusRequestedRangeNotSatisfiable}}
		}
		b = b[off:min(int64(len(b)), off+n)]
		var body io.Reader = bytes.NewReader(b)
		if m.bend != nil {
			body = m.bend(body)
		}
		r = objstore.ObjectSizerReadCloser{ReadCloser: io.NopCloser(body), Size: func() (int64, error) { return int64(len(b)) + m.sizeOff, nil }}
		return nil
	})
	return r, err
}

func (m *memory) Attributes(_ context.Context, name string) (a objstore.ObjectAttributes, err error) {
	err = m.call("head", func() error {
		b, ok := m.objects[name]
		a.Size = int64(len(b))
		if !ok {
			return said{Problem{Status: http.StatusNotFound}}
		}
		return nil
	})
	return a, err
}

func (m *memory) Delete(_ context.Context, name string) error {
	return m.call("delete", func() error {
		if _, ok := m.objects[name]; !ok {
			return said{Problem{Status: http.StatusNotFound, Code: "NoSuchKey"}}
		}
		delete(m.objects, name)
		return nil
	})
}

func (m *memory) Create(_ context.Context, name string, body *io.SectionReader, _ string) error {
	b, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	return m.call("create", func() error {
		if _, ok := m.objects[name]; ok {
			return said{Problem{Status: http.StatusPreconditionFailed, Code: "PreconditionFailed"}}
		}
		m.objects[name] = b
		return nil
	})
}

func (m *memory) Owner(ctx context.Context, name string) (string, error) {
	_, err := m.Attributes(ctx, name)
	return "", err
}

func (m *memory) List(_ context.Context, prefix string, f func(string, int64)) error {
	return m.call("list", func() error {
		for name, b := range m.objects {
			if strings.HasPrefix(name, prefix) {
				f(name, int64(len(b)))
			}
		}
		return nil
	})
}

func (m *memory) Problem(err error) Problem {
	var s said
	errors.As(err, &s)
	return s.Problem
}

// small is what is read in one go in these tests.
const small = 1000

func open(attempts int) (*Store, *memory) {
	m := &memory{objects: map[string][]byte{}}
	s := New(Config{
		Location: store.Location{Scheme: "test", Bucket: "bucket", Path: "some/prefix"}, Bucket: m, Vendor: m, Hint: "look here",
		Settings: Settings{Attempts: attempts, Timeout: 100 * time.Millisecond},
	})
	s.small, s.buffered = small, 1<<20
	return s, m
}

func TestContract(t *testing.T) {
	storetest.Contract(t, func(*testing.T) store.Store {
		s, m := open(1)
		s.timeout = time.Minute // what the store does is looked at here, on a machine as busy as it may be
		// not ours
		m.objects["other"], m.objects["some/prefix"], m.objects["some/prefix/folder/"] = nil, nil, nil
		return s
	})
}

// Whatever happens to answers, a put that reports success has put just its content, and one that reports that the object
// exists has put nothing.
func TestPut_lostAnswers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, m := open(3)
		contents := rapid.SampledFrom([]string{"", "one", "two"})
		theirs := rapid.Bool().Draw(t, "another is first")
		content, other := contents.Draw(t, "content"), contents.Draw(t, "theirs")
		if theirs {
			m.objects["some/prefix/a"] = []byte(other)
		}
		faults := rapid.SliceOfN(rapid.SampledFrom([]string{"", "before", "after", "503"}), 0, 12).Draw(t, "faults")
		n, lost := 0, false
		next := func(when string) error {
			if n >= len(faults) || faults[n] != when {
				return nil
			}
			lost = true
			if when == "503" {
				return said{Problem{Status: http.StatusServiceUnavailable}}
			}
			return errors.New("connection reset")
		}
		m.before = func(string) error {
			if err := errors.Join(next("before"), next("503")); err != nil {
				n++
				return err
			}
			return nil
		}
		m.after = func(string) error {
			err := next("after")
			n++
			return err
		}
		size, err := s.Put(t.Context(), "a", strings.NewReader(content))
		stored, there := m.objects["some/prefix/a"]
		switch {
		case err == nil && (!there || string(stored) != content || size != int64(len(content))):
			t.Fatalf("put reports success, and %q is there, not %q", stored, content)
		case err == nil && theirs && other != content:
			t.Fatal("put reports success with another's object there")
		case err == nil && theirs && !lost:
			t.Fatal("put reports success without having put anything")
		case errors.Is(err, store.ErrExists) && !theirs:
			t.Fatalf("put took its own object for another's: %v", err)
		case theirs && string(stored) != other:
			t.Fatal("another's object was replaced")
		}
	})
}

// Whatever breaks in between, what is read is a prefix of the object, and all of it where there is no error.
func TestGet_brokenBodies(t *testing.T) {
	large := bytes.Repeat([]byte("0123456789"), small/5)
	rapid.Check(t, func(t *rapid.T) {
		s, m := open(rapid.IntRange(1, 3).Draw(t, "attempts"))
		content := large[:rapid.SampledFrom([]int{0, 1, 10, small - 1, small, small + 1, 2*small - 7}).Draw(t, "size")]
		m.objects["some/prefix/a"] = content
		m.bend = func(r io.Reader) io.Reader {
			switch rapid.SampledFrom([]string{"", "cut", "reset", "slow"}).Draw(t, "body") {
			case "cut":
				return io.LimitReader(r, rapid.Int64Range(0, int64(len(content))).Draw(t, "bytes"))
			case "reset":
				return io.MultiReader(io.LimitReader(r, rapid.Int64Range(0, int64(len(content))).Draw(t, "bytes")), iotest.ErrReader(io.ErrUnexpectedEOF))
			case "slow":
				return iotest.DataErrReader(iotest.HalfReader(r))
			}
			return r
		}
		off := rapid.Int64Range(0, int64(len(content))).Draw(t, "offset")
		want := content[off:]
		r, err := s.GetRange(t.Context(), "a", off, math.MaxInt64)
		if err != nil {
			return
		}
		got, err := io.ReadAll(r)
		if !bytes.HasPrefix(want, got) || (err == nil && len(got) != len(want)) {
			t.Fatalf("read %d bytes of %d, error %v", len(got), len(want), err)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Read(make([]byte, 1)); err == nil {
			t.Fatal("read after close")
		}
	})
}

// An object that has another size when it is asked for again is an error, as is a store that ignores a range.
func TestGet_otherObject(t *testing.T) {
	s, m := open(3)
	m.objects["some/prefix/a"] = make([]byte, 2*small)
	m.bend = func(r io.Reader) io.Reader {
		m.objects["some/prefix/a"], m.bend = make([]byte, 2*small+1), nil
		return io.LimitReader(r, small)
	}
	r, err := s.Get(t.Context(), "a")
	must.NoError(t, err)
	_, err = io.ReadAll(r)
	must.NoError(t, err) // the rest was asked for by its length, of which there was enough
	m.objects["some/prefix/a"] = make([]byte, 2*small)
	m.bend = func(r io.Reader) io.Reader {
		m.objects["some/prefix/a"], m.bend = make([]byte, 2*small-1), nil
		return io.LimitReader(r, small)
	}
	r, err = s.Get(t.Context(), "a")
	must.NoError(t, err)
	_, err = io.ReadAll(r)
	must.ErrorContains(t, err, "the object changed its size while it was read")
	m.sizeOff = 100
	_, err = s.GetRange(t.Context(), "a", 0, 10)
	must.ErrorContains(t, err, "the store sends 110 bytes for a range of 10")
	m.sizeOff = math.MinInt32
	_, err = s.Get(t.Context(), "a")
	must.ErrorContains(t, err, "the store does not announce a length")
}

// A reader that never gets on is given up.
func TestGet_noProgress(t *testing.T) {
	s, m := open(2)
	m.objects["some/prefix/a"] = make([]byte, 2*small)
	m.bend = func(io.Reader) io.Reader { return nothing{} }
	r, err := s.Get(t.Context(), "a")
	must.NoError(t, err)
	_, err = io.ReadAll(r)
	must.ErrorContains(t, err, "after 2 attempts")
}

type nothing struct{}

func (nothing) Read([]byte) (int, error) { return 0, nil }

// unreadable is a content that is read in pieces and breaks at an offset, as often as it is read.
type unreadable struct {
	*strings.Reader
	at      int64
	err     error
	largest int // bytes that were asked for at once
	passes  int // that began at the start
}

func (u *unreadable) ReadAt(p []byte, off int64) (int, error) {
	u.largest = max(u.largest, len(p))
	if off == 0 {
		u.passes++
	}
	if off+int64(len(p)) > u.at {
		n, _ := u.Reader.ReadAt(p[:max(u.at-off, 0)], off)
		return n, u.err
	}
	return u.Reader.ReadAt(p, off)
}

// Read fails: nothing takes it into memory.
func (u *unreadable) Read([]byte) (int, error) { return 0, errors.New("read in one pass") }

// What can be read again is never held in memory, and each attempt reads it anew. What was read already is not put.
func TestPut_readsAgain(t *testing.T) {
	const size = 3 << 20 // more than is buffered
	text := strings.Repeat("0123456789abcdef", size/16)
	for _, skip := range []int64{0, 4} {
		s, m := open(3)
		s.timeout = time.Minute
		fails := 2
		m.before = func(op string) error {
			if op != "create" || fails == 0 {
				return nil
			}
			fails--
			return said{Problem{Status: http.StatusServiceUnavailable}}
		}
		src := &unreadable{Reader: strings.NewReader(text), at: math.MaxInt64}
		r := io.NewSectionReader(src, 0, size)
		_, err := r.Seek(skip, io.SeekStart)
		must.NoError(t, err)
		n, err := s.Put(t.Context(), "a", r)
		must.NoError(t, err)
		must.EqOp(t, size-skip, n)
		must.True(t, text[skip:] == string(m.objects["some/prefix/a"]))
		if skip == 0 {
			must.EqOp(t, 3, src.passes)
		}
		must.Less(t, size/2, src.largest)
	}
}

// A content that cannot be read, or ends before its time, is not put, and not tried again.
func TestPut_unreadable(t *testing.T) {
	broken := errors.New("input/output error")
	for what, want := range map[error]error{broken: broken, io.EOF: io.ErrUnexpectedEOF} {
		s, m := open(3)
		src := &unreadable{Reader: strings.NewReader("0123456789"), at: 7, err: what}
		_, err := s.Put(t.Context(), "a", io.NewSectionReader(src, 0, 10))
		must.ErrorIs(t, err, want)
		must.ErrorContains(t, err, "read what to put")
		must.EqOp(t, 1, src.passes)
		must.MapEmpty(t, m.objects)
	}
}

// A reader that cannot be read again is buffered, and only as much as there is memory for.
func TestPut_buffers(t *testing.T) {
	s, m := open(1)
	_, err := s.Put(t.Context(), "once", io.MultiReader(strings.NewReader("4567"), strings.NewReader("89")))
	must.NoError(t, err)
	must.EqOp(t, "456789", string(m.objects["some/prefix/once"]))
	_, err = s.Put(t.Context(), "huge", endless{})
	must.ErrorContains(t, err, "object is larger than the 1048576 bytes that are buffered")
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

func TestKind(t *testing.T) {
	for _, c := range []struct {
		problem Problem
		want    kind
	}{
		{Problem{}, transient},
		{Problem{Status: 200}, permanent},
		{Problem{Status: 400}, permanent},
		{Problem{Status: 401}, credentials},
		{Problem{Status: 403}, denied},
		{Problem{Status: 404}, notFound},
		{Problem{Status: 404, Code: "NoSuchBucket"}, noBucket},
		{Problem{Status: 404, Code: "NoSuchUpload"}, permanent}, // not everything that is missing is the object
		{Problem{Status: 408}, transient},
		{Problem{Status: 409, Code: "ConditionalRequestConflict"}, transient},
		{Problem{Status: 409, Code: "FileAlreadyExists"}, exists},
		{Problem{Status: 409}, permanent},
		{Problem{Status: 412}, exists},
		{Problem{Status: 416}, noRange},
		{Problem{Status: 429}, transient},
		{Problem{Status: 499}, permanent},
		{Problem{Status: 500}, transient},
		{Problem{Status: 501}, permanent},
		{Problem{Status: 503}, transient},
		{Problem{Status: 505}, permanent},
		{Problem{Status: 507}, full},
		{Problem{Status: 403, Code: "RequestTimeTooSkewed"}, clock},
		{Problem{Status: 403, Code: "AuthenticationFailed", Message: "Request date header too old: x"}, clock},
		{Problem{Status: 400, Code: "ExpiredToken"}, credentials},
	} {
		must.EqOp(t, c.want, c.problem.kind(), must.Sprintf("%+v", c.problem))
	}
}

func TestWait(t *testing.T) {
	const timeout = 30 * time.Second
	must.EqOp(t, 50*time.Millisecond, wait(timeout, 1, 0))
	must.EqOp(t, 100*time.Millisecond, wait(timeout, 1, 1))
	must.EqOp(t, 3200*time.Millisecond, wait(timeout, 6, 1))
	for _, attempt := range []int{7, 9, 10, 100, math.MaxInt} {
		must.EqOp(t, 5*time.Second, wait(timeout, attempt, 1))
	}
}

func TestEqual(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		texts := rapid.SampledFrom([]string{"", "a", "b", strings.Repeat("a", 64<<10), strings.Repeat("a", 64<<10+1), strings.Repeat("a", 64<<10) + "b"})
		a, b := texts.Draw(t, "a"), texts.Draw(t, "b")
		got, err := equal(iotest.HalfReader(strings.NewReader(a)), strings.NewReader(b))
		if err != nil || got != (a == b) {
			t.Fatal(got, err)
		}
		if _, err := equal(io.MultiReader(strings.NewReader(a), iotest.ErrReader(io.ErrClosedPipe)), strings.NewReader(a)); !errors.Is(err, io.ErrClosedPipe) {
			t.Fatal(err)
		}
	})
}

func TestEndpoint(t *testing.T) {
	for _, c := range []struct {
		in, host string
		plain    bool
	}{
		{"storage.example.net", "storage.example.net", false},
		{"storage.example.net:9000", "storage.example.net:9000", false},
		{"https://h/", "h", false},
		{"http://127.0.0.1:9000", "127.0.0.1:9000", true},
	} {
		host, plain, err := Endpoint(c.in)
		must.NoError(t, err)
		must.EqOp(t, c.host, host)
		must.EqOp(t, c.plain, plain)
	}
	for _, bad := range []string{"", "ftp://h", "http://", "u:p@h", "http://h/path", "h?x=1", "h#f", "http://h:x"} {
		must.Error(t, CheckEndpoint(bad), must.Sprint(bad))
	}
}

func FuzzEndpoint(f *testing.F) {
	for _, s := range []string{"h", "http://h:1", "https://[::1]:9000/", "u@h", "//", "h/x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		host, plain, err := Endpoint(in)
		if err != nil {
			return
		}
		scheme := "https://"
		if plain {
			scheme = "http://"
		}
		again, plain2, err := Endpoint(scheme + host)
		must.NoError(t, err)
		must.EqOp(t, host, again)
		must.EqOp(t, plain, plain2)
	})
}

func TestSettings(t *testing.T) {
	checks := map[string]func(string) error{}
	for _, o := range Options() {
		checks[o.Name] = o.Check
		must.NoError(t, o.Check(o.Default))
	}
	for name, values := range map[string]map[string]bool{
		"attempts": {"0": false, "1": true, "100": true, "101": false, "x": false, "-1": false},
		"timeout":  {"99ms": false, "100ms": true, "1h": true, "61m": false, "5": false},
	} {
		for value, good := range values {
			must.EqOp(t, good, checks[name](value) == nil, must.Sprint(name, value))
		}
	}
}
