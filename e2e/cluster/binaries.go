package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"nomad-spotter/e2e/engines"
)

// Binaries are the absolute paths of the programs that a cluster runs.
type Binaries struct {
	Nomad, Consul, Autoscaler, Containerd  string // engines
	Driver, AutoscalerPlugin, Checkpointer string // ours
	Trainer                                string // what the jobs run
}

// FindBinaries locates the engines (on PATH or cached) and Spotter's own binaries in bin, and builds the training
// program there. All that is missing is reported at once.
func FindBinaries(ctx context.Context, bin string) (Binaries, error) {
	bin, err := filepath.Abs(bin)
	if err != nil {
		return Binaries{}, err
	}
	var b Binaries
	var errs []error
	engine := func(to *string, name string) {
		p, err := engines.Path(name)
		errs = append(errs, err)
		*to = p
	}
	engine(&b.Nomad, "nomad")
	engine(&b.Consul, "consul")
	engine(&b.Autoscaler, "nomad-autoscaler")
	engine(&b.Containerd, "containerd")
	var shim, runc string // containerd finds them on its PATH
	engine(&shim, "containerd-shim-runc-v2")
	engine(&runc, "runc")
	own := func(to *string, name string) {
		*to = filepath.Join(bin, name)
		if _, err := os.Stat(*to); err != nil {
			errs = append(errs, fmt.Errorf("%s is not in %s: run `make build`", name, bin))
		}
	}
	own(&b.Driver, "nomad-driver-spotter")
	own(&b.AutoscalerPlugin, "nomad-autoscaler-spotter")
	own(&b.Checkpointer, "checkpointer")
	if err := errors.Join(errs...); err != nil {
		return Binaries{}, err
	}
	b.Trainer = filepath.Join(bin, "trainer")
	return b, buildTrainer(ctx, b.Trainer)
}

// buildTrainer compiles the training program statically: its image holds nothing else.
func buildTrainer(ctx context.Context, out string) error {
	root, err := engines.Root()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", out, "./e2e/trainer")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build training program: %w\n%s", err, text)
	}
	return nil
}
