package target

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad-autoscaler/sdk"
	"github.com/shoenig/test/must"

	"nomad-spotter/autoscaler-plugin/cloud"
	"nomad-spotter/autoscaler-plugin/pool"
)

// emptyCloud is a provider without instances, which counts how often it is asked.
type emptyCloud struct{ asked *atomic.Int64 }

func (emptyCloud) Launch(context.Context, cloud.Launch) (cloud.Instance, error) {
	return cloud.Instance{}, cloud.ErrUnavailable
}
func (emptyCloud) Terminate(context.Context, string, string) error { return nil }
func (e emptyCloud) List(context.Context) ([]cloud.Instance, error) {
	e.asked.Add(1)
	return nil, nil
}
func (emptyCloud) Offers(context.Context) ([]cloud.Offer, error) { return nil, nil }

// setup is a plugin over a pool file that exists as text only.
type setup struct {
	plugin *Plugin
	asked  atomic.Int64
	text   atomic.Pointer[string]
}

const poolText = `
pool "training" {
  interval = "10ms"
  state { file = %q }
  provider "none" {}
  offering "od" {
    provider           = "none"
    region             = "east"
    type               = "cpu2"
    kind               = "on-demand"
    price_usd_per_hour = 3
  }
}
`

func newSetup(t *testing.T) *setup {
	s := &setup{}
	text := fmt.Sprintf(poolText, filepath.Join(t.TempDir(), "pool.json"))
	s.text.Store(&text)
	openers := map[string]pool.Opener{"none": func(cloud.Setup) (pool.Provider, error) { return emptyCloud{&s.asked}, nil }}
	load := func(path string) ([]pool.Pool, error) {
		if path == "panic" {
			panic("out of luck")
		}
		return pool.Parse([]byte(*s.text.Load()), path, openers)
	}
	s.plugin = New(t.Context(), "nomad-autoscaler-spotter", load, hclog.NewNullLogger())
	t.Cleanup(s.plugin.Close)
	return s
}

var (
	pluginConfig = map[string]string{configPoolFile: "pool.hcl", "nomad_config_inherit": "false"}
	policyTarget = map[string]string{configPool: "training", "_nomad_autoscaler_grpc_timeout": "7s"}
)

func (s *setup) waitReady(t *testing.T) {
	t.Helper()
	deadline := time.Now().Add(5 * time.Second)
	for {
		status, err := s.plugin.Status(policyTarget)
		must.NoError(t, err)
		if status.Ready {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("not ready within 5 s")
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func TestPlugin(t *testing.T) {
	s := newSetup(t)
	info, err := s.plugin.PluginInfo()
	must.NoError(t, err)
	must.Eq(t, "nomad-autoscaler-spotter", info.Name)
	must.Eq(t, sdk.PluginTypeTarget, info.PluginType)
	_, err = s.plugin.Status(policyTarget)
	must.ErrorContains(t, err, "no configuration yet")

	must.NoError(t, s.plugin.SetConfig(pluginConfig))
	s.waitReady(t)
	status, err := s.plugin.Status(policyTarget)
	must.NoError(t, err)
	must.Eq(t, 0, status.Count)
	must.MapNotContainsKey(t, status.Meta, sdk.TargetStatusMetaKeyLastEvent, must.Sprint("an event without a change starts a cooldown"))

	// The count is what was asked for, though nothing can be launched, and the event is that of the change.
	before := time.Now()
	must.NoError(t, s.plugin.Scale(sdk.ScalingAction{Count: 5}, policyTarget))
	status, err = s.plugin.Status(policyTarget)
	must.NoError(t, err)
	must.Eq(t, 5, status.Count)
	nanos, err := strconv.ParseInt(status.Meta[sdk.TargetStatusMetaKeyLastEvent], 10, 64)
	must.NoError(t, err)
	must.Between(t, before.UnixNano(), nanos, time.Now().UnixNano())

	must.NoError(t, s.plugin.Scale(sdk.ScalingAction{Count: sdk.StrategyActionMetaValueDryRunCount}, policyTarget))
	must.ErrorContains(t, s.plugin.Scale(sdk.ScalingAction{Count: -2}, policyTarget), "count -2 is outside 0 to")
	must.ErrorContains(t, s.plugin.Scale(sdk.ScalingAction{Count: 1 << 40}, policyTarget), "is outside 0 to")
	again, err := s.plugin.Status(policyTarget)
	must.NoError(t, err)
	must.Eq(t, status, again)

	_, err = s.plugin.Status(map[string]string{configPool: "serving"})
	must.ErrorContains(t, err, `target.pool: "serving" is not in the pool file; it has training`)
}

// SIGHUP calls SetConfig on the living plugin: never a second loop, and a faulty file changes nothing.
func TestPlugin_reload(t *testing.T) {
	s := newSetup(t)
	must.NoError(t, s.plugin.SetConfig(pluginConfig))
	s.waitReady(t)
	must.NoError(t, s.plugin.Scale(sdk.ScalingAction{Count: 2}, policyTarget))
	first := s.plugin.term
	must.NoError(t, s.plugin.SetConfig(pluginConfig))
	must.True(t, first == s.plugin.term, must.Sprint("an unchanged configuration was replaced"))

	good := *s.text.Load()
	bad := good + "\npool \"broken\" {}\n"
	s.text.Store(&bad)
	must.ErrorContains(t, s.plugin.SetConfig(pluginConfig), `pool "broken": state: missing`)
	must.True(t, first == s.plugin.term, must.Sprint("a faulty file replaced the configuration"))
	s.waitReady(t)

	changed := good + "\n"
	s.text.Store(&changed)
	must.NoError(t, s.plugin.SetConfig(pluginConfig))
	s.waitReady(t)
	status, err := s.plugin.Status(policyTarget)
	must.NoError(t, err)
	must.Eq(t, 2, status.Count)

	// The old loop has ended, so that only one asks the provider: it holds the lease that the new one now has.
	for _, loop := range first.loops {
		must.False(t, loop.Health().Ready)
	}
	s.plugin.Close()
	asked := s.asked.Load()
	time.Sleep(100 * time.Millisecond)
	must.Eq(t, asked, s.asked.Load(), must.Sprint("a loop runs on after Close"))
	must.ErrorContains(t, s.plugin.SetConfig(pluginConfig), "ending")
}

func TestPlugin_faults(t *testing.T) {
	s := newSetup(t)
	must.ErrorContains(t, s.plugin.SetConfig(nil), "config.pool_file: missing")
	must.ErrorContains(t, s.plugin.SetConfig(map[string]string{configPoolFile: "panic"}), "internal error: out of luck")
	must.ErrorContains(t, s.plugin.Scale(sdk.ScalingAction{Count: 1}, policyTarget), "no configuration yet")
	must.NoError(t, s.plugin.SetConfig(pluginConfig))
	s.waitReady(t)
}

// Status never waits for a provider, a store or Nomad: nomad-autoscaler gives it three quarters of a tick.
func TestPlugin_statusIsFast(t *testing.T) {
	s := newSetup(t)
	must.NoError(t, s.plugin.SetConfig(pluginConfig))
	s.waitReady(t)
	var took []time.Duration
	for range 200 {
		start := time.Now()
		_, err := s.plugin.Status(policyTarget)
		must.NoError(t, err)
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	must.Less(t, 10*time.Millisecond, took[len(took)/2])
	must.False(t, errors.Is(s.plugin.ctx.Err(), context.Canceled))
}
