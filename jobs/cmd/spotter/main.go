// Command spotter is what people type: what training on spot costs, when it is done, and what would happen on recorded
// markets.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"nomad-spotter/jobs/cli"
)

// version is set by the linker.
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	code := cli.Main(ctx, version, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
