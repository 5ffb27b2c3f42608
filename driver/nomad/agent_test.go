package nomad

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad/api"
	"github.com/shoenig/test/must"
)

// agentBinary finds Nomad: on PATH, or where the e2e engines are cached.
func agentBinary(t *testing.T) string {
	t.Helper()
	if p, err := exec.LookPath("nomad"); err == nil {
		return p
	}
	home, err := os.UserHomeDir()
	must.NoError(t, err)
	p := filepath.Join(home, ".cache", "spotter", "bin", "nomad")
	if _, err := os.Stat(p); err != nil {
		t.Skipf("no Nomad on PATH and none at %s; build the engines to run this test", p)
	}
	return p
}

const agentConfig = `
data_dir             = %q
bind_addr            = "127.0.0.1"
disable_update_check = true
log_level            = "WARN"
name                 = "spotter-test"
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
acl { enabled = true }
server {
  enabled          = true
  bootstrap_expect = 1
}
client {
  enabled       = true
  cgroup_parent = "/%s"
  options = { "fingerprint.denylist" = "env_aws,env_gce,env_azure,env_digitalocean,consul,vault,cni" }
}
plugin "raw_exec" {
  config { enabled = true }
}
`

func freePorts(t *testing.T, n int) []int {
	t.Helper()
	var out []int
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		must.NoError(t, err)
		defer l.Close()
		out = append(out, l.Addr().(*net.TCPAddr).Port)
	}
	return out
}

// startAgent runs a Nomad server and client in one, with ACLs, and returns a client with the management token.
func startAgent(t *testing.T) (address string, admin *api.Client) {
	t.Helper()
	bin := agentBinary(t)
	if os.Getuid() != 0 {
		t.Skip("a Nomad client needs root")
	}
	dir := t.TempDir()
	ports := freePorts(t, 3)
	config, group := filepath.Join(dir, "agent.hcl"), fmt.Sprintf("spotter-nomad-test-%d", os.Getpid())
	must.NoError(t, os.WriteFile(config, fmt.Appendf(nil, agentConfig, filepath.Join(dir, "data"), ports[0], ports[1], ports[2], group), 0o600))
	logs, err := os.Create(filepath.Join(dir, "agent.log"))
	must.NoError(t, err)
	cmd := exec.Command(bin, "agent", "-config", config)
	cmd.Stdout, cmd.Stderr = logs, logs
	must.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = logs.Close()
		if t.Failed() {
			if b, err := os.ReadFile(logs.Name()); err == nil {
				t.Logf("agent: %s", b)
			}
		}
		unmountAll(dir)
		removeGroups(group)
	})
	address = fmt.Sprintf("http://127.0.0.1:%d", ports[0])
	admin, err = api.NewClient(&api.Config{Address: address})
	must.NoError(t, err)
	eventually(t, "ACL bootstrap", func() bool {
		token, _, err := admin.ACLTokens().Bootstrap(nil)
		if err == nil {
			admin.SetSecretID(token.SecretID)
		}
		return err == nil
	})
	return address, admin
}

// unmountAll takes away the tmpfs of secret directories that a killed agent leaves.
func unmountAll(dir string) {
	for _, pattern := range []string{"data/alloc/*/*/secrets", "data/alloc/*/*/private"} {
		paths, _ := filepath.Glob(filepath.Join(dir, pattern))
		for _, p := range paths {
			_ = exec.Command("umount", p).Run()
		}
	}
}

// removeGroups takes away the control groups that a killed agent leaves, leaves first.
func removeGroups(name string) {
	for _, pattern := range []string{"*/" + name + "/*", "*/" + name, name + "/*", name} {
		paths, _ := filepath.Glob(filepath.Join("/sys/fs/cgroup", pattern))
		for _, p := range paths {
			if info, err := os.Stat(p); err == nil && info.IsDir() {
				_ = os.Remove(p)
			}
		}
	}
}

const policyNode = `node { policy = "write" }`

const policyAll = `
node { policy = "write" }
namespace "default" { capabilities = ["read-job", "alloc-lifecycle"] }
`

func token(t *testing.T, admin *api.Client, name, rules string) string {
	t.Helper()
	_, err := admin.ACLPolicies().Upsert(&api.ACLPolicy{Name: name, Rules: rules}, nil)
	must.NoError(t, err)
	tok, _, err := admin.ACLTokens().Create(&api.ACLToken{Name: name, Type: "client", Policies: []string{name}}, nil)
	must.NoError(t, err)
	return tok.SecretID
}

// TestAgent holds the client against a real Nomad with ACLs: rights, eligibility, facts, stop, drain.
func TestAgent(t *testing.T) {
	address, admin := startAgent(t)
	with := func(secret string) *Client {
		c, err := New(Config{Address: address, Token: secret}, hclog.NewNullLogger())
		must.NoError(t, err)
		return c
	}
	all, nodeOnly := token(t, admin, "spotter", policyAll), token(t, admin, "node-only", policyNode)
	read := token(t, admin, "read", `node { policy = "read" }`)

	var id string
	eventually(t, "node ready", func() bool {
		nodes, _, err := admin.Nodes().List(nil)
		if err != nil || len(nodes) != 1 {
			return false
		}
		id = nodes[0].ID
		return nodes[0].Status == "ready"
	})

	job := api.NewBatchJob("train", "train", "global", 50)
	job.Datacenters = []string{"dc1"}
	group := api.NewTaskGroup("g", 1)
	group.AddTask(api.NewTask("train", "raw_exec").SetConfig("command", "/bin/sleep").SetConfig("args", []string{"600"}))
	job.AddTaskGroup(group)
	_, _, err := admin.Jobs().Register(job, nil)
	must.NoError(t, err)
	t.Cleanup(func() {
		_, _, _ = admin.Jobs().Deregister("train", true, nil)
		eventually(t, "the task's end", func() bool {
			left, _, err := admin.Allocations().List(nil)
			if err != nil {
				return false
			}
			for _, a := range left {
				if a.ClientStatus == api.AllocClientStatusRunning {
					return false
				}
			}
			return true
		})
	})
	var alloc string
	eventually(t, "allocation runs", func() bool {
		list, _, err := admin.Jobs().Allocations("train", true, nil)
		if err != nil || len(list) == 0 || list[0].ClientStatus != "running" {
			return false
		}
		alloc = list[0].ID
		return true
	})

	t.Run("rights", func(t *testing.T) {
		hint := func(err error) string {
			var e *Error
			must.True(t, errors.As(err, &e), must.Sprint(err))
			must.True(t, e.Refused())
			return e.Hint()
		}
		_, err := with("").Node(id).MarkIneligible(t.Context())
		must.StrContains(t, hint(err), "no token is configured")
		_, err = with("00000000-0000-0000-0000-000000000000").Node(id).MarkIneligible(t.Context())
		// 1.6 does not tell an unknown token from a weak one.
		must.StrContains(t, hint(err), "deleted or expired")
		_, err = with(read).Node(id).MarkIneligible(t.Context())
		must.StrContains(t, hint(err), "token lacks node:write")
		err = with(nodeOnly).Node(id).StopAlloc(t.Context(), "default", alloc)
		must.StrContains(t, hint(err), `token lacks alloc-lifecycle in namespace "default"`)
		_, err = with(nodeOnly).Facts(t.Context(), "default", alloc, "train")
		must.StrContains(t, hint(err), `token lacks read-job in namespace "default"`)
	})

	t.Run("facts", func(t *testing.T) {
		f, err := with(all).Facts(t.Context(), "default", alloc, "train")
		must.NoError(t, err)
		must.Eq(t, "batch", f.JobType)
		must.Eq(t, 5*time.Second, f.KillTimeout)
		// The defaults that the rest of the driver reckons with.
		must.Eq(t, Reschedule{Attempts: 1, Interval: 24 * time.Hour, Delay: 5 * time.Second}, f.Reschedule)
		must.Eq(t, Restart{Attempts: 3, Interval: 24 * time.Hour, Delay: 15 * time.Second, Mode: "fail"}, f.Restart)
	})

	t.Run("eligibility", func(t *testing.T) {
		n := with(nodeOnly).Node(id)
		took, err := n.MarkIneligible(t.Context())
		must.NoError(t, err)
		must.True(t, took)
		took, err = n.MarkIneligible(t.Context())
		must.NoError(t, err)
		must.False(t, took)
		must.NoError(t, n.MarkEligible(t.Context()))
	})

	t.Run("drain", func(t *testing.T) {
		got := follow(t, with(nodeOnly).Node(id))
		eventually(t, "first word", func() bool { return len(got()) == 1 })
		must.Eq(t, Drain{}, got()[0])
		drain := func(spec *api.DrainSpec) {
			_, err := admin.Nodes().UpdateDrain(id, spec, true, nil)
			must.NoError(t, err)
		}
		drain(&api.DrainSpec{Deadline: time.Hour, IgnoreSystemJobs: true})
		eventually(t, "drain", func() bool { return len(got()) == 2 })
		d := got()[1]
		must.True(t, d.Active && d.IgnoreSystemJobs && !d.Force)
		must.Between(t, 59*time.Minute, time.Until(d.Deadline), time.Hour)
		drain(nil)
		eventually(t, "cancelled", func() bool { return len(got()) == 3 })
		must.Eq(t, Drain{Cancelled: true}, got()[2])
	})

	t.Run("stop", func(t *testing.T) {
		n := with(all).Node(id)
		must.NoError(t, n.StopAlloc(t.Context(), "default", alloc))
		eventually(t, "replacement", func() bool {
			list, _, err := admin.Jobs().Allocations("train", true, nil)
			if err != nil {
				return false
			}
			stopped, placed := false, false
			for _, a := range list {
				stopped = stopped || a.ID == alloc && a.DesiredStatus == "stop"
				placed = placed || a.ID != alloc && a.DesiredStatus == "run"
			}
			return stopped && placed
		})
		must.NoError(t, n.StopAlloc(t.Context(), "default", "11111111-2222-3333-4444-555555555555")) // unknown: gone
	})
}
