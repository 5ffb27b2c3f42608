package local

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/hcl/v2/hclparse"
	"github.com/shoenig/test/must"
	"golang.org/x/sys/unix"

	"nomad-spotter/autoscaler-plugin/cloud"
)

// The test binary is the supervisor and the init of the instances that the tests launch, as the plugin's binary is of
// its own; as "launch" it is a plugin that launches an instance and dies.
func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[2] == "--dir" {
		var err error
		switch os.Args[1] {
		case InstanceCommand:
			err = RunInstance(context.Background(), os.Args[3], hclog.New(&hclog.LoggerOptions{JSONFormat: true}))
		case InitCommand:
			err = RunInit(context.Background(), os.Args[3])
		case "launch":
			err = launchAndDie(os.Args[3])
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func launchAndDie(setupFile string) error {
	var body string
	if err := readJSON(setupFile, &body); err != nil {
		return err
	}
	setup, err := parseSetup(body, odOffering)
	if err != nil {
		return err
	}
	p, err := New(setup)
	if err != nil {
		return err
	}
	if _, err := p.Launch(context.Background(), cloud.Launch{ID: "od-1", Offering: "od"}); err != nil {
		return err
	}
	return unix.Kill(os.Getpid(), unix.SIGKILL)
}

const odOffering = ``

// parseSetup makes a provider's setup from HCL: its own block, and the body of a spot offering named "west".
func parseSetup(body, west string) (cloud.Setup, error) {
	parser := hclparse.NewParser()
	provider, diags := parser.ParseHCL([]byte(body), "pool.hcl")
	if diags.HasErrors() {
		return cloud.Setup{}, diags
	}
	spot, diags := parser.ParseHCL([]byte(west), "west.hcl")
	if diags.HasErrors() {
		return cloud.Setup{}, diags
	}
	none, _ := parser.ParseHCL(nil, "od.hcl")
	return cloud.Setup{Pool: "training", Body: provider.Body, Offerings: []cloud.OfferingSetup{
		{Body: spot.Body, Offering: cloud.Offering{Name: "west", Provider: "local", Region: "west", Zone: "west-1a", Type: "cpu2", Kind: cloud.Spot, PriceUSDPerHour: 0.8}},
		{Body: none.Body, Offering: cloud.Offering{Name: "od", Provider: "local", Region: "east", Zone: "east-1a", Type: "cpu2", Kind: cloud.OnDemand, PriceUSDPerHour: 3}},
	}}, nil
}

// script is the process of most instances: it leaves a daemon in a session of its own, a process in a nested PID
// namespace and a mount, and then waits. Every one of them carries the marker on its command line.
func script(marker string) string {
	return fmt.Sprintf(`process "main" {
  argv = ["/bin/sh", "-c", "mkdir -p disk/mnt; mount -t tmpfs tmpfs disk/mnt; touch disk/mnt/file; (setsid sh -c 'sleep 1000; : %[1]s daemon' &); unshare -p -f sh -c 'sleep 1000; : %[1]s nested' & echo up; sleep 1000; : %[1]s main"]
}`, marker)
}

func newProvider(t *testing.T, body, west string) *Provider {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("PID and mount namespaces need root")
	}
	setup, err := parseSetup(body, west)
	must.NoError(t, err)
	p, err := New(setup)
	must.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		instances, err := p.List(ctx)
		must.NoError(t, err)
		for _, i := range instances {
			must.NoError(t, p.Terminate(ctx, i.ID, "end of the test"))
		}
	})
	return p
}

func marker(t *testing.T) string {
	return "spotter-test-" + strconv.Itoa(os.Getpid()) + "-" + t.Name() + "."
}

// countProcesses counts the processes whose command line holds a text.
func countProcesses(text string) int {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	n := 0
	for _, f := range files {
		data, _ := os.ReadFile(f)
		if strings.Contains(string(data), text) {
			n++
		}
	}
	return n
}

func waitFor(t *testing.T, what string, limit time.Duration, done func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	for !done() {
		if pause(ctx) != nil {
			t.Fatalf("%s: not within %v", what, limit)
		}
	}
}

func find(t *testing.T, p *Provider, id string) cloud.Instance {
	t.Helper()
	instances, err := p.List(t.Context())
	must.NoError(t, err)
	for _, i := range instances {
		if i.ID == id {
			return i
		}
	}
	t.Fatalf("instance %q is not listed", id)
	return cloud.Instance{}
}

func writeTrace(t *testing.T, data string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "trace.json")
	must.NoError(t, os.WriteFile(path, []byte(`{"metadata":{"gap_seconds":60},"data":`+data+`}`), 0o600))
	return path
}

func request1(t *testing.T, method, url, body string, header ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	must.NoError(t, err)
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := http.DefaultTransport.RoundTrip(req)
	must.NoError(t, err)
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	must.NoError(t, err)
	return res, string(text)
}

// One whole life: launch, notice from the trace over HTTP with a token, fixed deadline, and the end of everything.
func TestLife(t *testing.T) {
	t.Parallel()
	ctx, state, mark := t.Context(), t.TempDir(), marker(t)
	// 60 s of market per 2 s of wall clock: available for 2 s, then taken, with a notice of 2 s of wall clock.
	body := fmt.Sprintf("state_dir = %q\nnotice = \"2s\"\ntime_scale = 30\n%s", state, script(mark))
	p := newProvider(t, body, fmt.Sprintf("trace = %q", writeTrace(t, "[1,0]")))

	launched, err := p.Launch(ctx, cloud.Launch{ID: "west-1", Offering: "west"})
	must.NoError(t, err)
	must.Eq(t, cloud.Running, launched.State)
	again, err := p.Launch(ctx, cloud.Launch{ID: "west-1", Offering: "west"})
	must.NoError(t, err)
	must.Eq(t, launched, again)
	r, err := readRecord(p.dir("west-1"))
	must.NoError(t, err)

	waitFor(t, "all processes", 5*time.Second, func() bool { return countProcesses(mark) >= 4 })
	_, err = os.Stat(filepath.Join(r.Dir, "disk/mnt/file"))
	must.ErrorIs(t, err, os.ErrNotExist, must.Sprint("a mount of the instance is seen outside"))

	action := r.MetadataURL + "/latest/meta-data/spot/instance-action"
	_, token := request1(t, http.MethodPut, r.MetadataURL+"/latest/api/token", "", ttlHeader, "60")
	var first string
	var seen time.Time
	waitFor(t, "notice", 6*time.Second, func() bool {
		res, text := request1(t, http.MethodGet, action, "", tokenHeader, token)
		if res.StatusCode == http.StatusNotFound {
			must.StrContains(t, text, "404 - Not Found")
			must.StrHasPrefix(t, "text/html", res.Header.Get("Content-Type"))
			return false
		}
		must.Eq(t, http.StatusOK, res.StatusCode)
		first, seen = text, time.Now()
		return true
	})
	var notice struct {
		Action string
		Time   time.Time
	}
	must.NoError(t, json.Unmarshal([]byte(first), &notice))
	must.Eq(t, "terminate", notice.Action)
	noticed := find(t, p, "west-1")
	must.Eq(t, cloud.Noticed, noticed.State)
	must.Eq(t, noticed.Deadline.Truncate(time.Second), notice.Time.Truncate(time.Second))
	must.Eq(t, 2*time.Second, noticed.Deadline.Sub(noticed.NoticedAt))
	must.Less(t, 2*time.Second, seen.Sub(noticed.NoticedAt))
	_, text := request1(t, http.MethodGet, action, "")
	must.Eq(t, first, text, must.Sprint("the time of a notice moved"))
	_, text = request1(t, http.MethodGet, r.MetadataURL+"/latest/meta-data/spot/termination-time", "")
	must.Eq(t, notice.Time.Format(time.RFC3339), text)
	must.GreaterEq(t, 4, countProcesses(mark), must.Sprint("killed before its deadline"))

	waitFor(t, "end", 6*time.Second, func() bool { return find(t, p, "west-1").State == cloud.Gone })
	gone := find(t, p, "west-1")
	must.Eq(t, 0, countProcesses(mark))
	must.False(t, gone.EndedAt.Before(gone.Deadline), must.Sprint("ended before its deadline"))
	must.Less(t, 2*time.Second, gone.EndedAt.Sub(gone.Deadline))
	must.StrContains(t, gone.Reason, `the market took offering "west"`)
	waitFor(t, "empty disk", 5*time.Second, func() bool {
		_, err := os.Stat(filepath.Join(r.Dir, "disk"))
		return os.IsNotExist(err)
	})
	must.StrContains(t, logTail(filepath.Join(r.Dir, "main.log")), "up")

	_, err = p.Launch(ctx, cloud.Launch{ID: "west-2", Offering: "west"})
	must.ErrorIs(t, err, cloud.ErrUnavailable)
	offers, err := p.Offers(ctx)
	must.NoError(t, err)
	must.Eq(t, []cloud.Offer{{Offering: "od", Available: true}, {Offering: "west", Available: false}}, offers)
}

func TestTerminate(t *testing.T) {
	t.Parallel()
	state, mark := t.TempDir(), marker(t)
	p := newProvider(t, fmt.Sprintf("state_dir = %q\n%s", state, script(mark)), "")
	_, err := p.Launch(t.Context(), cloud.Launch{ID: "od-1", Offering: "od"})
	must.NoError(t, err)
	waitFor(t, "all processes", 5*time.Second, func() bool { return countProcesses(mark) >= 4 })
	r, err := readRecord(p.dir("od-1"))
	must.NoError(t, err)

	own, other := cgroup(t, "spotter-od-1"), cgroup(t, "spotter-od-12")
	must.NoError(t, os.MkdirAll(filepath.Join(own, "shared"), 0o755))

	must.NoError(t, p.Terminate(t.Context(), "od-1", "scaled in"))
	must.Eq(t, 0, countProcesses(mark))
	gone := find(t, p, "od-1")
	must.Eq(t, cloud.Gone, gone.State)
	must.Eq(t, "scaled in", gone.Reason)
	must.True(t, gone.Terminated)
	must.DirNotExists(t, own)
	must.DirExists(t, other)
	must.False(t, r.Supervisor.alive())
	must.NoError(t, p.Terminate(t.Context(), "od-1", "again"))
	must.Eq(t, gone, find(t, p, "od-1"))
	must.ErrorIs(t, p.Terminate(t.Context(), "od-9", ""), cloud.ErrNotFound)
}

// cgroup makes a cgroup in whichever hierarchy this machine has.
func cgroup(t *testing.T, name string) string {
	t.Helper()
	for _, root := range []string{"/sys/fs/cgroup/cpuset", "/sys/fs/cgroup"} {
		dir := filepath.Join(root, name)
		if os.Mkdir(dir, 0o755) == nil {
			t.Cleanup(func() { _ = os.Remove(dir) })
			return dir
		}
	}
	t.Skip("no cgroup can be made here")
	return ""
}

// A killed supervisor takes its instance along, and the list says so.
func TestSupervisorKilled(t *testing.T) {
	t.Parallel()
	mark := marker(t)
	p := newProvider(t, fmt.Sprintf("state_dir = %q\n%s", t.TempDir(), script(mark)), "")
	_, err := p.Launch(t.Context(), cloud.Launch{ID: "od-1", Offering: "od"})
	must.NoError(t, err)
	waitFor(t, "all processes", 5*time.Second, func() bool { return countProcesses(mark) >= 4 })
	r, err := readRecord(p.dir("od-1"))
	must.NoError(t, err)
	must.NoError(t, r.Supervisor.signal(unix.SIGKILL))
	waitFor(t, "end of all processes", 5*time.Second, func() bool { return countProcesses(mark) == 0 })
	waitFor(t, "record of the end", 5*time.Second, func() bool { return find(t, p, "od-1").State == cloud.Gone })
	gone := find(t, p, "od-1")
	must.Eq(t, "its supervisor was killed", gone.Reason)
	must.Eq(t, gone, find(t, p, "od-1"), must.Sprint("the end must be recorded once"))
}

// A supervisor that hangs is killed, and its instance with it.
func TestTerminate_hangingSupervisor(t *testing.T) {
	t.Parallel()
	mark := marker(t)
	p := newProvider(t, fmt.Sprintf("state_dir = %q\n%s", t.TempDir(), script(mark)), "")
	_, err := p.Launch(t.Context(), cloud.Launch{ID: "od-1", Offering: "od"})
	must.NoError(t, err)
	r, err := readRecord(p.dir("od-1"))
	must.NoError(t, err)
	must.NoError(t, r.Supervisor.signal(unix.SIGSTOP))
	must.NoError(t, p.Terminate(t.Context(), "od-1", "scaled in"))
	must.Eq(t, 0, countProcesses(mark))
	must.Eq(t, cloud.Gone, find(t, p, "od-1").State)
}

// Instances outlive the plugin that launched them, also one that is killed, and the next one finds them.
func TestPluginRestart(t *testing.T) {
	t.Parallel()
	mark := marker(t)
	body := fmt.Sprintf("state_dir = %q\n%s", t.TempDir(), script(mark))
	p := newProvider(t, body, "")
	setupFile := filepath.Join(t.TempDir(), "setup.json")
	must.NoError(t, writeJSON(setupFile, body))
	out, err := exec.CommandContext(t.Context(), p.exe, "launch", "--dir", setupFile).CombinedOutput()
	must.ErrorContains(t, err, "killed", must.Sprint(string(out)))
	must.Eq(t, cloud.Running, find(t, p, "od-1").State)
	waitFor(t, "all processes", 5*time.Second, func() bool { return countProcesses(mark) >= 4 })
	must.NoError(t, p.Terminate(t.Context(), "od-1", "done"))
	must.Eq(t, 0, countProcesses(mark))
}

func TestProcessDies(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		processes string
		reason    string
		tail      string
	}{
		"exit code":    {`process "main" { argv = ["/bin/sh", "-c", "echo no port left >&2; exit 3"] }`, `process "main" ended by itself: exit code 3`, "no port left"},
		"signal":       {`process "main" { argv = ["/bin/sh", "-c", "kill -KILL $$"] }`, `process "main" ended by itself: killed by SIGKILL`, ""},
		"no program":   {`process "main" { argv = ["/no/such/program"] }`, `start: fork/exec /no/such/program`, ""},
		"while waited": {"process \"first\" {\n argv = [\"/bin/false\"]\n wait_for = \"{{.Dir}}/never\"\n}", `process "first" ended by itself: exit code 1`, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProvider(t, fmt.Sprintf("state_dir = %q\n%s", t.TempDir(), c.processes), "")
			_, err := p.Launch(t.Context(), cloud.Launch{ID: "od-1", Offering: "od"})
			must.NoError(t, err)
			waitFor(t, "end", 5*time.Second, func() bool { return find(t, p, "od-1").State == cloud.Gone })
			gone := find(t, p, "od-1")
			must.StrContains(t, gone.Reason, c.reason)
			must.Eq(t, c.tail, gone.LogTail)
		})
	}
}

func TestReclaim(t *testing.T) {
	t.Parallel()
	mark := marker(t)
	p := newProvider(t, fmt.Sprintf("state_dir = %q\n%s", t.TempDir(), script(mark)), "")
	for _, id := range []string{"od-1", "od-2"} {
		_, err := p.Launch(t.Context(), cloud.Launch{ID: id, Offering: "od"})
		must.NoError(t, err)
	}
	one, err := readRecord(p.dir("od-1"))
	must.NoError(t, err)
	two, err := readRecord(p.dir("od-2"))
	must.NoError(t, err)
	must.NotEq(t, one.Ports, two.Ports)

	res, text := request1(t, http.MethodPost, one.MetadataURL+adminReclaim, `{"notice":"soon"}`)
	must.Eq(t, http.StatusBadRequest, res.StatusCode)
	must.StrContains(t, text, `"soon"`)
	res, text = request1(t, http.MethodPost, one.MetadataURL+adminTerminate, `{"id":"od-2"}`)
	must.Eq(t, http.StatusBadRequest, res.StatusCode)
	must.StrContains(t, text, `"od-2" is not this instance, "od-1"`)

	res, text = request1(t, http.MethodPost, one.MetadataURL+adminReclaim, `{"notice":"30s"}`)
	must.Eq(t, http.StatusOK, res.StatusCode)
	must.StrContains(t, text, `"state":"noticed"`)
	res, _ = request1(t, http.MethodPost, one.MetadataURL+adminReclaim, `{}`)
	must.Eq(t, http.StatusConflict, res.StatusCode)
	res, text = request1(t, http.MethodGet, one.MetadataURL+adminInstance, "")
	must.Eq(t, http.StatusOK, res.StatusCode)
	must.StrContains(t, text, `"id":"od-1"`)

	res, _ = request1(t, http.MethodPost, two.MetadataURL+adminReclaim, `{"notice":"0s"}`)
	must.Eq(t, http.StatusOK, res.StatusCode)
	gone := find(t, p, "od-2")
	must.Eq(t, cloud.Gone, gone.State)
	must.True(t, gone.NoticedAt.IsZero())
	must.StrContains(t, gone.Reason, "without a notice")
	must.Eq(t, cloud.Noticed, find(t, p, "od-1").State)
}

// A market with trace_start "manual" stands at its first tick until it is started.
func TestMarketStart(t *testing.T) {
	t.Parallel()
	body := fmt.Sprintf("state_dir = %q\nnotice = \"10m\"\ntime_scale = 600\ntrace_start = \"manual\"\n%s", t.TempDir(), script(marker(t)))
	p := newProvider(t, body, fmt.Sprintf("trace = %q", writeTrace(t, "[1,0]")))
	_, err := p.Launch(t.Context(), cloud.Launch{ID: "west-1", Offering: "west"})
	must.NoError(t, err)
	must.ErrorIs(t, pauseFor(t, 500*time.Millisecond), context.DeadlineExceeded)
	must.Eq(t, cloud.Running, find(t, p, "west-1").State)
	started, _, err := p.StartMarket(t.Context())
	must.NoError(t, err)
	must.True(t, started)
	started, _, err = p.StartMarket(t.Context())
	must.NoError(t, err)
	must.False(t, started)
	waitFor(t, "notice", 5*time.Second, func() bool { return find(t, p, "west-1").State == cloud.Noticed })
}

// pauseFor lets time pass in which something must not happen.
func pauseFor(t *testing.T, d time.Duration) error {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	<-ctx.Done()
	return ctx.Err()
}

// A launch that died before its supervisor ran leaves a record, which the list ends.
func TestLaunchBrokenOff(t *testing.T) {
	t.Parallel()
	p := newProvider(t, fmt.Sprintf("state_dir = %q\n%s", t.TempDir(), script(marker(t))), "")
	dir := p.dir("od-1")
	must.NoError(t, os.MkdirAll(dir, 0o700))
	must.NoError(t, writeRecord(record{Dir: dir, Instance: cloud.Instance{ID: "od-1", Pool: "training", State: cloud.Running, LaunchedAt: time.Now()}}))
	unlock, err := lockFile(t.Context(), filepath.Join(dir, lockName))
	must.NoError(t, err)
	must.Eq(t, cloud.Running, find(t, p, "od-1").State, must.Sprint("a launch at work was taken for a dead one"))
	unlock()
	must.Eq(t, "its launch was broken off", find(t, p, "od-1").Reason)
}
