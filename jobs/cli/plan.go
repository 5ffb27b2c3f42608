package cli

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"nomad-spotter/autoscaler-plugin/cost"
	"nomad-spotter/autoscaler-plugin/market"
	"nomad-spotter/autoscaler-plugin/simulate"
)

// planFlags are the flags of spotter plan.
type planFlags struct {
	pool, poolName string
	policy         string
	runs           int
	seed           uint64
	json           bool
}

func planCommand() *cobra.Command {
	var f planFlags
	cmd := &cobra.Command{
		Use:   "plan JOBFILE --pool FILE",
		Short: "Say ahead what jobs will cost on a pool and when they will be done",
		Long: `plan runs the jobs of a file on many markets that the pool's offerings might have, and prints the range of the cost and
of the time to the end: 10, 50 and 90 % of the runs lie below. A deadline that cannot be met is told at once, with the
earliest one that can.

What is known of an offering is its price and, where the pool file has it, mean_lifetime; the rest is as on nine recorded
zones of AWS.

Exit codes: 0 done, 1 an input has faults or cannot be read, 2 wrong usage.`,
		Example: `  spotter plan jobs.hcl --pool pool.hcl
  spotter plan jobs.hcl --pool pool.hcl --runs 1000 --json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError{fmt.Errorf("plan: %d arguments; give one file of jobs", len(args))}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd.OutOrStdout(), args[0]) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.pool, "pool", "", "pool file, as the autoscaler reads it")
	flags.StringVar(&f.poolName, "pool-name", "", "which pool of the file (default: its only one)")
	flags.StringVar(&f.policy, "policy", policies[0].name, "how to decide, as in spotter simulate")
	flags.IntVar(&f.runs, "runs", 200, "markets to try")
	flags.Uint64Var(&f.seed, "seed", 1, "of the first market")
	flags.BoolVar(&f.json, "json", false, "print JSON")
	return cmd
}

// Bounds of how long a plan may take.
const (
	maxRuns   = 100_000
	maxPlayed = 1_000_000 // jobs, in all runs together
)

func (f *planFlags) run(w io.Writer, path string) error {
	if f.pool == "" {
		return usageError{errors.New("plan: --pool is missing; give the pool file that the autoscaler reads")}
	}
	if f.runs < 1 || f.runs > maxRuns {
		return usageError{fmt.Errorf("plan: --runs: %d is outside 1 to %d", f.runs, maxRuns)}
	}
	if policyIndex(f.policy) < 0 {
		return usageError{unknownPolicy("plan", f.policy)}
	}
	work, err := readJobs(path)
	faults := []error{err}
	offers, err := readPool(f.pool, f.poolName)
	faults = append(faults, err)
	if len(offers) > 0 {
		for _, spec := range work.specs {
			faults = append(faults, spec.Check(offerings(offers))...)
		}
	}
	if n := len(work.jobs); n > 0 && f.runs > maxPlayed/n {
		faults = append(faults, fmt.Errorf("--runs: %d times %d jobs are more than %d; lower --runs, or the count of jobs", f.runs, n, maxPlayed))
	}
	if err := errors.Join(faults...); err != nil {
		return err
	}
	p, err := f.look(offers, work)
	if err != nil {
		return err
	}
	if f.json {
		return writeJSON(w, p)
	}
	return p.print(w, work)
}

// prospect is what plan prints.
type prospect struct {
	Policy   string `json:"policy"`
	Seed     uint64 `json:"seed"`
	Jobs     int    `json:"jobs"`
	Currency string `json:"currency"`
	simulate.Prospect
}

// look tries the markets that the pool might have.
func (f *planFlags) look(offers []offer, work workload) (prospect, error) {
	list := offerings(offers)
	lifetimes := make([]time.Duration, len(offers))
	for i, o := range offers {
		lifetimes[i] = o.lifetime
	}
	likely := simulate.Likely(list, lifetimes)
	prices := work.prices
	prices.OnDemand = (&scene{offers: offers}).onDemand()
	length := 30 * 24 * time.Hour
	for _, j := range work.jobs {
		length = max(length, j.Arrive+4*max(j.Work, j.Deadline))
	}
	install := policy(f.policy, prices)
	p, err := simulate.Look(f.runs, f.seed, prices, func(seed uint64) (simulate.Config, error) {
		jobs := append(simulate.JobList(nil), work.jobs...)
		c := simulate.Config{Offerings: list, Jobs: &jobs, Seed: seed, Market: market.Merge()}
		if len(likely.Zones) > 0 {
			feed, err := market.NewCapacity(seed, length, likely)
			if err != nil {
				return c, err
			}
			c.Market = feed
		}
		install(&c)
		return c, nil
	})
	return prospect{Policy: f.policy, Seed: f.seed, Jobs: len(work.jobs), Currency: prices.Currency, Prospect: p}, err
}

func (p prospect) print(w io.Writer, work workload) error {
	if _, err := fmt.Fprintf(w, "%d jobs, policy %s, %d markets\n\n", p.Jobs, p.Policy, p.Runs); err != nil {
		return err
	}
	money := func(v float64) string { return cost.Money(v, p.Currency) }
	percent := func(v float64) string { return fmt.Sprintf("%.1f %%", 100*v) }
	err := table(w, func(w io.Writer) {
		fmt.Fprintln(w, "\tP10\tP50\tP90\tON DEMAND")
		row := func(name string, r simulate.Range, f func(float64) string, onDemand string) {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", name, f(r.P10), f(r.P50), f(r.P90), onDemand)
		}
		row("cost", p.Cost, money, money(p.OnDemand))
		row("saved", p.Saved, percent, "")
		row("finish after", p.Hours, minutes, "")
		row("interruptions", p.Interruptions, func(v float64) string { return fmt.Sprintf("%.0f", v) }, "")
		row("hours on demand", p.OnDemandShare, percent, "")
	})
	if err != nil {
		return err
	}
	deadlines := 0
	for _, s := range work.specs {
		if s.Deadline > 0 {
			deadlines++
		}
	}
	text := "no job has a deadline"
	if deadlines > 0 {
		text = fmt.Sprintf("a deadline is missed in %s of the markets", percent(p.Late))
	}
	if p.Unfinished > 0 {
		text += fmt.Sprintf("; jobs are not done when the market ends in %s: give them a deadline, or the pool on-demand", percent(p.Unfinished))
	}
	_, err = fmt.Fprintf(w, "\n%s\n", text)
	return err
}
