// Package local is a provider of instances for one Linux machine. An instance is a set of processes (a Nomad client,
// containerd, whatever the pool file names) in PID and mount namespaces of their own, under a supervisor that serves
// the instance's EC2-compatible metadata endpoint and plays the spot market of its offering from a recorded trace: a
// notice first, then, at its deadline, the end of every process of the instance in one stroke.
//
// Instances live on when the provider's process ends; everything about them is in files below state_dir:
//
//	market.json          when the market's clock started, and its scale
//	i/ID/instance.json   the record of an instance, kept after its end
//	i/ID/…               its rendered templates, its logs and, while it lives, its disk
//
// The package needs Linux and root. It isolates no network, no users and no resources: it stands in for a cloud in
// tests and on laptops, and is no sandbox.
package local

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"nomad-spotter/autoscaler-plugin/cloud"
)

// Provider launches, lists and ends instances. It is safe for concurrent use, also by several processes.
type Provider struct {
	config config
	exe    string // what the supervisor is: this program, called with InstanceCommand
	now    func() time.Time
}

// Names of the sub-commands that the program using this package must map to RunInstance and RunInit.
const (
	InstanceCommand = "instance"
	InitCommand     = "init"
)

// startTimeout bounds a launch: from the start of the supervisor to its word that the instance runs.
const startTimeout = 20 * time.Second

// endTimeout bounds the wait for an instance that was told to end.
const endTimeout = 20 * time.Second

// New checks the provider's part of a pool file. It reports all faults together, and touches nothing.
func New(setup cloud.Setup) (*Provider, error) {
	c, err := decode(setup)
	if err != nil {
		return nil, err
	}
	exe, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find own executable: %w", err)
	}
	return &Provider{config: c, exe: exe, now: time.Now}, nil
}

// Offers reports which offerings the market has at the moment. An offering without a trace is always there.
func (p *Provider) Offers(context.Context) ([]cloud.Offer, error) {
	clock, err := readClock(p.config.stateDir)
	if err != nil {
		return nil, err
	}
	position := clock.Position(p.now())
	offers := make([]cloud.Offer, 0, len(p.config.offerings))
	for name, o := range p.config.offerings {
		price, _ := o.tape.price(position)
		offers = append(offers, cloud.Offer{Offering: name, Available: o.tape.At(position), PriceUSDPerHour: price})
	}
	sort.Slice(offers, func(i, j int) bool { return offers[i].Offering < offers[j].Offering })
	return offers, nil
}

// StartMarket starts the clock of a market whose trace_start is "manual". It reports whether this call did.
func (p *Provider) StartMarket(ctx context.Context) (started bool, at time.Time, err error) {
	if err := os.MkdirAll(p.config.stateDir, 0o700); err != nil {
		return false, time.Time{}, fmt.Errorf("start market: %w", err)
	}
	clock, started, err := startClock(ctx, p.config.stateDir, p.config.timeScale, p.now())
	if err != nil {
		return false, time.Time{}, fmt.Errorf("start market: %w", err)
	}
	return started, clock.Start, nil
}

// Launch starts an instance, or finds the one that an earlier call with the same ID started. It wraps
// cloud.ErrUnavailable where the market has none.
func (p *Provider) Launch(ctx context.Context, req cloud.Launch) (cloud.Instance, error) {
	if !fileName.MatchString(req.ID) {
		return cloud.Instance{}, fmt.Errorf("launch instance: id %q is no plain name of letters, digits, dots and dashes", req.ID)
	}
	o, ok := p.config.offerings[req.Offering]
	if !ok {
		return cloud.Instance{}, fmt.Errorf("launch instance %s: offering %q is not in the pool file", req.ID, req.Offering)
	}
	dir := p.dir(req.ID)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return cloud.Instance{}, fmt.Errorf("launch instance %s: %w", req.ID, err)
	}
	unlock, err := lockFile(ctx, filepath.Join(dir, lockName))
	if err != nil {
		return cloud.Instance{}, fmt.Errorf("launch instance %s: %w", req.ID, err)
	}
	defer unlock()
	if known, err := readRecord(dir); err == nil {
		return known.Instance, nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return cloud.Instance{}, fmt.Errorf("launch instance %s: %w", req.ID, err)
	}
	instance, err := p.launch(ctx, req, o, dir)
	if err != nil {
		if _, recorded := readRecord(dir); errors.Is(recorded, fs.ErrNotExist) {
			err = errors.Join(err, os.RemoveAll(dir)) // nothing was started: the ID may be used again
		}
		return cloud.Instance{}, fmt.Errorf("launch instance %s: %w", req.ID, err)
	}
	return instance, nil
}

func (p *Provider) launch(ctx context.Context, req cloud.Launch, o offering, dir string) (cloud.Instance, error) {
	now := p.now()
	clock, err := readClock(p.config.stateDir)
	if err != nil {
		return cloud.Instance{}, err
	}
	if p.config.traceStart == startAtLaunch {
		if clock, _, err = startClock(ctx, p.config.stateDir, p.config.timeScale, now); err != nil {
			return cloud.Instance{}, err
		}
	}
	position := clock.Position(now)
	if !o.tape.At(position) {
		return cloud.Instance{}, fmt.Errorf("offering %q at %v of its trace: %w",
			o.Name, position.Round(time.Second), cloud.ErrUnavailable)
	}
	price, priced := o.tape.price(position)
	switch {
	case !priced:
		price = o.PriceUSDPerHour
	case !o.tape.below(req.MaxPriceUSDPerHour).At(position):
		return cloud.Instance{}, fmt.Errorf("offering %q at %v of its trace costs %v $/h, the maximum is %v: %w",
			o.Name, position.Round(time.Second), price, req.MaxPriceUSDPerHour, cloud.ErrUnavailable)
	}
	base, listener, err := claimPorts()
	if err != nil {
		return cloud.Instance{}, err
	}
	defer func() { _ = listener.Close() }()
	at := portsOf(base)
	fields := Fields{
		ID: req.ID, Dir: dir, Pool: p.config.pool, Offering: o.Name, Region: o.Region, Zone: o.Zone, Type: o.Type, Kind: o.Kind,
		MetadataURL: metadataURL(base), HTTPPort: at.HTTP, RPCPort: at.RPC, SerfPort: at.Serf,
		MinDynamicPort: at.MinDynamic, MaxDynamicPort: at.MaxDynamic,
	}
	processes, err := render(p.config, fields)
	if err != nil {
		return cloud.Instance{}, err
	}
	s := spec{
		Dir: dir, StateDir: p.config.stateDir, Trace: o.tracePath, Notice: p.config.notice, KeepDisk: p.config.keepDisk, Private: p.config.private,
		Processes: processes,
	}
	if err := writeJSON(filepath.Join(dir, specFile), s); err != nil {
		return cloud.Instance{}, err
	}
	r := record{
		Instance: cloud.Instance{
			ID: req.ID, Pool: p.config.pool, Offering: o.Name, Provider: o.Provider, Kind: o.Kind, Region: o.Region, Zone: o.Zone,
			Type: o.Type, PriceUSDPerHour: price, MaxPriceUSDPerHour: req.MaxPriceUSDPerHour, State: cloud.Running, LaunchedAt: now.UTC(),
		},
		Dir: dir, MetadataURL: fields.MetadataURL, Ports: at,
	}
	if err := writeRecord(r); err != nil {
		return cloud.Instance{}, err
	}
	listenerFile, err := listener.File()
	if err != nil {
		return cloud.Instance{}, p.failed(r, err)
	}
	defer func() { _ = listenerFile.Close() }()
	if err := p.supervise(ctx, dir, listenerFile); err != nil {
		return cloud.Instance{}, p.failed(r, err)
	}
	started, err := readRecord(dir)
	return started.Instance, err
}

// failed records that an instance never came up. It stays listed, with its reason, until someone removes its directory.
func (p *Provider) failed(r record, cause error) error {
	if now, err := readRecord(r.Dir); err == nil {
		r = now
	}
	if err := errors.Join(r.Supervisor.signal(unix.SIGKILL), r.Init.signal(unix.SIGKILL)); err != nil {
		cause = errors.Join(cause, err)
	}
	r.LogTail = logTail(filepath.Join(r.Dir, supervisorLog))
	r.end(p.now(), "did not start: "+cause.Error())
	return errors.Join(cause, writeRecord(r))
}

// supervise starts the supervisor in a session of its own and waits for its word that the instance runs. The supervisor
// inherits neither pipes nor terminals: whoever started us must not wait for it.
func (p *Provider) supervise(ctx context.Context, dir string, listener *os.File) error {
	ready, readyWriter, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("start supervisor: %w", err)
	}
	defer func() { _ = ready.Close() }()
	log, err := os.OpenFile(filepath.Join(dir, supervisorLog), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return errors.Join(fmt.Errorf("start supervisor: %w", err), readyWriter.Close())
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(p.exe, InstanceCommand, "--dir", dir) //nolint:noctx // the supervisor outlives this call and this process
	cmd.Dir = "/"
	cmd.Env = instanceEnv(os.Environ())
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{listener, readyWriter} // descriptors listenerFD and readyFD
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	_ = readyWriter.Close()
	if err != nil {
		return fmt.Errorf("start supervisor: %w", err)
	}
	go func() { _ = cmd.Wait() }() // reaps the supervisor if it ends before we do; it ends with its instance
	if err := ready.SetReadDeadline(deadlineOf(ctx, p.now().Add(startTimeout))); err != nil {
		return fmt.Errorf("start supervisor: %w", err)
	}
	word, err := bufio.NewReader(io.LimitReader(ready, 4096)).ReadString('\n')
	if word = strings.TrimSpace(word); word == readyWord {
		return nil
	}
	_ = cmd.Process.Kill()
	if word != "" {
		return fmt.Errorf("start supervisor: %s", word)
	}
	return fmt.Errorf("start supervisor: no answer: %w; see %s", err, filepath.Join(dir, supervisorLog))
}

func deadlineOf(ctx context.Context, latest time.Time) time.Time {
	if d, ok := ctx.Deadline(); ok && d.Before(latest) {
		return d
	}
	return latest
}

// instanceEnv is the environment of an instance: that of the machine, without what belongs to a plugin.
func instanceEnv(env []string) []string {
	var out []string
	for _, kv := range env {
		if strings.HasPrefix(kv, "PLUGIN_") || strings.HasPrefix(kv, "NOMAD_") || strings.HasPrefix(kv, "NOTIFY_SOCKET=") {
			continue
		}
		out = append(out, kv)
	}
	return out
}

// List returns the pool's instances, ended ones included, oldest first. An instance whose supervisor was killed is
// ended first: its processes died with the supervisor, and the record says so from then on.
func (p *Provider) List(ctx context.Context) ([]cloud.Instance, error) {
	entries, err := os.ReadDir(filepath.Join(p.config.stateDir, instancesDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list instances: %w", err)
	}
	var instances []cloud.Instance
	for _, e := range entries {
		r, err := readRecord(p.dir(e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // a launch that is only beginning
		}
		if err != nil {
			return nil, fmt.Errorf("list instances: %w", err)
		}
		if r.Pool != p.config.pool {
			continue
		}
		if r.State != cloud.Gone && !r.Supervisor.alive() {
			if r, err = p.mournIdle(ctx, r); err != nil {
				return nil, fmt.Errorf("list instances: %w", err)
			}
		}
		instances = append(instances, r.Instance)
	}
	sort.Slice(instances, func(i, j int) bool {
		a, b := instances[i], instances[j]
		if !a.LaunchedAt.Equal(b.LaunchedAt) {
			return a.LaunchedAt.Before(b.LaunchedAt)
		}
		return a.ID < b.ID
	})
	return instances, nil
}

// mournIdle ends an instance whose supervisor is dead, unless a launch is still at work on it.
func (p *Provider) mournIdle(ctx context.Context, r record) (record, error) {
	unlock, err := tryLockFile(filepath.Join(r.Dir, lockName))
	if errors.Is(err, errLocked) {
		return r, nil
	}
	if err != nil {
		return r, err
	}
	defer unlock()
	return p.mourn(ctx, r.Dir, "its supervisor was killed", false)
}

// mourn ends an instance whose supervisor is dead. The caller holds the instance's lock.
func (p *Provider) mourn(ctx context.Context, dir, reason string, terminated bool) (record, error) {
	r, err := readRecord(dir)
	if err != nil || r.State == cloud.Gone || r.Supervisor.alive() {
		return r, err
	}
	if err := r.Init.signal(unix.SIGKILL); err != nil {
		return r, err
	}
	if err := waitDead(ctx, r.Init, endTimeout); err != nil {
		return r, err
	}
	if r.Supervisor.PID == 0 && !terminated {
		reason = "its launch was broken off"
	}
	removeCgroups(r.ID, nil)
	r.end(p.now(), reason)
	r.Terminated = terminated
	if err := writeRecord(r); err != nil {
		return r, err
	}
	if p.config.keepDisk {
		return r, nil
	}
	return r, wipe(dir)
}

// Terminate ends an instance without a notice and waits until it is gone. Ending one that has ended is no error.
func (p *Provider) Terminate(ctx context.Context, id, reason string) error {
	if err := p.terminate(ctx, id, reason); err != nil {
		return fmt.Errorf("terminate instance %q: %w", id, err)
	}
	return nil
}

func (p *Provider) terminate(ctx context.Context, id, reason string) error {
	dir := p.dir(id)
	if _, err := readRecord(dir); errors.Is(err, fs.ErrNotExist) {
		return cloud.ErrNotFound
	}
	unlock, err := lockFile(ctx, filepath.Join(dir, lockName)) // waits for a launch at work
	if err != nil {
		return err
	}
	defer unlock()
	r, err := readRecord(dir)
	if err != nil || r.State == cloud.Gone {
		return err
	}
	if r.Supervisor.alive() {
		if err := ask(ctx, r.MetadataURL+adminTerminate, terminateRequest{ID: id, Reason: reason}); err != nil {
			// A supervisor that does not answer is killed; the kernel then kills the init it started.
			if kill := r.Supervisor.signal(unix.SIGKILL); kill != nil {
				return errors.Join(err, kill)
			}
		}
		if err := waitDead(ctx, r.Supervisor, endTimeout); err != nil {
			return err
		}
	}
	_, err = p.mourn(ctx, dir, reason, true)
	return err
}

// waitDead waits until a process is gone.
func waitDead(ctx context.Context, ref procRef, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for ref.alive() {
		if err := pause(ctx); err != nil {
			return fmt.Errorf("wait for the end of process %d: %w", ref.PID, err)
		}
	}
	return nil
}

// ask posts a request to a supervisor.
func ask(ctx context.Context, url string, body any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(data))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	client := &http.Client{Transport: &http.Transport{Proxy: nil, DisableKeepAlives: true}}
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode/100 != 2 {
		text, _ := io.ReadAll(io.LimitReader(res.Body, 1024))
		return fmt.Errorf("%s: %s: %s", url, res.Status, strings.TrimSpace(string(text)))
	}
	return nil
}

const instancesDir = "i" // short: Unix sockets below it are limited to 107 bytes

func (p *Provider) dir(id string) string { return filepath.Join(p.config.stateDir, instancesDir, id) }
