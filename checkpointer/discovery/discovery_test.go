package discovery

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	consul "github.com/hashicorp/consul/api"
	"github.com/shoenig/test/must"

	"nomad-spotter/checkpointer/api"
)

func entry(node, url, priority string) *consul.ServiceEntry {
	meta := map[string]string{}
	if url != "" {
		meta["url"] = url
	}
	if priority != "" {
		meta["priority"] = priority
	}
	return &consul.ServiceEntry{Node: &consul.Node{Node: node}, Service: &consul.AgentService{Meta: meta}}
}

func TestOrder(t *testing.T) {
	for _, c := range []struct {
		name     string
		list     []*consul.ServiceEntry
		want     []Store
		nameless int
	}{
		{"none", nil, nil, 0},
		{
			"nearest first",
			[]*consul.ServiceEntry{entry("n1", "file:///b", ""), entry("n2", "file:///a", "")},
			[]Store{{URL: "file:///b", Priority: 100, Node: "n1"}, {URL: "file:///a", Priority: 100, Node: "n2"}},
			0,
		},
		{
			"priority before nearness",
			[]*consul.ServiceEntry{entry("n1", "file:///b", ""), entry("n2", "file:///a", "99"), entry("n3", "file:///c", "101")},
			[]Store{{URL: "file:///a", Priority: 99, Node: "n2"}, {URL: "file:///b", Priority: 100, Node: "n1"}, {URL: "file:///c", Priority: 101, Node: "n3"}},
			0,
		},
		{
			"negative",
			[]*consul.ServiceEntry{entry("n1", "file:///b", "0"), entry("n2", "file:///a", "-1")},
			[]Store{{URL: "file:///a", Priority: -1, Node: "n2"}, {URL: "file:///b", Priority: 0, Node: "n1"}},
			0,
		},
		{"wrong priority", []*consul.ServiceEntry{entry("n1", "file:///b", "high")}, []Store{{URL: "file:///b", Priority: 100, Node: "n1"}}, 0},
		{
			"one store on many nodes",
			[]*consul.ServiceEntry{entry("n1", "file:///a", "5"), entry("n2", "file:///a", "1")},
			[]Store{{URL: "file:///a", Priority: 5, Node: "n1"}},
			0,
		},
		{"without a URL", []*consul.ServiceEntry{entry("n1", "", "1"), entry("n2", "file:///a", "")}, []Store{{URL: "file:///a", Priority: 100, Node: "n2"}}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, nameless := stores(c.list)
			got = order(got, "")
			if c.want == nil {
				must.SliceEmpty(t, got)
			} else {
				must.Eq(t, c.want, got)
			}
			must.EqOp(t, c.nameless, nameless)
		})
	}
}

func TestNew(t *testing.T) {
	_, err := New(api.ConsulConfig{Address: "ftp://127.0.0.1", Service: "s"})
	must.ErrorContains(t, err, `consul.address "ftp://127.0.0.1"`)
}

// fake answers as Consul does, and checks what it is asked.
func fake(t *testing.T, answer string) string {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if r.URL.Path != "/v1/health/service/checkpoint-store" || q.Get("passing") != "1" || q.Get("near") != "_agent" ||
			q.Get("dc") != "dc7" || r.Header.Get("X-Consul-Token") != "secret" {
			t.Errorf("asked %s with token %q", r.URL, r.Header.Get("X-Consul-Token"))
		}
		if answer == "" {
			http.Error(w, "no cluster leader", http.StatusInternalServerError)
			return
		}
		fmt.Fprint(w, answer)
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

func TestStores(t *testing.T) {
	ask := func(answer string) ([]Store, error) {
		c, err := New(api.ConsulConfig{Address: fake(t, answer), Token: "secret", Datacenter: "dc7", Service: "checkpoint-store"})
		must.NoError(t, err)
		return c.Stores(t.Context())
	}
	got, err := ask(`[{"Node":{"Node":"n1"},"Service":{"Meta":{"url":"file:///a","priority":"7"}}}]`)
	must.NoError(t, err)
	must.Eq(t, []Store{{URL: "file:///a", Priority: 7, Node: "n1"}}, got)
	_, err = ask(`[]`)
	must.ErrorContains(t, err, `service checkpoint-store has no healthy instance with a store URL in Consul (0 without one): register it with meta url`)
	_, err = ask(`[{"Node":{"Node":"n1"},"Service":{}}]`)
	must.ErrorContains(t, err, "(1 without one)")
	_, err = ask("")
	must.ErrorContains(t, err, "find service checkpoint-store in Consul")
	must.ErrorContains(t, err, "no cluster leader")
}

// A Consul that does not answer does not hold up its caller.
func TestStoresTimeout(t *testing.T) {
	release := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer srv.Close()
	defer close(release)
	c, err := New(api.ConsulConfig{Address: srv.URL, Service: "s"})
	must.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = c.Stores(ctx)
	must.ErrorIs(t, err, context.DeadlineExceeded)
}

// consulBinary finds Consul on the PATH or among the engines, or skips.
func consulBinary(t *testing.T) string {
	t.Helper()
	if p, err := exec.LookPath("consul"); err == nil {
		return p
	}
	cache, err := os.UserCacheDir()
	must.NoError(t, err)
	p := filepath.Join(cache, "spotter/bin/consul")
	if _, err := os.Stat(p); err != nil {
		t.Skipf("no consul binary on the PATH or at %s: run `make engines`", p)
	}
	return p
}

// freePorts returns ports of 127.0.0.1 that nobody uses at the moment.
func freePorts(t *testing.T, n int) []int {
	t.Helper()
	var out []int
	var open []net.Listener
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		must.NoError(t, err)
		open = append(open, l)
		addr, ok := l.Addr().(*net.TCPAddr)
		must.True(t, ok)
		out = append(out, addr.Port)
	}
	for _, l := range open { // only now, so that no two are the same
		must.NoError(t, l.Close())
	}
	return out
}

// TestRealConsul registers stores with a real Consul agent.
func TestRealConsul(t *testing.T) {
	bin := consulBinary(t)
	p := freePorts(t, 4)
	log, err := os.Create(filepath.Join(t.TempDir(), "consul.log"))
	must.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), bin, "agent", "-dev", "-bind", "127.0.0.1", "-client", "127.0.0.1", "-node", "n1", "-node-meta", "region:here",
		"-http-port", fmt.Sprint(p[0]), "-server-port", fmt.Sprint(p[1]), "-serf-lan-port", fmt.Sprint(p[2]), "-serf-wan-port", fmt.Sprint(p[3]),
		"-dns-port", "-1", "-grpc-port", "-1", "-grpc-tls-port", "-1", "-log-level", "warn")
	cmd.Stdout, cmd.Stderr = log, log
	must.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()         // it was killed
		_ = log.Close()        // only read by people
	})
	address := fmt.Sprintf("http://127.0.0.1:%d", p[0])
	client, err := consul.NewClient(&consul.Config{Address: address})
	must.NoError(t, err)
	register := func(id string, meta map[string]string, status string) error {
		return client.Agent().ServiceRegister(&consul.AgentServiceRegistration{
			ID: id, Name: "checkpoint-store", Meta: meta,
			Check: &consul.AgentServiceCheck{TTL: "1h", Status: status},
		})
	}
	deadline := time.Now().Add(20 * time.Second)
	for {
		err := register("far", map[string]string{"url": "file:///far", "priority": "200"}, "passing")
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			b, _ := os.ReadFile(log.Name()) // only for the message
			t.Fatalf("consul does not come up: %v\n%s", err, b)
		}
		time.Sleep(50 * time.Millisecond)
	}
	must.NoError(t, register("near", map[string]string{"url": "file:///near", "priority": "1"}, "passing"))
	must.NoError(t, register("ill", map[string]string{"url": "file:///ill", "priority": "0"}, "critical"))
	must.NoError(t, register("nameless", nil, "passing"))
	c, err := New(api.ConsulConfig{Address: address, Service: "checkpoint-store"})
	must.NoError(t, err)
	home := Registration{ID: "home", URL: "file:///home", Region: "here", Priority: 200, TTL: time.Hour}
	must.NoError(t, c.Register(t.Context(), home))
	want := []Store{
		{URL: "file:///near", Priority: 1, Datacenter: "dc1", Node: "n1"},
		{URL: "file:///home", Priority: 200, Region: "here", Datacenter: "dc1", Node: "n1"},
		{URL: "file:///far", Priority: 200, Datacenter: "dc1", Node: "n1"},
	}
	for {
		got, err := c.Stores(t.Context())
		if err == nil && len(got) == len(want) {
			must.Eq(t, want, got)
			break
		}
		must.True(t, time.Now().Before(deadline), must.Sprintf("%v %v", got, err))
		time.Sleep(50 * time.Millisecond)
	}
	testRegistration(t, c, home, deadline)
}

// testRegistration takes a registered store through the states of its check.
func testRegistration(t *testing.T, c *Consul, r Registration, deadline time.Time) {
	t.Helper()
	listed := func(want bool) Store {
		t.Helper()
		for {
			list, err := c.Stores(t.Context())
			must.NoError(t, err)
			i := slices.IndexFunc(list, func(s Store) bool { return s.URL == r.URL })
			if (i >= 0) == want {
				return append(list, Store{})[max(i, 0)]
			}
			must.True(t, time.Now().Before(deadline), must.Sprintf("listed: want %t, got %v", want, list))
			time.Sleep(20 * time.Millisecond)
		}
	}
	listed(true)
	must.NoError(t, c.Fail(t.Context(), r.ID, "out of space"))
	listed(false)
	must.NoError(t, c.Pass(t.Context(), r.ID, ""))
	listed(true)
	must.NoError(t, c.Deregister(t.Context(), r.ID))
	listed(false)
	must.Error(t, c.Pass(t.Context(), r.ID, ""))
	must.Error(t, c.Deregister(t.Context(), r.ID))
	// Without a check it is healthy for good; the marks travel.
	r.TTL, r.SingleWriter = 0, true
	must.NoError(t, c.Register(t.Context(), r))
	must.True(t, listed(true).SingleWriter)
	must.Error(t, c.Pass(t.Context(), r.ID, ""))
}

// Priority is the operator's word; then the datacenter, then the region, then nearness decide.
func TestOrderByPlace(t *testing.T) {
	list := []Store{ // datacenter by datacenter, nearest first
		{URL: "1", Priority: 100, Datacenter: "own", Region: "east"},
		{URL: "2", Priority: 100, Datacenter: "own", Region: "west"},
		{URL: "3", Priority: 101, Datacenter: "own", Region: "west"},
		{URL: "4", Priority: 100, Datacenter: "other", Region: "west"},
		{URL: "5", Priority: 99, Datacenter: "other", Region: "east"},
		{URL: "6", Priority: 100, Datacenter: "own"},
	}
	for region, want := range map[string]string{"west": "521643", "east": "512643", "": "512643"} {
		got := ""
		for _, s := range order(list, region) {
			got += s.URL
		}
		must.EqOp(t, want, got, must.Sprint(region))
	}
}

func TestInstanceID(t *testing.T) {
	a, b := InstanceID("file:///a"), InstanceID("file:///b")
	must.NotEq(t, a, b)
	must.RegexMatch(t, regexp.MustCompile(`^checkpoint-store-[0-9a-f]{12}$`), a)
}

// Other datacenters are asked, in Consul's order, only when the own one has no store. One that fails is passed over.
func TestElsewhere(t *testing.T) {
	var asked []string
	stores := map[string]string{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		dc := r.URL.Query().Get("dc")
		switch r.URL.Path {
		case "/v1/catalog/datacenters":
			fmt.Fprint(w, `["own","broken","far","farther"]`)
		case "/v1/health/service/s":
			asked = append(asked, dc)
			if dc == "broken" {
				http.Error(w, "no path to datacenter", http.StatusInternalServerError)
				return
			}
			fmt.Fprint(w, cmp.Or(stores[dc], "[]"))
		default:
			http.NotFound(w, r)
		}
	}))
	defer srv.Close()
	c, err := New(api.ConsulConfig{Address: srv.URL, Service: "s"})
	must.NoError(t, err)
	_, err = c.Stores(t.Context())
	must.ErrorContains(t, err, "no healthy instance")
	must.ErrorContains(t, err, "datacenter broken: ")
	at := func(dc, url string) string {
		return fmt.Sprintf(`[{"Node":{"Node":"n","Datacenter":%q},"Service":{"Meta":{"url":%q}}}]`, dc, url)
	}
	stores["far"], stores["farther"] = at("far", "file:///b"), at("farther", "file:///a")
	asked = nil
	got, err := c.Stores(t.Context())
	must.NoError(t, err)
	must.Eq(t, []Store{{URL: "file:///b", Priority: 100, Datacenter: "far", Node: "n"}, {URL: "file:///a", Priority: 100, Datacenter: "farther", Node: "n"}}, got)
	must.Eq(t, []string{"", "own", "broken", "far", "farther"}, asked)
	stores[""] = at("own", "file:///c")
	asked = nil
	got, err = c.Stores(t.Context())
	must.NoError(t, err)
	must.Len(t, 1, got)
	must.Eq(t, []string{""}, asked)
}
