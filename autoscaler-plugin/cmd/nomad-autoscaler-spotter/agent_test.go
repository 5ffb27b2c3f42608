package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	nomad "github.com/hashicorp/nomad/api"
	"github.com/shoenig/test/must"

	"nomad-spotter/autoscaler-plugin/cloud"
	"nomad-spotter/autoscaler-plugin/pool"
)

// engine finds a server's binary on PATH or in the cache, or skips the test.
func engine(t *testing.T, name string) string {
	t.Helper()
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	home, err := os.UserHomeDir()
	must.NoError(t, err)
	path := filepath.Join(home, ".cache", "spotter", "bin", name)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("%s is neither on PATH nor at %s", name, path)
	}
	return path
}

// build makes the plugin's binary in a plugin directory.
func build(t *testing.T, dir string) string {
	t.Helper()
	path := filepath.Join(dir, "nomad-autoscaler-spotter")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", path, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	must.NoError(t, err, must.Sprint(string(out)))
	return path
}

// start runs a server until the end of the test; its output is shown when the test fails.
func start(t *testing.T, argv ...string) *exec.Cmd {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), filepath.Base(argv[0])+".log"))
	must.NoError(t, err)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		ended := make(chan struct{})
		go func() { _ = cmd.Wait(); close(ended) }()
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			_ = cmd.Process.Kill()
			<-ended
		}
		if t.Failed() {
			data, _ := os.ReadFile(log.Name())
			t.Logf("output of %s:\n%s", argv[0], data)
		}
	})
	return cmd
}

func waitFor(t *testing.T, what string, limit time.Duration, done func() bool) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for !done() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v", what, limit)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.NoError(t, err)
	defer func() { _ = l.Close() }()
	addr, ok := l.Addr().(*net.TCPAddr)
	must.True(t, ok)
	return addr.Port
}

func write(t *testing.T, path, text string) string {
	t.Helper()
	must.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	return path
}

const serverConfig = `
data_dir = "%s"
name = "server"
bind_addr = "127.0.0.1"
disable_update_check = true
advertise {
  http = "127.0.0.1"
  rpc  = "127.0.0.1"
  serf = "127.0.0.1"
}
ports {
  http = %d
  rpc  = %d
  serf = %d
}
server {
  enabled           = true
  bootstrap_expect  = 1
  heartbeat_grace   = "1s"
  min_heartbeat_ttl = "2s"
}
`

const clientTemplate = `
data_dir = "{{.Dir}}/nomad"
name = "{{.ID}}"
datacenter = "{{.Region}}"
bind_addr = "127.0.0.1"
disable_update_check = true
advertise {
  http = "127.0.0.1"
  rpc  = "127.0.0.1"
  serf = "127.0.0.1"
}
ports {
  http = {{.HTTPPort}}
  rpc  = {{.RPCPort}}
  serf = {{.SerfPort}}
}
client {
  enabled = true
  servers = ["127.0.0.1:%d"]
  min_dynamic_port = {{.MinDynamicPort}}
  max_dynamic_port = {{.MaxDynamicPort}}
  cgroup_parent = "/{{.ID}}"
  options {
    "fingerprint.denylist" = "env_aws,env_azure,env_digitalocean,env_gce"
  }
  meta {
    spotter_pool = "{{.Pool}}"
    spotter_kind = "{{.Kind}}"
  }
}
plugin "raw_exec" {
  config {
    enabled = true
  }
}
`

const poolFile = `
pool "training" {
  on_demand_base = 1
  interval       = "500ms"
  state {
    file = "%[1]s/desired.json"
  }
  provider "local" {
    state_dir = "%[1]s/local"
    notice    = "4s"
    template "client.hcl" {
      source = "%[1]s/client.hcl.tmpl"
    }
    process "nomad" {
      argv = ["%[2]s", "agent", "-config", "{{.Dir}}/client.hcl"]
    }
  }
  offering "west" {
    provider           = "local"
    region             = "west"
    type               = "cpu2"
    kind               = "spot"
    price_usd_per_hour = 0.8
  }
  offering "east" {
    provider           = "local"
    region             = "east"
    type               = "cpu2"
    kind               = "spot"
    price_usd_per_hour = 0.9
  }
  offering "od" {
    provider           = "local"
    region             = "east"
    type               = "cpu2"
    kind               = "on-demand"
    price_usd_per_hour = 3.0
  }
}
`

const agentConfig = `
log_level = "INFO"
plugin_dir = "%[1]s/plugins"
http {
  bind_address = "127.0.0.1"
  bind_port    = %[2]d
}
nomad {
  address = "http://127.0.0.1:%[3]d"
}
policy {
  dir = "%[1]s/policies"
}
apm "nomad-apm" {
  driver = "nomad-apm"
}
strategy "fixed-value" {
  driver = "fixed-value"
}
target "spotter-pool" {
  driver = "nomad-autoscaler-spotter"
  args   = ["target"]
  config = {
    pool_file = "%[1]s/pool.hcl"
  }
}
`

const policy = `
scaling "training" {
  enabled = true
  min     = %[1]d
  max     = %[1]d
  policy {
    cooldown            = "1s"
    evaluation_interval = "1s"
    check "size" {
      strategy "fixed-value" {
        value = "%[1]d"
      }
    }
    target "spotter-pool" {
      pool = "training"
    }
  }
}
`

const job = `
job "sleep" {
  datacenters = ["west", "east"]
  type = "service"
  group "g" {
    count = 3
    constraint {
      distinct_hosts = true
    }
    task "t" {
      driver = "raw_exec"
      config {
        command = "/bin/sleep"
        args    = ["3000"]
      }
      resources {
        cpu    = 20
        memory = 16
      }
    }
  }
}
`

// world is a Nomad server, the pool's files and the plugin's binary.
type world struct {
	dir, binary, autoscaler string
	client                  *nomad.Client
}

func newWorld(t *testing.T) *world {
	if os.Getuid() != 0 {
		t.Skip("the local provider needs root")
	}
	nomadBin, autoscaler := engine(t, "nomad"), engine(t, "nomad-autoscaler")
	w := &world{dir: t.TempDir(), autoscaler: autoscaler}
	w.binary = build(t, filepath.Join(w.dir, "plugins"))
	httpPort, rpcPort := freePort(t), freePort(t)
	start(t, nomadBin, "agent", "-config", write(t, filepath.Join(w.dir, "server.hcl"),
		fmt.Sprintf(serverConfig, filepath.Join(w.dir, "server"), httpPort, rpcPort, freePort(t))))
	write(t, filepath.Join(w.dir, "client.hcl.tmpl"), fmt.Sprintf(clientTemplate, rpcPort))
	write(t, filepath.Join(w.dir, "pool.hcl"), fmt.Sprintf(poolFile, w.dir, nomadBin))
	write(t, filepath.Join(w.dir, "agent.hcl"), fmt.Sprintf(agentConfig, w.dir, freePort(t), httpPort))
	w.setCount(t, 3)
	client, err := nomad.NewClient(&nomad.Config{Address: fmt.Sprintf("http://127.0.0.1:%d", httpPort)})
	must.NoError(t, err)
	w.client = client
	waitFor(t, "a Nomad leader", 30*time.Second, func() bool {
		leader, err := client.Status().Leader()
		return err == nil && leader != ""
	})
	t.Cleanup(func() { w.clear(t) })
	return w
}

// clear ends what is left of the pool's instances.
func (w *world) clear(t *testing.T) {
	for _, i := range w.report(t).Instances {
		if i.State == cloud.Gone {
			continue
		}
		url := w.metadata(t, i.ID)
		res, err := http.Post(url+"/spotter/v1/reclaim", "application/json", strings.NewReader(`{"notice":"0s"}`))
		if err != nil {
			t.Errorf("instance %s not ended: %v", i.ID, err)
			continue
		}
		_ = res.Body.Close()
	}
}

func (w *world) setCount(t *testing.T, n int) {
	write(t, filepath.Join(w.dir, "policies", "pool.hcl"), fmt.Sprintf(policy, n))
}

func (w *world) startAgent(t *testing.T) *exec.Cmd {
	return start(t, w.autoscaler, "agent", "-config", filepath.Join(w.dir, "agent.hcl"))
}

// report is what the status command prints.
func (w *world) report(t *testing.T) pool.Report {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, w.binary, "status", "--pool", filepath.Join(w.dir, "pool.hcl"), "--json").Output()
	must.NoError(t, err)
	var r pool.Report
	must.NoError(t, json.Unmarshal(out, &r))
	return r
}

// live counts the live instances by offering.
func (w *world) live(t *testing.T) map[string]int {
	count := map[string]int{}
	for _, i := range w.report(t).Instances {
		if i.State != cloud.Gone {
			count[i.Offering]++
		}
	}
	return count
}

func (w *world) metadata(t *testing.T, id string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(w.dir, "local", "i", id, "instance.json"))
	must.NoError(t, err)
	var r struct {
		MetadataURL string `json:"metadata_url"`
	}
	must.NoError(t, json.Unmarshal(data, &r))
	return r.MetadataURL
}

// liveIDs lists the live instances.
func (w *world) liveIDs(t *testing.T) []string {
	var ids []string
	for _, i := range w.report(t).Instances {
		if i.State != cloud.Gone {
			ids = append(ids, i.ID)
		}
	}
	slices.Sort(ids)
	return ids
}

// nodes lists the names of Nomad's nodes that are, or are not, ready.
func (w *world) nodes(t *testing.T, ready bool) []string {
	t.Helper()
	stubs, _, err := w.client.Nodes().List(nil)
	must.NoError(t, err)
	var names []string
	for _, s := range stubs {
		if (s.Status == nomad.NodeStatusReady) == ready {
			names = append(names, s.Name)
		}
	}
	slices.Sort(names)
	return names
}

// runningOn lists the names of the nodes on which the job runs.
func (w *world) runningOn(t *testing.T) []string {
	t.Helper()
	allocs, _, err := w.client.Jobs().Allocations("sleep", false, nil)
	must.NoError(t, err)
	var names []string
	for _, a := range allocs {
		if a.ClientStatus == nomad.AllocClientStatusRunning {
			names = append(names, a.NodeName)
		}
	}
	slices.Sort(names)
	return names
}

// plugins counts the plugin's processes that serve as a target.
func (w *world) plugins() int {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	n := 0
	for _, f := range files {
		data, _ := os.ReadFile(f)
		if string(data) == w.binary+"\x00target\x00" {
			n++
		}
	}
	return n
}

// The plugin under a real nomad-autoscaler and a real Nomad: it fills the pool, survives the death of the agent without
// losing or doubling an instance, replaces a noticed instance before it is gone, and drains before it scales in.
func TestAgent(t *testing.T) {
	w := newWorld(t)
	agent := w.startAgent(t)
	full := map[string]int{"od": 1, "west": 1, "east": 1}
	waitFor(t, "three nodes", 60*time.Second, func() bool { return len(w.nodes(t, true)) == 3 })
	must.Eq(t, full, w.live(t))
	must.Eq(t, 3, *w.report(t).Desired)

	parsed, err := w.client.Jobs().ParseHCL(job, true)
	must.NoError(t, err)
	_, _, err = w.client.Jobs().Register(parsed, nil)
	must.NoError(t, err)
	waitFor(t, "the job on three nodes", 30*time.Second, func() bool { return len(w.runningOn(t)) == 3 })

	// The agent is killed: the plugin follows it, the instances stay, and the next agent takes them over.
	must.Eq(t, 1, w.plugins())
	must.NoError(t, agent.Process.Kill())
	waitFor(t, "the end of the orphaned plugin", 10*time.Second, func() bool { return w.plugins() == 0 })
	must.Eq(t, full, w.live(t))
	agent = w.startAgent(t)
	waitFor(t, "the new plugin", 20*time.Second, func() bool { return w.plugins() == 1 })

	// A notice: the replacement comes while the noticed instance still runs.
	var west string
	for _, i := range w.report(t).Instances {
		if i.Offering == "west" {
			west = i.ID
		}
	}
	res, err := http.Post(w.metadata(t, west)+"/spotter/v1/reclaim", "application/json", strings.NewReader(`{}`))
	must.NoError(t, err)
	_ = res.Body.Close()
	waitFor(t, "a replacement", 10*time.Second, func() bool { return w.live(t)["east"] == 2 })
	must.Eq(t, map[string]int{"od": 1, "west": 1, "east": 2}, w.live(t), must.Sprint("the replacement came too late"))
	waitFor(t, "the end of the noticed instance", 15*time.Second, func() bool { return w.live(t)["west"] == 0 })
	waitFor(t, "Nomad to forget its node", 30*time.Second, func() bool {
		return slices.Equal(w.liveIDs(t), w.nodes(t, true)) && len(w.nodes(t, false)) == 0
	})
	waitFor(t, "the job on the three nodes", 30*time.Second, func() bool { return slices.Equal(w.liveIDs(t), w.runningOn(t)) })
	must.Eq(t, 1, w.plugins())

	// Scaling in: the node is emptied first, so the job runs on the others only when the instance ends.
	w.setCount(t, 2)
	must.NoError(t, agent.Process.Signal(syscall.SIGHUP))
	waitFor(t, "two instances", 60*time.Second, func() bool {
		live := w.live(t)
		return live["od"] == 1 && live["east"] == 1
	})
	must.Eq(t, 1, w.plugins(), must.Sprint("SIGHUP started a second plugin"))
	must.Eq(t, 2, *w.report(t).Desired)
	for _, i := range w.report(t).Instances {
		if i.State == cloud.Gone && i.ID != west {
			must.Eq(t, "drained", i.Reason)
		}
	}
	must.Eq(t, w.liveIDs(t), w.runningOn(t), must.Sprint("the node was ended with its work"))
	r := w.report(t)
	must.Positive(t, r.CostUSD)
	must.Less(t, r.OnDemandCostUSD, r.CostUSD)
}
