// Command bench measures the checkpoint repository on series of real checkpoints, beside the tools that people use
// instead: restic, borg, kopia, rclone and zstd, as far as they are installed. It runs the built binaries, saves and
// restores with all of them in turn, compares what was restored byte by byte, and prints tables and the goals.
//
// It judges sizes and ratios. Times depend on the machine and its other work: they are printed as medians, and compared
// only with what was measured beside them.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	cancel()
	if err != nil {
		fmt.Fprintf(os.Stderr, "bench: %v\n", err)
		os.Exit(1)
	}
}
