package taskplugin

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/uuid"
	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hcldec"
	"github.com/hashicorp/hcl/v2/hclparse"
	"github.com/hashicorp/nomad/helper/pluginutils/hclspecutils"
	"github.com/hashicorp/nomad/nomad/structs"
	"github.com/hashicorp/nomad/plugins/base"
	"github.com/hashicorp/nomad/plugins/drivers"
	"github.com/shoenig/test/must"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/msgpack"
	"golang.org/x/sys/unix"

	"nomad-spotter/driver/config"
	"nomad-spotter/driver/containerd"
	"nomad-spotter/driver/lifecycle"
	"nomad-spotter/driver/notice"
)

// engine is what all tests of the package share: a containerd, the image, the built driver for its agent.
type engine struct {
	skip    string
	dir     string
	socket  string
	archive string
	exe     string
	cmd     *exec.Cmd
	log     *os.File
}

var shared engine

func TestMain(m *testing.M) {
	shared = startEngine()
	code := m.Run()
	shared.stop()
	os.Exit(code)
}

// find returns the path of a program on PATH, in $SPOTTER_ENGINES or in the engine cache.
func find(name string) string {
	if d := os.Getenv("SPOTTER_ENGINES"); d != "" {
		if p := filepath.Join(d, name); executable(p) {
			return p
		}
	}
	if p, err := exec.LookPath(name); err == nil {
		return p
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	if p := filepath.Join(cache, "spotter", "bin", name); executable(p) {
		return p
	}
	return ""
}

func executable(p string) bool {
	info, err := os.Stat(p)
	return err == nil && info.Mode()&0o111 != 0
}

func startEngine() (e engine) {
	for _, name := range []string{"containerd", "containerd-shim-runc-v2", "runc"} {
		if find(name) == "" {
			e.skip = name + " is neither on PATH, nor in $SPOTTER_ENGINES, nor in the engine cache"
			return e
		}
	}
	if os.Geteuid() != 0 {
		e.skip = "containers need root"
		return e
	}
	dir, err := os.MkdirTemp("", "spt")
	if err != nil {
		e.skip = err.Error()
		return e
	}
	e.dir, e.socket = dir, filepath.Join(dir, "c.sock")
	if err := e.prepare(); err != nil {
		e.stop()
		fmt.Fprintln(os.Stderr, "cannot prepare the tests:", err)
		os.Exit(1)
	}
	return e
}

func (e *engine) prepare() error {
	conf := fmt.Sprintf("version = 2\nroot = %q\nstate = %q\n[grpc]\n  address = %q\n",
		filepath.Join(e.dir, "root"), filepath.Join(e.dir, "state"), e.socket)
	file := filepath.Join(e.dir, "config.toml")
	if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
		return err
	}
	var err error
	if e.log, err = os.Create(filepath.Join(e.dir, "containerd.log")); err != nil {
		return err
	}
	if err := e.run(); err != nil {
		return err
	}
	program := filepath.Join(e.dir, "testimage")
	if err := build(program, "./testimage"); err != nil {
		return err
	}
	e.archive = filepath.Join(e.dir, "image.tar")
	if err := writeImage(e.archive, program); err != nil {
		return err
	}
	e.exe = filepath.Join(e.dir, "nomad-driver-spotter")
	return build(e.exe, "../cmd/nomad-driver-spotter")
}

// run starts containerd and waits until it listens.
func (e *engine) run() error {
	bin := find("containerd")
	e.cmd = exec.Command(bin, "--config", filepath.Join(e.dir, "config.toml"))
	path := strings.Join([]string{filepath.Dir(bin), filepath.Dir(find("runc")), os.Getenv("PATH")}, ":")
	e.cmd.Env = append(os.Environ(), "PATH="+path)
	e.cmd.Stdout, e.cmd.Stderr = e.log, e.log
	if err := e.cmd.Start(); err != nil {
		return err
	}
	c, err := containerd.New(containerd.Options{Address: e.socket, Namespace: "probe", Snapshotter: "overlayfs", Runtime: "io.containerd.runc.v2", Log: hclog.NewNullLogger()})
	if err != nil {
		return err
	}
	defer c.Close()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		_, err := c.Probe(ctx)
		cancel()
		if err == nil {
			return nil
		}
		if time.Now().After(end) {
			b, _ := os.ReadFile(e.log.Name())
			return fmt.Errorf("containerd does not answer: %w\n%s", err, b)
		}
	}
}

func (e *engine) halt() {
	if e.cmd != nil && e.cmd.Process != nil {
		_ = e.cmd.Process.Signal(os.Interrupt)
		_ = e.cmd.Wait()
	}
}

func (e *engine) stop() {
	e.halt()
	if e.dir != "" {
		_ = os.RemoveAll(e.dir)
	}
}

func build(out, pkg string) error {
	cmd := exec.Command("go", "build", "-o", out, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if b, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", pkg, err, b)
	}
	return nil
}

// writeImage makes an OCI archive with one program and a user "trainer" (1234:1235).
func writeImage(file, program string) error {
	passwd := "root:x:0:0:root:/:/bin/sh\ntrainer:x:1234:1235::/:/bin/sh\n"
	group := "root:x:0:\ntrainer:x:1235:\nextra:x:77:trainer\n"
	layerFile := filepath.Join(filepath.Dir(file), "layer.tar")
	root := filepath.Join(filepath.Dir(file), "rootfs")
	for _, d := range []string{"bin", "etc", "tmp", "proc", "sys", "dev"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(root, "etc/passwd"), []byte(passwd), 0o644); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(root, "etc/group"), []byte(group), 0o644); err != nil {
		return err
	}
	if err := os.Link(program, filepath.Join(root, "bin/testimage")); err != nil {
		return err
	}
	if b, err := exec.Command("tar", "-C", root, "-cf", layerFile, ".").CombinedOutput(); err != nil {
		return fmt.Errorf("tar: %w: %s", err, b)
	}
	layer, err := tarball.LayerFromFile(layerFile)
	if err != nil {
		return err
	}
	img, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return err
	}
	cf, err := img.ConfigFile()
	if err != nil {
		return err
	}
	cf = cf.DeepCopy()
	cf.OS, cf.Architecture = "linux", goarch
	cf.Config = v1.Config{
		Entrypoint: []string{"/bin/testimage"}, Cmd: []string{"sleep"}, Env: []string{"FROM_IMAGE=1", "NOMAD_ALLOC_INDEX=99"},
		WorkingDir: "/tmp", StopSignal: "SIGINT",
	}
	if img, err = mutate.ConfigFile(img, cf); err != nil {
		return err
	}
	dir := filepath.Join(filepath.Dir(file), "layout")
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	// The name is that of somebody else's image: the driver must not take it over.
	if err := path.AppendImage(img, layout.WithAnnotations(map[string]string{"io.containerd.image.name": "docker.io/library/busybox:1"})); err != nil {
		return err
	}
	if b, err := exec.Command("tar", "-C", dir, "-cf", file, ".").CombinedOutput(); err != nil {
		return fmt.Errorf("tar: %w: %s", err, b)
	}
	return nil
}

// node is one driver with everything around it.
type node struct {
	t      *testing.T
	d      *Driver
	cancel context.CancelFunc
	config string
	state  string
	allocs string

	mu     sync.Mutex
	events []*drivers.TaskEvent
}

// newNode makes a configured driver in a namespace of its own; extra is HCL for its configuration.
func newNode(t *testing.T, extra string) *node {
	t.Helper()
	if shared.skip != "" {
		t.Skip(shared.skip)
	}
	// Sockets' paths must be short, which t.TempDir's are not.
	dir, err := os.MkdirTemp("", "spn")
	must.NoError(t, err)
	n := &node{t: t, state: filepath.Join(dir, "state"), allocs: filepath.Join(dir, "allocs")}
	cgroup := "/spt-" + uuid.NewString()[:8]
	n.config = fmt.Sprintf("state_dir = %q\ncontainerd {\n address = %q\n namespace = %q\n cgroup_parent = %q\n}\n%s\n",
		n.state, shared.socket, "t-"+uuid.NewString()[:8], cgroup, extra)
	t.Cleanup(func() {
		n.destroyAll()
		n.stop()
		removeGroups(cgroup)
		must.NoError(t, os.RemoveAll(dir))
	})
	n.start()
	return n
}

// removeGroups removes the parents of the node's groups, which a real node keeps.
func removeGroups(name string) {
	for _, pattern := range []string{"/sys/fs/cgroup/*" + name, "/sys/fs/cgroup" + name} {
		for _, suffix := range []string{"", "-agents"} {
			dirs, _ := filepath.Glob(pattern + suffix)
			for _, d := range dirs {
				children, _ := filepath.Glob(d + "/*/")
				for _, c := range append(children, d) {
					_ = os.Remove(c)
				}
			}
		}
	}
}

// start makes the driver, as Nomad does when it starts the plugin.
func (n *node) start() {
	n.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	log := hclog.New(&hclog.LoggerOptions{Level: hclog.Debug, Output: testWriter{n.t}})
	n.cancel = cancel
	n.d = New(ctx, log, Makers{
		Runtime: func(c *config.Plugin, l hclog.Logger) (lifecycle.Runtime, error) {
			return containerd.New(containerd.Options{
				Address: c.Containerd.Address, Namespace: c.Containerd.Namespace, Snapshotter: c.Containerd.Snapshotter,
				Runtime: c.Containerd.Runtime, PullTimeout: c.PullTimeout, FIFODir: lifecycle.FIFODir(c.StateDir), Log: l,
			})
		},
		Notice: func(c *config.Plugin, l hclog.Logger) (notice.Source, error) {
			if c.Notice.Source == config.NoticeEC2 {
				return notice.NewEC2(c.Notice.Endpoint, c.Notice.PollInterval, l), nil
			}
			return notice.None{}, nil
		},
		Agent: []string{shared.exe, "agent", "--config"},
	})
	must.NoError(n.t, n.d.SetConfig(&base.Config{PluginConfig: encode(n.t, config.PluginSchema(), n.config)}))
	events, err := n.d.TaskEvents(ctx)
	must.NoError(n.t, err)
	go func() {
		for {
			select {
			case e := <-events:
				n.mu.Lock()
				n.events = append(n.events, e)
				n.mu.Unlock()
			case <-ctx.Done():
				return
			}
		}
	}()
	prints, err := n.d.Fingerprint(ctx)
	must.NoError(n.t, err)
	first := <-prints
	must.Eq(n.t, drivers.HealthStateHealthy, first.Health, must.Sprint(first.HealthDescription))
	go func() {
		for range prints { // nobody else listens
		}
	}()
}

// stop ends the driver as a restart of the plugin does: containers and agents live on.
func (n *node) stop() {
	n.cancel()
	n.d.Shutdown()
}

func (n *node) restart() {
	n.t.Helper()
	n.stop()
	n.start()
}

func (n *node) destroyAll() {
	for _, t := range n.d.manager.Tasks() {
		_ = n.d.DestroyTask(t.State().ID, true)
	}
}

// messages returns the task events so far.
func (n *node) messages() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := make([]string, 0, len(n.events))
	for _, e := range n.events {
		out = append(out, e.Message)
	}
	return out
}

func (n *node) waitEvent(part string) {
	n.t.Helper()
	poll(n.t, "task event with "+part, func() bool { return strings.Contains(strings.Join(n.messages(), "\n"), part) })
}

// task is a task of Nomad's with its directories and fifos, and what came out of those.
type task struct {
	n      *node
	tc     *drivers.TaskConfig
	handle *drivers.TaskHandle

	mu  sync.Mutex
	out map[string]string
}

// newTask makes a task with Nomad's directories.
func (n *node) newTask(hcl string, edit func(*drivers.TaskConfig)) *task {
	n.t.Helper()
	alloc := uuid.NewString()
	tc := &drivers.TaskConfig{
		ID: alloc + "/train/" + uuid.NewString()[:8], AllocID: alloc, Name: "train", JobID: "job", JobName: "job",
		TaskGroupName: "group", Namespace: "default", NodeName: "node", NodeID: "n1",
		AllocDir: filepath.Join(n.allocs, alloc),
		Env: map[string]string{
			"NOMAD_ALLOC_DIR": "/alloc", "NOMAD_TASK_DIR": "/local", "NOMAD_SECRETS_DIR": "/secrets", "NOMAD_ALLOC_INDEX": "0",
		},
		Resources: &drivers.Resources{
			NomadResources: &structs.AllocatedTaskResources{
				Memory: structs.AllocatedMemoryResources{MemoryMB: 128},
				Cpu:    structs.AllocatedCpuResources{CpuShares: 100},
			},
			LinuxResources: &drivers.LinuxResources{MemoryLimitBytes: 128 << 20, CPUShares: 100, PercentTicks: 0.1},
		},
	}
	dirs := tc.TaskDir()
	for _, d := range []string{dirs.SharedAllocDir, dirs.LocalDir, dirs.SecretsDir, dirs.LogDir} {
		must.NoError(n.t, os.MkdirAll(d, 0o777))
		must.NoError(n.t, os.Chmod(d, 0o777))
	}
	must.NoError(n.t, os.Link(shared.archive, filepath.Join(dirs.LocalDir, "image.tar")))
	t := &task{n: n, tc: tc, out: map[string]string{}}
	tc.StdoutPath = t.collect("stdout")
	tc.StderrPath = t.collect("stderr")
	if edit != nil {
		edit(tc)
	}
	t.configure(hcl)
	return t
}

// configure encodes the config block; the image is the test's unless the block names one.
func (t *task) configure(hcl string) {
	t.n.t.Helper()
	if !strings.Contains(hcl, "image") {
		hcl = "image = \"oci-archive:local/image.tar\"\n" + hcl
	}
	must.NoError(t.n.t, t.tc.EncodeDriverConfig(value(t.n.t, config.TaskSchema(), hcl)))
}

// collect makes a fifo and reads it, as Nomad's logmon does: whoever writes may come and go.
func (t *task) collect(name string) string {
	path := filepath.Join(t.n.allocs, uuid.NewString()[:8]+"."+name)
	must.NoError(t.n.t, unix.Mkfifo(path, 0o600))
	r, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK, 0)
	must.NoError(t.n.t, err)
	t.n.t.Cleanup(func() { _ = r.Close() })
	go func() {
		for lines := bufio.NewScanner(r); lines.Scan(); {
			t.mu.Lock()
			t.out[name] += lines.Text() + "\n"
			t.mu.Unlock()
		}
	}()
	return path
}

func (t *task) output(name string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.out[name]
}

func (t *task) waitOutput(part string) {
	t.n.t.Helper()
	poll(t.n.t, "output with "+part, func() bool { return strings.Contains(t.output("stdout"), part) })
}

func (t *task) start() {
	t.n.t.Helper()
	h, net, err := t.n.d.StartTask(t.tc)
	must.NoError(t.n.t, err)
	must.Nil(t.n.t, net)
	t.handle = throughNomad(t.n.t, h)
}

// again is a restart in place: a new task ID in the same allocation.
func (t *task) again() {
	t.n.t.Helper()
	t.tc.ID = t.tc.AllocID + "/train/" + uuid.NewString()[:8]
	t.start()
}

// throughNomad is a handle as it comes back from Nomad's state: without the config block.
func throughNomad(t *testing.T, h *drivers.TaskHandle) *drivers.TaskHandle {
	t.Helper()
	b, err := json.Marshal(h)
	must.NoError(t, err)
	out := new(drivers.TaskHandle)
	must.NoError(t, json.Unmarshal(b, out))
	return out
}

// wait returns the task's result.
func (t *task) wait() *drivers.ExitResult {
	t.n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	ch, err := t.n.d.WaitTask(ctx, t.tc.ID)
	must.NoError(t.n.t, err)
	r := <-ch
	must.NotNil(t.n.t, r)
	return r
}

func (t *task) stop(timeout time.Duration) {
	t.n.t.Helper()
	must.NoError(t.n.t, t.n.d.StopTask(t.tc.ID, timeout, ""))
}

func (t *task) destroy() {
	t.n.t.Helper()
	must.NoError(t.n.t, t.n.d.DestroyTask(t.tc.ID, true))
}

// poll waits until ok, and fails the test after a while.
func poll(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

func value(t *testing.T, schema specOf, text string) cty.Value {
	t.Helper()
	spec, diags := hclspecutils.Convert(schema)
	must.False(t, diags.HasErrors(), must.Sprint(diags))
	file, diags := hclparse.NewParser().ParseHCL([]byte(text), "test.hcl")
	must.False(t, diags.HasErrors(), must.Sprint(diags))
	v, diags := hcldec.Decode(file.Body, spec, &hcl.EvalContext{})
	must.False(t, diags.HasErrors(), must.Sprint(diags))
	return v
}

func encode(t *testing.T, schema specOf, text string) []byte {
	t.Helper()
	v := value(t, schema, text)
	b, err := msgpack.Marshal(v, v.Type())
	must.NoError(t, err)
	return b
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimRight(string(p), "\n"))
	return len(p), nil
}
