package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"nomad-spotter/autoscaler-plugin/bid"
)

func bidsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bids",
		Short: "Learn maximum prices for spot requests, and show what was learned",
		Long: `bids learns a policy of maximum prices from the prices of spot auctions and shows it as a table. A policy says, by the
market's price, the work and the slack that are left, the price of delay and the cost of an interruption, whether to wait,
to take on-demand, or to bid, and how much.`,
		Args: noArgs,
		RunE: noCommand,
	}
	cmd.AddCommand(bidsTrain(), bidsShow())
	return cmd
}

func bidsTrain() *cobra.Command {
	var out string
	var asJSON bool
	t := BidTraining{}
	cmd := &cobra.Command{
		Use:   "train --out FILE [--prices FILE]",
		Short: "Learn a policy and compare it with fixed and forecast bids",
		Long: `train learns a policy from generated auctions, with the statistics of AWS in 2015 and 2016, or from a file of recorded
prices, of which it sets the last third aside. It prints how the policy does on prices that it learned from (in sample) and
on others (held out), beside bids that are capped at on-demand, quantiles of the forecast price, and fixed fractions of the
on-demand price, each with the parameters that are best on these very jobs, at the same mean finish.

Where a bid changes nothing, as on all prices since providers smooth them, it says so and writes nothing.

Exit codes: 0 the policy is written, 1 it is not, 2 wrong usage.`,
		Example: `  spotter bids train --out bids.json --seed 1
  spotter bids train --out bids.json --prices history.json --on-demand g2.2xlarge=0.65`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if out == "" {
				return usageError{errors.New("--out: missing; name the file that the policy is to be written to")}
			}
			if err := t.validate(); err != nil {
				return usageError{err}
			}
			if err := checkOutput("--out", out); err != nil { // told before minutes of learning, not after
				return err
			}
			policy, err := TrainBids(cmd.Context(), t, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			if err := writePolicy(out, policy); err != nil {
				return err
			}
			if asJSON {
				return writeJSON(cmd.OutOrStdout(), policy.Training)
			}
			return printTraining(cmd.OutOrStdout(), policy.Training)
		},
	}
	f := cmd.Flags()
	f.StringVar(&out, "out", "", "file to write the policy to")
	f.StringVar(&t.Prices, "prices", "", "file of recorded prices to learn from; empty: generated auctions")
	f.Var(&t.OnDemand, "on-demand", "on-demand prices in $/h by instance type, such as g2.2xlarge=0.65, parted by commas")
	f.Uint64Var(&t.Seed, "seed", 1, "of the generated auctions and of the jobs")
	f.IntVar(&t.Episodes, "episodes", 150, "generated auctions to learn from")
	f.IntVar(&t.HeldOut, "held-out", 40, "generated auctions to judge by")
	f.IntVar(&t.Days, "days", 30, "length of a generated auction")
	f.IntVar(&t.Jobs, "jobs", 25, "jobs in each history to judge by")
	f.BoolVar(&asJSON, "json", false, "print JSON instead of a table")
	return cmd
}

// writePolicy writes a policy that can be read again.
func writePolicy(path string, p *bid.Policy) error {
	data, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	if _, err := bid.ParsePolicy(data); err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	return writeWhole("--out", path, func(w io.Writer) error {
		_, err := w.Write(append(data, '\n'))
		return err
	})
}

func printTraining(w io.Writer, t bid.Training) error {
	_, err := fmt.Fprintf(w, "learned from %s: %d histories, %.0f days in all, seed %d\n", t.Source, t.Episodes, t.Days, t.Seed)
	if err != nil {
		return err
	}
	return table(w, func(w io.Writer) {
		_, _ = fmt.Fprintln(w, "\nprices\tbaseline\tat the finish of\tjobs\tmissed\tfinish\tlearned\tbaseline costs\tsaved\t95 % interval")
		for _, part := range []struct {
			name    string
			results []bid.Result
		}{{"in sample", t.InSample}, {"held out", t.HeldOut}} {
			for _, r := range part.results {
				_, _ = fmt.Fprintf(w, "%s\t%s\n", part.name, ResultRow(r))
			}
		}
		_, _ = fmt.Fprintln(w, "\nFinish is in multiples of the work, costs are shares of its on-demand price. Each row compares at one mean finish: that of"+
			"\nthe learned policy at a price of delay, or of the baseline that comes closest to it. While the market is above their bid,"+
			"\nbaselines wait (patient), keep pace on on-demand (paced) or take on-demand at once (eager). Missed are deadlines, by any of them.")
	})
}

// ResultRow is the row of a result, its cells parted by tabs.
func ResultRow(r bid.Result) string {
	return fmt.Sprintf("%s\t%s\t%d\t%d\t%.3f\t%.4f\t%.4f\t%.1f %%\t%.1f to %.1f %%",
		r.Baseline, r.At, r.Jobs, r.Missed, r.Finish, r.Cost, r.Other, 100*r.Saved, 100*r.Low, 100*r.High)
}

func bidsShow() *cobra.Command {
	var work, interruption time.Duration
	var priority string
	var onDemand, asJSON bool
	cmd := &cobra.Command{
		Use:   "show FILE",
		Short: "Show a policy as a table",
		Long: `show prints where a policy comes from and what it does: a row for each range of the market's price, a column for each
slack. A number is a bid, as a multiple of the on-demand price; wait and on-demand are what they say; - stands for a bid
below the price, which waits.`,
		Example: "  spotter bids show bids.json --priority low --work 24h",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError{fmt.Errorf("%s: %d arguments, must be one: the file of a policy", cmd.CommandPath(), len(args))}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			level, err := bid.ParsePriority(priority)
			if err != nil {
				return usageError{fmt.Errorf("--%w", err)}
			}
			if work <= 0 || interruption < 0 {
				return usageError{fmt.Errorf("--work: %v must be above 0, --interruption: %v at least 0", work, interruption)}
			}
			data, err := os.ReadFile(args[0])
			if err != nil {
				return err
			}
			policy, err := bid.ParsePolicy(data)
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			if asJSON {
				return writeJSON(cmd.OutOrStdout(), policy)
			}
			if err := printTraining(cmd.OutOrStdout(), policy.Training); err != nil {
				return err
			}
			return printPolicy(cmd.OutOrStdout(), policy, bid.Situation{
				DelayPrice: level.DelayPrice(), OnDemand: onDemand, Work: work, Changeover: interruption,
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&priority, "priority", "middle", "priority of the job: low, middle or high")
	f.DurationVar(&work, "work", 24*time.Hour, "work that is left")
	f.DurationVar(&interruption, "interruption", 18*time.Minute, "changeover and mean rework of an interruption")
	f.BoolVar(&onDemand, "on-demand", false, "what to do while the job runs on on-demand")
	f.BoolVar(&asJSON, "json", false, "print the file as JSON")
	return cmd
}

// printPolicy prints what a policy does in a situation by price and slack.
func printPolicy(w io.Writer, p *bid.Policy, s bid.Situation) error {
	where := "nowhere"
	if s.OnDemand {
		where = "on on-demand"
	}
	_, err := fmt.Fprintf(w, "\na job that runs %s, with %v of work left; an interruption costs %v,"+
		" an hour of delay %v h of on-demand;\nin each column that much slack is left; prices and bids are in multiples of on-demand\n\n", where, s.Work, s.Changeover, s.DelayPrice)
	if err != nil {
		return err
	}
	return table(w, func(w io.Writer) {
		_, _ = fmt.Fprint(w, "price, by slack")
		for _, slack := range p.Features.SlackHours {
			_, _ = fmt.Fprintf(w, "\t%g h", slack)
		}
		_, _ = fmt.Fprintln(w)
		edges := slices.Clone(p.Features.PriceEdges)
		last := edges[len(edges)-1]
		for i, edge := range append(edges, 2*last) {
			name := fmt.Sprintf("to %g", edge)
			if i == len(edges) {
				name = fmt.Sprintf("above %g", last)
			}
			_, _ = fmt.Fprint(w, name)
			for _, slack := range p.Features.SlackHours {
				s.Price, s.Slack = edge, time.Duration(slack*float64(time.Hour))
				_, _ = fmt.Fprintf(w, "\t%s", actionWord(p.Choose(s), edge))
			}
			_, _ = fmt.Fprintln(w)
		}
	})
}

func actionWord(a bid.Action, price float64) string {
	switch {
	case a.Verb == bid.Wait:
		return "wait"
	case a.Verb == bid.OnDemand:
		return "on-demand"
	case a.Max < price:
		return "-"
	}
	return fmt.Sprintf("%g", a.Max)
}
