package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

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
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd.OutOrStdout()) },
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

func (f *simulateFlags) run(w io.Writer) error {
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
	if f.jobs == "" {
		return nil, workload{}, usageError{errors.New("simulate: --jobs is missing; give a file of jobs, see the page of the jobs folder")}
	}
	for _, name := range f.policies {
		if policyIndex(name) < 0 {
			return nil, workload{}, usageError{unknownPolicy("simulate", name)}
		}
	}
	polarity, err := market.ParsePolarity(f.polarity)
	if err != nil {
		return nil, workload{}, usageError{fmt.Errorf("simulate: --%w", err)}
	}
	if f.pool == "" && len(f.traces) == 0 {
		return nil, workload{}, usageError{errors.New("simulate: --traces is missing; give recorded availability, and --pool for a pool of your own")}
	}
	var faults []error
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

// outcome is a simulation's result as it is printed.
type outcome struct {
	Policy        string         `json:"policy"`
	Seed          uint64         `json:"seed"`
	MarketHours   float64        `json:"market_h"`
	Jobs          int            `json:"jobs"`
	Finished      int            `json:"finished"`
	Late          int            `json:"late"`
	MakespanHours float64        `json:"makespan_h"`
	Launches      int            `json:"launches"`
	Interruptions int            `json:"interruptions"`
	Moves         int            `json:"moves"`
	LostHours     float64        `json:"lost_work_h"`
	WaitedHours   float64        `json:"waited_h"`
	Cost          cost.Breakdown `json:"cost"`
	Usage         cost.Usage     `json:"usage"`
	Offerings     []usedOffering `json:"offerings"`
	JobList       []endedJob     `json:"job_list"`
	Decisions     []decision     `json:"decisions,omitempty"`

	prices cost.Prices
	stays  []simulate.Stay // for the report
	ended  []simulate.Ended
}

type usedOffering struct {
	Name          string    `json:"name"`
	Kind          cost.Kind `json:"kind"`
	Hours         float64   `json:"hours"`
	Cost          float64   `json:"cost"`
	Launches      int       `json:"launches"`
	Interruptions int       `json:"interruptions"`
}

type endedJob struct {
	Name          string  `json:"name"`
	ID            int     `json:"id"`
	ArriveHours   float64 `json:"arrive_h"`
	EndHours      float64 `json:"end_h"`
	Finished      bool    `json:"finished"`
	Late          bool    `json:"late"`
	Cost          float64 `json:"cost"`
	Interruptions int     `json:"interruptions"`
	LostHours     float64 `json:"lost_work_h"`
}

type decision struct {
	Job       string       `json:"job"`
	ID        int          `json:"id"`
	Replica   int          `json:"replica"`
	AtHours   float64      `json:"at_h"`
	Offering  string       `json:"offering"` // empty: wait
	Reason    string       `json:"reason"`
	Until     float64      `json:"until_h"`
	End       simulate.End `json:"end"`
	LostHours float64      `json:"lost_work_h,omitempty"`
}

// maxStays bounds what a report shows.
const maxStays = 20_000

// play runs one policy.
func (f *simulateFlags) play(s *scene, work workload, prices cost.Prices, name string, keep bool) (*outcome, error) {
	feed, files, err := s.play()
	if err != nil {
		return nil, err
	}
	defer files.Close()
	o := &outcome{Policy: name, Seed: f.seed, MarketHours: s.length.Hours(), prices: prices, JobList: []endedJob{}}
	jobs := slices.Clone(work.jobs)
	c := simulate.Config{Offerings: offerings(s.offers), Market: feed, Jobs: &jobs, Seed: f.seed}
	policy(name, prices)(&c)
	c.Done = func(e simulate.Ended) {
		o.JobList = append(o.JobList, endedJob{
			Name: e.Name, ID: e.ID, ArriveHours: e.Arrive.Hours(), EndHours: e.At.Hours(), Finished: e.Finished, Late: e.Late,
			Cost: prices.Of(e.Usage).Total(), Interruptions: e.Interruptions, LostHours: e.Lost.Hours(),
		})
		if keep {
			o.ended = append(o.ended, e)
		}
	}
	if f.decisions || keep {
		c.Record = func(stay simulate.Stay) {
			if keep && len(o.stays) < maxStays {
				o.stays = append(o.stays, stay)
			}
			if f.decisions {
				o.Decisions = append(o.Decisions, decide(stay, s))
			}
		}
	}
	r, err := simulate.Run(c)
	if err != nil {
		return nil, err
	}
	o.take(r, s)
	return o, nil
}

func decide(stay simulate.Stay, s *scene) decision {
	d := decision{
		Job: stay.Job, ID: stay.ID, Replica: stay.Replica, AtHours: stay.From.Hours(), Reason: stay.Reason,
		Until: stay.To.Hours(), End: stay.End, LostHours: stay.Lost.Hours(),
	}
	if stay.Offering != simulate.Nowhere {
		d.Offering = s.offers[stay.Offering].Name
	}
	return d
}

func (o *outcome) take(r simulate.Result, s *scene) {
	o.Jobs, o.Finished, o.Late, o.MakespanHours = r.Jobs, r.Finished, r.Late, r.Makespan.Hours()
	o.Launches, o.Interruptions, o.Moves = r.Launches, r.Interruptions, r.Moves
	o.LostHours, o.WaitedHours = r.Lost.Hours(), r.Waited.Hours()
	o.Usage, o.Cost = r.Usage, o.prices.Of(r.Usage)
	for i, u := range r.Offerings {
		o.Offerings = append(o.Offerings, usedOffering{
			Name: s.offers[i].Name, Kind: s.offers[i].Kind, Hours: u.Bought.Hours, Cost: u.Bought.Cost,
			Launches: u.Launches, Interruptions: u.Interruptions,
		})
	}
	slices.SortFunc(o.Decisions, func(a, b decision) int {
		if a.AtHours != b.AtHours {
			return int(min(max((a.AtHours-b.AtHours)*1e9, -1), 1))
		}
		return a.ID - b.ID
	})
}

func printOutcomes(w io.Writer, outcomes []*outcome, decisions bool) error {
	first := outcomes[0]
	if _, err := fmt.Fprintf(w, "%d jobs on a market of %s\n\n", first.Jobs, hours(first.MarketHours)); err != nil {
		return err
	}
	err := table(w, func(w io.Writer) {
		fmt.Fprintln(w, "POLICY\tCOST\tOF ON-DEMAND\tLATE\tUNFINISHED\tMAKESPAN\tINTERRUPTIONS\tMOVES\tLOST WORK\tWAITED")
		for _, o := range outcomes {
			fmt.Fprintf(w, "%s\t%s\t%.1f %%\t%d\t%d\t%s\t%d\t%d\t%s\t%s\n", o.Policy, cost.Money(o.Cost.Total(), o.Cost.Currency),
				100*(1-o.Cost.SavedShare()), o.Late, o.Jobs-o.Finished, hours(o.MakespanHours), o.Interruptions, o.Moves,
				hours(o.LostHours), hours(o.WaitedHours))
		}
	})
	if err != nil {
		return err
	}
	for _, o := range outcomes {
		if err := o.print(w, decisions); err != nil {
			return err
		}
	}
	return nil
}

func (o *outcome) print(w io.Writer, decisions bool) error {
	if _, err := fmt.Fprintf(w, "\n%s\n", o.Policy); err != nil {
		return err
	}
	err := table(w, func(w io.Writer) {
		for _, c := range costParts(o.Cost) {
			fmt.Fprintf(w, "  %s\t%s\n", c.name, cost.Money(c.cost, o.Cost.Currency))
		}
		fmt.Fprintf(w, "  total\t%s\n", cost.Money(o.Cost.Total(), o.Cost.Currency))
		fmt.Fprintf(w, "  on demand\t%s\n", cost.Money(o.Cost.OnDemand, o.Cost.Currency))
	})
	if err != nil {
		return err
	}
	err = table(w, func(w io.Writer) {
		fmt.Fprintln(w, "  OFFERING\tKIND\tHOURS\tCOST\tLAUNCHES\tINTERRUPTIONS")
		for _, u := range o.Offerings {
			fmt.Fprintf(w, "  %s\t%s\t%.1f\t%s\t%d\t%d\n", u.Name, u.Kind, u.Hours, cost.Money(u.Cost, o.Cost.Currency), u.Launches, u.Interruptions)
		}
	})
	if err != nil || !decisions {
		return err
	}
	return table(w, func(w io.Writer) {
		fmt.Fprintln(w, "  AT\tJOB\tPLACE\tUNTIL\tENDED BY\tREASON")
		for _, d := range o.Decisions {
			at := d.Offering
			if at == "" {
				at = "waits"
			}
			fmt.Fprintf(w, "  %s\t%s\t%s\t%s\t%s\t%s\n", hours(d.AtHours), jobLabel(d.Job, d.ID, d.Replica), at, hours(d.Until), d.End, d.Reason)
		}
	})
}

func jobLabel(name string, id, replica int) string {
	label := fmt.Sprintf("%s/%d", name, id)
	if replica > 0 {
		label += fmt.Sprintf(" replica %d", replica)
	}
	return label
}

// costPart is a part of a cost.
type costPart struct {
	name string
	cost float64
}

// costParts are the parts of a cost, in the order in which they are told.
func costParts(b cost.Breakdown) []costPart {
	return []costPart{
		{"training", b.Compute}, {"checkpoint stalls", b.Stall}, {"recovery", b.Recovery}, {"storage", b.Storage}, {"transfer", b.Transfer},
	}
}

// longest is the end of what a simulation shows.
func (o *outcome) longest() time.Duration {
	end := time.Duration(0)
	for _, s := range o.stays {
		end = max(end, s.To)
	}
	return end
}
