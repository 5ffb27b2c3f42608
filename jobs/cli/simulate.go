package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"nomad-spotter/autoscaler-plugin/cost"
	"nomad-spotter/autoscaler-plugin/market"
	"nomad-spotter/autoscaler-plugin/simulate"
)

// simulations are the subcommands of simulate: set experiments.
var simulations = []func() *cobra.Command{cantBeLateCommand, multiZoneCommand}

// policies are what --policy knows, the first being the default. place is nil for the default policy itself.
var policies = []struct {
	name  string
	what  string
	place func() simulate.Placer
}{
	{"spotter", "what the pool does", nil},
	{
		"spot-until-late", "cheapest spot, else wait; on-demand when waiting longer would be too late",
		func() simulate.Placer { return &simulate.SpotUntilLate{} },
	},
	{"spot-else-on-demand", "cheapest spot, else on-demand", func() simulate.Placer { return simulate.SpotElseOnDemand{} }},
	{"spot", "cheapest spot, else wait, whatever the deadline", func() simulate.Placer { return simulate.AlwaysSpot{} }},
	{"on-demand", "on-demand only", func() simulate.Placer { return simulate.AlwaysOnDemand{} }},
}

// policy returns what makes a policy, which must be known, that of a simulation. All policies have the checkpoints of the
// default policy, so that only the choice of place differs.
func policy(name string, prices cost.Prices) func(*simulate.Config) {
	s := simulate.NewSpotter()
	s.Storage = prices
	place := policies[policyIndex(name)].place
	return func(c *simulate.Config) {
		s.Install(c)
		if place != nil {
			c.Place = func(simulate.Job, *simulate.Market) simulate.Placer { return place() }
		}
	}
}

// policyIndex is the place of a policy among those that are known; -1: it is not.
func policyIndex(name string) int {
	for i, p := range policies {
		if p.name == name {
			return i
		}
	}
	return -1
}

func unknownPolicy(command, name string) error {
	names := make([]string, len(policies))
	for i, p := range policies {
		names[i] = p.name
	}
	return fmt.Errorf("%s: --policy: %q is unknown; known are %s", command, name, strings.Join(names, ", "))
}

// simulateFlags are the flags of spotter simulate.
type simulateFlags struct {
	traces          []string
	pool, poolName  string
	jobs            string
	prices          string
	polarity        string
	policies        []string
	seed            uint64
	spot, onDemand  float64
	json, decisions bool
	report          string
}

func simulateCommand() *cobra.Command {
	var f simulateFlags
	cmd := &cobra.Command{
		Use:   "simulate --traces DIR|FILE… --jobs FILE [--pool FILE]",
		Short: "Run jobs on recorded markets and say what they cost and when they are done",
		Long: `simulate plays recorded markets and runs jobs on them by the pool's own decisions, or by simpler ones beside them.

Each spot offering of the pool needs a trace: the one that it names itself as trace = "FILE", or the file ZONE_TYPE.json of
its zone among --traces. Without --pool every trace is an offering, at --spot-price, and there is on-demand.

Exit codes: 0 done, 1 an input has faults or cannot be read, 2 wrong usage.`,
		Example: `  spotter simulate --traces recordings/ --jobs jobs.hcl
  spotter simulate --traces recordings/ --pool pool.hcl --jobs jobs.hcl --policy spotter,spot-else-on-demand
  spotter simulate --traces recordings/ --jobs jobs.hcl --report out.html`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.checkUse(cmd.Flags()); err != nil {
				return usageError{err}
			}
			return f.run(cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	known := make([]string, 0, len(policies))
	for _, p := range policies {
		known = append(known, fmt.Sprintf("%s (%s)", p.name, p.what))
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&f.traces, "traces", nil, "directories or files of recorded availability, ZONE_TYPE.json")
	flags.StringVar(&f.pool, "pool", "", "pool file, as the autoscaler reads it")
	flags.StringVar(&f.poolName, "pool-name", "", "which pool of the file (default: its only one)")
	flags.StringVar(&f.jobs, "jobs", "", "file of jobs")
	flags.StringVar(&f.prices, "prices", "", "recorded spot prices, aligned with the traces by their beginnings")
	flags.StringVar(&f.polarity, "polarity", "", "what the traces mean: available=1 or available=0 (default: ask when in doubt)")
	flags.StringSliceVar(&f.policies, "policy", []string{policies[0].name}, "how to decide: "+strings.Join(known, ", "))
	flags.Uint64Var(&f.seed, "seed", 1, "of what is left to chance: whether a last checkpoint after a notice succeeds")
	flags.Float64Var(&f.spot, "spot-price", 0.9731, "spot price in $/h where there is no pool file")
	flags.Float64Var(&f.onDemand, "on-demand-price", 3.06, "on-demand price in $/h where there is no pool file")
	flags.BoolVar(&f.json, "json", false, "print JSON")
	flags.BoolVar(&f.decisions, "decisions", false, "print every decision with its reason")
	flags.StringVar(&f.report, "report", "", "write a page with plots of the first policy to this file")
	for _, s := range simulations {
		cmd.AddCommand(s())
	}
	return cmd
}

// checkUse refuses command lines that make no sense. It reports all faults together.
func (f *simulateFlags) checkUse(given *pflag.FlagSet) error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf("simulate: "+format, args...)) }
	if f.jobs == "" {
		fault("--jobs is missing; give a file of jobs, as jobs/SPOTTER.md describes it")
	}
	if f.pool == "" && len(f.traces) == 0 {
		fault("--traces is missing; give recorded availability, and --pool for a pool of your own")
	}
	if f.pool == "" && given.Changed("pool-name") {
		fault("--pool-name %q without --pool; give the pool file that has it", f.poolName)
	}
	for _, price := range []string{"spot-price", "on-demand-price"} {
		if f.pool != "" && given.Changed(price) {
			fault("--%s beside --pool, whose offerings have prices of their own; give one of them", price)
		}
	}
	if len(f.policies) == 0 {
		fault("--policy: none; leave it out for %s", policies[0].name)
	}
	for _, name := range f.policies {
		if policyIndex(name) < 0 {
			faults = append(faults, unknownPolicy("simulate", name))
		}
	}
	if _, err := market.ParsePolarity(f.polarity); err != nil {
		fault("--%w", err)
	}
	return errors.Join(faults...)
}

func (f *simulateFlags) run(w, stderr io.Writer) error {
	scene, work, err := f.load()
	if err != nil {
		return err
	}
	prices := work.prices
	prices.OnDemand = scene.onDemand()
	var outcomes []*outcome
	for i, name := range f.policies {
		o, err := f.play(scene, work, prices, name, i == 0 && f.report != "")
		if err != nil {
			return err
		}
		outcomes = append(outcomes, o)
	}
	for _, o := range outcomes {
		if n := o.after(scene.length); n > 0 {
			_, _ = fmt.Fprintf(stderr, "%s: warning: %s: %d of %d jobs end after the recordings, which last %s; from then on spot "+
				"stays as it was last: give longer recordings, or less work\n", Name, o.Policy, n, o.Jobs, hours(o.MarketHours))
		}
	}
	if f.report != "" {
		if err := writeReport(f.report, scene, outcomes[0]); err != nil {
			return err
		}
	}
	if f.json {
		return writeJSON(w, outcomes)
	}
	return printOutcomes(w, outcomes, f.decisions)
}

// load reads and checks all inputs. It reports all faults together.
func (f *simulateFlags) load() (*scene, workload, error) {
	polarity, err := market.ParsePolarity(f.polarity)
	if err != nil {
		return nil, workload{}, err
	}
	var faults []error
	if f.report != "" {
		faults = append(faults, checkOutput("--report", f.report))
	}
	work, err := readJobs(f.jobs)
	faults = append(faults, err)
	recordings, err := findRecordings(f.traces)
	faults = append(faults, err)
	var offers []offer
	switch {
	case f.pool != "":
		offers, err = readPool(f.pool, f.poolName)
	case err == nil:
		offers, err = poolOfTraces(recordings, f.spot, f.onDemand)
	}
	if err != nil && !slices.Contains(faults, err) {
		faults = append(faults, err)
	}
	var s *scene
	if len(offers) > 0 {
		s, err = setScene(offers, recordings, f.prices, polarity)
		faults = append(faults, err)
		for _, spec := range work.specs {
			faults = append(faults, spec.Check(offerings(offers))...)
		}
		faults = append(faults, work.checkArrivals(s.length))
	}
	return s, work, errors.Join(faults...)
}

func readJobs(path string) (workload, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return workload{}, fmt.Errorf("--jobs: %w", err)
	}
	w, err := parseJobs(data, path)
	if err != nil {
		return w, fmt.Errorf("jobs file %s:\n%w", path, err)
	}
	return w, nil
}

func readPool(path, name string) ([]offer, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("--pool: %w", err)
	}
	offers, err := parsePool(data, path, name)
	if err != nil {
		return nil, fmt.Errorf("pool file %s:\n%w", path, err)
	}
	return offers, nil
}
