package containerd

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	v1 "github.com/containerd/cgroups/v3/cgroup1/stats"
	v2 "github.com/containerd/cgroups/v3/cgroup2/stats"
	"github.com/containerd/typeurl/v2"
	"golang.org/x/sys/unix"
)

// Usage is what a container has used so far. Times are in nanoseconds, sizes in bytes.
type Usage struct {
	At time.Time

	CPUTotalNS       uint64
	CPUUserNS        uint64
	CPUSystemNS      uint64
	ThrottledPeriods uint64
	ThrottledNS      uint64

	Memory map[MemoryField]uint64 // those that were measured
}

// MemoryField is a figure of memory, named as Nomad names it.
type MemoryField string

// Figures of memory.
const (
	MemoryRSS            MemoryField = "RSS"
	MemoryCache          MemoryField = "Cache"
	MemorySwap           MemoryField = "Swap"
	MemoryMapped         MemoryField = "Mapped File"
	MemoryUsage          MemoryField = "Usage"
	MemoryMaxUsage       MemoryField = "Max Usage"
	MemoryKernelUsage    MemoryField = "Kernel Usage"
	MemoryKernelMaxUsage MemoryField = "Kernel Max Usage"
)

// Stats reads the container's figures from its cgroup.
func (c *Client) Stats(ctx context.Context, id string) (Usage, error) {
	task, err := c.task(ctx, id)
	if err != nil {
		return Usage{}, err
	}
	m, err := task.Metrics(ctx)
	if err != nil {
		return Usage{}, fmt.Errorf("read metrics of container %s: %w", id, err)
	}
	data, err := typeurl.UnmarshalAny(m.Data)
	if err != nil {
		return Usage{}, fmt.Errorf("decode metrics of container %s: %w", id, err)
	}
	return usageOf(data, m.Timestamp.AsTime())
}

func usageOf(data any, at time.Time) (Usage, error) {
	switch m := data.(type) {
	case *v1.Metrics:
		return usageV1(m, at), nil
	case *v2.Metrics:
		return usageV2(m, at), nil
	default:
		return Usage{}, fmt.Errorf("decode metrics: unknown type %T", data)
	}
}

func usageV1(m *v1.Metrics, at time.Time) Usage {
	u := Usage{At: at, Memory: map[MemoryField]uint64{}}
	if c := m.GetCPU(); c != nil {
		u.CPUTotalNS, u.CPUUserNS, u.CPUSystemNS = c.GetUsage().GetTotal(), c.GetUsage().GetUser(), c.GetUsage().GetKernel()
		u.ThrottledPeriods, u.ThrottledNS = c.GetThrottling().GetThrottledPeriods(), c.GetThrottling().GetThrottledTime()
	}
	if mem := m.GetMemory(); mem != nil {
		u.Memory[MemoryRSS] = mem.GetRSS()
		u.Memory[MemoryCache] = mem.GetCache()
		u.Memory[MemoryMapped] = mem.GetMappedFile()
		if e := mem.GetUsage(); e != nil {
			u.Memory[MemoryUsage], u.Memory[MemoryMaxUsage] = e.GetUsage(), e.GetMax()
		}
		if e := mem.GetKernel(); e != nil {
			u.Memory[MemoryKernelUsage], u.Memory[MemoryKernelMaxUsage] = e.GetUsage(), e.GetMax()
		}
		// memory.memsw counts memory and swap together.
		if e := mem.GetSwap(); e != nil && e.GetUsage() >= mem.GetUsage().GetUsage() {
			u.Memory[MemorySwap] = e.GetUsage() - mem.GetUsage().GetUsage()
		}
	}
	return u
}

func usageV2(m *v2.Metrics, at time.Time) Usage {
	const us = 1000 // cpu.stat is in microseconds
	u := Usage{At: at, Memory: map[MemoryField]uint64{}}
	if c := m.GetCPU(); c != nil {
		u.CPUTotalNS, u.CPUUserNS, u.CPUSystemNS = c.GetUsageUsec()*us, c.GetUserUsec()*us, c.GetSystemUsec()*us
		u.ThrottledPeriods, u.ThrottledNS = c.GetNrThrottled(), c.GetThrottledUsec()*us
	}
	if mem := m.GetMemory(); mem != nil {
		u.Memory[MemoryRSS] = mem.GetAnon()
		u.Memory[MemoryCache] = mem.GetFile()
		u.Memory[MemoryMapped] = mem.GetFileMapped()
		u.Memory[MemorySwap] = mem.GetSwapUsage()
		u.Memory[MemoryUsage] = mem.GetUsage()
		u.Memory[MemoryKernelUsage] = mem.GetKernelStack() + mem.GetSlab()
		if p := mem.GetMaxUsage(); p > 0 { // memory.peak, from Linux 5.19 on
			u.Memory[MemoryMaxUsage] = p
		}
	}
	return u
}

// cgroupRoot is where the kernel shows its cgroups.
const cgroupRoot = "/sys/fs/cgroup"

// UnifiedCgroups says whether this machine has cgroup v2 only.
func UnifiedCgroups() bool {
	var st unix.Statfs_t
	return unix.Statfs(cgroupRoot, &st) == nil && st.Type == unix.CGROUP2_SUPER_MAGIC
}

// OOMKills counts the processes of a cgroup that the kernel killed for want of memory. The cgroup exists until the
// container's process is removed, so this also works after its end.
func OOMKills(cgroupPath string) (uint64, error) {
	file := filepath.Join(cgroupRoot, "memory", cgroupPath, "memory.oom_control")
	if UnifiedCgroups() {
		file = filepath.Join(cgroupRoot, cgroupPath, "memory.events")
	}
	f, err := os.Open(file)
	if err != nil {
		return 0, fmt.Errorf("read kills for want of memory: %w", err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if n, ok := strings.CutPrefix(lines.Text(), "oom_kill "); ok {
			return strconv.ParseUint(strings.TrimSpace(n), 10, 64)
		}
	}
	return 0, lines.Err()
}
