package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"nomad-spotter/e2e/cluster"
)

// The training run: 210 s without interruption. The market turns after a third, so that training goes on well past the
// end of the two-minute notice.
const (
	steps    = 1050
	pace     = 200 * time.Millisecond
	every    = 50
	size     = "2MiB"
	turnStep = 300

	notice = 2 * time.Minute
	look   = 50 * time.Millisecond // how often conditions are looked at
)

// demo is one showing.
type demo struct {
	*screen
	cluster   *cluster.Cluster
	job       *cluster.Job
	reference chan referenceResult
	result    result

	spot     cluster.Instance // the instance that is reclaimed
	old, new string           // allocations before and after
}

type referenceResult struct {
	sum string
	err error
}

// play runs all sections.
func (d *demo) play(ctx context.Context, bin string) error {
	for _, section := range []func(context.Context) error{
		func(ctx context.Context) error { return d.start(ctx, bin) },
		d.train, d.reclaim, d.move, d.disappear, d.finish,
	} {
		if err := section(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (d *demo) start(ctx context.Context, bin string) error {
	d.head("A cluster on this machine")
	d.text(`A Nomad server, Consul, a checkpoint store (a directory, registered in Consul as service %q) and
		nomad-autoscaler with the target plugin "spotter-pool". Its pool has one on-demand node and two spot nodes in two
		regions; each is a Nomad client with a containerd of its own and a metadata endpoint that speaks EC2's spot protocol.`, cluster.StoreService)
	b, err := cluster.FindBinaries(ctx, bin)
	if err != nil {
		return err
	}
	d.cluster, err = cluster.Start(ctx, cluster.Config{
		Bin: b, Nodes: 3, OnDemandBase: 1, Notice: notice, TimeScale: 60, Margin: 10 * time.Second,
		Offerings: []cluster.Offering{
			// Available until the market starts to play, gone five minutes of market time later, which are 5 s.
			{Name: "spot-west", Region: "west", Zone: "west-1a", Kind: cluster.Spot, PriceUSDPerHour: 0.8, Trace: []int{1, 0}, Tick: 5 * time.Minute},
			{Name: "spot-east", Region: "east", Zone: "east-1a", Kind: cluster.Spot, PriceUSDPerHour: 0.9},
			{Name: "on-demand-east", Region: "east", Zone: "east-1a", Kind: cluster.OnDemand, PriceUSDPerHour: 3},
		},
		Progress: d.step,
	})
	if err != nil {
		return err
	}
	nodes, err := d.cluster.ReadyNodes(ctx)
	if err != nil {
		return err
	}
	for _, n := range nodes {
		d.event(n.Kind, "node %s in %s", n.Name, n.Region)
	}
	return nil
}

// arguments of the training program, but for its pace and its output.
func arguments() []string {
	return []string{"--steps", strconv.Itoa(steps), "--checkpoint-every", strconv.Itoa(every), "--size", size}
}

func (d *demo) train(ctx context.Context) error {
	path, err := cluster.SpecPath("train.nomad.hcl")
	if err != nil {
		return err
	}
	d.head("A training job on a spot node")
	d.text(`jobs/specs/train.nomad.hcl: a two-layer network trained with Adam for %d steps. It writes weights, both moments,
		random generator and data position into its checkpoint directory every %d steps. Beside it the same program runs
		without interruption, as the reference.`, steps, every)
	args := append(arguments(), "--step-time", pace.String(), "--out", "${NOMAD_ALLOC_DIR}/data/model.bin")
	job, err := d.cluster.ParseJob(path, map[string]string{
		"image_archive": cluster.HCL(d.cluster.ImageURL), "args": cluster.HCL(args...), "prefer_datacenter": cluster.HCL("west"),
	})
	if err != nil {
		return err
	}
	d.reference = make(chan referenceResult, 1)
	go func() { d.reference <- d.runReference(ctx) }()
	if d.job, err = d.cluster.Run(ctx, job); err != nil {
		return err
	}
	if err := d.wait(ctx, 90*time.Second, "first step", func() bool { return d.job.Last().Step > 0 }); err != nil {
		return err
	}
	list, err := d.job.Allocations(ctx)
	if err != nil {
		return err
	}
	d.old = list[len(list)-1].ID
	node := list[len(list)-1].NodeName
	if d.spot, err = d.cluster.Instance(node); err != nil {
		return err
	}
	d.event(clock(d.job.Last().At), "training on %s (%s, %s)", node, d.spot.Kind, d.spot.Region)
	if d.spot.Offering != "spot-west" {
		return fmt.Errorf("the job runs on %s, not on a node of spot-west, where its affinities point", node)
	}
	return d.wait(ctx, 3*time.Minute, fmt.Sprintf("step %d", turnStep), func() bool { return d.job.Last().Step >= turnStep })
}

// runReference trains in a plain process.
func (d *demo) runReference(ctx context.Context) referenceResult {
	out := filepath.Join(d.cluster.Dir, "reference.bin")
	cmd := exec.CommandContext(ctx, d.cluster.Bin.Trainer, append(arguments(), "--out", out)...)
	text, err := cmd.CombinedOutput()
	if err != nil {
		return referenceResult{err: fmt.Errorf("reference run: %w\n%s", err, lastLines(text, 5))}
	}
	sum, err := hashFile(out)
	return referenceResult{sum: sum, err: err}
}

func (d *demo) reclaim(ctx context.Context) error {
	d.head("The market takes the spot node back")
	d.text(`The price trace of spot-west turns. The instance's metadata endpoint answers with a notice: two minutes, on the wall
		clock. The driver on the node sees it, asks the training program for a checkpoint, makes it durable in the store and
		marks the node ineligible.`)
	seen := make(chan error, 1)
	var polled time.Time
	pollCtx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	go func() {
		var err error
		polled, err = d.cluster.NoticePoll(pollCtx, d.spot, 10*time.Millisecond)
		seen <- err
	}()
	if err := d.cluster.StartMarket(ctx); err != nil {
		return err
	}
	if err := <-seen; err != nil {
		return fmt.Errorf("wait for the notice of %s: %w", d.spot.ID, err)
	}
	// Our own poll has found it; the record says since when.
	var err error
	if d.spot, err = d.cluster.Instance(d.spot.ID); err != nil {
		return err
	}
	if diff := polled.Sub(d.spot.NoticedAt); diff < -time.Second || diff > time.Second {
		return fmt.Errorf("the metadata endpoint of %s answered with the notice at %s, its record says %s", d.spot.ID, clock(polled), clock(d.spot.NoticedAt))
	}
	d.result.notice, d.result.deadline = d.spot.NoticedAt, d.spot.Deadline
	d.event(clock(d.spot.NoticedAt), "notice for %s: it ends at %s", d.spot.ID, clock(d.spot.Deadline))

	for _, text := range []string{"Interruption notice", "durable"} {
		var e cluster.Event
		err := d.wait(ctx, notice, "task event: "+text, func() bool {
			var ok bool
			e, ok = d.eventAfter(ctx, d.old, text, d.result.notice)
			return ok
		})
		if err != nil {
			return err
		}
		if d.result.noticeSeen.IsZero() {
			d.result.noticeSeen = e.At
		}
		d.event(d.since(e.At), "%s", e.Message)
	}
	return nil
}

// eventAfter returns the first task event of an allocation that holds text, from a moment on.
func (d *demo) eventAfter(ctx context.Context, alloc, text string, from time.Time) (cluster.Event, bool) {
	events, err := d.job.Events(ctx)
	if err != nil {
		return cluster.Event{}, false
	}
	for _, e := range events {
		if e.Alloc == alloc && !e.At.Before(from) && strings.Contains(e.Message, text) {
			return e, true
		}
	}
	return cluster.Event{}, false
}

func (d *demo) move(ctx context.Context) error {
	d.head("Training goes on elsewhere")
	d.text(`With the last checkpoint safe, the driver has Nomad move the allocation. The replacement restores that checkpoint
		on another node and goes on with the next step.`)
	err := d.wait(ctx, notice, "replacement's first step", func() bool {
		runs := d.job.Runs()
		last := runs[len(runs)-1]
		return last.Alloc != d.old && last.First.Step > 0
	})
	if err != nil {
		return err
	}
	runs := d.job.Runs()
	before, after := runs[0], runs[len(runs)-1]
	d.new = after.Alloc
	d.result.running = after.First.At
	d.result.stepsLost = before.Last.Step - after.Resumed
	// The checkpoint that counts is the one that the replacement went on from.
	e, ok := d.eventAfter(ctx, d.old, fmt.Sprintf("Checkpoint %d durable", after.Resumed), d.result.notice)
	if !ok {
		return fmt.Errorf("no task event says that checkpoint %d, which the replacement went on from, became durable", after.Resumed)
	}
	d.result.durable = e.At
	if e, ok := d.eventAfter(ctx, d.new, "Restored", d.result.notice); ok {
		d.event(d.since(e.At), "%s", e.Message)
	}
	list, err := d.job.Allocations(ctx)
	if err != nil {
		return err
	}
	d.event(d.since(after.First.At), "step %d finished on %s", after.First.Step, list[len(list)-1].NodeName)
	d.text("The old container's own log ends with step %d; the new one went on from step %d: %d steps lost.",
		before.Last.Step, after.Resumed, d.result.stepsLost)
	return nil
}

func (d *demo) disappear(ctx context.Context) error {
	d.head("The instance disappears, and the pool replaces it")
	d.text(`Two minutes after the notice the instance is killed, with its Nomad client, containerd and all that is left on it.
		Training goes on meanwhile. The pool has launched another node: its desired count did not change.`)
	until := time.Until(d.result.deadline) + time.Minute
	err := d.wait(ctx, until, "instance gone", func() bool {
		i, err := d.cluster.Instance(d.spot.ID)
		d.spot = i
		return err == nil && i.State == cluster.Gone
	})
	if err != nil {
		return err
	}
	d.result.gone = d.spot.EndedAt
	d.event(d.since(d.spot.EndedAt), "%s is gone", d.spot.ID)
	var fresh cluster.Instance
	err = d.wait(ctx, time.Minute, "replacement node", func() bool {
		nodes, err := d.cluster.ReadyNodes(ctx)
		if err != nil || len(nodes) < d.cluster.Nodes {
			return false
		}
		for _, n := range nodes {
			if i, err := d.cluster.Instance(n.Name); err == nil && i.LaunchedAt.After(d.result.notice) {
				fresh = i
				return true
			}
		}
		return false
	})
	if err != nil {
		return err
	}
	d.result.replaced = fresh.LaunchedAt
	d.event(d.since(fresh.LaunchedAt), "%s launched (%s, %s); the pool has its %d nodes", fresh.ID, fresh.Kind, fresh.Region, d.cluster.Nodes)
	return nil
}

func (d *demo) finish(ctx context.Context) error {
	d.head("Training finishes")
	err := d.wait(ctx, steps*pace+time.Minute, "end of training", func() bool { return d.job.Final() != "" })
	if err != nil {
		return err
	}
	err = d.wait(ctx, 30*time.Second, "end of the allocation", func() bool {
		list, err := d.job.Allocations(ctx)
		return err == nil && list[len(list)-1].ClientStatus == "complete"
	})
	if err != nil {
		return err
	}
	runs := d.job.Runs()
	model, err := d.cluster.AllocFile(runs[len(runs)-1].Alloc, "data/model.bin")
	if err != nil {
		return err
	}
	if d.result.sum, err = hashFile(model); err != nil {
		return err
	}
	if d.result.sum != d.job.Final() {
		return fmt.Errorf("the model %s has sha256 %s, the job's log says %s", model, d.result.sum, d.job.Final())
	}
	var ref referenceResult
	select {
	case ref = <-d.reference:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if ref.err != nil {
		return ref.err
	}
	d.result.reference = ref.sum
	d.event("interrupted", "sha256 %s", d.result.sum)
	d.event("reference", "sha256 %s", d.result.reference)
	return d.result.count(ctx, d.cluster)
}

// wait waits for a condition, showing how training goes on.
func (d *demo) wait(ctx context.Context, limit time.Duration, what string, done func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := cluster.Poll(ctx, look, func() bool {
		if done() {
			return true
		}
		d.progress(d.status())
		return false
	})
	d.clear()
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("waited %v for: %s", limit.Round(time.Second), what)
	}
	return err
}

// status is the progress line.
func (d *demo) status() string {
	last := d.job.Last()
	if last.Step == 0 {
		return "waiting for the first step"
	}
	s := fmt.Sprintf("step %d of %d, loss %.3f", last.Step, steps, last.Loss)
	if left := time.Until(d.result.deadline); left > 0 {
		s += fmt.Sprintf("; %s ends in %d s", d.spot.ID, int(left.Seconds()))
	}
	return s
}

// close stops what was started, unless it is to be kept.
func (d *demo) close(ctx context.Context, failed, keep bool) error {
	if d.cluster == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cluster.StopLimit)
	defer cancel()
	d.clear()
	if d.job != nil {
		if failed {
			fmt.Fprint(os.Stderr, d.job.Report(ctx))
		}
		d.job.Close()
	}
	if keep {
		fmt.Fprintf(d.w, "\nKEEP=1: everything runs on.\n   export NOMAD_ADDR=%s CONSUL_HTTP_ADDR=%s\n   logs and instances: %s\n   to end it: %s -stop %s\n",
			d.cluster.NomadAddress(), d.cluster.ConsulAddress(), d.cluster.Dir, os.Args[0], d.cluster.Dir)
		return nil
	}
	d.step("stopping everything")
	err := d.cluster.Stop(ctx, failed)
	d.clear()
	if failed || err != nil {
		fmt.Fprintf(os.Stderr, "logs are kept in %s\n", d.cluster.Dir)
	}
	return err
}

func (d *demo) since(t time.Time) string {
	return fmt.Sprintf("+%.2f s", t.Sub(d.result.notice).Seconds())
}

func clock(t time.Time) string { return t.Local().Format("15:04:05.000") }

func hashFile(path string) (string, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:]), nil
}

func lastLines(b []byte, n int) []byte {
	lines := bytes.Split(bytes.TrimRight(b, "\n"), []byte("\n"))
	return bytes.Join(lines[max(0, len(lines)-n):], []byte("\n"))
}
