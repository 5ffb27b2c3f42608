// Command checkpointer keeps training checkpoints in a store and brings them back, and runs the checkpoint agent.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"nomad-spotter/checkpointer/cli"
	_ "nomad-spotter/checkpointer/store/azblob" // the stores that URLs can name, besides file
	_ "nomad-spotter/checkpointer/store/cos"
	_ "nomad-spotter/checkpointer/store/gs"
	_ "nomad-spotter/checkpointer/store/oss"
	_ "nomad-spotter/checkpointer/store/s3"
)

// version is set by the linker.
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	code := cli.Main(ctx, version, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
