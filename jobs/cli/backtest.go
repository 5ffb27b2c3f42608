package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"nomad-spotter/autoscaler-plugin/forecast"
)

func backtest() *cobra.Command {
	var path, horizon string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "backtest --prices FILE [--horizon LIST] [--json]",
		Short: "Judge the price forecasts by a recorded market",
		Long: `backtest goes through a file of prices, forecasts at every hour (of daily snapshots: at every date) from what was known
then, and judges each forecast by what came. Beside it stands persistence: the last price and the quantiles of the past
changes at that horizon.

The losses are the mean pinball loss over the quantiles .05, .1 … .95 as a share of the on-demand price, in the table in
millionths of it; a group is an instance type in a region. Covered is the share of outcomes within the 90 % interval, when
moved that of the outcomes whose price had moved, moved their share; width is that of the interval as a share of the
on-demand price; by persistence is the share of forecasts that persistence was chosen for. The outcome of a snapshot is at
the date nearest at or before the horizon; dates more than three days off are skipped. Forecasts are judged once one past
change at their horizon is known.

Exit codes: 0 done, 1 the file has faults or cannot be read, 2 wrong usage.`,
		Example: `  spotter backtest --prices aws.csv.gz --horizon 1h,24h
  spotter backtest --prices gcp.csv.gz --horizon 168h,672h --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			horizons, err := parseHorizons(horizon)
			if err != nil {
				return err
			}
			if path == "" {
				return usageError{fmt.Errorf("--prices: missing; name a file of prices")}
			}
			report, err := Backtest(path, horizons, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(cmd.OutOrStdout(), report)
			}
			return table(cmd.OutOrStdout(), func(w io.Writer) {
				_, _ = fmt.Fprintln(w, "group\tpart\thorizon\tn\tpersistence\tspotter\tratio\tcovered\twhen moved\tmoved\twidth\t"+
					"by persistence")
				for _, s := range append(report.Groups, report.Overall...) {
					_, _ = fmt.Fprintln(w, scoreRow(s))
				}
			})
		},
	}
	cmd.Flags().StringVar(&path, "prices", "", "file of prices: CSV or the JSON of DescribeSpotPriceHistory, also with gzip")
	cmd.Flags().StringVar(&horizon, "horizon", "1h,24h", "how far ahead, parted by commas")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON instead of a table")
	return cmd
}

// scoreRow is the row of a score, with the losses in 1e-6 of the on-demand price.
func scoreRow(s forecast.Score) string {
	ratio := "-"
	if s.Persistence > 0 {
		ratio = fmt.Sprintf("%.3f", s.Spotter/s.Persistence)
	}
	return fmt.Sprintf("%s\t%s\t%gh\t%d\t%.2f\t%.2f\t%s\t%.3f\t%.3f\t%.3f\t%.5f\t%.2f", s.Group, s.Part, s.Horizon, s.Windows,
		s.Persistence*1e6, s.Spotter*1e6, ratio, s.Coverage90, s.Coverage90Moved, s.Moved, s.Width90, s.ByPersistence)
}
