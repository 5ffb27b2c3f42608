package agent_test

import (
	"context"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-spotter/checkpointer/agent"
	"nomad-spotter/checkpointer/api"
)

// directory is what Consul answers: directories that are stores, each in a region of its own name.
type directory struct {
	mu   sync.Mutex
	dirs []string
	url  string
}

func newDirectory(t *testing.T, dirs ...string) *directory {
	t.Helper()
	d := &directory{dirs: dirs}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		d.mu.Lock()
		defer d.mu.Unlock()
		var out []string
		for _, dir := range d.dirs {
			out = append(out, fmt.Sprintf(`{"Node":{"Node":"n"},"Service":{"Meta":{"url":"file://%s","region":"%s"}}}`, dir, filepath.Base(dir)))
		}
		fmt.Fprintf(w, "[%s]", strings.Join(out, ","))
	}))
	t.Cleanup(s.Close)
	d.url = s.URL
	return d
}

func (d *directory) set(dirs ...string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dirs = dirs
}

// regions makes the directories of stores.
func regions(t *testing.T, names ...string) (out []string) {
	t.Helper()
	top := t.TempDir()
	for _, n := range names {
		must.NoError(t, os.Mkdir(filepath.Join(top, n), 0o700))
		out = append(out, filepath.Join(top, n))
	}
	return out
}

func (d *directory) use(level api.Durability, replicas int) func(*api.AgentConfig) {
	return func(c *api.AgentConfig) {
		c.Store, c.Consul = "", &api.ConsulConfig{Address: d.url, Service: "checkpoint-store"}
		c.Durability, c.Replicas = level, replicas
	}
}

// A checkpoint is durable at once and replicated afterwards, to as many other regions as it should be; a region that goes
// away is replaced, and a restart of the agent goes on in the store where it was.
func TestAgent_Replicates(t *testing.T) {
	t.Parallel()
	dirs := regions(t, "north", "south", "east")
	d := newDirectory(t, dirs...)
	a := newNode(t, "", d.use("", 1))
	a.start()
	a.restore()
	a.shell("sleep 60")
	a.write("step-1.safetensors", weights(1))
	a.durable(1)
	a.poll(20*time.Second, "it is replicated", func() bool { return len(a.events(api.EventReplicated)) == 1 })
	step, content := read(t, dirs[1], a.conf.Lineage)
	must.EqOp(t, 1, step)
	must.True(t, content == weights(1))
	s := a.status()
	must.Len(t, 1, s.Replicas)
	must.EqOp(t, "south", s.Replicas[0].Region)
	must.EqOp(t, 0, s.Replicas[0].LagSeconds)

	// The replica is listed first now: the agent stays with the store that it writes to. The replica's store goes away.
	d.set(dirs[1], dirs[0])
	must.NoError(t, os.Rename(dirs[1], dirs[1]+".away"))
	must.NoError(t, os.Mkdir(dirs[1], 0o700))
	a.kill()
	a.start()
	a.write("step-2.safetensors", weights(2))
	a.durable(2)
	a.poll(20*time.Second, "the lag is told", func() bool {
		s := a.status()
		return len(s.Replicas) == 1 && s.Replicas[0].LagSteps == 1 && s.Replicas[0].LagSeconds > 0 && s.Replicas[0].Error != ""
	})
	must.StrContains(t, a.status().Store, dirs[0])
	entries, err := os.ReadDir(dirs[1])
	must.NoError(t, err)
	must.SliceEmpty(t, entries, must.Sprint("nothing is written where the replica was"))
	d.set(dirs[2], dirs[0])
	a.poll(30*time.Second, "another region has it", func() bool { return len(a.events(api.EventReplicated)) == 1 })
	step, content = read(t, dirs[2], a.conf.Lineage)
	must.EqOp(t, 2, step)
	must.True(t, content == weights(2))
}

// Durable means replicated: events, answers and requests wait for it, and the end of the task too.
func TestAgent_DurableOnceReplicated(t *testing.T) {
	t.Parallel()
	dirs := regions(t, "north", "south")
	d := newDirectory(t, dirs[0]) // the other region is not there yet
	a := newNode(t, "", d.use(api.DurabilityReplicated, 1))
	a.start()
	a.restore()
	task := a.shell("sleep 60")
	r := a.ask(false, time.Minute)
	a.write("step-1", "one")
	a.poll(20*time.Second, "it is stored", func() bool { return len(a.events(api.EventStored)) == 1 })
	a.poll(20*time.Second, "the want of a region is told", func() bool { return len(a.events(api.EventWarning)) == 1 })
	step, _ := read(t, dirs[0], a.conf.Lineage)
	must.EqOp(t, 1, step)
	s := a.status()
	must.Nil(t, s.Durable)
	must.EqOp(t, 1, s.Pending)
	o, err := a.ctl.Outcome(context.Background(), r.ID, 0)
	must.NoError(t, err)
	must.False(t, o.Done)
	must.NoError(t, task.Process.Kill())
	o, err = a.ctl.Finish(context.Background(), time.Now(), false)
	must.NoError(t, err)
	must.False(t, o.Done)

	a.kill() // what waits is not forgotten
	d.set(dirs...)
	a.start()
	o = a.outcome(r.ID)
	must.True(t, o.Durable, must.Sprint(o.Error))
	must.EqOp(t, 1, o.Checkpoint.Step)
	step, content := read(t, dirs[1], a.conf.Lineage)
	must.EqOp(t, 1, step)
	must.EqOp(t, "one", content)
	o, err = a.ctl.Finish(context.Background(), time.Now().Add(10*time.Second), false)
	must.NoError(t, err)
	must.True(t, o.Done && o.Durable)
	a.exits(15 * time.Second)
}

// What is damaged in its store is restored from a replica, which is said.
func TestAgent_RestoresFromReplica(t *testing.T) {
	t.Parallel()
	dirs := regions(t, "north", "south")
	d := newDirectory(t, dirs...)
	a := newNode(t, "", d.use(api.DurabilityReplicated, 1))
	a.start()
	a.restore()
	a.write("step-1", "one")
	a.durable(1)
	a.write("step-2", "two")
	a.durable(2)
	a.kill()
	must.NoError(t, filepath.WalkDir(dirs[0], func(p string, e fs.DirEntry, err error) error {
		if err == nil && strings.HasPrefix(e.Name(), "00000001-000000000002") && filepath.Base(filepath.Dir(p)) == "@packs" {
			return os.Truncate(p, 10)
		}
		return err
	}))
	b := newNode(t, "", d.use("", 0))
	b.start()
	r := b.restore()
	must.EqOp(t, 2, r.Checkpoint.Step)
	must.StrContains(t, r.Store, dirs[1])
	must.StrContains(t, b.events(api.EventRestored)[0], dirs[1])
	got, err := os.ReadFile(filepath.Join(b.conf.CheckpointDir, "step-2"))
	must.NoError(t, err)
	must.EqOp(t, "two", string(got))
}

// Durable means on this node: that does not wait for the store, survives a kill, and is not enough for a final request.
func TestAgent_DurableOnTheNode(t *testing.T) {
	t.Parallel()
	n, st, hold := behindGate(t, func(c *api.AgentConfig) { c.Durability = api.DurabilityLocal })
	must.NoError(t, os.WriteFile(hold, []byte("0"), 0o600))
	n.start()
	n.restore()
	n.shell("sleep 60")
	content := noise(1, 2*large)
	n.write("step-1", content)
	must.EqOp(t, "", n.durable(1).Snapshot)
	must.StrContains(t, n.events(api.EventDurable)[0], "durable on this node")
	// No write in place reaches it.
	f, err := os.OpenFile(filepath.Join(n.conf.CheckpointDir, "step-1"), os.O_WRONLY, 0)
	must.NoError(t, err)
	_, err = f.WriteAt([]byte("overwritten"), 100)
	must.NoError(t, err)
	must.NoError(t, f.Close())
	must.NoError(t, os.Remove(filepath.Join(n.conf.CheckpointDir, "step-1")))
	n.kill()
	n.start()
	must.EqOp(t, 1, n.status().Durable.Step)
	must.EqOp(t, 1, n.status().Pending)
	r := n.ask(false, time.Minute)
	n.write("step-2", "two")
	must.EqOp(t, 2, n.outcome(r.ID).Checkpoint.Step)
	r = n.ask(true, time.Minute)
	n.write("step-3", "three")
	n.durable(3)
	o, err := n.ctl.Outcome(context.Background(), r.ID, 0)
	must.NoError(t, err)
	must.False(t, o.Done, must.Sprint("the node is left: its disk does not count"))
	must.NoError(t, os.Remove(hold))
	o = n.outcome(r.ID)
	must.True(t, o.Durable, must.Sprint(o.Error))
	must.EqOp(t, 3, o.Checkpoint.Step)
	step, got := read(t, st, n.conf.Lineage)
	must.EqOp(t, 3, step)
	must.EqOp(t, "three", got)
}

func TestValidate_Durability(t *testing.T) {
	consul := &api.ConsulConfig{Address: "http://127.0.0.1:1", Service: "s"}
	for _, c := range []struct {
		conf api.AgentConfig
		want string
	}{
		{api.AgentConfig{Durability: "twice"}, `durability: "twice" is unknown: use local, store or replicated`},
		{api.AgentConfig{Durability: api.DurabilityReplicated}, "replicas 0 is reached at once"},
		{api.AgentConfig{Replicas: -1}, "replicas: -1 is negative"},
		{api.AgentConfig{Replicas: 1, Store: "file:///s"}, "replicas: 1 without consul"},
		{api.AgentConfig{Replicas: 1, Consul: consul, MaxMemoryBytes: 300 << 20}, "max_memory_bytes: 314572800 is too little"},
		{api.AgentConfig{Consul: &api.ConsulConfig{}, Store: "file:///s"}, "consul: address"},
	} {
		must.ErrorContains(t, agent.Validate(c.conf), c.want)
	}
	err := agent.Validate(api.AgentConfig{Durability: api.DurabilityReplicated, Replicas: 1, Consul: consul, MaxMemoryBytes: 384 << 20})
	for _, name := range []string{"durability", "replicas", "max_memory", "consul", "store"} {
		must.StrNotContains(t, err.Error(), name)
	}
}

// An encrypted store needs its key: with it what is stored can be restored, without it nothing is, and nothing is written.
func TestAgent_Encrypted(t *testing.T) {
	t.Parallel()
	st := t.TempDir()
	key := filepath.Join(t.TempDir(), "key")
	must.NoError(t, os.WriteFile(key, []byte(noise(1, 32)), 0o600))
	keyed := func(c *api.AgentConfig) { c.KeyFile = key }
	a := newNode(t, st, keyed)
	a.start()
	a.restore()
	a.write("step-1", "a secret")
	a.durable(1)
	must.NoError(t, filepath.WalkDir(st, func(p string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(p)
		must.StrNotContains(t, string(b), "a secret")
		return err
	}))
	without := newNode(t, st, nil)
	without.start()
	_, err := without.ctl.Restore(context.Background(), time.Second)
	must.ErrorContains(t, err, "encrypted")
	b := newNode(t, st, keyed)
	b.start()
	must.EqOp(t, 1, b.restore().Checkpoint.Step)
	got, err := os.ReadFile(filepath.Join(b.conf.CheckpointDir, "step-1"))
	must.NoError(t, err)
	must.EqOp(t, "a secret", string(got))
}
