package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-spotter/checkpointer/agent"
	"nomad-spotter/checkpointer/api"
	"nomad-spotter/checkpointer/delta"
	"nomad-spotter/checkpointer/store"
)

// gated is a file store whose large objects wait at a gate, as behind a slow link: gate://any/DIR keeps them in DIR/store;
// while DIR/hold exists, only as many of a process get in as that file says; DIR/hold.waits appears once one waits.
type gated struct {
	store.Store
	hold string
	puts atomic.Int64
}

const large = 4 << 20

func openGate(l store.Location) (store.Store, error) {
	s, err := store.OpenFile("/"+l.Path+"/store", store.OS{}, true)
	return &gated{Store: s, hold: "/" + l.Path + "/hold"}, err
}

func (g *gated) Put(ctx context.Context, key string, r io.Reader) (int64, error) {
	if s, ok := r.(interface{ Size() int64 }); !ok || s.Size() < large {
		return g.Store.Put(ctx, key, r)
	}
	number := g.puts.Add(1)
	for first := true; ; first = false {
		b, err := os.ReadFile(g.hold)
		if os.IsNotExist(err) {
			break
		}
		if n, err := strconv.ParseInt(string(b), 10, 64); err == nil && number <= n {
			break
		}
		if first {
			if err := os.WriteFile(g.hold+".waits", nil, 0o600); err != nil {
				return 0, err
			}
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
	return g.Store.Put(ctx, key, r)
}

// behindGate prepares a node with a gated store, and returns the directories of both.
func behindGate(t *testing.T, change func(*api.AgentConfig)) (n *node, storeDir, hold string) {
	t.Helper()
	dir := t.TempDir()
	must.NoError(t, os.Mkdir(filepath.Join(dir, "store"), 0o700))
	n = newNode(t, "", func(c *api.AgentConfig) {
		c.Store = "gate://any" + dir
		if change != nil {
			change(c)
		}
	})
	return n, filepath.Join(dir, "store"), filepath.Join(dir, "hold")
}

// noise cannot be coded.
func noise(seed uint64, n int) string {
	b := make([]byte, n)
	if _, err := rand.NewChaCha8([32]byte{byte(seed)}).Read(b); err != nil {
		panic(err)
	}
	return string(b)
}

// packs lists the packs of a store with their sizes.
func packs(t *testing.T, storeDir string) map[string]int64 {
	t.Helper()
	out := map[string]int64{}
	must.NoError(t, filepath.WalkDir(storeDir, func(p string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Base(filepath.Dir(p)) != "@packs" {
			return err
		}
		info, err := d.Info()
		out[d.Name()] = info.Size()
		return err
	}))
	return out
}

// The agent is killed when one of three packs is in the store. What it uploaded is found again: the next one sends the rest.
func TestAgent_UploadGoesOnAfterKill(t *testing.T) {
	t.Parallel()
	n, st, hold := behindGate(t, nil)
	must.NoError(t, os.WriteFile(hold, []byte("1"), 0o600))
	n.start()
	n.restore()
	n.shell("sleep 60")
	const size = 80 << 20
	content := noise(1, size)
	n.write("step-1", content)
	n.poll(60*time.Second, "one pack is in the store", func() bool { return len(packs(t, st)) == 1 })
	before := packs(t, st)
	n.kill()
	must.NoError(t, os.Remove(hold))
	n.start()
	n.poll(60*time.Second, "it is durable", func() bool {
		d, err := n.ctl.Durable(context.Background(), 1, time.Second)
		return err == nil && d.Durable
	})
	after := packs(t, st)
	var sent int64
	for name, size := range after {
		if _, ok := before[name]; !ok {
			sent += size
		}
	}
	must.MapContainsKeys(t, after, keys(before))
	must.Len(t, 3, keys(after), must.Sprint("nothing lies there that is not needed"))
	cp := n.durable(1)
	must.Between(t, sent, cp.StoredBytes, sent+10_000)
	must.Less(t, size-30<<20, cp.StoredBytes)
	_, got := read(t, st, n.conf.Lineage)
	must.True(t, got == content)
}

func keys(m map[string]int64) (out []string) {
	for k := range m {
		out = append(out, k)
	}
	return out
}

// While an upload is stuck, checkpoints come and go: only the newest waits behind it, and what a request may be waiting for.
func TestAgent_BacklogIsTheNewest(t *testing.T) {
	t.Parallel()
	n, st, hold := behindGate(t, nil)
	must.NoError(t, os.WriteFile(hold, []byte("0"), 0o600))
	n.start()
	n.restore()
	n.shell("sleep 60")
	say := func(step int64, content string, request uint64) {
		name := fmt.Sprintf("step-%d", step)
		n.write(name, content)
		_, err := n.task.Finished(context.Background(), step, name, request)
		must.NoError(t, err)
	}
	staged := func() (out int) {
		entries, err := os.ReadDir(filepath.Join(n.conf.StateDir, "stage"))
		must.NoError(t, err)
		return len(entries)
	}
	say(1, noise(1, 2*large), 0)
	n.poll(20*time.Second, "it is on its way", func() bool {
		_, err := os.Stat(hold + ".waits")
		return err == nil
	})
	for step := int64(2); step <= 5; step++ {
		say(step, fmt.Sprint("state of step ", step), 0)
		must.EqOp(t, 2, n.status().Pending)
		must.EqOp(t, 2, staged(), must.Sprint("the stage holds no more than needed"))
	}
	time.Sleep(20 * time.Millisecond) // a request has the clock tick's time: what was finished within that tick could answer it
	r := n.ask(false, time.Minute)
	say(6, "the answer", r.ID)
	say(7, "one more", 0)
	must.EqOp(t, 3, n.status().Pending)
	must.NoError(t, os.Remove(hold))
	must.EqOp(t, 6, n.outcome(r.ID).Checkpoint.Step)
	n.durable(7)
	must.Len(t, 3, n.events(api.EventDurable))
	must.EqOp(t, 1, staged())
	step, content := read(t, st, n.conf.Lineage)
	must.EqOp(t, 7, step)
	must.EqOp(t, "one more", content)
}

func (n *node) status() *api.Status {
	n.t.Helper()
	s, err := n.ctl.Status(context.Background(), 0, 0)
	must.NoError(n.t, err)
	return s
}

// A notice comes while a large checkpoint is stuck on its way. What the task makes in answer would be late behind it: the
// large one is given up, and only then.
func TestAgent_GivesUpForTheAwaited(t *testing.T) {
	t.Parallel()
	n, st, hold := behindGate(t, nil)
	must.NoError(t, os.WriteFile(hold, []byte("0"), 0o600))
	n.start()
	n.restore()
	n.shell("sleep 60")
	n.write("step-1", noise(1, 5*large))
	n.poll(20*time.Second, "it is on its way", func() bool {
		_, err := os.Stat(hold + ".waits")
		return err == nil
	})
	// Without haste it may take as long as it likes, whatever is made meanwhile.
	n.write("step-2", "periodic")
	n.poll(20*time.Second, "it waits", func() bool { return n.status().Pending == 2 })
	must.SliceEmpty(t, n.events(api.EventWarning))
	r := n.ask(true, 15*time.Second)
	n.write("step-3", "the last one")
	o := n.outcome(r.ID)
	must.True(t, o.Durable, must.Sprint(o.Error))
	must.EqOp(t, 3, o.Checkpoint.Step)
	must.Len(t, 1, n.events(api.EventWarning))
	must.StrContains(t, n.events(api.EventWarning)[0], "Checkpoint 1 is given up")
	step, content := read(t, st, n.conf.Lineage)
	must.EqOp(t, 3, step)
	must.EqOp(t, "the last one", content)
	must.Len(t, 1, n.events(api.EventDurable))
	must.EqOp(t, 0, n.status().Pending)
}

// An agent that knows its processor to be slow stores as it is what must be there soon, and codes again when there is time.
func TestAgent_EmergencyEffort(t *testing.T) {
	t.Parallel()
	st := t.TempDir()
	n := newNode(t, st, nil)
	n.start()
	n.restore()
	n.shell("sleep 60")
	n.write("step-1.safetensors", weights(1))
	must.EqOp(t, "auto", n.durable(1).Effort)
	n.kill()
	// What earlier publications took is in the state file: here one of a processor that codes 100 kB a second.
	file := filepath.Join(n.conf.StateDir, "state.json")
	b, err := os.ReadFile(file)
	must.NoError(t, err)
	var state map[string]any
	must.NoError(t, json.Unmarshal(b, &state))
	state["rates"] = agent.Rates{Link: 1e9, Efforts: map[delta.Effort]*agent.Rate{delta.Auto: {Code: 1e5, Ratio: 0.8}}}
	b, err = json.Marshal(state)
	must.NoError(t, err)
	must.NoError(t, os.WriteFile(file, b, 0o600))
	n.start()
	r := n.ask(false, time.Minute)
	big := strings.Repeat("0123456789abcdef", 10_000_000/16)
	n.write("step-2", big)
	o := n.outcome(r.ID)
	must.True(t, o.Durable, must.Sprint(o.Error))
	must.EqOp(t, "none", o.Checkpoint.Effort)
	must.Greater(t, int64(len(big)), o.Checkpoint.StoredBytes)
	n.write("step-3", "x"+big)
	cp := n.durable(3)
	must.NotEqOp(t, "none", cp.Effort)
	must.Less(t, 1_000_000, cp.StoredBytes)
	_, content := read(t, st, n.conf.Lineage)
	must.True(t, content == "x"+big)
}

// replacing is a file store that does not create objects conditionally: replacing://any/DIR.
type replacing struct{ store.Store }

func openReplacing(l store.Location) (store.Store, error) {
	s, err := store.OpenFile("/"+l.Path, store.OS{}, true)
	return replacing{s}, err
}

func (r replacing) Put(ctx context.Context, key string, body io.Reader) (int64, error) {
	if err := r.Delete(ctx, key); err != nil {
		return 0, err
	}
	return r.Store.Put(ctx, key, body)
}
