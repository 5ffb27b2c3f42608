//go:build e2e

package scenario

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	nomadapi "github.com/hashicorp/nomad/api"
	"github.com/shoenig/test/must"

	"nomad-spotter/e2e/cluster"
)

// The training run of the stories: 18 s without interruption.
const (
	steps   = 300
	pace    = "60ms"
	settled = 40 // steps after which a story begins
)

var arguments = []string{"--steps", fmt.Sprint(steps), "--checkpoint-every", "30", "--size", "256KiB"}

// reference is the hash of the model of an uninterrupted run, computed once.
var reference = sync.OnceValues(func() (string, error) {
	out := filepath.Join(shared.Dir, "reference.bin")
	text, err := exec.Command(shared.Bin.Trainer, append(arguments, "--out", out)...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("reference run: %w\n%s", err, text)
	}
	return hashFile(out)
})

func hashFile(path string) (string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:]), nil
}

// story is one test, with nodes of its own.
type story struct {
	*testing.T
	ctx   context.Context
	nodes []cluster.Node // the first is home, where its jobs begin
}

// begin takes so many free nodes for a story that runs beside others.
func begin(t *testing.T, nodes int) *story {
	t.Helper()
	t.Parallel()
	s := alone(t)
	s.take(nodes, func(n cluster.Node) bool { return n.Offering != weak })
	return s
}

// alone begins a story without nodes.
func alone(t *testing.T) *story {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	t.Cleanup(cancel)
	return &story{T: t, ctx: ctx}
}

// taken are the names of the nodes that stories have, or had and left unfit.
var (
	takenMu sync.Mutex
	taken   = map[string]bool{}
)

// surplus tells whether the pool has more instances than it wants: it is about to drain some.
func surplus() bool {
	list, err := shared.Instances()
	n := 0
	for _, i := range list {
		if i.State == cluster.Running {
			n++
		}
	}
	return err != nil || n > poolNodes
}

// take waits for free nodes that match and gives them to the story until its end.
func (s *story) take(n int, match func(cluster.Node) bool) {
	s.Helper()
	s.eventually(2*time.Minute, fmt.Sprintf("%d free nodes", n), func() bool {
		nodes, err := shared.ReadyNodes(s.ctx)
		if err != nil || surplus() {
			return false
		}
		takenMu.Lock()
		defer takenMu.Unlock()
		var free []cluster.Node
		for _, c := range nodes {
			i, err := shared.Instance(c.Name)
			if err == nil && i.State == cluster.Running && !taken[c.Name] && match(c) {
				free = append(free, c)
			}
		}
		if len(free) < n {
			return false
		}
		for _, c := range free[:n] {
			taken[c.Name] = true
			s.nodes = append(s.nodes, c)
			s.Cleanup(func() {
				takenMu.Lock()
				defer takenMu.Unlock()
				delete(taken, c.Name)
			})
		}
		return true
	})
}

// eventually waits for a condition.
func (s *story) eventually(limit time.Duration, what string, f func() bool) {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.ctx, limit)
	defer cancel()
	if err := cluster.Poll(ctx, 50*time.Millisecond, f); err != nil {
		s.Fatalf("waited %v for: %s", limit, what)
	}
}

// job is a training job of a story.
type job struct {
	*cluster.Job
	s    *story
	kind string
}

// option changes a job before it runs.
type option func(*nomadapi.Job)

// withArgs adds arguments of the training program.
func withArgs(args ...string) option {
	return func(j *nomadapi.Job) {
		c := j.TaskGroups[0].Tasks[0].Config
		c["args"] = append(c["args"].([]any), toAny(args)...)
	}
}

func toAny(list []string) (out []any) {
	for _, v := range list {
		out = append(out, v)
	}
	return out
}

// start runs jobs/specs/train.nomad.hcl on the story's nodes, at home as long as that takes jobs.
func (s *story) start(kind string, opts ...option) *job {
	s.Helper()
	path, err := cluster.SpecPath("train.nomad.hcl")
	must.NoError(s, err)
	args := append([]string{}, arguments...)
	args = append(args, "--step-time", pace, "--out", "${NOMAD_ALLOC_DIR}/data/model.bin")
	if kind == "service" {
		args = append(args, "--idle") // or Nomad would start it again when training ends
	}
	spec, err := shared.ParseJob(path, map[string]string{
		"image_archive": cluster.HCL(shared.ImageURL), "args": cluster.HCL(args...), "type": cluster.HCL(kind),
		"kind": cluster.HCL(s.nodes[0].Kind), "cpu": "100", "memory": "128", "kill_timeout": cluster.HCL("30s"),
	})
	must.NoError(s, err)
	name := strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(s.Name())) + "-" + kind
	spec.ID, spec.Name = &name, &name
	var names []string
	for _, n := range s.nodes {
		names = append(names, n.Name)
	}
	spec.Constraints = append(spec.Constraints, nomadapi.NewConstraint("${node.unique.name}", "set_contains_any", strings.Join(names, ",")))
	for i, n := range names { // a story's jobs move to the same node
		spec.Affinities = append(spec.Affinities, nomadapi.NewAffinity("${node.unique.name}", "=", n, int8(100-20*i)))
	}
	for _, o := range opts {
		o(spec)
	}
	running, err := shared.Run(s.ctx, spec)
	must.NoError(s, err)
	j := &job{Job: running, s: s, kind: kind}
	s.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if s.Failed() || os.Getenv("SPOTTER_E2E_REPORT") != "" {
			s.Log(j.Report(ctx))
			s.Log(shared.InstanceLogs(25, names...))
		}
		_ = j.Stop(ctx) // the cluster's stop purges what this leaves
		j.Close()
	})
	return j
}

// pair runs the job once as batch and once as service, and waits until both train at home.
func (s *story) pair(opts ...option) []*job {
	s.Helper()
	jobs := []*job{s.start("batch", opts...), s.start("service", opts...)}
	for _, j := range jobs {
		j.trains(settled)
		must.Eq(s, s.nodes[0].Name, j.host().ID)
	}
	return jobs
}

// trains waits until the job has finished a step.
func (j *job) trains(step int64) {
	j.s.Helper()
	j.s.eventually(60*time.Second, fmt.Sprintf("%s: step %d", j.ID, step), func() bool { return j.Last().Step >= step })
}

// alloc returns the newest allocation.
func (j *job) alloc() *nomadapi.AllocationListStub {
	j.s.Helper()
	list, err := j.Allocations(j.s.ctx)
	must.NoError(j.s, err)
	must.SliceNotEmpty(j.s, list)
	return list[len(list)-1]
}

// host returns the instance that the newest allocation is on.
func (j *job) host() cluster.Instance {
	j.s.Helper()
	i, err := shared.Instance(j.alloc().NodeName)
	must.NoError(j.s, err)
	return i
}

// event waits for a task event of an allocation that holds the text, at or after a moment.
func (j *job) event(alloc, text string, from time.Time) (found cluster.Event) {
	j.s.Helper()
	j.s.eventually(60*time.Second, fmt.Sprintf("%s: task event %q", j.ID, text), func() bool {
		events, err := j.Events(j.s.ctx)
		must.NoError(j.s, err)
		for _, e := range events {
			if e.Alloc == alloc && !e.At.Before(from) && strings.Contains(e.Message, text) {
				found = e
				return true
			}
		}
		return false
	})
	return found
}

// moved waits until another run of the program than the first n has finished a step, and returns the run before it and
// that one.
func (j *job) moved(n int) (before, after cluster.Run) {
	j.s.Helper()
	j.s.eventually(90*time.Second, fmt.Sprintf("%s: run %d to finish a step", j.ID, n+1), func() bool {
		runs := j.Runs()
		return len(runs) > n && runs[n].First.Step > 0
	})
	runs := j.Runs()
	return runs[n-1], runs[n]
}

// movedWithoutLoss waits for the n-th move and checks that the new run, in another allocation on another node, went on
// from the step that the old one had finished last.
func (j *job) movedWithoutLoss(n int) {
	j.s.Helper()
	before, after := j.moved(n)
	must.NotEq(j.s, before.Alloc, after.Alloc)
	must.Eq(j.s, before.Last.Step, after.Resumed, must.Sprintf("%s: steps lost", j.ID))
	must.Eq(j.s, after.Resumed+1, after.First.Step)
}

// identical waits until training has ended and checks that the model is that of the uninterrupted run, and that the
// program ran so many times.
func (j *job) identical(runs int) {
	j.s.Helper()
	want, err := reference()
	must.NoError(j.s, err)
	j.s.eventually(90*time.Second, j.ID+": end of training", func() bool { return j.Final() != "" })
	must.Eq(j.s, want, j.Final(), must.Sprint(j.ID))
	got := j.Runs()
	must.Len(j.s, runs, got)
	model, err := shared.AllocFile(got[len(got)-1].Alloc, "data/model.bin")
	must.NoError(j.s, err)
	sum, err := hashFile(model)
	must.NoError(j.s, err)
	must.Eq(j.s, want, sum)
	if j.kind != "batch" {
		return
	}
	j.s.eventually(30*time.Second, j.ID+": complete", func() bool {
		info, _, err := shared.Nomad.Jobs().Info(j.ID, nil)
		return err == nil && *info.Status == "dead" && j.alloc().ClientStatus == nomadapi.AllocClientStatusComplete
	})
}
