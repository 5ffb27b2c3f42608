package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"text/tabwriter"
	"time"

	"nomad-spotter/autoscaler-plugin/allocate"
	"nomad-spotter/autoscaler-plugin/simulate"
	"nomad-spotter/jobs/cli"
)

// command runs a spotter command and reads its JSON.
func command(into any, args ...string) error {
	var out, faults bytes.Buffer
	if code := cli.Main(context.Background(), "bench", append(args, "--json"), &out, &faults); code != 0 {
		return fmt.Errorf("spotter %v: exit code %d: %s", args, code, faults.String())
	}
	return json.Unmarshal(out.Bytes(), into)
}

// cantBeLate is the Can't-Be-Late experiment on all slices of the four zones of October 2022.
func cantBeLate(w io.Writer, data string) error {
	dir := filepath.Join(data, "availability", "aws-2022-10")
	slices := filepath.Join(dir, "slices.json")
	if absent(w, slices) {
		return nil
	}
	var cells []simulate.Cell
	begin := time.Now()
	if err := command(&cells, "simulate", "cant-be-late", "--traces", dir, "--slices", slices); err != nil {
		return err
	}
	took := time.Since(begin)
	known, err := studied(dir, slices)
	if err != nil {
		return err
	}
	var own, bound, gaps, ownShares, boundShares float64
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "changeover\tdeadline\tgreedy\tuniform progress\toptimal\tspotter\tof the gap\thazards known\tof the gap\tmisses\tworse than the best baseline")
	worse, misses := 0, 0
	for i, c := range cells {
		best := min(c.Greedy.Cost, c.UniformProgress.Cost)
		gap := best - c.Optimal.Cost
		share, knownShare := (c.Spotter.Cost-c.Optimal.Cost)/gap, (known[i]-c.Optimal.Cost)/gap
		own, bound, gaps = own+c.Spotter.Cost-c.Optimal.Cost, bound+known[i]-c.Optimal.Cost, gaps+gap
		ownShares, boundShares = ownShares+share/float64(len(cells)), boundShares+knownShare/float64(len(cells))
		mark := ""
		if c.Spotter.Cost > best {
			mark = "yes"
			worse++
		}
		misses += c.Spotter.Misses
		fmt.Fprintf(t, "%.2f h\t%g h\t%.3f\t%.3f\t%.3f\t%.3f\t%.2f\t%.3f\t%.2f\t%d\t%s\n", c.ChangeoverHours, c.DeadlineHours, c.Greedy.Cost,
			c.UniformProgress.Cost, c.Optimal.Cost, c.Spotter.Cost, share, known[i], knownShare, c.Spotter.Misses, mark)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "share of the gap between the better of greedy and uniform progress and the optimum, goal 0.50:\n"+
		"  spotter:       mean of the cells %.3f, of the summed gaps %.3f\n  hazards known: mean of the cells %.3f, of the summed gaps %.3f\n"+
		"    (the same policy, told the hazards of the whole recording, its future included: what better learning could gain)\n"+
		"cells worse than the better baseline, goal 0: %d of %d; missed deadlines, goal 0: %d of %d\n"+
		"time of the command over the goal of 2 minutes: %.2f\n",
		ownShares, own/gaps, boundShares, bound/gaps, worse, len(cells), misses, cells[0].Runs*len(cells), took.Minutes()/2)
	return nil
}

// studied are the mean costs of the policy that knows each zone's hazards, by cell.
func studied(dir, slices string) ([]float64, error) {
	var s struct{ Starts []int }
	data, err := os.ReadFile(slices)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, err
	}
	hour := time.Hour
	e := simulate.Experiment{
		Task: 48 * hour, Deadlines: []time.Duration{52 * hour, 56 * hour, 60 * hour, 72 * hour, 92 * hour}, PriceRatio: simulate.PaperPriceRatio,
		Changeovers: []time.Duration{72 * time.Second, 6 * time.Minute, 12 * time.Minute, 24 * time.Minute},
		Starts:      s.Starts, Prior: allocate.Prior2023,
	}
	_, traces, err := readZoneTraces(dir)
	if err != nil {
		return nil, err
	}
	costs := make([]float64, len(e.Deadlines)*len(e.Changeovers))
	for _, trace := range traces {
		e.Tick = trace.Tick
		for i, c := range e.Changeovers {
			for k, score := range e.Studied([][]bool{trace.Up}, c) {
				costs[i*len(e.Deadlines)+k] += score.Cost / float64(len(s.Starts)*len(traces))
			}
		}
	}
	return costs, nil
}

// multiZone is one job over the nine zones of February 2023.
func multiZone(w io.Writer, data string) error {
	dir := filepath.Join(data, "availability", "aws-2023-02")
	if absent(w, dir) {
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "seed\tstarts\tchangeover\tdeadline\tbest single zone\tcheapest available\tspothedge\toptimal\tspotter\tof optimal\tgoal\tmisses")
	for _, seed := range []string{"1", "2"} {
		var cells []simulate.MultiZoneCell
		err := command(&cells, "simulate", "multi-zone", "--traces", dir, "--task", "24h", "--deadline", "36h,48h", "--changeover", "0.05h,0.2h",
			"--starts", "100", "--seed", seed)
		if err != nil {
			return err
		}
		for _, c := range cells {
			fmt.Fprintf(t, "%d\t%d\t%.2f h\t%g h\t%.4f\t%.4f\t%.4f\t%.4f\t%.4f\t%.3f\t1.10\t%d\n", c.Seed, c.Starts, c.ChangeoverHours, c.DeadlineHours,
				c.BestSingleZone.Cost, c.CheapestAvailable.Cost, c.SpotHedge.Cost, c.Optimal.Cost, c.Spotter.Cost, c.Spotter.Cost/c.Optimal.Cost, c.Spotter.Misses)
		}
	}
	return t.Flush()
}
