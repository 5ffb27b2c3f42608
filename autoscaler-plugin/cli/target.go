package cli

import (
	"context"
	"os"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad-autoscaler/plugins"
	"github.com/spf13/cobra"

	"nomad-spotter/autoscaler-plugin/pool"
	"nomad-spotter/autoscaler-plugin/target"
)

// orphanPoll is how often the plugin looks whether nomad-autoscaler still lives.
const orphanPoll = 500 * time.Millisecond

func (p Program) target() *cobra.Command {
	return &cobra.Command{
		Use:   "target",
		Short: "Serve the target plugin (started by nomad-autoscaler)",
		Long: `Serve the target plugin "spotter-pool". nomad-autoscaler starts it from its own configuration:

  target "spotter-pool" {
    driver = "nomad-autoscaler-spotter"
    args   = ["target"]
    config = { pool_file = "/etc/spotter/pool.hcl" }
  }`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p.serveTarget(cmd.Context())
			return nil
		},
	}
}

// serveTarget serves the plugin until nomad-autoscaler ends it. If that dies without doing so, or a signal comes, the
// process ends by itself: two plugins must not run one pool, and nobody would ever stop the first.
func (p Program) serveTarget(ctx context.Context) {
	parent := os.Getppid()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	load := func(path string) ([]pool.Pool, error) { return pool.Load(path, p.Openers) }
	var plugin *target.Plugin
	plugins.Serve(func(log hclog.Logger) any {
		plugin = target.New(ctx, Name, load, log)
		go func() { // lives as long as the process
			watchParent(ctx, parent)
			plugin.Close()
			os.Exit(exitOK)
		}()
		return plugin
	})
	plugin.Close() // told to end: leave the lease to a successor
}

// watchParent returns when the parent has died or the context ends.
func watchParent(ctx context.Context, parent int) {
	ticker := time.NewTicker(orphanPoll)
	defer ticker.Stop()
	for os.Getppid() == parent {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}
