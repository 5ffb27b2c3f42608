package taskplugin

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad/plugins/base"
	"github.com/hashicorp/nomad/plugins/drivers"
	"github.com/shoenig/test/must"

	"nomad-spotter/driver/config"
	"nomad-spotter/driver/containerd"
)

func TestHealth(t *testing.T) {
	on, until := &config.Plugin{Enabled: true}, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	down := errors.New("containerd is down")
	cases := map[string]struct {
		cfg        *config.Plugin
		seen       bool
		err        error
		until      time.Time
		evacuating bool
		state      drivers.HealthState
		text       string
	}{
		"healthy":    {cfg: on, seen: true, state: drivers.HealthStateHealthy, text: "Healthy"},
		"disabled":   {cfg: &config.Plugin{}, seen: true, state: drivers.HealthStateUndetected, text: "disabled in the plugin's configuration"},
		"never seen": {cfg: on, err: down, state: drivers.HealthStateUndetected, text: "containerd is down"},
		"lost":       {cfg: on, seen: true, err: down, state: drivers.HealthStateUnhealthy, text: "containerd is down"},
		"notice":     {cfg: on, seen: true, until: until, evacuating: true, state: drivers.HealthStateUnhealthy, text: "why at 03:04:05 UTC"},
		"drain":      {cfg: on, seen: true, evacuating: true, state: drivers.HealthStateUnhealthy, text: "why"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			state, text := healthOf(c.cfg, c.seen, c.err, c.until, "why", c.evacuating)
			must.Eq(t, c.state, state)
			must.Eq(t, c.text, text)
		})
	}
}

func TestAttributes(t *testing.T) {
	cfg := &config.Plugin{StateDir: "/s", Notice: config.Notice{Source: "none"}, Consul: config.Consul{Service: "checkpoint-store"}}
	a := attributes(cfg, containerd.Info{Version: "2.4.2", Seccomp: true}, "off")
	for k, want := range map[string]string{
		"driver.spotter": "1", "driver.spotter.containerd_version": "2.4.2", "driver.spotter.seccomp": "1", "driver.spotter.privileged": "0",
		"driver.spotter.store": "file:///s/store", "driver.spotter.notice": "none: off", "driver.spotter.nomad_api": "off", "driver.spotter.consul": "off",
	} {
		must.Eq(t, want, a[k], must.Sprint(k))
	}
	cfg.Consul.Address, cfg.Nomad.Address = "http://127.0.0.1:8500", "http://127.0.0.1:4646"
	a = attributes(cfg, containerd.Info{}, "off")
	must.Eq(t, "consul service checkpoint-store", a["driver.spotter.store"])
	must.Eq(t, "http://127.0.0.1:4646", a["driver.spotter.nomad_api"])
	cfg.Checkpoint.Store = "file:///srv"
	must.Eq(t, "file:///srv", attributes(cfg, containerd.Info{}, "")["driver.spotter.store"])
}

func TestUsage(t *testing.T) {
	at := time.Unix(10, 0)
	last := containerd.Usage{At: at, CPUTotalNS: 1e9, CPUUserNS: 5e8, CPUSystemNS: 5e8}
	now := containerd.Usage{At: at.Add(2 * time.Second), CPUTotalNS: 4e9, CPUUserNS: 25e8, CPUSystemNS: 15e8, Memory: map[containerd.MemoryField]uint64{containerd.MemoryUsage: 7}}
	u := usage(&last, now, 2000)
	must.Eq(t, 150.0, u.ResourceUsage.CpuStats.Percent) // 3 s of CPU in 2 s
	must.Eq(t, 100.0, u.ResourceUsage.CpuStats.UserMode)
	must.Eq(t, 50.0, u.ResourceUsage.CpuStats.SystemMode)
	must.Eq(t, 3000.0, u.ResourceUsage.CpuStats.TotalTicks)
	must.Eq(t, 7, u.ResourceUsage.MemoryStats.Usage)
	must.Eq(t, []string{"Usage"}, u.ResourceUsage.MemoryStats.Measured)
	must.Eq(t, now.At.UnixNano(), u.Timestamp)
	must.Eq(t, 0.0, usage(nil, now, 2000).ResourceUsage.CpuStats.Percent)
	must.Eq(t, 0.0, percent(5, 4, 1)) // a counter that went back
	must.Eq(t, 0.0, percent(1, 2, 0))
}

func TestSetConfigTwice(t *testing.T) {
	n := newNode(t, "")
	same := encode(t, config.PluginSchema(), n.config)
	must.NoError(t, n.d.SetConfig(&base.Config{PluginConfig: same}))
	other := encode(t, config.PluginSchema(), n.config+"pull_timeout = \"1m\"\n")
	must.ErrorContains(t, n.d.SetConfig(&base.Config{PluginConfig: other}), "restart the Nomad client")
}

func TestNotConfigured(t *testing.T) {
	d := New(t.Context(), hclog.NewNullLogger(), Makers{})
	_, err := d.Fingerprint(t.Context())
	must.ErrorIs(t, err, errNotConfigured)
	_, _, err = d.StartTask(&drivers.TaskConfig{})
	must.ErrorIs(t, err, errNotConfigured)
	must.ErrorIs(t, d.StopTask("x", 0, ""), errNotConfigured)
	must.ErrorContains(t, d.SetConfig(&base.Config{}), "no plugin configuration")
	d.Shutdown()
}

// What the configuration leaves off is said in the log, once, however often the fingerprint is asked for.
func TestTellOff_once(t *testing.T) {
	var out bytes.Buffer
	d := New(t.Context(), hclog.New(&hclog.LoggerOptions{Output: &out}), Makers{})
	d.cfg = &config.Plugin{StateDir: "/s", Notice: config.Notice{Source: config.NoticeNone}}
	d.tellOff()
	d.tellOff()
	for _, text := range []string{"interruption notices are off", "nomad's API is off", "consul is off", "checkpoints stay on this node"} {
		must.Eq(t, 1, strings.Count(out.String(), text), must.Sprint(text))
	}

	out.Reset()
	all := New(t.Context(), hclog.New(&hclog.LoggerOptions{Output: &out}), Makers{})
	all.cfg = &config.Plugin{Notice: config.Notice{Source: config.NoticeEC2}, Nomad: config.Nomad{Address: "x"}, Consul: config.Consul{Address: "y"}}
	all.tellOff()
	must.Eq(t, "", out.String())
}
