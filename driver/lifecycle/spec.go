package lifecycle

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/nomad/plugins/drivers"

	"nomad-spotter/checkpointer/api"
	"nomad-spotter/driver/config"
	"nomad-spotter/driver/containerd"
)

// socketMount is where the container finds the agent's socket.
const socketMount = "/run/spotter"

// host is what a spec depends on besides task and image.
type host struct {
	UnifiedCgroups bool
	SwapAccounting bool // the kernel can limit memory and swap together
	CPUs           int
	Seccomp        bool
	CgroupParent   string
}

func thisHost(m *Manager) host {
	m.mu.Lock()
	seccomp := m.seccomp
	m.mu.Unlock()
	h := host{
		UnifiedCgroups: containerd.UnifiedCgroups(), CPUs: runtime.NumCPU(), Seccomp: seccomp,
		CgroupParent: m.cfg.Containerd.CgroupParent,
	}
	_, err := os.Stat("/sys/fs/cgroup/memory/memory.memsw.limit_in_bytes")
	h.SwapAccounting = h.UnifiedCgroups || err == nil
	return h
}

// containerID is unique per start and says to people which task it is.
func containerID(tc *drivers.TaskConfig) string {
	name := strings.Map(func(r rune) rune {
		if (r >= 'a' && r <= 'z') || (r >= 'A' && r <= 'Z') || (r >= '0' && r <= '9') {
			return r
		}
		return -1
	}, tc.Name)
	if len(name) > 30 {
		name = name[:30]
	}
	if name == "" {
		name = "task"
	}
	return name + "-" + short(tc.AllocID, 8) + "-" + short(tc.ID, 12)
}

// cgroupPath is the container's group below the cgroup root. With cgroup v2, Nomad makes one for each task, of which it
// manages the CPUs.
func cgroupPath(tc *drivers.TaskConfig, id string, h host) string {
	if lr := linuxResources(tc); h.UnifiedCgroups && lr.CpusetCgroupPath != "" {
		if p, ok := strings.CutPrefix(lr.CpusetCgroupPath, "/sys/fs/cgroup"); ok && p != "" {
			return path.Clean(p)
		}
	}
	return path.Join(h.CgroupParent, id)
}

func linuxResources(tc *drivers.TaskConfig) drivers.LinuxResources {
	if tc.Resources == nil || tc.Resources.LinuxResources == nil {
		return drivers.LinuxResources{}
	}
	return *tc.Resources.LinuxResources
}

// lineageOf is the name that the job gives, or namespace/job/group/task/index, without the index for ranks, which have one
// lineage together. A dispatched child is a job of its own.
func lineageOf(tc *drivers.TaskConfig, c *config.Checkpoint) string {
	if c.Lineage != "" {
		return c.Lineage
	}
	namespace := tc.Namespace
	if namespace == "" {
		namespace = "default"
	}
	parts := []string{namespace, tc.JobID, tc.TaskGroupName, tc.Name}
	if c.Ranks <= 1 {
		parts = append(parts, cmp.Or(tc.Env["NOMAD_ALLOC_INDEX"], "0"))
	}
	for i, p := range parts {
		p = url.PathEscape(p)
		if p == "" || p == "." || p == ".." {
			p = "_" + p
		}
		parts[i] = p
	}
	return strings.Join(parts, "/")
}

// rankOf is the rank that the job gives, or the allocation's index.
func rankOf(tc *drivers.TaskConfig, c *config.Checkpoint) int {
	if c.Rank != config.IndexRank {
		return c.Rank
	}
	n, _ := strconv.Atoi(tc.Env["NOMAD_ALLOC_INDEX"]) // Nomad sets it
	return n
}

// arguments are what the container runs, as Docker does it: entrypoint, then command and args, each of which replaces
// the image's. An entrypoint of the job drops the image's command, too.
func arguments(c *config.Task, entrypoint, cmd []string) []string {
	var own []string
	if c.Command != "" {
		own = append(own, c.Command)
	}
	own = append(own, c.Args...)
	if len(c.Entrypoint) > 0 {
		entrypoint, cmd = c.Entrypoint, nil
	}
	if len(own) > 0 {
		cmd = own
	}
	return append(slices.Clone(entrypoint), cmd...)
}

// environment is the image's, under Nomad's, under ours.
func environment(tc *drivers.TaskConfig, image []string, ours map[string]string) []string {
	base := map[string]string{"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	for _, e := range image {
		if k, v, ok := strings.Cut(e, "="); ok {
			base[k] = v
		}
	}
	return containerd.MergeEnv(base, tc.DeviceEnv, tc.Env, ours)
}

// resources are the limits that Nomad reserved. memory_max of -1 lifts the hard limit.
func resources(tc *drivers.TaskConfig, c *config.Task, h host) containerd.Resources {
	lr := linuxResources(tc)
	r := containerd.Resources{Pids: c.PidsLimit, CPUs: lr.CpusetCpus, LimitSwap: h.SwapAccounting}
	if lr.CPUShares > 0 {
		r.CPUShares = uint64(lr.CPUShares)
	}
	if c.CPUHardLimit && lr.PercentTicks > 0 {
		const period = 100_000 // µs
		// PercentTicks is the task's part of all the machine's CPUs.
		r.CPUPeriod, r.CPUQuota = period, max(int64(lr.PercentTicks*period*float64(h.CPUs)), 1000)
	}
	r.MemoryHardBytes = lr.MemoryLimitBytes
	if tc.Resources == nil || tc.Resources.NomadResources == nil {
		return r
	}
	const mib = 1 << 20
	m := tc.Resources.NomadResources.Memory
	switch {
	case m.MemoryMaxMB < 0:
		r.MemoryHardBytes, r.MemorySoftBytes = 0, m.MemoryMB*mib
	case m.MemoryMaxMB > m.MemoryMB:
		r.MemoryHardBytes, r.MemorySoftBytes = m.MemoryMaxMB*mib, m.MemoryMB*mib
	case r.MemoryHardBytes <= 0:
		r.MemoryHardBytes = m.MemoryMB * mib
	}
	return r
}

// capabilities are the defaults and what is added, without what is dropped; "ALL" means every one.
func capabilities(add, drop []string) []string {
	set := map[string]bool{}
	for _, c := range config.DefaultCaps {
		set[c] = true
	}
	if slices.Contains(drop, "ALL") {
		clear(set)
	}
	for _, c := range add {
		if c == "ALL" {
			for _, known := range containerd.KnownCaps() {
				set[known] = true
			}
			continue
		}
		set[c] = true
	}
	for _, c := range drop {
		delete(set, c)
	}
	return slices.Sorted(maps.Keys(set))
}

// mounts are, from the weakest to the strongest: Nomad's directories, network files, what device plugins and volumes
// bring, what the job asks for, and ours.
func mounts(tc *drivers.TaskConfig, c *config.Task, st State, files []containerd.Mount, sources sources) []containerd.Mount {
	dirs := tc.TaskDir()
	target := func(env, fallback string) string {
		if p := tc.Env[env]; path.IsAbs(p) {
			return p
		}
		return fallback
	}
	out := []containerd.Mount{
		{Source: dirs.SharedAllocDir, Target: target("NOMAD_ALLOC_DIR", "/alloc"), Propagation: "host-to-task"},
		{Source: dirs.LocalDir, Target: target("NOMAD_TASK_DIR", "/local"), Propagation: "host-to-task"},
		{Source: dirs.SecretsDir, Target: target("NOMAD_SECRETS_DIR", "/secrets"), Propagation: "host-to-task"},
	}
	out = append(out, files...)
	for _, m := range tc.Mounts {
		out = append(out, containerd.Mount{Source: m.HostPath, Target: m.TaskPath, Readonly: m.Readonly, Propagation: m.PropagationMode})
	}
	for i, m := range c.Mounts {
		cm := containerd.Mount{Target: path.Clean(m.Target), Readonly: m.Readonly, Options: m.Options}
		if m.Type == "bind" {
			cm.Source = sources[i].path
		} else if m.Readonly {
			cm.Options = append(slices.Clone(m.Options), "ro")
		}
		out = append(out, cm)
	}
	if cp := c.Checkpoint; cp != nil {
		out = append(out,
			containerd.Mount{Source: st.CheckpointDir, Target: cp.Dir, Options: []string{"nosuid", "nodev"}},
			containerd.Mount{Source: socketDir(st.Dir), Target: socketMount, Readonly: true, Options: []string{"nosuid", "nodev", "noexec"}},
		)
	}
	return out
}

// rootOf splits a path of the job into the directory of Nomad's that it starts in and the rest.
func rootOf(tc *drivers.TaskConfig, p string) (root, rest string, err error) {
	dirs := tc.TaskDir()
	first, rest, _ := strings.Cut(path.Clean(p), "/")
	switch first {
	case "local":
		root = dirs.LocalDir
	case "secrets":
		root = dirs.SecretsDir
	case "alloc":
		root = dirs.SharedAllocDir
	default:
		return "", "", fmt.Errorf("%q is in none of the task's directories; start it with local/, secrets/ or alloc/", p)
	}
	return root, rest, nil
}

func devices(tc *drivers.TaskConfig, c *config.Task) []containerd.Device {
	var out []containerd.Device
	for _, d := range tc.Devices {
		out = append(out, containerd.Device{Host: d.HostPath, Target: d.TaskPath, Permissions: d.Permissions})
	}
	for _, d := range c.Devices {
		out = append(out, containerd.Device{Host: d.HostPath, Target: d.ContainerPath, Permissions: d.Permissions})
	}
	return out
}

// spec puts it all together.
func spec(tc *drivers.TaskConfig, c *config.Task, st State, img *containerd.Image, user containerd.User, env map[string]string, files []containerd.Mount, sources sources, h host) containerd.Spec {
	ms := mounts(tc, c, st, files, sources)
	s := containerd.Spec{
		ID: st.ContainerID, CgroupPath: st.CgroupPath, User: user, Mounts: ms, Devices: devices(tc, c),
		Args: arguments(c, img.Config.Entrypoint, img.Config.Cmd), Env: environment(tc, img.Config.Env, env),
		Dir: c.WorkDir, Hostname: c.Hostname, ReadonlyRootfs: c.ReadonlyRootfs, ShmSizeBytes: c.ShmSizeBytes,
		Caps: capabilities(c.CapAdd, c.CapDrop), Privileged: c.Privileged, Sysctl: c.Sysctl,
		Seccomp:   h.Seccomp && c.Seccomp == "default",
		Resources: resources(tc, c, h),
	}
	if s.Dir == "" {
		s.Dir = img.Config.WorkingDir
	}
	for _, u := range c.Ulimits {
		s.Rlimits = append(s.Rlimits, containerd.Rlimit{Type: u.Name, Soft: u.Soft, Hard: u.Hard})
	}
	if ni := tc.NetworkIsolation; ni != nil && ni.Mode == drivers.NetIsolationModeGroup {
		s.NetNS = ni.Path
		if s.Hostname == "" && ni.HostsConfig != nil {
			s.Hostname = ni.HostsConfig.Hostname
		}
	}
	return s
}

// resumeEnv are the variables that training code finds.
func resumeEnv(c *config.Checkpoint, restored *api.Checkpoint) map[string]string {
	env := map[string]string{
		api.EnvCheckpointDir: c.Dir,
		api.EnvSocket:        path.Join(socketMount, path.Base(taskSocket(""))),
	}
	if restored != nil {
		env[api.EnvResumeStep] = fmt.Sprint(restored.Step)
		env[api.EnvResumePath] = path.Join(c.Dir, restored.Path)
	}
	return env
}
