package config

import (
	"path"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/nomad/plugins/shared/hclspec"
	"github.com/moby/sys/signal"
)

// Checkpoint says how a task's checkpoints are found, asked for and kept. It is stored in the driver's state, so fields keep
// their names.
type Checkpoint struct {
	Dir       string        // in the container
	Pattern   string        // glob on names in Dir; empty: every name
	Signal    int           // sent on a request; 0: none
	Interval  time.Duration // ask this often; 0: the task's own rhythm, unless Auto
	Auto      bool          // ask as often as costs the least
	Precision string        // exact, or compact: moments of the optimizer are rounded
	Lineage   string        // empty: derived from namespace, job, group, task and index
	Store     string        // URL; empty: the node's

	Rank  int    // of Ranks; IndexRank: the allocation's index
	Ranks int    // tasks that save one checkpoint together; 0 or 1: there is only this one
	Epoch uint64 // claimed once for all ranks; 0: the agent claims one

	Durability     string // what a checkpoint must reach to be called durable
	Replicas       int    // other regions that it is copied to
	Effort         string // how much to code
	MaxCPUs        int    // cores for the agent while the task runs; 0: its default
	MaxMemoryBytes int64  // 0: its default
	Fork           bool   // go on in a replica if only that is reachable
	SingleWriter   bool   // nobody else ever writes the lineage
}

// autoInterval is the interval that the agent chooses.
const autoInterval = "auto"

// IndexRank stands for the index of the allocation in its group.
const IndexRank = -1

// maxRanks is the most that a checkpoint repository knows.
const maxRanks = 1 << 16

// Values of options, the default first.
var (
	precisions   = []string{"exact", "compact"}
	durabilities = []string{"store", "local", "replicated"}
	efforts      = []string{"auto", "fast", "small", "none"}
)

// checkpointBlock is the block as Nomad decodes it.
type checkpointBlock struct {
	Dir            string `codec:"dir"`
	Pattern        string `codec:"pattern"`
	Signal         string `codec:"signal"`
	Interval       string `codec:"interval"`
	Precision      string `codec:"precision"`
	Lineage        string `codec:"lineage"`
	Store          string `codec:"store"`
	Rank           *int64 `codec:"rank"`
	Ranks          int64  `codec:"ranks"`
	Epoch          int64  `codec:"epoch"`
	Durability     string `codec:"durability"`
	Replicas       int64  `codec:"replicas"`
	Effort         string `codec:"effort"`
	MaxCPUs        int64  `codec:"max_cpus"`
	MaxMemoryBytes int64  `codec:"max_memory_bytes"`
	Fork           bool   `codec:"fork"`
	SingleWriter   bool   `codec:"single_writer"`
}

func checkpointSchema() *hclspec.Spec {
	m := map[string]*hclspec.Spec{}
	for kind, names := range map[string][]string{
		"string": {"dir", "pattern", "signal", "interval", "precision", "lineage", "store", "durability", "effort"},
		"number": {"rank", "ranks", "epoch", "replicas", "max_cpus", "max_memory_bytes"},
		"bool":   {"fork", "single_writer"},
	} {
		for _, n := range names {
			m[n] = hclspec.NewAttr(n, kind, false)
		}
	}
	return hclspec.NewObject(m)
}

// checkpoint fills in the defaults.
func (b *checkpointBlock) checkpoint(f *faults) *Checkpoint {
	c := &Checkpoint{
		Dir:       path.Clean(fallback(b.Dir, "/checkpoints")),
		Pattern:   b.Pattern,
		Signal:    signalOf(f, "checkpoint.signal", b.Signal),
		Auto:      b.Interval == autoInterval,
		Precision: fallback(b.Precision, precisions[0]),
		Lineage:   b.Lineage,
		Store:     b.Store,

		Rank:  IndexRank,
		Ranks: int(b.Ranks),
		Epoch: uint64(max(b.Epoch, 0)),

		Durability:     fallback(b.Durability, durabilities[0]),
		Replicas:       int(b.Replicas),
		Effort:         fallback(b.Effort, efforts[0]),
		MaxCPUs:        int(b.MaxCPUs),
		MaxMemoryBytes: b.MaxMemoryBytes,
		Fork:           b.Fork,
		SingleWriter:   b.SingleWriter,
	}
	if !c.Auto {
		c.Interval = f.interval("checkpoint.interval", b.Interval)
	}
	if b.Rank != nil {
		c.Rank = int(*b.Rank)
		if c.Rank < 0 || c.Rank >= max(c.Ranks, 1) {
			f.add("checkpoint.rank", `%d is not one of the %d ranks; count from 0, or leave it out for the allocation's index`, c.Rank, max(c.Ranks, 1))
		}
	}
	if b.Epoch < 0 {
		f.add("checkpoint.epoch", `%d is negative; give the one that "checkpointer claim" printed`, b.Epoch)
	}
	return c
}

func (c *Checkpoint) validate(f *faults) {
	f.absolute("checkpoint.dir", c.Dir, "inside the container", "/checkpoints")
	if c.Dir == "/" {
		f.add("checkpoint.dir", `"/" would hide the whole image; give a directory of its own, such as "/checkpoints"`)
	}
	if _, err := path.Match(c.Pattern, "x"); err != nil {
		f.add("checkpoint.pattern", `%q is no glob pattern (%v); write for example "ckpt-*"`, c.Pattern, err)
	}
	if strings.Contains(c.Pattern, "/") {
		f.add("checkpoint.pattern", `%q holds a "/"; it is matched against names in checkpoint.dir, such as "ckpt-*"`, c.Pattern)
	}
	if c.Lineage != "" {
		for _, part := range strings.Split(c.Lineage, "/") {
			if part == "" || part == "." || part == ".." {
				f.add("checkpoint.lineage", `%q has an empty, "." or ".." part; write names joined by single slashes, such as "team/run-7"`, c.Lineage)
				break
			}
		}
	}
	f.store("checkpoint.store", c.Store)
	c.validateRanks(f)
	c.validateCost(f)
}

// validateRanks checks what a task of several says of its part.
func (c *Checkpoint) validateRanks(f *faults) {
	switch {
	case c.Ranks < 0 || c.Ranks > maxRanks:
		f.add("checkpoint.ranks", `%d is no number of ranks; give 2 to %d, or leave it out for a task that saves alone`, c.Ranks, maxRanks)
	case c.Ranks > 1 && c.Epoch == 0:
		f.add("checkpoint.epoch", `is missing; with %d ranks all need the same one, take it once with "checkpointer claim"`, c.Ranks)
	case c.Ranks <= 1 && c.Epoch > 0:
		f.add("checkpoint.epoch", `is %d without ranks; remove it, the agent takes one for a task that saves alone`, c.Epoch)
	}
}

// validateCost checks how much is spent on checkpoints, and for what.
func (c *Checkpoint) validateCost(f *faults) {
	for _, o := range []struct {
		name, value string
		known       []string
	}{{"precision", c.Precision, precisions}, {"durability", c.Durability, durabilities}, {"effort", c.Effort, efforts}} {
		if !slices.Contains(o.known, o.value) {
			f.add("checkpoint."+o.name, `%q is unknown; use "%s"`, o.value, strings.Join(o.known, `" or "`))
		}
	}
	if c.Replicas < 0 {
		f.add("checkpoint.replicas", `%d is negative; give a number of other regions, or leave it out for none`, c.Replicas)
	}
	if c.Durability == "replicated" && c.Replicas == 0 {
		f.add("checkpoint.durability", `is "replicated" without replicas; set those too, as to 1`)
	}
	if c.MaxCPUs < 0 {
		f.add("checkpoint.max_cpus", `%d is negative; give a number of cores, or leave it out`, c.MaxCPUs)
	}
	if c.MaxMemoryBytes < 0 {
		f.add("checkpoint.max_memory_bytes", `%d is negative; give a size in bytes, such as 536870912`, c.MaxMemoryBytes)
	}
}

// signalOf reads a signal by name or number; empty is none.
func signalOf(f *faults, field, text string) int {
	if text == "" {
		return 0
	}
	s, err := signal.ParseSignal(text)
	if err != nil {
		f.add(field, `%q is no signal; write its name, such as "SIGUSR1"`, text)
		return 0
	}
	if n := int(s); n == 9 || n == 19 {
		f.add(field, `%q cannot be caught by a process; use another, such as "SIGUSR1"`, text)
		return 0
	}
	return int(s)
}
