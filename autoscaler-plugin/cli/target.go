package cli

import "github.com/spf13/cobra"

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
		RunE: func(cmd *cobra.Command, _ []string) error { return p.ServeTarget(cmd.Context()) },
	}
}
