package cost

import (
	"errors"
	"fmt"
	"math"

	"golang.org/x/text/currency"
)

// FieldError is a fault of an input. Field is its name in JSON, several parted by ", " where they do not go together.
type FieldError struct {
	Field   string
	Problem string // the values found, what is allowed, and the next step
}

func (e *FieldError) Error() string { return e.Field + ": " + e.Problem }

// Faults are the faults that a Check joined.
func Faults(err error) []*FieldError {
	var out []*FieldError
	var one *FieldError
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			out = append(out, Faults(e)...)
		}
	} else if errors.As(err, &one) {
		out = append(out, one)
	}
	return out
}

// most bounds every input: what is larger was mistyped, and sums of products of such numbers stay finite.
const most = 1e18

// leastInterval is the shortest interval between checkpoints, in hours: some milliseconds.
const leastInterval = 1e-6

// checker collects faults.
type checker struct{ faults []error }

func (c *checker) add(field, format string, args ...any) {
	c.faults = append(c.faults, &FieldError{Field: field, Problem: fmt.Sprintf(format, args...)})
}

// positive wants more than 0, amount 0 or more, and share 0 to 1. They say whether they got it.
func (c *checker) positive(field string, x float64) bool {
	return c.within(field, x, x > 0, "more than 0")
}

func (c *checker) amount(field string, x float64) bool {
	return c.within(field, x, x >= 0, "0 or more")
}

func (c *checker) share(field string, x float64) bool {
	return c.within(field, x, x >= 0 && x <= 1, "a share from 0 to 1")
}

func (c *checker) within(field string, x float64, ok bool, allowed string) bool {
	switch {
	case math.IsNaN(x) || math.IsInf(x, 0):
		c.add(field, "%v is no number; give %s", x, allowed)
		return false
	case !ok:
		c.add(field, "%v is not allowed; give %s", x, allowed)
	case x > most:
		c.add(field, "%v is above %v; check its unit", x, float64(most))
		return false
	}
	return ok
}

// Check reports all faults of prices together, each a *FieldError.
func (p Prices) Check() error {
	var c checker
	if _, err := currency.ParseISO(p.Currency); err != nil {
		c.add("currency", "%q is no currency; give a code of ISO 4217, such as USD", p.Currency)
	}
	c.positive("on_demand_price", p.OnDemand)
	c.amount("storage_price", p.Storage)
	c.amount("write_price", p.Writes)
	c.amount("read_price", p.Reads)
	c.amount("egress_price", p.Egress)
	return errors.Join(c.faults...)
}

// Check reports all faults of a plan together, each a *FieldError.
func (p Plan) Check() error {
	var c checker
	c.positive("hours", p.Hours)
	if c.positive("nodes", p.Nodes) && p.Nodes != math.Trunc(p.Nodes) {
		c.add("nodes", "%v is not a whole number; give how many nodes train in step", p.Nodes)
	}
	c.amount("spot_price", p.SpotPrice)
	onDemand, reserved := c.share("on_demand_share", p.OnDemandShare), c.share("reserved_share", p.ReservedShare)
	if onDemand && reserved && p.OnDemandShare+p.ReservedShare > 1 {
		c.add("on_demand_share, reserved_share", "%v and %v are more than 1 together; lower one of them",
			p.OnDemandShare, p.ReservedShare)
	}
	c.amount("reserved_price", p.ReservedPrice)
	c.amount("interruptions", p.Interruptions)
	recovery, restart := c.amount("recovery_hours", p.RecoveryHours), c.amount("restart_hours", p.RestartHours)
	if recovery && restart && p.RestartHours > p.RecoveryHours {
		c.add("recovery_hours, restart_hours", "%v is less than %v; recovery holds the restart and the lost training, raise it",
			p.RecoveryHours, p.RestartHours)
	}
	p.Checkpoints.check(&c)
	return errors.Join(c.faults...)
}

func (k Checkpoints) check(c *checker) {
	known := c.within("interval_hours", k.IntervalHours, k.IntervalHours == 0 || k.IntervalHours >= leastInterval,
		fmt.Sprintf("%v or more", leastInterval)) && k.IntervalHours > 0
	c.amount("full_bytes", k.FullBytes)
	kept := c.amount("retention_hours", k.RetentionHours)
	kept = c.amount("keep_last", k.KeepLast) && kept
	if kept && k.RetentionHours > 0 && k.KeepLast > 0 {
		c.add("retention_hours, keep_last", "%v and %v are two rules for what is kept; give one", k.RetentionHours, k.KeepLast)
	}
	if c.amount("increment_bytes", k.IncrementBytes) && kept && k.IncrementBytes > 0 && k.RetentionHours == 0 && k.KeepLast == 0 {
		c.add("increment_bytes, retention_hours, keep_last",
			"%v is added by each checkpoint, and kept for 0 h; give how long or how many", k.IncrementBytes)
	}
	for _, f := range []struct {
		field string
		value float64
	}{
		{"stall_hours", k.StallHours}, {"increment_bytes", k.IncrementBytes}, {"writes", k.Writes}, {"egress_bytes", k.EgressBytes},
	} {
		if f.field != "increment_bytes" {
			c.amount(f.field, f.value)
		}
		if f.value > 0 && k.IntervalHours == 0 {
			c.add(f.field+", interval_hours", "%v is of each checkpoint, and there is no interval; give it", f.value)
		}
	}
	c.amount("reads", k.Reads)
	if known && k.StallHours >= k.IntervalHours {
		c.add("stall_hours, interval_hours", "%v is not less than %v; a checkpoint must take less than the training between two",
			k.StallHours, k.IntervalHours)
	}
}

// Check reports all faults of measures together, each a *FieldError.
func (m Measures) Check() error {
	var c checker
	c.share("storage_saving", m.StorageSaving)
	run, split := c.amount("run_hours", m.RunHours), c.amount("split_hours", m.SplitHours)
	if run && split {
		switch {
		case (m.RunHours > 0) != (m.SplitHours > 0):
			c.add("run_hours, split_hours", "%v and %v; give both, how long a run is before and after it is split",
				m.RunHours, m.SplitHours)
		case m.SplitHours > m.RunHours:
			c.add("run_hours, split_hours", "%v is less than %v; a run is split into shorter ones", m.RunHours, m.SplitHours)
		}
	}
	c.amount("paid_price", m.PaidPrice)
	return errors.Join(c.faults...)
}

// Check reports all faults of a spread around a plan together, each a *FieldError: every range must hold what is expected.
func (s Spread) Check(p Plan) error {
	var c checker
	for _, f := range []struct {
		field    string
		r        Range
		expected float64
	}{
		{"spot_price", s.SpotPrice, p.SpotPrice},
		{"interruptions", s.Interruptions, p.Interruptions},
		{"recovery_hours", s.RecoveryHours, p.RecoveryHours},
	} {
		low, high := c.amount(f.field+"_range", f.r.Low), c.amount(f.field+"_range", f.r.High)
		if low && high && f.r.Low > f.r.High {
			c.add(f.field+"_range", "%v..%v ends before it begins; write it like 0.7..0.9", f.r.Low, f.r.High)
			continue
		}
		if low && high && (f.r.Low > f.expected || f.r.High < f.expected) {
			c.add(f.field+"_range, "+f.field, "%v..%v does not hold %v; widen it", f.r.Low, f.r.High, f.expected)
		}
	}
	return errors.Join(c.faults...)
}
