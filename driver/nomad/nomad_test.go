package nomad

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad/api"
	"github.com/shoenig/test/must"
	"github.com/shoenig/test/wait"
)

const (
	nodeID  = "f7476465-4d6e-c0de-26d0-e383c49be941"
	allocID = "5456bd7a-9fc0-c0dd-6131-cbee77f57577"
)

// fakeNomad answers like a Nomad agent.
type fakeNomad struct {
	mu    sync.Mutex
	node  api.Node
	index uint64
	token string // required; empty: no ACLs
	fail  int    // status of every answer, when not 0
	body  string // of a failure

	requests []string
	params   []string
	changed  chan struct{}
}

func newFake() *fakeNomad {
	return &fakeNomad{node: api.Node{ID: nodeID, SchedulingEligibility: "eligible"}, index: 7, changed: make(chan struct{})}
}

func (f *fakeNomad) set(change func(*fakeNomad)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
	f.index++
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *fakeNomad) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	f.requests = append(f.requests, r.Method+" "+r.URL.Path)
	f.params = append(f.params, r.URL.RawQuery)
	if i := r.URL.Query().Get("index"); i == fmt.Sprint(f.index) {
		changed := f.changed
		f.mu.Unlock()
		select {
		case <-changed:
		case <-r.Context().Done():
		}
		f.mu.Lock()
	}
	defer f.mu.Unlock()
	w.Header().Set("X-Nomad-Index", fmt.Sprint(f.index))
	w.Header().Set("X-Nomad-LastContact", "0")
	w.Header().Set("X-Nomad-KnownLeader", "true")
	switch {
	case f.fail != 0:
		w.WriteHeader(f.fail)
		fmt.Fprint(w, f.body)
	case f.token != "" && r.Header.Get("X-Nomad-Token") != f.token:
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, "Permission denied")
	case strings.HasSuffix(r.URL.Path, "/eligibility"):
		var req api.NodeUpdateEligibilityRequest
		_ = json.NewDecoder(r.Body).Decode(&req)
		f.node.SchedulingEligibility = req.Eligibility
		fmt.Fprint(w, "{}")
	case strings.HasSuffix(r.URL.Path, "/stop"):
		fmt.Fprint(w, "{}")
	default:
		_ = json.NewEncoder(w).Encode(f.node)
	}
}

func serve(t *testing.T, f *fakeNomad, cfg Config) *Client {
	t.Helper()
	srv := httptest.NewServer(f)
	t.Cleanup(srv.Close)
	cfg.Address = srv.URL
	c, err := New(cfg, hclog.NewNullLogger())
	must.NoError(t, err)
	return c
}

func TestNew_NamesTheField(t *testing.T) {
	for name, tc := range map[string]struct {
		cfg Config
		err string
	}{
		"no address":  {Config{}, "nomad.address: is empty"},
		"two tokens":  {Config{Address: "http://127.0.0.1:4646", Token: "a", TokenFile: "/b"}, `nomad.token and nomad.token_file ("/b")`},
		"bad address": {Config{Address: "http://[::1"}, `nomad.address "http://[::1"`},
		"no ca file":  {Config{Address: "https://127.0.0.1:4646", CAFile: "/nonexistent"}, "nonexistent"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := New(tc.cfg, hclog.NewNullLogger())
			must.ErrorContains(t, err, tc.err)
		})
	}
}

func TestNode_Eligibility(t *testing.T) {
	f := newFake()
	n := serve(t, f, Config{}).Node(nodeID)
	took, err := n.MarkIneligible(t.Context())
	must.NoError(t, err)
	must.True(t, took)
	must.Eq(t, "ineligible", f.node.SchedulingEligibility)
	took, err = n.MarkIneligible(t.Context())
	must.NoError(t, err)
	must.False(t, took)
	must.NoError(t, n.MarkEligible(t.Context()))
	must.Eq(t, "eligible", f.node.SchedulingEligibility)
}

func TestNode_StopAlloc(t *testing.T) {
	f := newFake()
	n := serve(t, f, Config{Region: "eu"}).Node(nodeID)
	must.NoError(t, n.StopAlloc(t.Context(), "prod", allocID))
	must.Eq(t, []string{"PUT /v1/allocation/" + allocID + "/stop"}, f.requests)
	must.StrContains(t, f.params[0], "namespace=prod")
	must.StrContains(t, f.params[0], "region=eu")
	must.StrContains(t, f.params[0], "reschedule=true")

	f.fail, f.body = http.StatusNotFound, "alloc not found"
	must.NoError(t, n.StopAlloc(t.Context(), "prod", allocID)) // it is gone: what was wanted
	f.fail, f.body = http.StatusInternalServerError, "no cluster leader"
	err := n.StopAlloc(t.Context(), "prod", allocID)
	must.ErrorContains(t, err, "no cluster leader")
	var e *Error
	must.True(t, errors.As(err, &e))
	must.False(t, e.Refused())
}

func TestErrors_SayWhatToGrant(t *testing.T) {
	for name, tc := range map[string]struct {
		token, body string
		call        func(*Client) error
		hint        string
	}{
		"eligibility": {"weak", "Permission denied", func(c *Client) error {
			_, err := c.Node(nodeID).MarkIneligible(t.Context())
			return err
		}, `token lacks node:write; grant node { policy = "write" }`},
		"alloc stop": {"weak", "Permission denied", func(c *Client) error {
			return c.Node(nodeID).StopAlloc(t.Context(), "prod", allocID)
		}, `token lacks alloc-lifecycle in namespace "prod"; grant namespace "prod" { capabilities = ["alloc-lifecycle"] }`},
		"facts": {"weak", "Permission denied", func(c *Client) error {
			_, err := c.Facts(t.Context(), "", allocID, "train")
			return err
		}, `token lacks read-job in namespace "default"`},
		"no token": {"", "Permission denied", func(c *Client) error {
			return c.Node(nodeID).MarkEligible(t.Context())
		}, "no token is configured"},
		"deleted token": {"old", "ACL token not found", func(c *Client) error {
			return c.Node(nodeID).MarkEligible(t.Context())
		}, "Nomad does not know the token"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake()
			f.fail, f.body = http.StatusForbidden, tc.body
			var e *Error
			must.True(t, errors.As(tc.call(serve(t, f, Config{Token: tc.token})), &e))
			must.True(t, e.Refused())
			must.Eq(t, http.StatusForbidden, e.Status)
			must.StrContains(t, e.Hint(), tc.hint)
		})
	}
}

func TestClient_TokenFileIsReadAnew(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	f := newFake()
	f.token = "second"
	n := serve(t, f, Config{TokenFile: path}).Node(nodeID)

	var e *Error
	must.True(t, errors.As(n.MarkEligible(t.Context()), &e))
	must.StrContains(t, e.Hint(), "nomad.token_file cannot be read")
	must.NoError(t, os.WriteFile(path, []byte("first\n"), 0o600))
	must.True(t, errors.As(n.MarkEligible(t.Context()), &e))
	must.StrContains(t, e.Hint(), "token lacks node:write")
	must.NoError(t, os.WriteFile(path, []byte("second\n"), 0o600))
	must.NoError(t, n.MarkEligible(t.Context()))
}

func TestClient_CallsHaveADeadline(t *testing.T) {
	f := newFake()
	f.mu.Lock() // no answer ever
	n := serve(t, f, Config{}).Node(nodeID)
	defer f.mu.Unlock()
	start := time.Now()
	err := n.MarkEligible(context.Background())
	must.ErrorContains(t, err, "no answer in time")
	must.Between(t, callTimeout-time.Second, time.Since(start), callTimeout+2*time.Second)
}

func TestDrainOf(t *testing.T) {
	start := time.Date(2026, 12, 1, 3, 30, 0, 0, time.UTC)
	strategy := func(d time.Duration, ignore bool) *api.DrainStrategy {
		return &api.DrainStrategy{
			DrainSpec:     api.DrainSpec{Deadline: d, IgnoreSystemJobs: ignore},
			ForceDeadline: start.Add(d), StartedAt: start,
		}
	}
	for name, tc := range map[string]struct {
		node api.Node
		exp  Drain
	}{
		"none":        {api.Node{}, Drain{}},
		"an hour":     {api.Node{DrainStrategy: strategy(time.Hour, true)}, Drain{Active: true, Started: start, Deadline: start.Add(time.Hour), IgnoreSystemJobs: true}},
		"no deadline": {api.Node{DrainStrategy: strategy(0, false)}, Drain{Active: true, Started: start}},
		"force":       {api.Node{DrainStrategy: strategy(-1, false)}, Drain{Active: true, Started: start, Force: true}},
		"cancelled":   {api.Node{LastDrain: &api.DrainMetadata{Status: api.DrainStatusCanceled}}, Drain{Cancelled: true}},
		"complete":    {api.Node{LastDrain: &api.DrainMetadata{Status: api.DrainStatusComplete}}, Drain{}},
	} {
		t.Run(name, func(t *testing.T) { must.Eq(t, tc.exp, drainOf(&tc.node)) })
	}
}

// follow runs WatchDrain and returns what it emitted so far.
func follow(t *testing.T, n *Node) func() []Drain {
	t.Helper()
	var mu sync.Mutex
	var got []Drain
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		n.WatchDrain(ctx, func(d Drain) {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, d)
		})
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return func() []Drain {
		mu.Lock()
		defer mu.Unlock()
		return append([]Drain(nil), got...)
	}
}

func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	must.Wait(t, wait.InitialSuccess(wait.BoolFunc(f), wait.Timeout(30*time.Second), wait.Gap(10*time.Millisecond)), must.Sprint(what))
}

func TestWatchDrain(t *testing.T) {
	f := newFake()
	got := follow(t, serve(t, f, Config{}).Node(nodeID))
	eventually(t, "first word", func() bool { return len(got()) == 1 })
	must.False(t, got()[0].Active)

	f.set(func(f *fakeNomad) { f.node.Status = "ready" }) // a change that is none of the drain
	f.set(func(f *fakeNomad) {
		f.node.DrainStrategy = &api.DrainStrategy{DrainSpec: api.DrainSpec{Deadline: time.Hour}, ForceDeadline: time.Now().Add(time.Hour)}
	})
	eventually(t, "drain", func() bool { return len(got()) == 2 })
	must.True(t, got()[1].Active)

	f.set(func(f *fakeNomad) { f.fail, f.body = http.StatusInternalServerError, "no cluster leader" })
	f.set(func(f *fakeNomad) {
		f.fail, f.node.DrainStrategy = 0, nil
		f.node.LastDrain = &api.DrainMetadata{Status: api.DrainStatusCanceled}
		f.index = 2 // a restored snapshot: the index went backwards
	})
	eventually(t, "cancelled", func() bool { return len(got()) == 3 })
	must.Eq(t, Drain{Cancelled: true}, got()[2])
	f.mu.Lock()
	defer f.mu.Unlock()
	must.Less(t, 40, len(f.requests)) // it blocks rather than spins
}

func TestNextIndex(t *testing.T) {
	for _, tc := range []struct{ prev, got, exp uint64 }{{0, 0, 1}, {0, 5, 5}, {5, 5, 5}, {5, 6, 6}, {5, 4, 0}} {
		must.Eq(t, tc.exp, nextIndex(tc.prev, tc.got))
	}
}

func TestFactsOf(t *testing.T) {
	p := func(d time.Duration) *time.Duration { return &d }
	alloc := func() *api.Allocation {
		group, job, priority, attempts, unlimited, mode := "g", "batch", 50, 1, false, "fail"
		return &api.Allocation{ID: allocID, TaskGroup: group, Job: &api.Job{
			Type: &job, Priority: &priority,
			TaskGroups: []*api.TaskGroup{{
				Name:             &group,
				RestartPolicy:    &api.RestartPolicy{Attempts: &attempts, Delay: p(15 * time.Second), Interval: p(24 * time.Hour), Mode: &mode},
				ReschedulePolicy: &api.ReschedulePolicy{Attempts: &attempts, Interval: p(24 * time.Hour), Delay: p(5 * time.Second), Unlimited: &unlimited},
				Tasks:            []*api.Task{{Name: "train", KillTimeout: p(30 * time.Second), KillSignal: "SIGTERM"}},
			}},
		}}
	}
	got, err := factsOf(alloc(), "train")
	must.NoError(t, err)
	must.Eq(t, Facts{
		JobType: "batch", JobPriority: 50, KillTimeout: 30 * time.Second, KillSignal: "SIGTERM",
		Restart:    Restart{Attempts: 1, Interval: 24 * time.Hour, Delay: 15 * time.Second, Mode: "fail"},
		Reschedule: Reschedule{Attempts: 1, Interval: 24 * time.Hour, Delay: 5 * time.Second},
	}, got)

	own := alloc()
	two := 2
	own.Job.TaskGroups[0].Tasks[0].RestartPolicy = &api.RestartPolicy{Attempts: &two}
	got, err = factsOf(own, "train")
	must.NoError(t, err)
	must.Eq(t, Restart{Attempts: 2}, got.Restart)

	_, err = factsOf(alloc(), "other")
	must.ErrorContains(t, err, `no task "other"`)
	lost := alloc()
	lost.TaskGroup = "h"
	_, err = factsOf(lost, "train")
	must.ErrorContains(t, err, `no group "h"`)
	_, err = factsOf(&api.Allocation{ID: allocID}, "train")
	must.ErrorContains(t, err, "holds no job")
}
