// Package engines finds or builds the programs that Spotter stands on: Nomad, Consul, nomad-autoscaler, containerd and
// runc, the mock of EC2's metadata service and the S3 server that its tests use, and the linter. A binary on PATH wins;
// otherwise it is built from the module file of its folder and kept in a cache outside the repository. The package never
// starts an engine.
package engines

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Engine is a set of binaries built from one module file.
type Engine struct {
	Name     string            // folder under e2e/engines
	Version  string            // for people
	Packages map[string]string // binary name to package path
	Tags     string
	LDFlags  string
	NoCgo    bool
}

// All lists every engine; versions are pinned in the module files.
func All() []Engine {
	const containerd = "github.com/containerd/containerd/v2"
	return []Engine{
		{
			Name: "containerd", Version: "containerd 2.4.2, runc 1.5.3",
			Packages: map[string]string{
				"containerd":              containerd + "/cmd/containerd",
				"containerd-shim-runc-v2": containerd + "/cmd/containerd-shim-runc-v2",
				"runc":                    "github.com/opencontainers/runc",
			},
			Tags:    "no_btrfs no_devmapper no_zfs no_cri",
			LDFlags: "-X " + containerd + "/version.Version=v2.4.2 -X main.version=1.5.3",
		},
		{Name: "nomad", Version: "Nomad 1.6.1", Packages: map[string]string{"nomad": "github.com/hashicorp/nomad"}},
		{
			Name: "autoscaler", Version: "nomad-autoscaler 0.4.5", NoCgo: true,
			Packages: map[string]string{"nomad-autoscaler": "github.com/hashicorp/nomad-autoscaler"},
		},
		{
			Name: "ec2-metadata-mock", Version: "amazon-ec2-metadata-mock 1.13.0", NoCgo: true,
			Packages: map[string]string{"ec2-metadata-mock": "github.com/aws/amazon-ec2-metadata-mock/cmd/ec2-metadata-mock"},
		},
		{
			Name: "versitygw", Version: "versitygw 1.8.0", NoCgo: true, LDFlags: "-X main.Version=1.8.0",
			Packages: map[string]string{"versitygw": "github.com/versity/versitygw/cmd/versitygw"},
		},
		{Name: "consul", Version: "Consul 1.14.3", NoCgo: true, Packages: map[string]string{"consul": "github.com/hashicorp/consul"}},
	}
}

// Lint is the engine of `make check`.
func Lint() Engine {
	return Engine{
		Name: "golangci-lint", Version: "golangci-lint 2.15.0, gofumpt 0.12.0", NoCgo: true,
		Packages: map[string]string{
			"golangci-lint": "github.com/golangci/golangci-lint/v2/cmd/golangci-lint",
			"gofumpt":       "mvdan.cc/gofumpt",
		},
	}
}

// Root returns the repository's root, found from the working directory upwards by its go.mod and this package's folder.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find repository: %w", err)
	}
	for d := dir; ; d = filepath.Dir(d) {
		if _, err := os.Stat(filepath.Join(d, "e2e", "engines", "nomad", "go.mod")); err == nil {
			return d, nil
		}
		if d == filepath.Dir(d) {
			return "", fmt.Errorf("find repository: no e2e/engines above %s; run this from a checkout of Spotter", dir)
		}
	}
}

// CacheDir returns where built engines are kept: $SPOTTER_CACHE, else spotter in the user's cache folder.
func CacheDir() (string, error) {
	if d := os.Getenv("SPOTTER_CACHE"); d != "" {
		return filepath.Abs(d)
	}
	d, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find cache folder: %w; set SPOTTER_CACHE", err)
	}
	return filepath.Join(d, "spotter"), nil
}

// Path returns the binary of that name: on PATH, else in the cache. It builds nothing.
func Path(name string) (string, error) {
	if p, err := exec.LookPath(name); err == nil {
		return filepath.Abs(p)
	}
	dir, err := CacheDir()
	if err != nil {
		return "", err
	}
	p := filepath.Join(dir, "bin", name)
	if _, err := os.Stat(p); err != nil {
		return "", fmt.Errorf("%s is neither on PATH nor in %s: run `make engines`", name, filepath.Dir(p))
	}
	return p, nil
}

// SearchPath returns a value for PATH with the cache behind what is already there, so that engines find each other
// (containerd its shim, the shim runc).
func SearchPath() string {
	dir, err := CacheDir()
	if err != nil {
		return os.Getenv("PATH")
	}
	return os.Getenv("PATH") + string(os.PathListSeparator) + filepath.Join(dir, "bin")
}

// Ensure makes every binary of the engines available, building those that are neither on PATH nor cached. One call
// builds at a time, across processes.
func Ensure(ctx context.Context, report *Report, list ...Engine) error {
	root, err := Root()
	if err != nil {
		return err
	}
	cache, err := CacheDir()
	if err != nil {
		return err
	}
	bin := filepath.Join(cache, "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return fmt.Errorf("make engine cache: %w", err)
	}
	unlock, err := lock(ctx, filepath.Join(cache, "lock"))
	if err != nil {
		return err
	}
	defer unlock()
	for _, e := range list {
		if err := ensure(ctx, report, e, filepath.Join(root, "e2e", "engines", e.Name), bin); err != nil {
			return fmt.Errorf("engine %s: %w", e.Name, err)
		}
	}
	return nil
}

func ensure(ctx context.Context, report *Report, e Engine, module, bin string) error {
	key, err := cacheKey(e, module)
	if err != nil {
		return err
	}
	stamp := filepath.Join(bin, "."+e.Name+".stamp")
	old, err := os.ReadFile(stamp)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("read stamp: %w", err)
	}
	fresh := string(old) == key
	var missing []string
	for name := range e.Packages {
		if _, err := exec.LookPath(name); err == nil {
			continue
		}
		if _, err := os.Stat(filepath.Join(bin, name)); err != nil || !fresh {
			missing = append(missing, name)
		}
	}
	if len(missing) == 0 {
		report.done(e, "found")
		return nil
	}
	slices.Sort(missing)
	for _, name := range missing {
		if err := build(ctx, report, e, module, name, filepath.Join(bin, name)); err != nil {
			return err
		}
	}
	if err := os.WriteFile(stamp, []byte(key), 0o644); err != nil {
		return fmt.Errorf("write stamp: %w", err)
	}
	report.done(e, "built")
	return nil
}

// cacheKey changes with everything that changes the binaries.
func cacheKey(e Engine, module string) (string, error) {
	h := sha256.New()
	fmt.Fprintln(h, e.Name, e.Tags, e.LDFlags, e.NoCgo, runtime.Version(), runtime.GOARCH)
	for _, f := range []string{"go.mod", "go.sum"} {
		b, err := os.ReadFile(filepath.Join(module, f))
		if err != nil {
			return "", fmt.Errorf("read module file: %w", err)
		}
		h.Write(b)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// build compiles one binary beside its final place and renames it there, so that a half-written file is never run.
func build(ctx context.Context, report *Report, e Engine, module, name, out string) error {
	tmp := out + ".tmp"
	defer os.Remove(tmp)
	cmd := exec.CommandContext(ctx, "go", "build", "-v", "-tags", e.Tags, "-ldflags", "-s -w "+e.LDFlags, "-o", tmp, e.Packages[name])
	cmd.Dir = module
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-buildvcs=false")
	if e.NoCgo {
		cmd.Env = append(cmd.Env, "CGO_ENABLED=0")
	}
	watch := report.watch(ctx, e, name)
	cmd.Stderr = watch
	err := cmd.Run()
	watch.close()
	if err != nil {
		return fmt.Errorf("go build %s in %s: %w\n%s", e.Packages[name], module, err, strings.Join(watch.tail(), "\n"))
	}
	if err := os.Rename(tmp, out); err != nil {
		return fmt.Errorf("install %s: %w", name, err)
	}
	return nil
}

// lock takes an exclusive lock on path, waiting as long as ctx allows.
func lock(ctx context.Context, path string) (func(), error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock engine cache: %w", err)
	}
	got := make(chan error, 1)
	go func() { got <- unix.Flock(int(f.Fd()), unix.LOCK_EX) }()
	select {
	case err = <-got:
	case <-ctx.Done():
		err = ctx.Err() // the process is about to end; the waiting call goes with it
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() { f.Close() }, nil
}
