package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"nomad-spotter/autoscaler-plugin/allocate"
	"nomad-spotter/autoscaler-plugin/simulate"
)

func multiZoneCommand() *cobra.Command {
	var f experimentFlags
	var starts int
	var seed uint64
	cmd := &cobra.Command{
		Use:   "multi-zone --traces DIR",
		Short: "Run one job over several zones and regions, by the pool's own policy and simpler ones",
		Long: `multi-zone runs one job from random starts over all zones together: a job may move between them, and each move costs the
changeover. Beside the pool's own policy run Uniform Progress in the one zone that is best over all starts, the zone that is
up and had the highest availability so far, a policy like SpotHedge, and the optimum of one who knows the future. Costs are
means, 1 being the job's hours on demand.

Exit codes: 0 done, 1 an input has faults or cannot be read, 2 wrong usage.`,
		Example: "  spotter simulate multi-zone --traces recordings/ --task 24h --deadline 36h,48h --changeover 0.05h,0.2h --starts 100 --seed 1",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if starts < 1 || starts > maxRuns {
				return usageError{fmt.Errorf("--starts: %d is outside 1 to %d", starts, maxRuns)}
			}
			e, zones, err := f.load()
			if err != nil {
				return err
			}
			e.Prior = allocate.Prior2022 // not of the recording with several zones of one type
			possible := e.Feasible(len(zones[0]))
			if possible == 0 {
				return errors.Join(e.Validate(len(zones[0])), fmt.Errorf("--deadline: %v does not fit the traces, which last %v; "+
					"give an earlier deadline or longer traces", slices.Max(e.Deadlines), time.Duration(len(zones[0]))*e.Tick))
			}
			random := rand.New(rand.NewPCG(seed, 0))
			for range starts {
				e.Starts = append(e.Starts, random.IntN(possible))
			}
			if err := e.Validate(len(zones[0])); err != nil {
				return err
			}
			cells, err := runMultiZone(cmd.Context(), e, zones, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			for i := range cells {
				cells[i].Seed = seed
			}
			if f.json {
				return writeJSON(cmd.OutOrStdout(), cells)
			}
			return printMultiZone(cmd.OutOrStdout(), cells)
		},
	}
	f.add(cmd, 24*time.Hour, inHours(36, 48), []time.Duration{3 * time.Minute, 12 * time.Minute})
	cmd.Flags().IntVar(&starts, "starts", 100, "number of random starts")
	cmd.Flags().Uint64Var(&seed, "seed", 1, "of the starts")
	return cmd
}

func runMultiZone(ctx context.Context, e simulate.Experiment, zones [][]bool, stderr io.Writer) ([]simulate.MultiZoneCell, error) {
	var cells []simulate.MultiZoneCell
	optimal := make([][]float64, len(e.Starts))
	crew := newCrew(ctx, 1+len(e.Starts), stderr)
	crew.do(func() { cells = e.MultiZone(zones) })
	for i, start := range e.Starts {
		crew.do(func() { optimal[i] = e.Optimum(zones, start) })
	}
	if err := crew.wait(); err != nil {
		return nil, err
	}
	for i := range cells {
		c := &cells[i]
		for _, costs := range optimal {
			c.Optimal.Cost += costs[i]
		}
		for _, s := range []*simulate.Score{&c.BestSingleZone, &c.CheapestAvailable, &c.SpotHedge, &c.Optimal, &c.Spotter} {
			s.Cost /= float64(len(e.Starts))
		}
	}
	return cells, nil
}

func printMultiZone(w io.Writer, cells []simulate.MultiZoneCell) error {
	return table(w, func(w io.Writer) {
		_, _ = fmt.Fprintln(w, "changeover\tdeadline\tstarts\tbest single zone\tcheapest available\tspothedge\toptimal\tspotter\tof optimal\tmisses")
		for _, c := range cells {
			_, _ = fmt.Fprintf(w, "%g h\t%g h\t%d\t%.4f\t%.4f\t%.4f\t%.4f\t%.4f\t%.3f\t%d\n", c.ChangeoverHours, c.DeadlineHours, c.Starts,
				c.BestSingleZone.Cost, c.CheapestAvailable.Cost, c.SpotHedge.Cost, c.Optimal.Cost, c.Spotter.Cost,
				c.Spotter.Cost/c.Optimal.Cost, c.Spotter.Misses)
		}
	})
}
