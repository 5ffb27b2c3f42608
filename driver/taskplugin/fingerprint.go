package taskplugin

import (
	"context"
	"errors"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/nomad/plugins/drivers"
	pstructs "github.com/hashicorp/nomad/plugins/shared/structs"

	"nomad-spotter/driver/config"
	"nomad-spotter/driver/containerd"
	"nomad-spotter/driver/lifecycle"
)

const (
	fingerprintEvery = 2 * time.Second
	probeTimeout     = 5 * time.Second
)

// attributePrefix starts the names of all node attributes.
const attributePrefix = "driver." + Name

// off is the value of an attribute for something that is not configured.
const off = "off"

// Fingerprint implements drivers.DriverPlugin. It sends at once and whenever something changes. All keys are sent each
// time: Nomad keeps the last value of one that is missing.
func (d *Driver) Fingerprint(ctx context.Context) (<-chan *drivers.Fingerprint, error) {
	m, err := d.configured()
	if err != nil {
		return nil, err
	}
	d.tellOff()
	ch := make(chan *drivers.Fingerprint)
	go func() { // ends with ctx or the plugin
		defer close(ch)
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(d.ctx, cancel)()
		d.fingerprints(ctx, m, ch)
	}()
	return ch, nil
}

func (d *Driver) fingerprints(ctx context.Context, m *lifecycle.Manager, ch chan<- *drivers.Fingerprint) {
	wait := time.NewTimer(0)
	defer wait.Stop()
	var last facts
	sent := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-wait.C:
			wait.Reset(fingerprintEvery)
		}
		now := d.look(ctx, m, last.seen)
		if ctx.Err() != nil {
			return
		}
		if sent && now.same(last) {
			continue
		}
		if sent && now.state != last.state {
			d.log.Info("driver health changed", "health", now.state, "description", now.description)
		}
		if now.seen && !last.seen && now.attributes[attributePrefix+".seccomp"] == yes(false) {
			d.log.Warn("seccomp is off: the container runtime was built without it; containers may use every system call")
		}
		last, sent = now, true
		select {
		case ch <- now.fingerprint():
		case <-ctx.Done():
			return
		}
	}
}

// facts are what a fingerprint says.
type facts struct {
	seen        bool // containerd has answered since the plugin started
	state       drivers.HealthState
	description string
	attributes  map[string]string
}

func (f facts) same(o facts) bool {
	return f.state == o.state && f.description == o.description && maps.Equal(f.attributes, o.attributes)
}

func (f facts) fingerprint() *drivers.Fingerprint {
	out := &drivers.Fingerprint{Health: f.state, HealthDescription: f.description, Attributes: map[string]*pstructs.Attribute{}}
	for k, v := range f.attributes {
		out.Attributes[k] = pstructs.NewStringAttribute(v)
	}
	return out
}

// look finds out how the driver is.
func (d *Driver) look(ctx context.Context, m *lifecycle.Manager, seen bool) facts {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	info, err := d.runtime.Probe(ctx)
	if err == nil {
		seen = true
		m.SetSeccomp(info.Seccomp)
		err = usable(d.cfg.StateDir)
	}
	f := facts{seen: seen, attributes: attributes(d.cfg, info, d.source.Health().String())}
	until, reason, evacuating := d.runner.Evacuating()
	f.state, f.description = healthOf(d.cfg, seen, err, until, reason, evacuating)
	if f.state == drivers.HealthStateUndetected {
		f.attributes[attributePrefix] = ""
	}
	return f
}

// healthOf decides the health: a driver that is switched off or has never seen containerd is undetected; one that lost
// it, or whose node goes away, is unhealthy.
func healthOf(cfg *config.Plugin, seen bool, err error, until time.Time, reason string, evacuating bool) (drivers.HealthState, string) {
	switch {
	case !cfg.Enabled:
		return drivers.HealthStateUndetected, "disabled in the plugin's configuration"
	case err != nil && !seen:
		return drivers.HealthStateUndetected, err.Error()
	case err != nil:
		return drivers.HealthStateUnhealthy, err.Error()
	case evacuating && until.IsZero():
		return drivers.HealthStateUnhealthy, reason
	case evacuating:
		return drivers.HealthStateUnhealthy, reason + " at " + until.UTC().Format("15:04:05 MST")
	default:
		return drivers.HealthStateHealthy, drivers.DriverHealthy
	}
}

// usable says why a directory cannot be written to.
func usable(dir string) error {
	f, err := os.CreateTemp(filepath.Join(dir, "t"), ".probe-*")
	if err != nil {
		return errors.Join(errors.New("state_dir cannot be written to"), err)
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

func attributes(cfg *config.Plugin, info containerd.Info, notice string) map[string]string {
	a := map[string]string{
		"":                    "1",
		".version":            version(),
		".containerd_version": info.Version,
		".snapshotter":        cfg.Containerd.Snapshotter,
		".runtime":            cfg.Containerd.Runtime,
		".seccomp":            yes(info.Seccomp),
		".privileged":         yes(cfg.AllowPrivileged),
		".volumes":            yes(cfg.VolumesEnabled),
		".store":              storeName(cfg),
		".notice":             cfg.Notice.Source + ": " + notice,
		".nomad_api":          or(cfg.Nomad.Address, off),
		".consul":             or(cfg.Consul.Address, off),
	}
	out := make(map[string]string, len(a))
	for k, v := range a {
		out[attributePrefix+k] = v
	}
	return out
}

// storeName says where checkpoints go, unless the job names a store. Credentials in a URL are left out.
func storeName(cfg *config.Plugin) string {
	switch {
	case cfg.Checkpoint.Store != "":
		if u, err := url.Parse(cfg.Checkpoint.Store); err == nil {
			return u.Redacted()
		}
		return off
	case cfg.Consul.Address != "":
		return "consul service " + cfg.Consul.Service
	default:
		return "file://" + lifecycle.DefaultStore(cfg)
	}
}

func yes(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// tellOff says in the log, once, what the configuration leaves off.
func (d *Driver) tellOff() {
	d.told.Do(func() {
		if d.cfg.Notice.Source == config.NoticeNone {
			d.log.Info("interruption notices are off: notice.source is \"none\"")
		}
		if d.cfg.Nomad.Address == "" {
			d.log.Info("nomad's API is off: nomad.address is empty; a notice still leads to checkpoints, and tasks are moved by ending them as failed")
		}
		if d.cfg.Consul.Address == "" {
			d.log.Info("consul is off: consul.address is empty; stores are not looked up")
		}
		if d.cfg.Checkpoint.Store == "" && d.cfg.Consul.Address == "" {
			d.log.Warn("checkpoints stay on this node and are lost with it: neither checkpoint.store nor consul.address is set", "store", storeName(d.cfg))
		}
	})
}
