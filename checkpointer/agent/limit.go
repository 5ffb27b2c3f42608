package agent

import (
	"cmp"
	"runtime"
	"runtime/debug"

	"nomad-spotter/checkpointer/api"
)

// What an agent takes from its node at most.
const (
	defaultCPUs   = 1
	defaultMemory = 512 << 20 // bytes
	// minMemory is what a publication needs at the least, in bytes: three packs of 32 MiB, of which two are on their way;
	// 64 MiB of the store's packs, where a block is coded against what is no longer on this machine; the blocks at work; the
	// indexes of the snapshot before; and the program itself.
	minMemory = 256 << 20
	// copyMemory is what a copy to a replica takes besides, in bytes: three packs.
	copyMemory = 128 << 20
	// program is the part of an agent's memory that Go's limit does not know of, in bytes: the program's own pages.
	program = 48 << 20
	// restoreCPUs bounds the cores of a restore. The task waits for it and does not run yet, so that it may have more.
	restoreCPUs = 16
)

func cpus(c api.AgentConfig) int { return min(cmp.Or(c.MaxCPUs, defaultCPUs), runtime.NumCPU()) }

// needed is the least memory that an agent can work with, in bytes.
func needed(c api.AgentConfig) int64 {
	if c.Replicas > 0 {
		return minMemory + copyMemory
	}
	return minMemory
}

// restoring is how many cores a restore may use.
func restoring(c api.AgentConfig) int { return max(cpus(c), min(runtime.NumCPU(), restoreCPUs)) }

// bound keeps this process within its share of the node, and returns what undoes it. How many threads compute at once is
// bounded; a thread that waits for the disk or the network is not counted.
func bound(c api.AgentConfig) (undo func()) {
	procs := runtime.GOMAXPROCS(cpus(c))
	memory := debug.SetMemoryLimit(cmp.Or(c.MaxMemoryBytes, defaultMemory) - program)
	return func() {
		runtime.GOMAXPROCS(procs)
		debug.SetMemoryLimit(memory)
	}
}
