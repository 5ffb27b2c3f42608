package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"nomad-spotter/autoscaler-plugin/cloud"
	"nomad-spotter/autoscaler-plugin/pool"
)

func (p Program) status() *cobra.Command {
	var flags poolFlags
	var asJSON, all bool
	cmd := &cobra.Command{
		Use:   "status --pool FILE",
		Short: "Show a pool's instances, hours and cost",
		Long: `Show a pool's desired count, its instances, and the hours and cost of all of them, ended ones included. The figures
come from the providers' records; the command needs no running plugin and changes nothing in the pool.

Exit codes: 0 shown, 1 the pool file, the state or a provider could not be read, 2 wrong usage.`,
		Example: "  " + Name + " status --pool /etc/spotter/pool.hcl\n  " + Name + " status --pool /etc/spotter/pool.hcl --json | jq .cost_usd",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			target, err := flags.load(p)
			if err != nil {
				return err
			}
			now := time.Now()
			report, err := target.Status(cmd.Context(), now)
			if err != nil {
				return fmt.Errorf("status of pool %q: %w", target.Name, err)
			}
			if asJSON {
				enc := json.NewEncoder(p.Stdout)
				enc.SetIndent("", "  ")
				return enc.Encode(report)
			}
			return printReport(p.Stdout, report, now, all)
		},
	}
	flags.add(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, ended instances included")
	cmd.Flags().BoolVar(&all, "all", false, "list ended instances in the table too")
	return cmd
}

// printReport writes a report for people.
func printReport(w io.Writer, r pool.Report, now time.Time, all bool) error {
	desired := "no desired count yet"
	if r.Desired != nil {
		desired = fmt.Sprintf("%d desired", *r.Desired)
	}
	live := 0
	for _, i := range r.Instances {
		if i.State != cloud.Gone {
			live++
		}
	}
	var out strings.Builder
	fmt.Fprintf(&out, "Pool %s: %s, %d live, %d ended\n\n", r.Pool, desired, live, len(r.Instances)-live)
	table := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "INSTANCE\tOFFERING\tKIND\tREGION\tUSD/H\tSTATE\tHOURS\tUSD\tNOTE")
	for _, i := range r.Instances {
		if i.State == cloud.Gone && !all {
			continue
		}
		note := i.Reason
		if i.State == cloud.Noticed {
			note = fmt.Sprintf("ends in %v: %s", i.Deadline.Sub(now).Round(time.Second), note)
		}
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%.4g\t%s\t%.3f\t%.4f\t%s\n",
			i.ID, i.Offering, i.Kind, i.Region, i.PriceUSDPerHour, i.State, i.Hours, i.CostUSD, note)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(&out, "\nNode-hours: %.3f spot, %.3f on-demand. Cost: %.4f USD; all on demand: %.4f USD",
		r.NodeHours[string(cloud.Spot)], r.NodeHours[string(cloud.OnDemand)], r.CostUSD, r.OnDemandCostUSD)
	if r.OnDemandCostUSD > 0 {
		fmt.Fprintf(&out, "; saved: %.1f %%", 100*(1-r.CostUSD/r.OnDemandCostUSD))
	}
	out.WriteString(".\n")
	_, err := io.WriteString(w, out.String())
	return err
}
