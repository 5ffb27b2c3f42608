package notice

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/shoenig/test/must"
	"github.com/shoenig/test/wait"
)

// imds is a metadata service that behaves as told.
type imds struct {
	mu        sync.Mutex
	token     string // the only valid one; empty: the token endpoint answers tokenCode
	tokenCode int
	v2only    bool
	action    string // body; empty: 404
	rebalance string
	code      int           // overrides the answer of instance-action
	hang      bool          // instance-action does not answer
	skew      time.Duration // of its clock
	huge      bool

	puts, gets int
	seen       []string // token headers of GETs of instance-action, joined when there are several
}

func (m *imds) set(f func(*imds)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f(m)
}

func (m *imds) counts() (puts, gets int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.puts, m.gets
}

func (m *imds) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	w.Header().Set("Date", time.Now().Add(m.skew).UTC().Format(http.TimeFormat))
	if r.Method == http.MethodPut && r.URL.Path == pathToken {
		m.puts++
		switch {
		case m.token == "":
			w.WriteHeader(m.tokenCode)
		case r.Header.Get(headerTTL) != "21600":
			w.WriteHeader(http.StatusBadRequest)
		default:
			w.Header().Set(headerTTL, "21600")
			fmt.Fprint(w, m.token)
		}
		return
	}
	got := strings.Join(r.Header.Values(headerToken), "+")
	body := m.rebalance
	if r.URL.Path == pathAction {
		m.gets++
		m.seen = append(m.seen, got)
		body = m.action
	}
	switch {
	case m.v2only && got != m.token:
		w.WriteHeader(http.StatusUnauthorized)
	case r.URL.Path == pathAction && m.hang:
		m.mu.Unlock()
		<-r.Context().Done()
		m.mu.Lock()
	case r.URL.Path == pathAction && m.huge:
		_, _ = w.Write(bytes.Repeat([]byte(" "), 2*maxBody))
	case r.URL.Path == pathAction && m.code != 0:
		w.WriteHeader(m.code)
	case body == "":
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, "<h1>404 - Not Found</h1>")
	default:
		fmt.Fprint(w, body)
	}
}

// action is the document for an interruption so far away.
func action(kind string, left time.Duration) string {
	return fmt.Sprintf("{\n\t\"action\": %q,\n\t\"time\": %q\n}", kind, time.Now().Add(left).UTC().Format(time.RFC3339))
}

// watched is a running source and what it said.
type watched struct {
	src    *EC2
	mu     sync.Mutex
	events []Event
	log    bytes.Buffer
}

func (w *watched) kinds() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []string
	for _, e := range w.events {
		s := string(e.Kind)
		if e.Kind == KindHealth {
			s = map[bool]string{true: "ok", false: "lost"}[e.Health.Watching]
		}
		out = append(out, s)
	}
	return strings.Join(out, " ")
}

func (w *watched) until(t *testing.T, exp string) {
	t.Helper()
	eventually(t, func() bool { return w.kinds() == exp }, func() string { return fmt.Sprintf("want %q, got %q", exp, w.kinds()) })
}

func eventually(t *testing.T, f func() bool, state func() string) {
	t.Helper()
	must.Wait(t, wait.InitialSuccess(wait.BoolFunc(f), wait.Timeout(20*time.Second), wait.Gap(5*time.Millisecond)), must.Func(state))
}

func (w *watched) last() Event {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.events[len(w.events)-1]
}

type lockedWriter struct{ w *watched }

func (l lockedWriter) Write(b []byte) (int, error) {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	return l.w.log.Write(b)
}

func (w *watched) logged(what string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Count(w.log.String(), what)
}

// watch runs a source that polls m every 10 ms.
func watch(t *testing.T, m *imds) *watched {
	t.Helper()
	srv := httptest.NewServer(m)
	w := &watched{}
	w.src = NewEC2(srv.URL+"/", 10*time.Millisecond, hclog.New(&hclog.LoggerOptions{Level: hclog.Debug, Output: lockedWriter{w}}))
	t.Cleanup(srv.Close) // after the watch has ended
	run(t, w.src, w)
	return w
}

// run has s tell w until the test ends.
func run(t *testing.T, s Source, w *watched) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Watch(ctx, func(e Event) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.events = append(w.events, e)
		})
	}()
	t.Cleanup(func() {
		cancel()
		select {
		case <-done:
		case <-time.After(5 * time.Second):
			t.Error("Watch did not end with its context")
		}
	})
}

// polls waits until n more polls were made.
func (m *imds) polls(t *testing.T, n int) {
	t.Helper()
	_, from := m.counts()
	eventually(t, func() bool {
		_, now := m.counts()
		return now >= from+n
	}, func() string { return "no more polls" })
}

func TestEC2_NoticeAndWithdrawal(t *testing.T) {
	m := &imds{token: "secret", v2only: true}
	w := watch(t, m)
	w.until(t, "ok")
	must.True(t, w.src.Health().Watching)
	m.set(func(m *imds) { m.action = action("terminate", 2*time.Minute) })
	w.until(t, "ok interruption")
	e := w.last()
	must.Eq(t, "ec2", e.Source)
	must.Eq(t, ActionTerminate, e.Action)
	must.Between(t, 117*time.Second, e.Deadline.Sub(e.Seen), 121*time.Second)
	m.set(func(m *imds) { m.action = "" })
	w.until(t, "ok interruption withdrawn")
	puts, _ := m.counts()
	must.Eq(t, 1, puts)
	must.Eq(t, 1, w.logged("interruption notice:"))
	must.Eq(t, 1, w.logged("watching for interruption notices"))
	must.Eq(t, 0, w.logged("secret"))
}

func TestEC2_NoticeOnTheFirstPollComesBeforeHealth(t *testing.T) {
	w := watch(t, &imds{token: "secret", action: action("stop", time.Minute)})
	w.until(t, "interruption ok")
}

func TestEC2_MockThatMovesTheTimeIsOneNotice(t *testing.T) {
	m := &imds{token: "secret", action: action("terminate", 2*time.Minute)}
	w := watch(t, m)
	for i := range 5 {
		m.set(func(m *imds) { m.action = action("terminate", 2*time.Minute+time.Duration(i)*time.Second) })
		m.polls(t, 2)
	}
	w.until(t, "interruption ok")
}

func TestEC2_Flapping(t *testing.T) {
	m := &imds{token: "secret", action: action("terminate", 2*time.Minute)}
	w := watch(t, m)
	w.until(t, "interruption ok")
	a := m.action
	for range 3 {
		m.set(func(m *imds) { m.code = http.StatusInternalServerError })
		m.polls(t, 1)
		m.set(func(m *imds) { m.code, m.action = 0, a })
		m.polls(t, 1)
	}
	must.Eq(t, "interruption ok", w.kinds())
}

func TestEC2_TokenForgotten(t *testing.T) {
	m := &imds{token: "first", v2only: true}
	w := watch(t, m)
	w.until(t, "ok")
	m.set(func(m *imds) { m.token, m.seen = "second", nil })
	m.polls(t, 5)
	puts, _ := m.counts()
	must.Eq(t, 2, puts)
	m.mu.Lock()
	defer m.mu.Unlock()
	// The same poll goes on with the new token, and with that one only.
	old := 0
	for _, s := range m.seen {
		if s == "first" {
			old++
			continue
		}
		must.Eq(t, "second", s)
	}
	must.LessEq(t, 1, old)
	must.Eq(t, "ok", w.kinds()) // no poll was lost
}

func TestEC2_FallsBackToVersion1(t *testing.T) {
	for _, code := range []int{http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed} {
		t.Run(http.StatusText(code), func(t *testing.T) {
			m := &imds{tokenCode: code, action: action("terminate", time.Minute)}
			w := watch(t, m)
			w.until(t, "interruption ok")
			m.polls(t, 3)
			puts, _ := m.counts()
			must.Eq(t, 1, puts) // not at every poll
			must.Eq(t, 1, w.logged("imds=v1"))
		})
	}
}

func TestEC2_TokenEndpointBroken(t *testing.T) {
	m := &imds{tokenCode: http.StatusInternalServerError}
	w := watch(t, m)
	w.until(t, "lost")
	must.StrContains(t, w.src.Health().String(), "HTTP 500")
	m.set(func(m *imds) { m.token = "secret" })
	w.until(t, "lost ok")
}

func TestEC2_RefusedWithAndWithoutToken(t *testing.T) {
	w := watch(t, &imds{tokenCode: http.StatusForbidden, code: http.StatusUnauthorized})
	w.until(t, "lost")
	must.StrContains(t, w.src.Health().Detail, "401 with a fresh token")
}

func TestEC2_LostAndRegained(t *testing.T) {
	for name, brk := range map[string]func(*imds){
		"500":     func(m *imds) { m.code = http.StatusInternalServerError },
		"html":    func(m *imds) { m.action = "<html>captive portal</html>" },
		"huge":    func(m *imds) { m.huge = true },
		"strange": func(m *imds) { m.action = `{"action":"terminate"}` },
	} {
		t.Run(name, func(t *testing.T) {
			m := &imds{token: "secret"}
			w := watch(t, m)
			w.until(t, "ok")
			m.set(brk)
			w.until(t, "ok lost")
			must.False(t, w.last().Health.Watching)
			m.polls(t, 5)
			m.set(func(m *imds) { m.code, m.action, m.huge = 0, "", false })
			w.until(t, "ok lost ok")
			must.Eq(t, 1, w.logged("metadata service lost"))
			must.Eq(t, 1, w.logged("metadata service is back"))
		})
	}
}

func TestEC2_HangingService(t *testing.T) {
	m := &imds{token: "secret", hang: true}
	start := time.Now()
	w := watch(t, m)
	w.until(t, "lost") // three polls of 2 s
	must.Between(t, 5*time.Second, time.Since(start), 12*time.Second)
	m.set(func(m *imds) { m.hang, m.action = false, action("terminate", time.Minute) })
	w.until(t, "lost interruption ok")
}

func TestEC2_BacksOff(t *testing.T) {
	for _, code := range []int{http.StatusTooManyRequests, http.StatusServiceUnavailable} {
		s := NewEC2("http://127.0.0.1:1", time.Second, hclog.NewNullLogger())
		m := &imds{token: "secret", code: code}
		srv := httptest.NewServer(m)
		s.endpoint = srv.URL
		_, err := s.action(t.Context())
		must.ErrorContains(t, err, fmt.Sprint(code))
		must.Eq(t, 5*time.Second, s.pause())
		m.set(func(m *imds) { m.code = 0 })
		_, err = s.action(t.Context())
		must.NoError(t, err)
		must.Eq(t, time.Second, s.pause())
		srv.Close()
	}
}

func TestEC2_ClockSkew(t *testing.T) {
	// The service's clock, and with it the deadline, is an hour ahead of this machine's.
	m := &imds{token: "secret", skew: time.Hour, action: action("terminate", time.Hour+2*time.Minute)}
	w := watch(t, m)
	w.until(t, "interruption ok")
	w.mu.Lock()
	defer w.mu.Unlock()
	must.Between(t, 117*time.Second, w.events[0].Deadline.Sub(w.events[0].Seen), 122*time.Second)
}

func TestEC2_Hibernate(t *testing.T) {
	w := watch(t, &imds{token: "secret", action: action("hibernate", 2*time.Minute)})
	w.until(t, "interruption ok")
	w.mu.Lock()
	defer w.mu.Unlock()
	must.True(t, w.events[0].Deadline.IsZero())
}

func TestEC2_Rebalance(t *testing.T) {
	m := &imds{token: "secret", rebalance: string(recorded(t, "rebalance.json"))}
	w := watch(t, m)
	w.until(t, "ok rebalance")
	m.polls(t, 2*rebalanceEvery)
	must.Eq(t, "ok rebalance", w.kinds())
}

func TestNone(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var got []Event
	None{}.Watch(ctx, func(e Event) {
		got = append(got, e)
		cancel()
	})
	must.Len(t, 1, got)
	must.Eq(t, "off", got[0].Health.String())
}
