// Package driverharness drives the built nomad-driver-spotter with Nomad's own driver test harness. It is a module of
// its own because the harness does not compile beside the product's dependencies.
package driverharness

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"github.com/hashicorp/nomad/helper/pluginutils/hclspecutils"
	"github.com/hashicorp/nomad/helper/pluginutils/hclutils"
	"github.com/hashicorp/nomad/helper/uuid"
	"github.com/hashicorp/nomad/nomad/structs"
	"github.com/hashicorp/nomad/plugins/base"
	"github.com/hashicorp/nomad/plugins/drivers"
	"github.com/hashicorp/nomad/plugins/drivers/testutils"
	"github.com/hashicorp/nomad/plugins/shared/hclspec"
	"github.com/shoenig/test/must"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/msgpack"
)

// engine returns the path of a program on PATH or in the engine cache, or skips the test.
func engine(t *testing.T, name string) string {
	t.Helper()
	if p, err := exec.LookPath(name); err == nil {
		return p
	}
	cache := os.Getenv("SPOTTER_CACHE")
	if cache == "" {
		user, err := os.UserCacheDir()
		must.NoError(t, err)
		cache = filepath.Join(user, "spotter")
	}
	p := filepath.Join(cache, "bin", name)
	if _, err := os.Stat(p); err != nil {
		t.Skipf("%s is neither on PATH nor in the cache: run `make engines`", name)
	}
	return p
}

// startContainerd starts a containerd of the test's own and returns its socket.
func startContainerd(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("containers need root")
	}
	bin := engine(t, "containerd")
	engine(t, "runc")
	dir, err := os.MkdirTemp("", "sph")
	must.NoError(t, err)
	socket := filepath.Join(dir, "c.sock")
	conf := filepath.Join(dir, "config.toml")
	must.NoError(t, os.WriteFile(conf, fmt.Appendf(nil, "version = 3\nroot = %q\nstate = %q\n[grpc]\n  address = %q\n",
		filepath.Join(dir, "root"), filepath.Join(dir, "state"), socket), 0o600))
	log, err := os.Create(filepath.Join(dir, "containerd.log"))
	must.NoError(t, err)
	cmd := exec.Command(bin, "--config", conf)
	cmd.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+":"+filepath.Dir(bin))
	cmd.Stdout, cmd.Stderr = log, log
	must.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
		_ = log.Close()
		must.NoError(t, os.RemoveAll(dir))
	})
	poll(t, 20*time.Second, "containerd listens", func() bool { _, err := os.Stat(socket); return err == nil })
	return socket
}

// poll waits until ok, and fails the test at the deadline.
func poll(t *testing.T, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("gave up after %s: %s", limit, what)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// newHarness starts the built driver as Nomad does and puts Nomad's harness around what go-plugin dispenses.
func newHarness(t *testing.T) *testutils.DriverHarness {
	t.Helper()
	socket := startContainerd(t)
	bin := os.Getenv("SPOTTER_BIN")
	if bin == "" {
		bin = "../../bin"
	}
	exe, err := filepath.Abs(filepath.Join(bin, "nomad-driver-spotter"))
	must.NoError(t, err)
	if _, err := os.Stat(exe); err != nil {
		t.Fatalf("%s is missing: run `make build`", exe)
	}
	state, err := os.MkdirTemp("", "sps")
	must.NoError(t, err)
	t.Cleanup(func() { must.NoError(t, os.RemoveAll(state)) })

	logger := hclog.New(&hclog.LoggerOptions{Level: hclog.Debug, Output: testWriter{t}})
	client := plugin.NewClient(&plugin.ClientConfig{
		HandshakeConfig:  base.Handshake,
		Plugins:          plugin.PluginSet{base.PluginTypeBase: &base.PluginBase{}, base.PluginTypeDriver: drivers.NewDriverPlugin(nil, logger)},
		Cmd:              exec.Command(exe),
		AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC},
		Logger:           logger,
	})
	t.Cleanup(client.Kill)
	conn, err := client.Client()
	must.NoError(t, err)
	raw, err := conn.Dispense(base.PluginTypeDriver)
	must.NoError(t, err)
	driver := raw.(drivers.DriverPlugin)

	h := testutils.NewDriverHarness(t, driver)
	schema, err := h.ConfigSchema()
	must.NoError(t, err)
	must.NotNil(t, schema)
	config := fmt.Sprintf(`config {
		state_dir = %q
		containerd { address = %q }
	}`, state, socket)
	value := decode(t, schema, config)
	encoded, err := msgpack.Marshal(value, value.Type())
	must.NoError(t, err)
	must.NoError(t, h.SetConfig(&base.Config{ApiVersion: drivers.ApiVersion010, PluginConfig: encoded}))
	return h
}

// decode turns an HCL "config" block into the value that Nomad hands to a plugin with that schema.
func decode(t *testing.T, schema *hclspec.Spec, config string) cty.Value {
	t.Helper()
	spec, diags := hclspecutils.Convert(schema)
	must.False(t, diags.HasErrors(), must.Sprint(diags))
	value, diags, errs := hclutils.ParseHclInterface(hclutils.HclConfigToInterface(t, config), spec, nil)
	must.False(t, diags.HasErrors(), must.Sprint(diags, errs))
	return value
}

// task is a task of the test with Nomad's directories.
func task(name string) *drivers.TaskConfig {
	alloc := uuid.Generate()
	return &drivers.TaskConfig{
		ID: alloc + "/" + name + "/" + uuid.Generate()[:8], AllocID: alloc, Name: name,
		JobName: "harness", JobID: "harness", TaskGroupName: "group", Namespace: "default",
		Resources: &drivers.Resources{
			NomadResources: &structs.AllocatedTaskResources{
				Memory: structs.AllocatedMemoryResources{MemoryMB: 128},
				Cpu:    structs.AllocatedCpuResources{CpuShares: 100},
			},
			LinuxResources: &drivers.LinuxResources{MemoryLimitBytes: 128 << 20, CPUShares: 100},
		},
	}
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimRight(string(p), "\n"))
	return len(p), nil
}
