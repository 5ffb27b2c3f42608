package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
)

// marketStarter is a provider whose market waits to be started.
type marketStarter interface {
	// StartMarket starts the market's clock; one that runs is left alone, and false is returned with its start.
	StartMarket(ctx context.Context) (started bool, at time.Time, err error)
}

func (p Program) market() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "market",
		Short: "Control the market that a local provider plays",
		Args:  noArgs,
		RunE: func(*cobra.Command, []string) error {
			return usageError{errors.New("market: no command given; known is start")}
		},
	}
	cmd.AddCommand(p.marketStart())
	return cmd
}

func (p Program) marketStart() *cobra.Command {
	var flags poolFlags
	cmd := &cobra.Command{
		Use:   "start --pool FILE",
		Short: "Start a market whose trace_start is \"manual\"",
		Long: `Start the clock of the market of the pool's local provider, so that its traces begin to play. A market that runs is
left alone.

Exit codes: 0 the market runs, 1 it could not be started, 2 wrong usage.`,
		Example: "  " + Name + " market start --pool /etc/spotter/pool.hcl",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			target, err := flags.load(p)
			if err != nil {
				return err
			}
			found := false
			for name, provider := range target.Providers {
				starter, ok := provider.(marketStarter)
				if !ok {
					continue
				}
				found = true
				started, at, err := starter.StartMarket(cmd.Context())
				if err != nil {
					return fmt.Errorf("provider %q: %w", name, err)
				}
				text := "runs since"
				if started {
					text = "starts at"
				}
				_, _ = fmt.Fprintf(p.Stdout, "market of provider %s %s %s\n", name, text, at.Format(time.RFC3339))
			}
			if !found {
				return fmt.Errorf("pool %q has no provider with a market to start", target.Name)
			}
			return nil
		},
	}
	flags.add(cmd)
	return cmd
}
