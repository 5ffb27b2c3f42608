package cli

import (
	"errors"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"
)

// instance is the supervisor of one instance of the local provider; a launch starts it.
func (p Program) instance() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:    "instance --dir DIR",
		Short:  "Supervise one instance of the local provider (started by a launch)",
		Hidden: true,
		Args:   noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if dir == "" {
				return usageError{errors.New("instance: --dir is missing")}
			}
			return p.RunInstance(cmd.Context(), dir, hclog.New(&hclog.LoggerOptions{Name: Name, JSONFormat: true, Output: p.Stderr}))
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "directory of the instance")
	return cmd
}

// init is the first process in an instance's PID namespace; the supervisor starts it.
func (p Program) init() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:    "init --dir DIR",
		Short:  "Run the processes of one instance of the local provider (started by its supervisor)",
		Hidden: true,
		Args:   noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if dir == "" {
				return usageError{errors.New("init: --dir is missing")}
			}
			return p.RunInit(cmd.Context(), dir)
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "directory of the instance")
	return cmd
}
