package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"nomad-spotter/autoscaler-plugin/forecast"
	"nomad-spotter/autoscaler-plugin/market"
)

func forecastPrices() *cobra.Command {
	var path, horizon, kind, zone string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "forecast --prices FILE [--horizon LIST] [--type TYPE] [--zone ZONE] [--json]",
		Short: "Forecast spot prices, with the model chosen for each and why",
		Long: `forecast says what each offering's price will be some time after the end of a file of prices, as quantiles, with the
model that did best on it so far and the record that says so; where no model beats persistence it says that. All series of
the file teach the models, whichever are printed. A lasting change in the moves of the last week is printed as a warning.

Prices are in $/h. Moves is the chance that the price is another one then. The 90 % interval is calibrated apart from the
quantiles, by how often past ones were missed: where a price mostly stands still it can be narrower than q05 to q95.

Exit codes: 0 done, 1 the file has faults or cannot be read, 2 wrong usage.`,
		Example: `  spotter forecast --prices aws.csv.gz --horizon 1h,24h --type p3.2xlarge
  spotter forecast --prices aws.csv.gz --horizon 24h --zone us-west-2a --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			horizons, err := parseHorizons(horizon)
			if err != nil {
				return err
			}
			if path == "" {
				return usageError{fmt.Errorf("--prices: missing; name a file of prices")}
			}
			prices, err := readPrices(path)
			if err != nil {
				return err
			}
			wanted := func(k market.Key) bool {
				return (kind == "" || k.Type == kind) && (zone == "" || k.Zone == zone || k.Region == zone)
			}
			if !slices.ContainsFunc(prices.Spot, func(s market.Series) bool { return wanted(s.Key) }) {
				return nothingWanted(prices.Spot, kind, zone)
			}
			all, err := forecast.Predict(prices.Spot, horizons)
			if err != nil {
				return err
			}
			all = slices.DeleteFunc(all, func(p forecast.Prediction) bool { return !wanted(p.Key) })
			if len(all) == 0 {
				return fmt.Errorf("%s: the offerings asked for have no price at the end of the file; give a newer one", path)
			}
			if asJSON {
				return writeJSON(cmd.OutOrStdout(), struct {
					Levels    []float64             `json:"levels"`
					Forecasts []forecast.Prediction `json:"forecasts"`
				}{forecast.Levels[:], all})
			}
			return printForecasts(cmd.OutOrStdout(), all)
		},
	}
	cmd.Flags().StringVar(&path, "prices", "", "file of prices: CSV or the JSON of DescribeSpotPriceHistory, also with gzip")
	cmd.Flags().StringVar(&horizon, "horizon", "1h,24h", "how far ahead, parted by commas")
	cmd.Flags().StringVar(&kind, "type", "", "only this instance type")
	cmd.Flags().StringVar(&zone, "zone", "", "only this zone, or the zones of this region")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON instead of a table")
	return cmd
}

func nothingWanted(series []market.Series, kind, zone string) error {
	types, zones := map[string]bool{}, map[string]bool{}
	for _, s := range series {
		types[s.Key.Type] = true
		if s.Key.Zone != "" {
			zones[s.Key.Zone] = true
		} else {
			zones[s.Key.Region] = true
		}
	}
	return usageError{fmt.Errorf("--type %q --zone %q: no such offering in the file; it has the types %s in %s",
		kind, zone, names(types), names(zones))}
}

func names(set map[string]bool) string {
	list := make([]string, 0, len(set))
	for s := range set {
		list = append(list, s)
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}

func printForecasts(w io.Writer, all []forecast.Prediction) error {
	err := table(w, func(w io.Writer) {
		_, _ = fmt.Fprintln(w, "offering\tfrom\tprice\tahead\tq05\tq25\tq50\tq75\tq95\t90 %\tmoves\tmodel\twhy")
		for _, p := range all {
			q := p.Quantiles
			_, _ = fmt.Fprintf(w, "%s\t%s\t%.4f\t%gh\t%.4f\t%.4f\t%.4f\t%.4f\t%.4f\t%.4f-%.4f\t%.2f\t%s\t%s\n",
				p.Key, p.At.Format(time.RFC3339), p.Price, p.Horizon, q[0], q[4], q[9], q[14], q[18], p.Low, p.High, p.ChanceMove,
				p.Model, p.Why)
		}
	})
	if err != nil {
		return err
	}
	warned := map[market.Key]bool{}
	for _, p := range all {
		for _, s := range p.Shifts {
			if !warned[p.Key] {
				_, err = fmt.Fprintf(w, "warning: %s changed its regime: %s, noticed %s; its past says less about what comes\n",
					p.Key, s.Kind, s.At.Format(time.RFC3339))
			}
		}
		warned[p.Key] = true
	}
	return err
}
