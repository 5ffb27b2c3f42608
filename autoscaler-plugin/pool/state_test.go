package pool

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	consul "github.com/hashicorp/consul/api"
	"github.com/shoenig/test/must"
)

// startConsul runs a Consul of its own until the end of the test, or skips the test.
func startConsul(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("consul")
	if err != nil {
		home, err := os.UserHomeDir()
		must.NoError(t, err)
		path = filepath.Join(home, ".cache", "spotter", "bin", "consul")
		if _, err := os.Stat(path); err != nil {
			t.Skipf("consul is neither on PATH nor at %s", path)
		}
	}
	for range 3 { // a port may be taken between its choice and its use
		if url, ok := tryConsul(t, path); ok {
			return url
		}
	}
	t.Fatal("Consul did not start in three tries")
	return ""
}

func tryConsul(t *testing.T, path string) (url string, ok bool) {
	t.Helper()
	ports := freePorts(t, 4)
	cmd := exec.Command(path, "agent", "-dev", "-bind", "127.0.0.1", "-log-level", "error",
		"-http-port", fmt.Sprint(ports[0]), "-server-port", fmt.Sprint(ports[1]), "-serf-lan-port", fmt.Sprint(ports[2]),
		"-serf-wan-port", fmt.Sprint(ports[3]), "-dns-port", "-1", "-grpc-port", "-1", "-grpc-tls-port", "-1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Dir = t.TempDir()
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	must.NoError(t, cmd.Start())
	exited := make(chan struct{})
	go func() { _ = cmd.Wait(); close(exited) }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-exited
	})
	url = fmt.Sprintf("http://127.0.0.1:%d", ports[0])
	client, err := consul.NewClient(&consul.Config{Address: url})
	must.NoError(t, err)
	waitUntil(t, "Consul", 60*time.Second, func() bool {
		select {
		case <-exited:
			return true
		default:
		}
		_, err := client.KV().Put(&consul.KVPair{Key: "ready"}, nil)
		ok = err == nil
		return ok
	})
	if !ok {
		t.Logf("Consul ended:\n%s", output.String())
	}
	return url, ok
}

// freePorts finds different ports that nobody listens on.
func freePorts(t *testing.T, n int) []int {
	t.Helper()
	ports := make([]int, n)
	for i := range ports {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		must.NoError(t, err)
		defer func() { _ = l.Close() }()
		addr, ok := l.Addr().(*net.TCPAddr)
		must.True(t, ok)
		ports[i] = addr.Port
	}
	return ports
}

func waitUntil(t *testing.T, what string, limit time.Duration, done func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	for !done() {
		if pause(ctx, 20*time.Millisecond) != nil {
			t.Fatalf("%s: not within %v", what, limit)
		}
	}
}

// One contract over both stores.
func TestStore(t *testing.T) {
	t.Run("file", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "state", "pool.json")
		testStore(t, func() Store { return newFileStore(path) })
	})
	t.Run("consul", func(t *testing.T) {
		t.Parallel()
		address := startConsul(t)
		testStore(t, func() Store {
			s, err := newConsulStore(StateConfig{Consul: address, Prefix: "spotter/pools", SessionTTL: minSessionTTL}, "training")
			must.NoError(t, err)
			return s
		})
	})
}

func testStore(t *testing.T, open func() Store) {
	ctx := t.Context()
	first, second := open(), open()
	_, known, err := first.Load(ctx)
	must.NoError(t, err)
	must.False(t, known)

	lease, err := first.Acquire(ctx)
	must.NoError(t, err)
	want := Desired{Count: 3, ChangedAt: noon}
	must.NoError(t, lease.Save(ctx, want))
	got, known, err := second.Load(ctx)
	must.NoError(t, err)
	must.True(t, known)
	must.Eq(t, want, got)

	// The lease excludes a second holder, who waits only as long as it is told to.
	short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	_, err = second.Acquire(short)
	must.ErrorIs(t, err, context.DeadlineExceeded)
	select {
	case <-lease.Lost():
		t.Fatal("the lease was lost to one who did not get it")
	default:
	}

	// Given up, it is the next one's, and the old holder can write no more.
	must.NoError(t, lease.Release(ctx))
	select {
	case <-lease.Lost():
	case <-time.After(5 * time.Second):
		t.Fatal("a released lease is not lost")
	}
	must.ErrorIs(t, lease.Save(ctx, Desired{Count: 9}), ErrLeaseLost)
	soon, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	next, err := second.Acquire(soon)
	must.NoError(t, err)
	must.ErrorIs(t, lease.Save(ctx, Desired{Count: 9}), ErrLeaseLost)
	must.NoError(t, next.Save(ctx, Desired{Count: 4}))
	got, _, err = first.Load(ctx)
	must.NoError(t, err)
	must.Eq(t, Desired{Count: 4}, got)
	must.NoError(t, next.Release(ctx))
	must.NoError(t, next.Release(ctx), must.Sprint("releasing twice"))
}

// A holder whose session Consul ended writes nothing, and hears of it.
func TestConsulStore_lost(t *testing.T) {
	t.Parallel()
	address := startConsul(t)
	s, err := newConsulStore(StateConfig{Consul: address, Prefix: "p", SessionTTL: minSessionTTL}, "training")
	must.NoError(t, err)
	lease, err := s.Acquire(t.Context())
	must.NoError(t, err)
	must.NoError(t, lease.Save(t.Context(), Desired{Count: 1}))
	held, ok := lease.(*consulLease)
	must.True(t, ok)
	_, err = s.client.Session().Destroy(held.session, nil)
	must.NoError(t, err)
	must.ErrorIs(t, lease.Save(t.Context(), Desired{Count: 2}), ErrLeaseLost)
	select {
	case <-lease.Lost():
	case <-time.After(minSessionTTL):
		t.Fatal("the loss was not noticed")
	}
	got, _, err := s.Load(t.Context())
	must.NoError(t, err)
	must.Eq(t, 1, got.Count)
}

// A holder that Consul does not answer gives the lease up before Consul can give it to somebody else.
func TestConsulStore_unreachable(t *testing.T) {
	t.Parallel()
	address := startConsul(t)
	proxy := &http.Server{ReadHeaderTimeout: time.Second}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.NoError(t, err)
	cut := make(chan struct{})
	proxy.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-cut:
			panic(http.ErrAbortHandler)
		default:
		}
		r.RequestURI, r.URL.Scheme, r.URL.Host = "", "http", address[len("http://"):]
		res, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		defer func() { _ = res.Body.Close() }()
		w.WriteHeader(res.StatusCode)
		_, _ = io.Copy(w, res.Body)
	})
	go func() { _ = proxy.Serve(l) }()
	defer func() { _ = proxy.Close() }()
	s, err := newConsulStore(StateConfig{Consul: "http://" + l.Addr().String(), Prefix: "p", SessionTTL: minSessionTTL}, "training")
	must.NoError(t, err)
	acquired := time.Now()
	lease, err := s.Acquire(t.Context())
	must.NoError(t, err)
	close(cut)
	select {
	case <-lease.Lost():
	case <-time.After(minSessionTTL + 2*time.Second):
		t.Fatal("held without Consul for more than the session's TTL")
	}
	must.GreaterEq(t, minSessionTTL/2, time.Since(acquired), must.Sprint("given up too early"))
}

func TestFileStore_damaged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pool.json")
	must.NoError(t, os.WriteFile(path, []byte("{"), 0o600))
	_, _, err := newFileStore(path).Load(t.Context())
	must.ErrorContains(t, err, "restore the file, or remove it")
	must.False(t, errors.Is(err, ErrLeaseLost))
}

// A state that has no count is an error: taken for 0 it would end every node.
func TestParseDesired(t *testing.T) {
	d, err := parseDesired([]byte(`{"count":3,"changed_at":"2026-12-01T00:00:00Z"}`))
	must.NoError(t, err)
	must.Eq(t, Desired{Count: 3, ChangedAt: time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)}, d)
	for text, want := range map[string]string{
		``: "unexpected end", `{}`: "count: missing", `null`: "count: missing", `{"count":null}`: "count: missing",
		`{"count":-5}`: "count: -5 is outside 0 to 1048576", `{"count":1048577}`: "count: 1048577 is outside",
		`{"count":1e30}`: "cannot unmarshal number",
	} {
		_, err := parseDesired([]byte(text))
		must.ErrorContains(t, err, want)
	}
}
