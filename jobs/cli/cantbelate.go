package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"nomad-spotter/autoscaler-plugin/allocate"
	"nomad-spotter/autoscaler-plugin/market"
	"nomad-spotter/autoscaler-plugin/simulate"
)

// experimentFlags are the flags of the experiments that run one job from many starts.
type experimentFlags struct {
	traces      []string
	polarity    string
	task        time.Duration
	deadlines   []time.Duration
	changeovers []time.Duration
	ratio       float64
	json        bool
}

func (f *experimentFlags) add(cmd *cobra.Command, task time.Duration, deadlines, changeovers []time.Duration) {
	flags := cmd.Flags()
	flags.StringSliceVar(&f.traces, "traces", nil, "directories or files of recorded availability, ZONE_TYPE.json (required)")
	flags.StringVar(&f.polarity, "polarity", "", "what the traces mean: available=1 or available=0 (default: ask when in doubt)")
	flags.DurationVar(&f.task, "task", task, "work of the job")
	flags.DurationSliceVar(&f.deadlines, "deadline", deadlines, "deadlines as `durations` from the job's start, parted by commas")
	flags.DurationSliceVar(&f.changeovers, "changeover", changeovers, "`durations` from a start or a move until work goes on, parted by commas")
	flags.Float64Var(&f.ratio, "price-ratio", simulate.PaperPriceRatio, "price of on-demand over price of spot")
	flags.BoolVar(&f.json, "json", false, "print JSON")
}

// load reads the traces and makes the experiment of them, without starts.
func (f *experimentFlags) load() (simulate.Experiment, [][]bool, error) {
	e := simulate.Experiment{Task: f.task, Deadlines: f.deadlines, Changeovers: f.changeovers, PriceRatio: f.ratio}
	if len(f.traces) == 0 {
		return e, nil, usageError{errors.New("--traces is missing; give a directory of traces, or files")}
	}
	polarity, err := market.ParsePolarity(f.polarity)
	if err != nil {
		return e, nil, usageError{fmt.Errorf("--%w", err)}
	}
	recordings, err := findRecordings(f.traces)
	if err = errors.Join(err, checkTwice(recordings)); err != nil {
		return e, nil, err
	}
	if _, err := checkTraces(recordings, polarity); err != nil {
		return e, nil, err
	}
	var faults []error
	zones := make([][]bool, 0, len(recordings))
	for _, r := range recordings {
		t, length, err := readWhole(r.path, polarity)
		if err != nil {
			return e, nil, fmt.Errorf("%s: %w", r.path, err)
		}
		if e.Tick == 0 {
			e.Tick = t.Tick
		}
		if t.Tick != e.Tick {
			faults = append(faults, fmt.Errorf("%s: metadata.gap_seconds is %v, and %v in %s; give traces of one tick",
				r.path, t.Tick.Seconds(), e.Tick.Seconds(), recordings[0].path))
		}
		if n := int(length / t.Tick); n > len(t.Up) {
			faults = append(faults, fmt.Errorf("%s: data: %d ticks are more than %d, which an experiment takes; cut the trace, or give longer ticks",
				r.path, n, len(t.Up)))
		}
		zones = append(zones, t.Up)
	}
	return e, simulate.Aligned(zones), errors.Join(faults...)
}

// checkTwice refuses recordings that are given more than once: they would count double, or stand for two zones.
func checkTwice(recordings []recording) error {
	var faults []error
	for i, r := range recordings {
		a, err := os.Stat(r.path)
		if err != nil {
			continue // reading it will tell
		}
		for _, other := range recordings[:i] {
			if b, err := os.Stat(other.path); err == nil && os.SameFile(a, b) {
				faults = append(faults, fmt.Errorf("--traces: %s is the same file as %s; give it once", r.path, other.path))
				break
			}
		}
	}
	return errors.Join(faults...)
}

func cantBeLateCommand() *cobra.Command {
	var f experimentFlags
	var slices string
	cmd := &cobra.Command{
		Use:   "cant-be-late --traces DIR --slices FILE",
		Short: "Run the experiment of the Can't-Be-Late paper beside the pool's own policy",
		Long: `cant-be-late runs one job from every start of a file of slices in every zone, by Greedy, Uniform Progress, the optimum of
one who knows the future, and the pool's own policy, which plans by the past of the zone alone. Costs are means, 1 being
the job's hours on demand. A miss is a job that is not done at its deadline.

Exit codes: 0 done, 1 an input has faults or cannot be read, 2 wrong usage.`,
		Example: `  spotter simulate cant-be-late --traces recordings/ --slices recordings/slices.json
  spotter simulate cant-be-late --traces recordings/ --slices recordings/slices.json --deadline 60h --changeover 0.2h --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if slices == "" {
				return usageError{errors.New("--slices is missing; give the file of starts")}
			}
			e, zones, err := f.load()
			if err != nil {
				return err
			}
			e.Prior = allocate.Prior2023 // not of the recording that the paper's slices are of
			if e.Starts, err = readSlices(slices, e.Tick); err != nil {
				return err
			}
			if err := e.Validate(len(zones[0])); err != nil {
				return err
			}
			cells, err := runCantBeLate(cmd.Context(), e, zones, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			if f.json {
				return writeJSON(cmd.OutOrStdout(), cells)
			}
			return printCells(cmd.OutOrStdout(), cells)
		},
	}
	f.add(cmd, 48*time.Hour, inHours(52, 56, 60, 72, 92), []time.Duration{72 * time.Second, 6 * time.Minute, 12 * time.Minute, 24 * time.Minute})
	cmd.Flags().StringVar(&slices, "slices", "", `file of starts, {"gap_seconds":600,"starts":[0,5]} in ticks (required)`)
	return cmd
}

func inHours(h ...int) []time.Duration {
	d := make([]time.Duration, len(h))
	for i := range h {
		d[i] = time.Duration(h[i]) * time.Hour
	}
	return d
}

// readSlices reads the starts of an experiment, in ticks of the traces.
func readSlices(file string, tick time.Duration) ([]int, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("--slices: %w", err)
	}
	var s struct {
		Gap    *float64 `json:"gap_seconds"`
		Starts []int    `json:"starts"`
	}
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, fmt.Errorf(`--slices: %s: %w; it must be JSON like {"gap_seconds":600,"starts":[0,5]}`, file, err)
	}
	var faults []error
	if n := len(s.Starts); n > maxRuns {
		faults = append(faults, fmt.Errorf("--slices: %s: starts: %d are more than %d; give fewer", file, n, maxRuns))
	}
	if len(s.Starts) == 0 {
		faults = append(faults, fmt.Errorf("--slices: %s: starts: empty; give at least one tick", file))
	}
	if s.Gap != nil && *s.Gap != tick.Seconds() {
		faults = append(faults, fmt.Errorf("--slices: %s: gap_seconds is %v, but %v in the traces; give the slices of these traces", file, *s.Gap, tick.Seconds()))
	}
	return s.Starts, errors.Join(faults...)
}

// runCantBeLate runs the experiment in each zone by itself, as many parts at once as there are processors. What the parts
// come to is added up in one order, so that the same input gives the same output.
func runCantBeLate(ctx context.Context, e simulate.Experiment, zones [][]bool, stderr io.Writer) ([]simulate.Cell, error) {
	type result struct {
		greedy, uniform []simulate.Score
		own             [][]simulate.Score // by changeover
		optimal         [][]simulate.Score // by start
	}
	results := make([]result, len(zones))
	crew := newCrew(ctx, len(zones)*(1+len(e.Changeovers)+len(e.Starts)), stderr)
	for z := range zones {
		zone, r := zones[z:z+1], &results[z]
		r.own, r.optimal = make([][]simulate.Score, len(e.Changeovers)), make([][]simulate.Score, len(e.Starts))
		for i, c := range e.Changeovers {
			crew.do(func() { r.own[i] = e.Spotter(zone, c) })
		}
		crew.do(func() { r.greedy, r.uniform = e.Baselines(zone) })
		for i, start := range e.Starts {
			crew.do(func() { r.optimal[i] = optimum(e, zone, start) })
		}
	}
	if err := crew.wait(); err != nil {
		return nil, err
	}
	cells := e.Cells()
	add := func(at int, scores []simulate.Score, of func(*simulate.Cell) *simulate.Score) {
		for i, s := range scores {
			sum := of(&cells[at+i])
			sum.Cost += s.Cost
			sum.Misses += s.Misses
		}
	}
	for _, r := range results {
		add(0, r.greedy, func(c *simulate.Cell) *simulate.Score { return &c.Greedy })
		add(0, r.uniform, func(c *simulate.Cell) *simulate.Score { return &c.UniformProgress })
		for i, own := range r.own {
			add(i*len(e.Deadlines), own, func(c *simulate.Cell) *simulate.Score { return &c.Spotter })
		}
		for _, optimal := range r.optimal {
			add(0, optimal, func(c *simulate.Cell) *simulate.Score { return &c.Optimal })
		}
	}
	runs := len(zones) * len(e.Starts)
	for i := range cells {
		c := &cells[i]
		c.Runs = runs
		for _, s := range []*simulate.Score{&c.Greedy, &c.UniformProgress, &c.Optimal, &c.Spotter} {
			s.Cost /= float64(runs)
		}
	}
	return cells, nil
}

// optimum is the optimum's scores, which never miss: an experiment whose deadlines are too early is refused.
func optimum(e simulate.Experiment, zones [][]bool, start int) []simulate.Score {
	costs := e.Optimum(zones, start)
	scores := make([]simulate.Score, len(costs))
	for i, c := range costs {
		scores[i].Cost = c
	}
	return scores
}

// crew runs the parts of a long work, as many at once as there are processors, and shows on a terminal how far it is.
type crew struct {
	group *errgroup.Group
	ctx   context.Context //nolint:containedctx // of the group, whose life is that of this value
	bar   *progressbar.ProgressBar
}

func newCrew(ctx context.Context, n int, stderr io.Writer) *crew {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0))
	return &crew{group: group, ctx: ctx, bar: bar(stderr, int64(n), "simulating")}
}

func (p *crew) do(f func()) {
	p.group.Go(func() error {
		if err := p.ctx.Err(); err != nil {
			return err
		}
		f()
		return p.bar.Add(1)
	})
}

func (p *crew) wait() error { return p.group.Wait() }

func printCells(w io.Writer, cells []simulate.Cell) error {
	return table(w, func(w io.Writer) {
		_, _ = fmt.Fprintln(w, "changeover\tdeadline\truns\tgreedy\tuniform progress\toptimal\tspotter\tof the gap\tmisses")
		for _, c := range cells {
			best := min(c.Greedy.Cost, c.UniformProgress.Cost)
			_, _ = fmt.Fprintf(w, "%g h\t%g h\t%d\t%.3f\t%.3f\t%.3f\t%.3f\t%.2f\t%d\n", c.ChangeoverHours, c.DeadlineHours, c.Runs,
				c.Greedy.Cost, c.UniformProgress.Cost, c.Optimal.Cost, c.Spotter.Cost,
				(c.Spotter.Cost-c.Optimal.Cost)/(best-c.Optimal.Cost), c.Spotter.Misses)
		}
	})
}
