package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"nomad-spotter/autoscaler-plugin/pool"
)

func (p Program) plan() *cobra.Command {
	var flags poolFlags
	var asJSON bool
	var count int
	cmd := &cobra.Command{
		Use:   "plan --pool FILE",
		Short: "Show what a pool would do now, and why",
		Long: `Show what every offering of a pool costs and risks at the moment, and what the pool would launch, drain and end, with
reasons. The command needs no running plugin and changes nothing. What only a running plugin remembers, such as refused
launches and prices of the past, it does not know.

Exit codes: 0 shown, 1 the pool file, the state, a provider or Nomad could not be read, 2 wrong usage.`,
		Example: "  " + Name + " plan --pool /etc/spotter/pool.hcl\n  " + Name + " plan --pool /etc/spotter/pool.hcl --count 8",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var desired *int
			if cmd.Flags().Changed("count") {
				if count < 0 || count > pool.MostNodes {
					return usageError{fmt.Errorf("--count: %d is outside 0 to %d; give the size that the pool is to have", count, pool.MostNodes)}
				}
				desired = &count
			}
			target, err := flags.load(p)
			if err != nil {
				return err
			}
			plan, err := target.Plan(cmd.Context(), desired, time.Now())
			if err != nil {
				return fmt.Errorf("plan of pool %q: %w", target.Name, err)
			}
			if asJSON {
				enc := json.NewEncoder(p.Stdout)
				enc.SetIndent("", "  ")
				return enc.Encode(plan)
			}
			return printPlan(p.Stdout, plan)
		},
	}
	flags.add(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().IntVar(&count, "count", 0, "plan for so many nodes instead of the desired count")
	return cmd
}

// printPlan writes a plan for people.
func printPlan(w io.Writer, plan pool.Plan) error {
	var out strings.Builder
	fmt.Fprintf(&out, "Pool %s: %d desired\n\n", plan.Pool, plan.Desired)
	table := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "OFFERING\tKIND\tZONE\tUSD/H\tMAX USD/H\tINTERRUPTIONS/H\tCOUNTS AS USD/H\tNOTE")
	for _, o := range plan.Offerings {
		maximum := "none"
		if o.MaxPriceUSDPerHour > 0 {
			maximum = fmt.Sprintf("%.4g", o.MaxPriceUSDPerHour)
		}
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%.4g\t%s\t%.3g\t%.4g\t%s\n",
			o.Offering, o.Kind, o.Zone, o.PriceUSDPerHour, maximum, o.HazardPerHour, o.EffectiveUSDPerHour, o.Unusable)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	out.WriteString("\n")
	for _, a := range plan.Actions {
		what := a.Instance
		if what == "" {
			what = a.Offering
		}
		fmt.Fprintf(&out, "%s %s: %s\n", a.Verb, what, a.Reason)
	}
	if len(plan.Actions) == 0 {
		out.WriteString("Nothing would be done.\n")
	}
	if plan.Short != "" {
		fmt.Fprintf(&out, "Nodes are missing: %s\n", plan.Short)
	}
	_, err := io.WriteString(w, out.String())
	return err
}
