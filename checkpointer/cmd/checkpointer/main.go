// Command checkpointer saves, restores, lists and verifies checkpoints, and runs the checkpoint agent.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"nomad-spotter/checkpointer/cli"
)

// version is set by the linker.
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	code := cli.Main(ctx, version, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
