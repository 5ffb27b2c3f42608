package cli

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"nomad-spotter/autoscaler-plugin/cost"
)

// costOutput is what `spotter cost --json` prints.
type costOutput struct {
	Example  bool          `json:"example,omitempty"` // the worked example; the interval is of that with a store
	Plan     cost.Plan     `json:"plan"`
	Prices   cost.Prices   `json:"prices"`
	Measures cost.Measures `json:"measures"`
	Steps    []cost.Step   `json:"steps"`
	Range    costRange     `json:"range"`
	Interval *costInterval `json:"interval,omitempty"`
}

// costRange is what the step "spot" may cost, and where that comes from.
type costRange struct {
	cost.Estimate
	Inputs  cost.Spread `json:"inputs"`
	Poisson float64     `json:"interruptions_probability,omitempty"` // of the interruptions' range, where none was given
}

// costInterval is the trade-off of the checkpoint interval.
type costInterval struct {
	Plan         cost.Plan      `json:"plan"`
	Prices       cost.Prices    `json:"prices"`
	Assumes      []string       `json:"assumes"`
	Now          cost.Breakdown `json:"now"`
	WhatIf       []cost.WhatIf  `json:"what_if"`
	OptimumHours *float64       `json:"optimum_hours"` // the last of WhatIf; nil where there is none
	Why          string         `json:"no_optimum,omitempty"`
}

// output prices a job.
func (j costJob) output() costOutput {
	out := costOutput{
		Plan: j.plan, Prices: j.prices, Measures: j.measures,
		Steps: cost.Steps(j.plan, j.prices, j.measures),
		Range: costRange{Estimate: j.plan.Estimate(j.prices, j.spread), Inputs: j.spread},
	}
	if j.poisson {
		out.Range.Poisson = likely
	}
	now := j.plan.Checkpoints.IntervalHours
	if now == 0 {
		return out
	}
	others := j.whatIf
	if len(others) == 0 {
		others = []float64{now / 2, now * 2}
	}
	i := &costInterval{Plan: j.plan, Prices: j.prices, Assumes: intervalAssumes(j.plan, j.prices), Now: j.plan.Cost(j.prices)}
	for _, h := range others {
		i.WhatIf = append(i.WhatIf, j.plan.WhatIf(j.prices, h))
	}
	if best, ok := j.plan.Optimum(j.prices); ok {
		i.OptimumHours = &best
		i.WhatIf = append(i.WhatIf, j.plan.WhatIf(j.prices, best))
	} else {
		i.Why = "a checkpoint costs nothing here: the shorter the interval the better; give stall, increments or requests"
		if i.Now.Recovery == 0 || j.plan.RecoveryHours == j.plan.RestartHours {
			i.Why = "no interruption undoes any training here: the longer the interval the better"
		}
	}
	out.Interval = i
	return out
}

// intervalAssumes says in words what depends on the interval and what does not.
func intervalAssumes(p cost.Plan, prices cost.Prices) []string {
	c := p.Checkpoints
	lost := p.RecoveryHours - p.RestartHours
	said := []string{fmt.Sprintf(
		"recovery: of %s h an interruption, %s h are restart, %s h are lost training and grow in proportion to the interval",
		figure(p.RecoveryHours), figure(p.RestartHours), figure(lost))}
	full, size := humanize.IBytes(uint64(c.FullBytes)), humanize.IBytes(uint64(c.IncrementBytes))
	said = append(said, fmt.Sprintf("storage at %s per GiB and month", cost.Price(prices.Storage, prices.Currency)))
	switch {
	case c.IncrementBytes == 0:
		said = append(said, fmt.Sprintf("kept: %s, whatever the interval", full))
	case c.KeepLast > 0:
		said = append(said, fmt.Sprintf("kept: %s and the last %s increments of %s, whatever the interval",
			full, figure(c.KeepLast), size))
	default:
		grows := c.IncrementBytes * c.RetentionHours / c.IntervalHours
		said = append(said, fmt.Sprintf("kept: %s whatever the interval, and increments of %s kept for %s h: they are %s of it now, "+
			"and grow with the number of checkpoints", full, size, figure(c.RetentionHours), share(grows/(grows+c.FullBytes))))
	}
	return append(said, fmt.Sprintf("stall: %s for each checkpoint", hours(c.StallHours)))
}

// printCost writes it for people.
func printCost(w io.Writer, out costOutput) error {
	if out.Example {
		_, _ = fmt.Fprintf(w, "The worked example. Price your own job with flags or --file: see %s cost --help.\n\n", Name)
	}
	if err := printSteps(w, out.Steps); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(w, "\nWhat each step assumes beyond the one before:\n")
	for n, s := range out.Steps {
		_, _ = fmt.Fprintf(w, "  %d. %s: %s\n", n+1, s.Name, s.Assumes)
	}
	_, _ = fmt.Fprintf(w, "\nStep 2 ahead of time: %s to %s, with %s.\n", money(out.Range.Low, cost.Breakdown.Total),
		money(out.Range.High, cost.Breakdown.Total), strings.Join(out.Range.words(out.Prices.Currency), ", "))
	if out.Interval == nil {
		return nil
	}
	return printInterval(w, *out.Interval, out.Example)
}

// words say what lies where.
func (r costRange) words(currency string) []string {
	n := r.Inputs.Interruptions
	said := []string{fmt.Sprintf("%s to %s interruptions", figure(n.Low), figure(n.High))}
	if r.Poisson > 0 {
		said[0] += fmt.Sprintf(" (%s %% of the cases, if they are independent)", figure(100*r.Poisson))
	}
	if p := r.Inputs.SpotPrice; p.Low != p.High {
		said = append(said, fmt.Sprintf("spot at %s/h to %s/h", cost.Price(p.Low, currency), cost.Price(p.High, currency)))
	}
	if h := r.Inputs.RecoveryHours; h.Low != h.High {
		said = append(said, fmt.Sprintf("%s h to %s h of recovery", figure(h.Low), figure(h.High)))
	}
	return said
}

// component is a column of money.
type component struct {
	name string
	of   func(cost.Breakdown) float64
}

// components are those of a breakdown. Stall and transfer are left out where none of the rows has any.
func components(rows []cost.Breakdown) []component {
	all := []component{
		{"COMPUTE", func(b cost.Breakdown) float64 { return b.Compute }},
		{"STALL", func(b cost.Breakdown) float64 { return b.Stall }},
		{"RECOVERY", func(b cost.Breakdown) float64 { return b.Recovery }},
		{"STORAGE", func(b cost.Breakdown) float64 { return b.Storage }},
		{"TRANSFER", func(b cost.Breakdown) float64 { return b.Transfer }},
	}
	return slices.DeleteFunc(all, func(c component) bool {
		return (c.name == "STALL" || c.name == "TRANSFER") &&
			!slices.ContainsFunc(rows, func(b cost.Breakdown) bool { return c.of(b) != 0 })
	})
}

func money(b cost.Breakdown, of func(cost.Breakdown) float64) string {
	return cost.Money(of(b), b.Currency)
}

func printSteps(w io.Writer, steps []cost.Step) error {
	rows := make([]cost.Breakdown, 0, len(steps))
	for _, s := range steps {
		rows = append(rows, s.Cost)
	}
	columns := append(components(rows), component{"TOTAL", cost.Breakdown.Total}, component{"SAVED", cost.Breakdown.Saved})
	lines := [][]string{{"STEP"}}
	for _, c := range columns {
		lines[0] = append(lines[0], c.name)
	}
	lines[0] = append(lines[0], "SHARE")
	for n, s := range steps {
		line := []string{fmt.Sprintf("%d. %s", n+1, s.Name)}
		for _, c := range columns {
			line = append(line, money(s.Cost, c.of))
		}
		lines = append(lines, append(line, share(s.Cost.SavedShare())))
	}
	return columnsRight(w, lines)
}

func printInterval(w io.Writer, i costInterval, example bool) error {
	now := i.Plan.Checkpoints.IntervalHours
	_, _ = fmt.Fprintf(w, "\nCheckpoint interval, now %s", hours(now))
	if example {
		_, _ = fmt.Fprintf(w, ", in the same job with a store whose prices and sizes are assumed")
	}
	_, _ = fmt.Fprintln(w, ":")
	for _, a := range i.Assumes {
		_, _ = fmt.Fprintf(w, "  %s\n", a)
	}
	_, _ = fmt.Fprintln(w)
	rows := []cost.WhatIf{{IntervalHours: now, Cost: i.Now}}
	rows = append(rows, i.WhatIf...)
	lines := [][]string{{"INTERVAL", "STORAGE", "", "RECOVERY", "", "STALL", "", "OVERHEAD", "", "TOTAL", ""}}
	for n, r := range rows {
		name := hours(r.IntervalHours)
		switch {
		case n == 0:
			name += " (now)"
		case i.OptimumHours != nil && n == len(rows)-1:
			name += " (optimum)"
		}
		b := r.Cost
		lines = append(lines, []string{
			name, cost.Money(b.Storage+b.Transfer, b.Currency), change(r.Storage),
			cost.Money(b.Recovery, b.Currency), change(r.Recovery), cost.Money(b.Stall, b.Currency), change(r.Stall),
			money(b, cost.Breakdown.Overhead), change(r.Overhead), money(b, cost.Breakdown.Total), change(r.Total),
		})
	}
	if err := columnsRight(w, lines); err != nil {
		return err
	}
	if i.Why != "" {
		_, _ = fmt.Fprintf(w, "No optimum: %s.\n", i.Why)
		return nil
	}
	_, _ = fmt.Fprintln(w, "Overhead is all but the training itself; it is the least at the optimum.")
	return nil
}

// columnsRight prints lines in columns, the first to the left and the others to the right.
func columnsRight(w io.Writer, lines [][]string) error {
	width := make([]int, len(lines[0]))
	for _, line := range lines {
		for n, cell := range line {
			width[n] = max(width[n], len([]rune(cell)))
		}
	}
	for _, line := range lines {
		var out strings.Builder
		for n, cell := range line {
			pad := strings.Repeat(" ", width[n]-len([]rune(cell)))
			if n == 0 {
				out.WriteString(cell + pad)
				continue
			}
			out.WriteString("  " + pad + cell)
		}
		if _, err := fmt.Fprintln(w, strings.TrimRight(out.String(), " ")); err != nil {
			return err
		}
	}
	return nil
}

// hours prints a number of hours as a duration, to the second, or as it is where that is much shorter.
func hours(h float64) string {
	d := time.Duration(h * float64(time.Hour))
	if d >= time.Minute {
		d = d.Round(time.Second)
	}
	text := d.String()
	for _, zero := range []string{"m0s", "h0m"} { // 1h0m0s is 1h
		if strings.HasSuffix(text, zero) {
			text = strings.TrimSuffix(text, zero[1:])
		}
	}
	return text
}

// figure prints a number with at most four digits after the point, and no zeros at the end.
func figure(x float64) string {
	text := strconv.FormatFloat(x, 'f', 4, 64)
	return cmp.Or(strings.TrimSuffix(strings.TrimRight(text, "0"), "."), "0")
}

// share prints a share in percent.
func share(x float64) string { return strconv.FormatFloat(100*x, 'f', 1, 64) + " %" }

// change prints a change in percent, nothing where there is none to tell of.
func change(x *float64) string {
	if x == nil {
		return ""
	}
	text := fmt.Sprintf("%+.1f %%", 100**x)
	if strings.Trim(text, "+-0.% ") == "" {
		return "0.0 %"
	}
	return text
}
