package cli

import (
	"os"
	"runtime/debug"
)

// A process that ends soon collects its memory seldom: each collection costs time, and memory that the kernel must clear
// anew. $GOGC and $GOMEMLIMIT say otherwise.
const (
	collectPercent = 400
	collectLimit   = 448 << 20 // bytes above which memory is collected all the same; with the program itself 512 MiB
)

func collectSeldom() {
	if os.Getenv("GOGC") == "" && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetGCPercent(collectPercent)
		debug.SetMemoryLimit(collectLimit)
	}
}
