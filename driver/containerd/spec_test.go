package containerd

import (
	"slices"
	"testing"
	"time"

	v1 "github.com/containerd/cgroups/v3/cgroup1/stats"
	v2 "github.com/containerd/cgroups/v3/cgroup2/stats"
	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/shoenig/test/must"
)

func build(t *testing.T, edit func(*Spec)) *specs.Spec {
	t.Helper()
	s := Spec{ID: "c", Args: []string{"/train"}, CgroupPath: "/spotter/c", Caps: []string{"KILL", "CHOWN"}}
	if edit != nil {
		edit(&s)
	}
	out, err := Build(s)
	must.NoError(t, err)
	return out
}

func mountAt(s *specs.Spec, target string) *specs.Mount {
	for i := range s.Mounts {
		if s.Mounts[i].Destination == target {
			return &s.Mounts[i]
		}
	}
	return nil
}

func namespaceOf(s *specs.Spec, kind specs.LinuxNamespaceType) *specs.LinuxNamespace {
	for i := range s.Linux.Namespaces {
		if s.Linux.Namespaces[i].Type == kind {
			return &s.Linux.Namespaces[i]
		}
	}
	return nil
}

func TestBuildDefaults(t *testing.T) {
	s := build(t, nil)
	must.Eq(t, []string{"/train"}, s.Process.Args)
	must.Eq(t, "/", s.Process.Cwd)
	must.True(t, s.Process.NoNewPrivileges)
	must.Eq(t, []string{"CAP_CHOWN", "CAP_KILL"}, s.Process.Capabilities.Bounding)
	must.SliceEmpty(t, s.Process.Capabilities.Inheritable)
	must.Eq(t, "/spotter/c", s.Linux.CgroupsPath)
	must.Nil(t, namespaceOf(s, specs.NetworkNamespace), must.Sprint("the host's network"))
	must.Nil(t, namespaceOf(s, specs.UTSNamespace), must.Sprint("the host's name"))
	must.NotNil(t, namespaceOf(s, specs.PIDNamespace))
	must.Nil(t, mountAt(s, "/run"), must.Sprint("the image's own"))
	must.NotNil(t, mountAt(s, "/sys/fs/cgroup"))
	must.Nil(t, s.Linux.Seccomp)
	must.Nil(t, s.Linux.Resources.Memory.Limit)
	must.SliceNotEmpty(t, s.Linux.MaskedPaths)
	must.Eq(t, "rwm", s.Linux.Resources.Devices[0].Access)
	must.False(t, s.Linux.Resources.Devices[0].Allow)
}

func TestBuildNothingToRun(t *testing.T) {
	_, err := Build(Spec{ID: "c"})
	must.ErrorContains(t, err, "nothing to run")
}

func TestBuildNetworkNamespace(t *testing.T) {
	s := build(t, func(s *Spec) { s.NetNS, s.Hostname = "/run/netns/x", "h" })
	must.Eq(t, "/run/netns/x", namespaceOf(s, specs.NetworkNamespace).Path)
	must.NotNil(t, namespaceOf(s, specs.UTSNamespace))
	must.Eq(t, "h", s.Hostname)
	must.NotNil(t, namespaceOf(build(t, func(s *Spec) { s.Hostname = "h" }), specs.UTSNamespace))
}

func TestBuildResources(t *testing.T) {
	const mib = 1 << 20
	cases := map[string]struct {
		in   Resources
		want func(*testing.T, *specs.LinuxResources)
	}{
		"hard": {Resources{MemoryHardBytes: mib, LimitSwap: true}, func(t *testing.T, r *specs.LinuxResources) {
			must.Eq(t, mib, *r.Memory.Limit)
			must.Eq(t, mib, *r.Memory.Swap)
			must.Nil(t, r.Memory.Reservation)
		}},
		"no swap accounting": {Resources{MemoryHardBytes: mib}, func(t *testing.T, r *specs.LinuxResources) {
			must.Nil(t, r.Memory.Swap)
		}},
		"soft and hard": {Resources{MemoryHardBytes: 2 * mib, MemorySoftBytes: mib}, func(t *testing.T, r *specs.LinuxResources) {
			must.Eq(t, 2*mib, *r.Memory.Limit)
			must.Eq(t, mib, *r.Memory.Reservation)
		}},
		"soft only": {Resources{MemorySoftBytes: mib}, func(t *testing.T, r *specs.LinuxResources) {
			must.Nil(t, r.Memory.Limit)
			must.Eq(t, mib, *r.Memory.Reservation)
		}},
		"shares": {Resources{CPUShares: 100}, func(t *testing.T, r *specs.LinuxResources) { must.Eq(t, 100, *r.CPU.Shares) }},
		"least shares": {Resources{CPUShares: 1}, func(t *testing.T, r *specs.LinuxResources) {
			must.Eq(t, 2, *r.CPU.Shares)
		}},
		"most shares": {Resources{CPUShares: 262145}, func(t *testing.T, r *specs.LinuxResources) {
			must.Eq(t, 262144, *r.CPU.Shares)
		}},
		"cpus": {Resources{CPUs: "0,2"}, func(t *testing.T, r *specs.LinuxResources) { must.Eq(t, "0,2", r.CPU.Cpus) }},
		"quota": {Resources{CPUQuota: 5000, CPUPeriod: 100000}, func(t *testing.T, r *specs.LinuxResources) {
			must.Eq(t, 5000, *r.CPU.Quota)
			must.Eq(t, 100000, *r.CPU.Period)
		}},
		"pids": {Resources{Pids: 7}, func(t *testing.T, r *specs.LinuxResources) { must.Eq(t, 7, *r.Pids.Limit) }},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			c.want(t, build(t, func(s *Spec) { s.Resources = c.in }).Linux.Resources)
		})
	}
}

func TestBuildMounts(t *testing.T) {
	s := build(t, func(s *Spec) {
		s.ShmSizeBytes = 4096
		s.Mounts = []Mount{
			{Source: "/h/deep", Target: "/data/deep"},
			{Source: "/h/data", Target: "/data", Readonly: true, Options: []string{"noexec"}},
			{Target: "/scratch", Options: []string{"size=1m"}},
			{Source: "/h/slave", Target: "/slave", Propagation: "host-to-task"},
			{Source: "/h/shared", Target: "/shared", Propagation: "bidirectional"},
		}
	})
	must.Eq(t, []string{"rbind", "rprivate", "ro", "noexec"}, mountAt(s, "/data").Options)
	must.Eq(t, []string{"nosuid", "nodev", "size=1m"}, mountAt(s, "/scratch").Options)
	must.Eq(t, "tmpfs", mountAt(s, "/scratch").Type)
	must.SliceContains(t, mountAt(s, "/slave").Options, "rslave")
	must.SliceContains(t, mountAt(s, "/shared").Options, "rshared")
	must.SliceContains(t, mountAt(s, "/dev/shm").Options, "size=4096")
	must.SliceNotContains(t, mountAt(s, "/dev/shm").Options, "size=65536k")
	at := func(target string) int {
		return slices.IndexFunc(s.Mounts, func(m specs.Mount) bool { return m.Destination == target })
	}
	must.Less(t, at("/data/deep"), at("/data"), must.Sprint("/data would hide what is mounted below it"))
}

func TestBuildSecurity(t *testing.T) {
	s := build(t, func(s *Spec) { s.Seccomp = true })
	must.NotNil(t, s.Linux.Seccomp)
	s = build(t, func(s *Spec) { s.Seccomp, s.Privileged = true, true })
	must.Nil(t, s.Linux.Seccomp)
	must.False(t, s.Process.NoNewPrivileges)
	must.SliceEmpty(t, s.Linux.MaskedPaths)
}

func TestBuildDevices(t *testing.T) {
	s := build(t, func(s *Spec) { s.Devices = []Device{{Host: "/dev/null", Target: "/dev/gpu0", Permissions: "r"}} })
	must.True(t, slices.ContainsFunc(s.Linux.Devices, func(d specs.LinuxDevice) bool { return d.Path == "/dev/gpu0" && d.Major == 1 && d.Minor == 3 }))
	_, err := Build(Spec{ID: "c", Args: []string{"x"}, Devices: []Device{{Host: "/dev/no-such-device"}}})
	must.ErrorContains(t, err, "no-such-device")
}

func TestMergeEnv(t *testing.T) {
	must.Eq(t, []string{"A=2", "B=1", "C=3"}, MergeEnv(map[string]string{"A": "1", "B": "1"}, map[string]string{"A": "2"}, map[string]string{"C": "3"}))
}

func TestUsage(t *testing.T) {
	at := time.Unix(1, 0)
	got, err := usageOf(&v1.Metrics{
		CPU:    &v1.CPUStat{Usage: &v1.CPUUsage{Total: 10, User: 6, Kernel: 4}, Throttling: &v1.Throttle{ThrottledPeriods: 2, ThrottledTime: 3}},
		Memory: &v1.MemoryStat{RSS: 1, Cache: 2, MappedFile: 3, Usage: &v1.MemoryEntry{Usage: 100, Max: 200}, Swap: &v1.MemoryEntry{Usage: 130}, Kernel: &v1.MemoryEntry{Usage: 5, Max: 6}},
	}, at)
	must.NoError(t, err)
	must.Eq(t, Usage{
		At: at, CPUTotalNS: 10, CPUUserNS: 6, CPUSystemNS: 4, ThrottledPeriods: 2, ThrottledNS: 3,
		Memory: map[MemoryField]uint64{
			MemoryRSS: 1, MemoryCache: 2, MemoryMapped: 3, MemoryUsage: 100, MemoryMaxUsage: 200, MemorySwap: 30, MemoryKernelUsage: 5, MemoryKernelMaxUsage: 6,
		},
	}, got)

	// Version 2 counts in microseconds.
	got, err = usageOf(&v2.Metrics{
		CPU:    &v2.CPUStat{UsageUsec: 10, UserUsec: 6, SystemUsec: 4, NrThrottled: 2, ThrottledUsec: 3},
		Memory: &v2.MemoryStat{Anon: 1, File: 2, FileMapped: 3, Usage: 100, SwapUsage: 30, KernelStack: 2, Slab: 3},
	}, at)
	must.NoError(t, err)
	must.Eq(t, Usage{
		At: at, CPUTotalNS: 10_000, CPUUserNS: 6_000, CPUSystemNS: 4_000, ThrottledPeriods: 2, ThrottledNS: 3_000,
		Memory: map[MemoryField]uint64{
			MemoryRSS: 1, MemoryCache: 2, MemoryMapped: 3, MemoryUsage: 100, MemorySwap: 30, MemoryKernelUsage: 5,
		},
	}, got)

	_, err = usageOf(struct{}{}, at)
	must.ErrorContains(t, err, "unknown type")
}

func TestBytes(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 999: "999 B", 1000: "1.0 kB", 3_200_000: "3.2 MB", 8_000_000_000: "8.0 GB"} {
		must.Eq(t, want, Bytes(n))
	}
}
