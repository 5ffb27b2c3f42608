package cli

import (
	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"nomad-spotter/checkpointer/agent"
)

func agentCommand(l *line) *cobra.Command {
	var file string
	c := &cobra.Command{
		Use:     "agent",
		Short:   "Run the checkpoint agent of one task",
		Example: "  checkpointer agent --config /etc/spotter/agent.json",
		Args:    l.noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file == "" {
				l.fault("--config is missing: name the agent's configuration file")
			}
			if err := l.err(); err != nil {
				return err
			}
			conf, err := agent.LoadConfig(file)
			if err != nil {
				return err
			}
			log := hclog.New(&hclog.LoggerOptions{
				Name: "checkpoint-agent", Level: hclog.LevelFromString(conf.LogLevel), JSONFormat: true, Output: cmd.ErrOrStderr(),
			})
			return agent.Run(cmd.Context(), conf, log)
		},
	}
	c.Flags().StringVar(&file, "config", "", "configuration file (JSON)")
	return c
}
