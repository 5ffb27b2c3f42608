package cli

import (
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"nomad-spotter/autoscaler-plugin/cost"
)

// The inputs of the worked example, as files of users are.
var (
	//go:embed examples/cost.hcl
	exampleCost []byte
	//go:embed examples/interval.hcl
	exampleInterval []byte
)

// likely is the probability with which the interruptions lie in their range, where none is given.
const likely = 0.9

// costInputs are the figures that `spotter cost` works with.
func costInputs() *inputs {
	return &inputs{list: []*input{
		{name: "hours", kind: kindNumber, usage: "training in node-hours, such as GPU-hours (required)"},
		{name: "nodes", kind: kindNumber, usage: "nodes that train in step (default 1)"},
		{name: "currency", kind: kindText, usage: "of all prices, a code of ISO 4217 (default USD)"},
		{name: "on-demand-price", kind: kindNumber, usage: "per node-hour (required)"},
		{name: "spot-price", kind: kindNumber, usage: "per node-hour on average (required)"},
		{name: "on-demand-share", kind: kindNumber, usage: "share of the hours bought on demand, 0 to 1 (default 0)"},
		{name: "reserved-share", kind: kindNumber, usage: "share of the hours on reserved capacity, 0 to 1 (default 0)"},
		{name: "reserved-price", kind: kindNumber, usage: "per reserved node-hour: what was prepaid spread over its hours (default 0)"},

		{name: "interruptions", kind: kindNumber, usage: "expected over the job (default 0)"},
		{name: "mtbf", kind: kindDuration, usage: "mean time between interruptions of a spot node, instead of interruptions"},
		{name: "recovery-hours", kind: kindNumber, usage: "hours of each node that an interruption costs; without it they are " +
			"computed: restart-hours + (1 - notice-success) × (interval / 2 + lag)"},
		{name: "restart-hours", kind: kindNumber, usage: "the part of them that no interval changes: start, restore (default 0)"},
		{name: "recovery-on-spot", kind: kindBool, usage: "buy the recovery at the spot price, not on demand"},
		{name: "notice-success", kind: kindNumber, usage: "probability that a final checkpoint is durable in time, 0 to 1 (default 0)"},
		{name: "lag", kind: kindDuration, usage: "from making a checkpoint until it is durable (default 0s)"},

		{name: "interval", kind: kindDuration, usage: "of training between checkpoints; with it the trade-off is shown"},
		{name: "what-if", kind: kindDurations, usage: "other intervals, parted by commas (default half and twice the interval)"},
		{name: "stall", kind: kindDuration, usage: "for which training stands still per checkpoint (default 0s)"},
		{name: "full-size", kind: kindSize, usage: "kept all through the job however often it saves: full checkpoints (default 0)"},
		{name: "increment-size", kind: kindSize, usage: "that each checkpoint adds (default 0)"},
		{name: "retention", kind: kindDuration, usage: "for which an increment is kept; or"},
		{name: "keep-last", kind: kindNumber, usage: "how many increments are kept"},
		{name: "storage-price", kind: kindNumber, usage: "per GiB and month of 730 h (default 0)"},
		{name: "writes", kind: kindNumber, usage: "requests of a checkpoint (default 0)"},
		{name: "reads", kind: kindNumber, usage: "requests of a restore (default 0)"},
		{name: "write-price", kind: kindNumber, usage: "per 1000 requests (default 0)"},
		{name: "read-price", kind: kindNumber, usage: "per 1000 requests (default 0)"},
		{name: "egress-size", kind: kindSize, usage: "that a checkpoint sends to where it is paid for (default 0)"},
		{name: "egress-price", kind: kindNumber, usage: "per GiB (default 0)"},

		{name: "storage-saving", kind: kindNumber, usage: "step: share of the bytes that incremental checkpoints save, 0 to 1"},
		{name: "run-hours", kind: kindNumber, usage: "step: how long a run is that an interruption reaches, and"},
		{name: "split-hours", kind: kindNumber, usage: "how long after it is split; recovery shrinks in proportion"},
		{name: "paid-price", kind: kindNumber, usage: "step: average price per node-hour paid for spot in the end"},

		{name: "spot-price-range", kind: kindRange, usage: "where the spot price may lie (default as given)"},
		{name: "interruptions-range", kind: kindRange, usage: "how many may come (default 90 % of cases, if they are independent)"},
		{name: "recovery-hours-range", kind: kindRange, usage: "where the recovery hours may lie (default as given)"},
	}}
}

// costField maps fields of the cost model to the inputs that they come from, where the name differs by more than dashes.
var costField = map[string]string{
	"interval_hours": "interval", "stall_hours": "stall", "retention_hours": "retention",
	"full_bytes": "full-size", "increment_bytes": "increment-size", "egress_bytes": "egress-size",
}

// costJob is what the inputs say.
type costJob struct {
	plan     cost.Plan
	prices   cost.Prices
	measures cost.Measures
	spread   cost.Spread
	poisson  bool      // the interruptions' range is that of independent ones
	whatIf   []float64 // h
}

// costCommand is `spotter cost`.
func costCommand() *cobra.Command {
	in := costInputs()
	var file string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "cost",
		Short: "Price a job step by step, and its checkpoint interval",
		Long: `Price a training job on spot against on demand, step by step, each step with what it assumes:

  total = compute (hours × market price)
        + storage (bytes × price × time)
        + recovery (interruptions × recovery hours × on-demand price)

With an interval it shows what another one would change, and the interval that costs the least. Without any figure it
prints the worked example. Every figure is a flag, and with underscores for dashes an attribute of --file, in HCL; a flag
goes before the file. What is not given is not priced.

Durations have units, like 2h or 30s, and so have sizes, like 800GiB or 1.2GB.

Exit codes: 0 done, 1 the file could not be read, 2 wrong usage, faulty figures among it.`,
		Example: `  spotter cost
  spotter cost --hours 1000 --on-demand-price 3 --spot-price 0.8 --interruptions 5 --recovery-hours 2
  spotter cost --hours 500 --on-demand-price 3 --spot-price 0.9 --mtbf 8h --restart-hours 0.1 \
    --interval 30m --stall 20s --full-size 12GiB --increment-size 3GiB --keep-last 5 --storage-price 0.023
  spotter cost --file job.hcl --what-if 1h,4h --json | jq .steps[-1].cost.total`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var out costOutput
			var err error
			if file == "" && !slices.ContainsFunc(in.list, func(i *input) bool { return i.given != "" }) {
				out, err = costExample()
			} else {
				out, err = costOf(in, file, cmd.ErrOrStderr())
			}
			switch {
			case err != nil:
				return err
			case asJSON:
				return writeJSON(cmd.OutOrStdout(), out)
			}
			return printCost(cmd.OutOrStdout(), out)
		},
	}
	cmd.Flags().SortFlags = false
	in.addTo(cmd.Flags())
	cmd.Flags().StringVar(&file, "file", "", "HCL file with figures")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.AddCommand(costReport())
	return cmd
}

// costOf prices the job of flags and a file.
func costOf(in *inputs, file string, stderr io.Writer) (costOutput, error) {
	if file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return costOutput{}, fmt.Errorf("read figures: %w", err)
		}
		if err := in.readFile(file, text); err != nil {
			return costOutput{}, err
		}
	}
	job, err := in.costJob()
	if err != nil {
		return costOutput{}, usageError{err}
	}
	if job.plan.SpotPrice > job.prices.OnDemand {
		_, _ = fmt.Fprintf(stderr, "%s: warning: %s %v is above %s %v: on demand is cheaper while that lasts\n",
			Name, in.where("spot-price"), job.plan.SpotPrice, in.where("on-demand-price"), job.prices.OnDemand)
	}
	return job.output(), nil
}

// costExample prices the worked example, and the interval in the example with a store.
func costExample() (costOutput, error) {
	var outs []costOutput
	for _, text := range [][]byte{exampleCost, exampleInterval} {
		in := costInputs()
		if err := in.readFile("example", text); err != nil {
			return costOutput{}, err
		}
		job, err := in.costJob()
		if err != nil {
			return costOutput{}, err
		}
		outs = append(outs, job.output())
	}
	outs[0].Example, outs[0].Interval = true, outs[1].Interval
	return outs[0], nil
}

// costJob reads the inputs, and reports all their faults together.
func (in *inputs) costJob() (costJob, error) {
	for _, name := range []string{"hours", "on-demand-price", "spot-price"} {
		if !in.given(name) {
			in.fault(name, "missing; it is %s", strings.TrimSuffix(in.find(name).usage, " (required)"))
		}
	}
	job := costJob{
		prices: cost.Prices{
			Currency: in.find("currency").text, OnDemand: in.number("on-demand-price"),
			Storage: in.number("storage-price"), Egress: in.number("egress-price"),
			Writes: in.number("write-price"), Reads: in.number("read-price"),
		},
		measures: cost.Measures{
			StorageSaving: in.number("storage-saving"), RunHours: in.number("run-hours"), SplitHours: in.number("split-hours"),
			PaidPrice: in.number("paid-price"),
		},
		plan: cost.Plan{
			Hours: in.number("hours"), Nodes: in.number("nodes"), SpotPrice: in.number("spot-price"),
			OnDemandShare: in.number("on-demand-share"),
			ReservedShare: in.number("reserved-share"), ReservedPrice: in.number("reserved-price"),
			Interruptions: in.number("interruptions"),
			RestartHours:  in.number("restart-hours"), RecoveryOnSpot: in.flag("recovery-on-spot"),
			Checkpoints: cost.Checkpoints{
				IntervalHours: in.hours("interval"), StallHours: in.hours("stall"), FullBytes: in.bytes("full-size"),
				IncrementBytes: in.bytes("increment-size"), RetentionHours: in.hours("retention"), KeepLast: in.number("keep-last"),
				Writes: in.number("writes"), Reads: in.number("reads"), EgressBytes: in.bytes("egress-size"),
			},
		},
		whatIf: in.hoursList("what-if"),
	}
	if !in.given("currency") {
		job.prices.Currency = "USD"
	} else if len(job.prices.Currency) == len("USD") {
		job.prices.Currency = strings.ToUpper(job.prices.Currency)
	}
	if !in.given("nodes") {
		job.plan.Nodes = 1
	}
	in.interruptions(&job.plan)
	in.recovery(&job.plan)
	if len(job.whatIf) > 0 && !in.given("interval") {
		in.fault("what-if", "there is nothing to compare it with; give --interval, what it is now")
	}
	job.spread = job.plan.Exactly()
	job.poisson = true
	for _, r := range []struct {
		name string
		to   *cost.Range
	}{
		{"spot-price-range", &job.spread.SpotPrice},
		{"recovery-hours-range", &job.spread.RecoveryHours},
		{"interruptions-range", &job.spread.Interruptions},
	} {
		if low, high, ok := in.bounds(r.name); ok {
			*r.to = cost.Range{Low: low, High: high}
			job.poisson = job.poisson && r.name != "interruptions-range"
		}
	}
	in.check(job.prices.Check(), job.plan.Check(), job.measures.Check())
	if len(in.faults) == 0 {
		in.check(job.spread.Check(job.plan))
	}
	if job.poisson && len(in.faults) == 0 {
		job.spread.Interruptions = cost.PoissonRange(job.plan.Interruptions, likely)
	}
	return job, errors.Join(in.faults...)
}

// interruptions works out how many are expected.
func (in *inputs) interruptions(p *cost.Plan) {
	if !in.given("mtbf") {
		return
	}
	mtbf := in.hours("mtbf")
	switch {
	case in.given("interruptions"):
		in.fault("mtbf", "%s beside %s %v; give one of them", in.find("mtbf").text, in.where("interruptions"), p.Interruptions)
	case mtbf <= 0:
		in.fault("mtbf", "%s is not more than 0; give a duration like 8h", in.find("mtbf").text)
	default:
		p.Interruptions = p.Hours * (1 - p.OnDemandShare - p.ReservedShare) / mtbf
	}
}

// recovery works out what an interruption costs.
func (in *inputs) recovery(p *cost.Plan) {
	lag, success := in.hours("lag"), in.number("notice-success")
	if !(success >= 0 && success <= 1) {
		in.fault("notice-success", "%v is no probability; give one from 0 to 1", success)
	}
	if lag < 0 {
		in.fault("lag", "%s is negative; give 0s or more", in.find("lag").text)
	}
	switch {
	case in.given("recovery-hours"):
		p.RecoveryHours = in.number("recovery-hours")
		for _, name := range []string{"lag", "notice-success"} {
			if in.given(name) {
				in.fault(name, "%s has no effect beside %s %v, which holds it; give one of them",
					in.find(name).text, in.where("recovery-hours"), p.RecoveryHours)
			}
		}
	case in.given("interval"):
		p.RecoveryHours = p.RestartHours + cost.Loss(p.Checkpoints.IntervalHours, lag, success)
	case p.RestartHours > 0:
		p.RecoveryHours = p.RestartHours
	case p.Interruptions > 0:
		in.fault("recovery-hours", "missing with %v interruptions; give the hours that one costs, or --interval to compute them",
			p.Interruptions)
	}
}

// check adds the faults that the model finds, under the names of the inputs. What is computed of others may be faulty for
// theirs: it is only told where nothing else is wrong, and no input is told of twice.
func (in *inputs) check(errs ...error) {
	known := len(in.faults) > 0
	var computed []error
	for _, f := range cost.Faults(errors.Join(errs...)) {
		var names []string
		told, given := false, false
		for field := range strings.SplitSeq(f.Field, ", ") {
			name, differs := costField[field]
			if !differs {
				name = strings.ReplaceAll(field, "_", "-")
			}
			told = told || in.faulted[name]
			i := in.find(name)
			given = given || i == nil || i.given != ""
			if differs {
				names = append(names, in.where(name)+" (as "+strings.ReplaceAll(field, "_", " ")+")")
			} else {
				names = append(names, in.where(name))
			}
		}
		err := fmt.Errorf("%s: %s", strings.Join(names, ", "), f.Problem)
		switch {
		case told:
		case given:
			in.faults = append(in.faults, err)
			known = true
		default:
			computed = append(computed, err)
		}
	}
	if !known {
		in.faults = append(in.faults, computed...)
	}
}
