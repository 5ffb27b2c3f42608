package lifecycle

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/hashicorp/nomad/nomad/structs"
	"github.com/hashicorp/nomad/plugins/drivers"
	"github.com/shoenig/test/must"

	"nomad-spotter/checkpointer/api"
	"nomad-spotter/driver/config"
	"nomad-spotter/driver/containerd"
)

func TestCheckpointBudget(t *testing.T) {
	for timeout, want := range map[time.Duration]time.Duration{
		0:                      0,
		time.Second:            500 * time.Millisecond,
		2 * time.Second:        time.Second,
		5 * time.Second:        4 * time.Second,
		10 * time.Second:       9 * time.Second,
		30 * time.Second:       27 * time.Second,
		10 * time.Minute:       9 * time.Minute,
		100 * time.Millisecond: 50 * time.Millisecond,
	} {
		must.Eq(t, want, checkpointBudget(timeout), must.Sprint(timeout))
	}
}

func TestResultOf(t *testing.T) {
	lost := "lost"
	cases := map[string]struct {
		led  ledger
		want drivers.ExitResult
	}{
		"success":     {ledger{Exit: &exitRecord{}}, drivers.ExitResult{}},
		"failure":     {ledger{Exit: &exitRecord{Code: 3}}, drivers.ExitResult{ExitCode: 3}},
		"128":         {ledger{Exit: &exitRecord{Code: 128}}, drivers.ExitResult{ExitCode: 128}},
		"signal":      {ledger{Exit: &exitRecord{Code: 143}}, drivers.ExitResult{ExitCode: 143, Signal: 15}},
		"last signal": {ledger{Exit: &exitRecord{Code: 192}}, drivers.ExitResult{ExitCode: 192, Signal: 64}},
		"no signal":   {ledger{Exit: &exitRecord{Code: 193}}, drivers.ExitResult{ExitCode: 193}},
		"oom":         {ledger{Exit: &exitRecord{Code: 137, OOM: true}}, drivers.ExitResult{ExitCode: 137, Signal: 9, OOMKilled: true}},
		"unknown":     {ledger{Exit: &exitRecord{Code: -1, Err: lost}}, drivers.ExitResult{ExitCode: -1, Err: errors.New(lost)}},
		"ended":       {ledger{Ended: true, Exit: &exitRecord{Code: 143}}, drivers.ExitResult{ExitCode: 75}},
		"final, 0":    {ledger{Final: finalDurable, Exit: &exitRecord{}}, drivers.ExitResult{ExitCode: 75}},
		"final open":  {ledger{Final: finalOpen, Exit: &exitRecord{Code: 1}}, drivers.ExitResult{ExitCode: 75}},
		"superseded":  {ledger{Superseded: lost, Exit: &exitRecord{}}, drivers.ExitResult{ExitCode: 75, Err: errors.New(lost)}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := resultOf(c.led)
			if c.want.Err != nil {
				must.EqError(t, got.Err, c.want.Err.Error())
				got.Err, c.want.Err = nil, nil
			}
			must.Eq(t, &c.want, got)
		})
	}
}

func taskConfig() *drivers.TaskConfig {
	return &drivers.TaskConfig{
		ID: "a1/train/x", AllocID: "a1", Name: "train", JobID: "job", TaskGroupName: "group", Namespace: "ml",
		AllocDir: "/allocs/a1", Env: map[string]string{"NOMAD_ALLOC_INDEX": "2"},
		Resources: &drivers.Resources{
			NomadResources: &structs.AllocatedTaskResources{Memory: structs.AllocatedMemoryResources{MemoryMB: 100}},
			LinuxResources: &drivers.LinuxResources{MemoryLimitBytes: 100 << 20, CPUShares: 500, PercentTicks: 0.25, CpusetCgroupPath: "/sys/fs/cgroup/nomad.slice/a1.train.scope"},
		},
	}
}

func TestLineage(t *testing.T) {
	tc := taskConfig()
	must.Eq(t, "ml/job/group/train/2", lineageOf(tc, &config.Checkpoint{}))
	must.Eq(t, "team/run", lineageOf(tc, &config.Checkpoint{Lineage: "team/run"}))
	must.Eq(t, "ml/job/group/train", lineageOf(tc, &config.Checkpoint{Ranks: 4}))
	must.EqOp(t, 2, rankOf(tc, &config.Checkpoint{Ranks: 4, Rank: config.IndexRank}))
	must.EqOp(t, 0, rankOf(tc, &config.Checkpoint{Ranks: 4, Rank: 0}))
	tc.Namespace, tc.Env = "", nil
	must.Eq(t, "default/job/group/train/0", lineageOf(tc, &config.Checkpoint{}))
	tc.JobID = "sweep/dispatch-1-abc"
	must.Eq(t, "default/sweep%2Fdispatch-1-abc/group/train/0", lineageOf(tc, &config.Checkpoint{}))
	tc.JobID = ".."
	must.Eq(t, "default/_../group/train/0", lineageOf(tc, &config.Checkpoint{}))
}

func TestArguments(t *testing.T) {
	ent, cmd := []string{"/entry"}, []string{"default"}
	cases := []struct {
		cfg  config.Task
		want []string
	}{
		{config.Task{}, []string{"/entry", "default"}},
		{config.Task{Args: []string{"a"}}, []string{"/entry", "a"}},
		{config.Task{Command: "c"}, []string{"/entry", "c"}},
		{config.Task{Command: "c", Args: []string{"a"}}, []string{"/entry", "c", "a"}},
		{config.Task{Entrypoint: []string{"/mine"}}, []string{"/mine"}},
		{config.Task{Entrypoint: []string{"/mine"}, Args: []string{"a"}}, []string{"/mine", "a"}},
	}
	for _, c := range cases {
		must.Eq(t, c.want, arguments(&c.cfg, ent, cmd))
	}
}

func TestEnvironment(t *testing.T) {
	tc := &drivers.TaskConfig{Env: map[string]string{"A": "nomad"}, DeviceEnv: map[string]string{"A": "device", "D": "device"}}
	got := environment(tc, []string{"A=image", "PATH=/image", "odd"}, map[string]string{"S": "ours"})
	must.Eq(t, []string{"A=nomad", "D=device", "PATH=/image", "S=ours"}, got)
}

func TestResources(t *testing.T) {
	const mib = 1 << 20
	h := host{CPUs: 4, SwapAccounting: true}
	r := resources(taskConfig(), &config.Task{PidsLimit: 9}, h)
	must.Eq(t, containerd.Resources{CPUShares: 500, MemoryHardBytes: 100 * mib, LimitSwap: true, Pids: 9}, r)

	tc := taskConfig()
	tc.Resources.NomadResources.Memory.MemoryMaxMB = 300
	r = resources(tc, &config.Task{}, h)
	must.Eq(t, 300*mib, r.MemoryHardBytes)
	must.Eq(t, 100*mib, r.MemorySoftBytes)

	tc.Resources.NomadResources.Memory.MemoryMaxMB = -1 // newer Nomad: no limit
	r = resources(tc, &config.Task{}, h)
	must.Eq(t, 0, r.MemoryHardBytes)
	must.Eq(t, 100*mib, r.MemorySoftBytes)

	r = resources(taskConfig(), &config.Task{CPUHardLimit: true}, h)
	must.Eq(t, 100_000, r.CPUPeriod)
	must.Eq(t, 100_000, r.CPUQuota) // a quarter of four CPUs

	must.Eq(t, containerd.Resources{}, resources(&drivers.TaskConfig{}, &config.Task{}, host{}))
}

func TestCgroupPath(t *testing.T) {
	must.Eq(t, "/spotter/c", cgroupPath(taskConfig(), "c", host{CgroupParent: "/spotter"}))
	must.Eq(t, "/nomad.slice/a1.train.scope", cgroupPath(taskConfig(), "c", host{CgroupParent: "/spotter", UnifiedCgroups: true}))
	must.Eq(t, "/spotter/c", cgroupPath(&drivers.TaskConfig{}, "c", host{CgroupParent: "/spotter", UnifiedCgroups: true}))
}

func TestCapabilities(t *testing.T) {
	must.Eq(t, config.DefaultCaps, capabilities(nil, nil))
	must.SliceContains(t, capabilities([]string{"NET_RAW"}, nil), "NET_RAW")
	must.SliceNotContains(t, capabilities(nil, []string{"CHOWN"}), "CHOWN")
	must.Eq(t, []string{"KILL"}, capabilities([]string{"KILL"}, []string{"ALL"}))
	must.SliceContains(t, capabilities([]string{"ALL"}, nil), "SYS_ADMIN")
}

// namePattern is containerd's rule for names.
var namePattern = regexp.MustCompile(`^[A-Za-z0-9]+(-[A-Za-z0-9]+)*$`)

func TestContainerID(t *testing.T) {
	a, b := taskConfig(), taskConfig()
	b.ID = "a1/train/y"
	must.NotEq(t, containerID(a), containerID(b), must.Sprint("one per start"))
	a.Name = "A very long task name, with_odd characters/and more than thirty"
	must.RegexMatch(t, namePattern, containerID(a))
	a.Name = "..."
	must.RegexMatch(t, namePattern, containerID(a))
}

func TestMounts(t *testing.T) {
	tc := taskConfig()
	tc.AllocDir = t.TempDir()
	dirs := tc.TaskDir()
	for _, d := range []string{dirs.LocalDir, dirs.SecretsDir, dirs.SharedAllocDir} {
		must.NoError(t, os.MkdirAll(d, 0o755))
	}
	tc.Mounts = []*drivers.MountConfig{{HostPath: "/vol", TaskPath: "/volume", Readonly: true, PropagationMode: "host-to-task"}}
	st := State{Dir: "/state/t/k", CheckpointDir: "/ckpt-host"}
	c := &config.Task{
		Mounts: []config.Mount{
			{Type: "bind", Source: "local/data", Target: "/data"},
			{Type: "bind", Source: "alloc", Target: "/all"},
			{Type: "tmpfs", Target: "/scratch", Readonly: true},
		},
		Checkpoint: &config.Checkpoint{Dir: "/checkpoints"},
	}
	found, err := mountSources(tc, c.Mounts)
	must.NoError(t, err)
	defer found.release()
	got := mounts(tc, c, st, []containerd.Mount{{Source: "/etc/hosts", Target: "/etc/hosts"}}, found)
	at := map[string]containerd.Mount{}
	for _, m := range got {
		at[m.Target] = m
	}
	must.Eq(t, dirs.SharedAllocDir, at["/alloc"].Source)
	must.Eq(t, dirs.LocalDir, at["/local"].Source)
	must.Eq(t, dirs.SecretsDir, at["/secrets"].Source)
	must.Eq(t, "/vol", at["/volume"].Source)
	must.True(t, at["/volume"].Readonly)
	data := filepath.Join(dirs.LocalDir, "data")
	must.Eq(t, data, at["/data"].Source)
	must.DirExists(t, data)
	// What the container shows must be what was checked. Here another task swaps it for a link to the host's root; this
	// process, whose own root is looked at, stands for the container.
	must.ErrorContains(t, found.verify(os.Getpid()), "in the container")
	found[0].target = data
	must.NoError(t, found.verify(os.Getpid()))
	must.NoError(t, os.Rename(data, data+".old"))
	must.NoError(t, os.Symlink("/", data))
	must.ErrorContains(t, found.verify(os.Getpid()), "became another file")
	must.Eq(t, dirs.SharedAllocDir, at["/all"].Source)
	must.Eq(t, []string{"ro"}, at["/scratch"].Options)
	must.Eq(t, "/ckpt-host", at["/checkpoints"].Source)
	must.Eq(t, "/state/t/k/s", at[socketMount].Source)

	must.NoError(t, os.Symlink("/etc", filepath.Join(dirs.LocalDir, "out")))
	c.Mounts = []config.Mount{{Type: "bind", Source: "local/out", Target: "/data"}}
	_, err = mountSources(tc, c.Mounts)
	must.ErrorContains(t, err, "config.mount[0].source")
	c.Mounts = []config.Mount{{Type: "bind", Source: "logs/x", Target: "/data"}}
	_, err = mountSources(tc, c.Mounts)
	must.ErrorContains(t, err, "none of the task's directories")
}

func TestResumeEnv(t *testing.T) {
	c := &config.Checkpoint{Dir: "/ckpt"}
	must.Eq(t, map[string]string{"SPOTTER_CHECKPOINT_DIR": "/ckpt", "SPOTTER_SOCKET": "/run/spotter/task.sock"}, resumeEnv(c, nil))
	env := resumeEnv(c, &api.Checkpoint{Step: 1200, Path: "step-1200"})
	must.Eq(t, "1200", env["SPOTTER_RESUME_STEP"])
	must.Eq(t, "/ckpt/step-1200", env["SPOTTER_RESUME_PATH"])
}

func TestResolvConf(t *testing.T) {
	must.Eq(t, "", resolvConf(nil))
	must.Eq(t, "search a b\nnameserver 1.1.1.1\nnameserver 2.2.2.2\noptions ndots:2\n",
		resolvConf(&drivers.DNSConfig{Servers: []string{"1.1.1.1", "2.2.2.2"}, Searches: []string{"a", "b"}, Options: []string{"ndots:2"}}))
}

func TestLedger(t *testing.T) {
	dir := t.TempDir()
	empty, err := readLedger(dir)
	must.NoError(t, err)
	must.Eq(t, ledger{}, empty)
	want := ledger{TaskID: "t", Final: finalOpen, Agent: process{PID: 1, Start: 2}, Exit: &exitRecord{Code: 3, At: time.Unix(5, 0).UTC()}}
	must.NoError(t, writeLedger(dir, want))
	must.NoError(t, writeLedger(dir, want)) // over an existing one
	got, err := readLedger(dir)
	must.NoError(t, err)
	must.Eq(t, want, got)
	must.NoError(t, os.WriteFile(filepath.Join(dir, ledgerFile), []byte("{"), 0o600))
	_, err = readLedger(dir)
	must.ErrorContains(t, err, "decode ledger")
	entries, err := os.ReadDir(dir)
	must.NoError(t, err)
	must.Len(t, 1, entries, must.Sprint("no temporary file is left"))
}

func TestProcessIdentity(t *testing.T) {
	me := process{PID: os.Getpid(), Start: startOf(os.Getpid())}
	must.True(t, me.alive())
	must.False(t, process{PID: me.PID, Start: me.Start + 1}.alive(), must.Sprint("the pid was used again"))
	must.False(t, process{}.alive())
	must.Eq(t, 0, startOf(1<<22+1))
}

func TestAgentEnv(t *testing.T) {
	must.Eq(t, []string{"PATH=/bin"}, agentEnv([]string{"NOMAD_PLUGIN_MAGIC_COOKIE=x", "PATH=/bin", "PLUGIN_MIN_PORT=1"}))
}
