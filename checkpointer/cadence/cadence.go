// Package cadence decides when a training task is worth a checkpoint: often enough that little is lost with an instance,
// seldom enough that training does not stand still for it. It is pure: terms, a hazard and an age go in, an interval comes
// out. It never reads a clock, asks a task or knows where hazards come from.
//
// All intervals count from the end of one checkpoint's stall to the start of the next one's: the time in which training
// goes on.
//
// New looks ahead: it minimises what an instance is expected to waste until its end, with a hazard that may change with
// the age of the instance. Young, Daly and Exact are the classic intervals for a hazard that stays as it is.
package cadence

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Hazard is how often instances of an age are interrupted, in events per hour.
type Hazard func(age time.Duration) float64

// Constant is the hazard of instances that are interrupted once in a mean time, whatever their age.
func Constant(mtbf time.Duration) Hazard {
	h := 1 / mtbf.Hours()
	return func(time.Duration) float64 { return h }
}

// Weibull is the hazard (k/λ)(t/λ)^(k-1) of up-times with the survival function exp(-(t/λ)^k). A shape k below 1 is a hazard
// that decreases with age: what has been up for long stays up. Below an age of one second it is that of one second, since
// it grows without bound towards 0.
func Weibull(shape float64, scale time.Duration) Hazard {
	return func(age time.Duration) float64 {
		return shape / scale.Hours() * math.Pow(max(age, time.Second).Hours()/scale.Hours(), shape-1)
	}
}

// Terms are what a checkpoint costs, what it is for, and how it is made.
type Terms struct {
	Stall time.Duration // for which training stands still, per checkpoint
	Lag   time.Duration // from the end of the stall until the checkpoint is durable
	Least time.Duration // shortest interval: size / bandwidth, so that one checkpoint is stored before the next one comes
	Most  time.Duration // longest interval, for the case that NoticeSuccess is overestimated; 0: none

	NoticeSuccess float64       // probability that an interruption is told in time for a final checkpoint, 0 to below 1
	Final         time.Duration // what a final checkpoint costs
	Restart       time.Duration // from the start of an instance until training goes on

	StorageUSD       float64 // of one checkpoint: requests, traffic, size × price × time kept
	SpotUSDPerHour   float64 // price at which training stands still; 0 with ReworkUSDPerHour 0: only time counts
	ReworkUSDPerHour float64 // price at which lost work is done again, that of on-demand if a deadline binds
}

// Check reports every fault of the terms, each with its field.
func (t Terms) Check() error {
	var errs []error
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"Lag", t.Lag}, {"Least", t.Least}, {"Most", t.Most}, {"Final", t.Final}, {"Restart", t.Restart}} {
		if d.value < 0 {
			fault("%s: %s is negative: give 0 or more", d.name, d.value)
		}
	}
	if t.Stall <= 0 {
		fault("Stall: %s must be above 0: give what was measured, at least a millisecond", t.Stall)
	}
	if t.Most > 0 && t.Most < t.Least {
		fault("Most: %s is shorter than Least, %s: raise Most, or make checkpoints smaller", t.Most, t.Least)
	}
	if !(t.NoticeSuccess >= 0 && t.NoticeSuccess < 1) {
		fault("NoticeSuccess: %v is not a probability from 0 to below 1", t.NoticeSuccess)
	}
	for _, p := range []struct {
		name  string
		value float64
	}{{"StorageUSD", t.StorageUSD}, {"SpotUSDPerHour", t.SpotUSDPerHour}, {"ReworkUSDPerHour", t.ReworkUSDPerHour}} {
		if !(p.value >= 0) || math.IsInf(p.value, 0) {
			fault("%s: %v is no price: give 0 or more", p.name, p.value)
		}
	}
	if (t.SpotUSDPerHour == 0) != (t.ReworkUSDPerHour == 0) {
		fault("SpotUSDPerHour, ReworkUSDPerHour: %v and %v: give both, or neither", t.SpotUSDPerHour, t.ReworkUSDPerHour)
	}
	if t.StorageUSD > 0 && t.SpotUSDPerHour == 0 {
		fault("StorageUSD: %v without SpotUSDPerHour, 0: give the price of the instance that it is weighed against", t.StorageUSD)
	}
	return errors.Join(errs...)
}

// priced is what one checkpoint costs, in seconds of the instance: the stall, and what storing it is worth of those.
func (t Terms) priced() float64 {
	if t.StorageUSD == 0 {
		return t.Stall.Seconds()
	}
	return t.Stall.Seconds() + t.StorageUSD/t.SpotUSDPerHour*time.Hour.Seconds()
}

// rework is what a second of lost work costs, in seconds of the instance, where an interruption comes without a final
// checkpoint with probability 1-p.
func (t Terms) rework() float64 {
	if t.SpotUSDPerHour == 0 {
		return 1 - t.NoticeSuccess
	}
	return (1 - t.NoticeSuccess) * t.ReworkUSDPerHour / t.SpotUSDPerHour
}

// least is the shortest interval: the checkpoint before must be durable when the next one is.
func (t Terms) least() float64 {
	return max(t.Least.Seconds(), (t.Lag - t.Stall).Seconds())
}

// bound keeps an interval, in seconds, within what the terms allow.
func (t Terms) bound(s float64) float64 {
	s = max(s, t.least())
	if t.Most > 0 {
		s = min(s, max(t.Most.Seconds(), t.least()))
	}
	return s
}

// duration is a number of seconds, at most the longest duration.
func duration(s float64) time.Duration {
	if s >= math.MaxInt64/float64(time.Second) {
		return math.MaxInt64
	}
	return time.Duration(s * float64(time.Second))
}
