package taskplugin

import (
	"bufio"
	"context"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	cstructs "github.com/hashicorp/nomad/client/structs"
	"github.com/hashicorp/nomad/plugins/drivers"

	"nomad-spotter/driver/containerd"
	"nomad-spotter/driver/lifecycle"
)

// measuredCPU are the figures of CPU that are measured, as Nomad names them.
var measuredCPU = []string{"System Mode", "User Mode", "Percent", "Total Ticks", "Throttled Periods", "Throttled Time"}

// TaskStats implements drivers.DriverPlugin.
func (d *Driver) TaskStats(ctx context.Context, id string, interval time.Duration) (<-chan *drivers.TaskResourceUsage, error) {
	t, err := d.task(id)
	if err != nil {
		return nil, err
	}
	if interval <= 0 {
		interval = time.Second
	}
	ch := make(chan *drivers.TaskResourceUsage)
	go func() { // ends with ctx, the plugin or the task
		defer close(ch)
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(d.ctx, cancel)()
		d.measure(ctx, t, interval, ch)
	}()
	return ch, nil
}

func (d *Driver) measure(ctx context.Context, t *lifecycle.Task, interval time.Duration, ch chan<- *drivers.TaskResourceUsage) {
	var last *containerd.Usage
	wait := time.NewTimer(0)
	defer wait.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.Exited():
			return
		case <-wait.C:
			wait.Reset(interval)
		}
		cctx, cancel := context.WithTimeout(ctx, callTimeout)
		u, err := t.Stats(cctx)
		cancel()
		if err != nil {
			if !t.Running() || ctx.Err() != nil {
				return
			}
			d.log.Debug("read figures of a task", "error", err)
			continue
		}
		select {
		case ch <- usage(last, u, mhzPerCore()):
		case <-t.Exited():
			return
		case <-ctx.Done():
			return
		}
		last = &u
	}
}

// usage translates the container's figures. Percent is of one core: two busy cores are 200; ticks are MHz.
func usage(last *containerd.Usage, u containerd.Usage, mhz float64) *drivers.TaskResourceUsage {
	cpu := &cstructs.CpuStats{
		ThrottledPeriods: u.ThrottledPeriods,
		ThrottledTime:    u.ThrottledNS,
		Measured:         measuredCPU,
	}
	if last != nil {
		wall := float64(u.At.Sub(last.At).Nanoseconds())
		cpu.Percent = percent(last.CPUTotalNS, u.CPUTotalNS, wall)
		cpu.UserMode = percent(last.CPUUserNS, u.CPUUserNS, wall)
		cpu.SystemMode = percent(last.CPUSystemNS, u.CPUSystemNS, wall)
		cpu.TotalTicks = cpu.Percent / 100 * mhz
	}
	m := u.Memory
	mem := &cstructs.MemoryStats{
		RSS: m[containerd.MemoryRSS], Cache: m[containerd.MemoryCache], Swap: m[containerd.MemorySwap],
		MappedFile: m[containerd.MemoryMapped], Usage: m[containerd.MemoryUsage], MaxUsage: m[containerd.MemoryMaxUsage],
		KernelUsage: m[containerd.MemoryKernelUsage], KernelMaxUsage: m[containerd.MemoryKernelMaxUsage],
	}
	for f := range m {
		mem.Measured = append(mem.Measured, string(f))
	}
	slices.Sort(mem.Measured)
	return &drivers.TaskResourceUsage{
		ResourceUsage: &cstructs.ResourceUsage{MemoryStats: mem, CpuStats: cpu},
		Timestamp:     u.At.UnixNano(),
	}
}

// percent of one core, from two readings in nanoseconds.
func percent(before, after uint64, wallNS float64) float64 {
	if after <= before || wallNS <= 0 {
		return 0
	}
	return float64(after-before) / wallNS * 100
}

// mhzPerCore is the speed by which Nomad counts its CPU shares.
var mhzPerCore = sync.OnceValue(func() float64 {
	if b, err := os.ReadFile("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq"); err == nil {
		if khz, err := strconv.ParseFloat(strings.TrimSpace(string(b)), 64); err == nil && khz > 0 {
			return khz / 1000
		}
	}
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return defaultMHz
	}
	defer f.Close()
	best := 0.0
	for lines := bufio.NewScanner(f); lines.Scan(); {
		name, value, ok := strings.Cut(lines.Text(), ":")
		if !ok || strings.TrimSpace(name) != "cpu MHz" {
			continue
		}
		if mhz, err := strconv.ParseFloat(strings.TrimSpace(value), 64); err == nil {
			best = max(best, mhz)
		}
	}
	if best == 0 {
		return defaultMHz
	}
	return best
})

// defaultMHz is what Nomad takes for a core of unknown speed.
const defaultMHz = 1000.0
