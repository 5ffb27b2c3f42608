package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"nomad-spotter/checkpointer/api"
	"nomad-spotter/checkpointer/pack"
	"nomad-spotter/checkpointer/repository"
	"nomad-spotter/checkpointer/store"
)

// maxSocketPath is what fits sockaddr_un, without its final zero byte (unix(7)).
const maxSocketPath = 107

// LoadConfig reads and validates a configuration file.
func LoadConfig(file string) (api.AgentConfig, error) {
	var c api.AgentConfig
	b, err := os.ReadFile(file)
	if err != nil {
		return c, fmt.Errorf("read agent configuration: %w", err)
	}
	if err := parse(b, &c); err != nil {
		return c, fmt.Errorf("agent configuration %s: %w", file, err)
	}
	return c, nil
}

// parse reports all faults of a file together: what cannot be read, and what is wrong in the rest.
func parse(b []byte, c *api.AgentConfig) error {
	d := decoder{strict: true}
	if err := d.decode(b, c); err != nil && len(d.wrong) == 0 {
		return err // it is no object at all
	}
	for _, f := range append(faults(*c), notDir(*c)) {
		if f != nil && !d.told(f) {
			d.faults = append(d.faults, f)
		}
	}
	return errors.Join(d.faults...)
}

// told tells whether a fault is of a field that could not be read, and is empty for that reason alone.
func (d *decoder) told(fault error) bool {
	return slices.ContainsFunc(d.wrong, func(field string) bool { return strings.HasPrefix(fault.Error(), field+":") })
}

// notDir returns an error if the checkpoint directory is something else. It may be missing: the task may be gone with all
// its directories, and whoever starts the agent wants to know whether anything is left to save.
func notDir(c api.AgentConfig) error {
	if !filepath.IsAbs(c.CheckpointDir) {
		return nil
	}
	info, err := os.Stat(c.CheckpointDir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("checkpoint_dir: %w", err)
	case !info.IsDir():
		return fmt.Errorf("checkpoint_dir: %q is not a directory: name the one that the task writes into", c.CheckpointDir)
	}
	return nil
}

// Validate reports every fault of a configuration, each with its field.
func Validate(c api.AgentConfig) error { return errors.Join(faults(c)...) }

func faults(c api.AgentConfig) []error {
	var errs []error
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if err := repository.CheckLineage(c.Lineage); err != nil {
		fault("lineage: %w", err)
	}
	if err := repository.CheckRank(c.Rank, c.Ranks); err != nil {
		fault("rank, ranks: %w", err)
	}
	if c.Ranks > 1 && c.Epoch == 0 {
		fault("epoch: is 0 with ranks %d: claim one for all of them, as with `checkpointer claim`", c.Ranks)
	}
	for _, f := range []struct{ name, value string }{
		{"checkpoint_dir", c.CheckpointDir},
		{"state_dir", c.StateDir},
		{"control_socket", c.ControlSocket},
		{"task_socket", c.TaskSocket},
	} {
		if !filepath.IsAbs(f.value) {
			fault("%s: %q is not absolute: give a path that starts with /", f.name, f.value)
		}
	}
	if c.TaskCheckpointDir != "" && !path.IsAbs(c.TaskCheckpointDir) {
		fault("task_checkpoint_dir: %q is not absolute: give a path that starts with /", c.TaskCheckpointDir)
	}
	for _, f := range []struct{ name, value string }{{"control_socket", c.ControlSocket}, {"task_socket", c.TaskSocket}} {
		if len(f.value) > maxSocketPath {
			fault("%s: %q has %d bytes, a socket's path at most %d: use a shorter directory", f.name, f.value, len(f.value), maxSocketPath)
		}
	}
	if c.UID < 0 || c.GID < 0 {
		fault("uid, gid: %d and %d must not be negative", c.UID, c.GID)
	}
	if _, err := path.Match(c.Pattern, "x"); err != nil {
		fault("pattern: %q is not a glob pattern", c.Pattern)
	}
	if c.Signal < 0 || c.Signal > 64 {
		fault("signal: %d is not a signal: use 1 to 64, or 0 for none", c.Signal)
	}
	if c.Interval.Every < 0 {
		fault("interval: %q is negative: use 0s for the task's own rhythm", c.Interval.Every)
	}
	errs = append(errs, cadenceFaults(c)...)
	if c.MaxCPUs < 0 {
		fault("max_cpus: %d is negative: give a number of cores, or 0 for %d", c.MaxCPUs, defaultCPUs)
	}
	if need := needed(c); c.MaxMemoryBytes != 0 && c.MaxMemoryBytes < need {
		fault("max_memory_bytes: %d is too little for an agent to work with: give at least %d, or 0 for %d", c.MaxMemoryBytes, need, defaultMemory)
	}
	switch c.Durability {
	case "", api.DurabilityLocal, api.DurabilityStore:
	case api.DurabilityReplicated:
		if c.Replicas == 0 {
			fault("durability: %q with replicas 0 is reached at once: give a number of replicas, such as 1", c.Durability)
		}
	default:
		fault("durability: %q is unknown: use local, store or replicated", c.Durability)
	}
	switch {
	case c.Replicas < 0:
		fault("replicas: %d is negative: give a number of other regions, or 0 for none", c.Replicas)
	case c.Replicas > 0 && c.Consul == nil:
		fault("replicas: %d without consul, where the stores of other regions are found", c.Replicas)
	}
	if _, _, err := ParseEffort(c.Effort); err != nil {
		fault("effort: %w", err)
	}
	if _, err := precision(c); err != nil {
		fault("precision: %w", err)
	}
	if c.Links < 0 || c.Links > pack.MaxLinks {
		fault("links: %d must be 0 to %d", c.Links, pack.MaxLinks)
	}
	switch {
	case c.Store != "":
		if _, _, err := store.Parse(c.Store); err != nil {
			fault("store: %w", err)
		}
	case c.Consul == nil:
		fault("store: is empty and there is no consul: name a store, such as file:///var/lib/checkpoints")
	}
	if c.Consul != nil && (c.Consul.Address == "" || c.Consul.Service == "") {
		fault("consul: address %q and service %q must both be given", c.Consul.Address, c.Consul.Service)
	}
	return errs
}

// precision is what may be rounded.
func precision(c api.AgentConfig) (repository.Precision, error) {
	if c.Precision == "" {
		return repository.Exact, nil
	}
	p, ok := repository.ParsePrecision(c.Precision)
	if !ok {
		return p, fmt.Errorf("%q is unknown: use exact or compact", c.Precision)
	}
	return p, nil
}
