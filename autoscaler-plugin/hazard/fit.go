package hazard

import (
	"errors"
	"fmt"
	"math"
	"time"

	"nomad-spotter/autoscaler-plugin/market"
)

// Lifetime is one up-time.
type Lifetime struct {
	Duration time.Duration // above 0
	Censored bool          // still up when last seen: the up-time is longer than Duration by an unknown amount
	Weight   float64       // counts as so many up-times; 0 means 1
}

func (l Lifetime) weight() float64 {
	if l.Weight == 0 {
		return 1
	}
	return l.Weight
}

// ErrTooFew means that the up-times do not determine a Weibull distribution: take one that is pooled over more offerings.
var ErrTooFew = errors.New("too few interruptions to fit")

// FitWeibull returns the Weibull distribution of the highest likelihood for up-times of which some are right-censored
// (Cohen, Technometrics 7, 1965). It needs an interruption and a longer up-time, else the error wraps ErrTooFew.
//
// Leaving censored up-times out, instead of marking them, shortens the distribution: the longest are cut off most often.
// Up-times that were already running when the record began must be left out, for their ages are not known; Lifetimes
// does so.
func FitWeibull(lifetimes []Lifetime) (Weibull, error) {
	var faults []error
	var events, sumLog, longest float64
	youngest := math.Inf(1) // at an interruption
	for i, l := range lifetimes {
		if l.Duration <= 0 {
			faults = append(faults, fmt.Errorf("lifetimes[%d].Duration: %v must be above 0", i, l.Duration))
			continue
		}
		w := l.weight()
		if !(w > 0) || math.IsInf(w, 1) {
			faults = append(faults, fmt.Errorf("lifetimes[%d].Weight: %v must be a number from 0", i, w))
			continue
		}
		t := l.Duration.Hours()
		longest = max(longest, t)
		if !l.Censored {
			events += w
			sumLog += w * math.Log(t)
			youngest = min(youngest, t)
		}
	}
	if len(faults) > 0 {
		return Weibull{}, fmt.Errorf("fit weibull: %w", errors.Join(faults...))
	}
	if events == 0 || youngest == longest {
		return Weibull{}, fmt.Errorf("fit weibull: %w: of %d up-times none ended, or all at the same age; "+
			"pool more offerings or a longer record", ErrTooFew, len(lifetimes))
	}
	meanLog := sumLog / events

	// The likelihood's derivative by the shape, at the best scale for that shape, is 0 where this is. It rises with the
	// shape, so halving finds the only root. Times are taken relative to the longest, so that no power overflows.
	power := func(k float64) (sum, sumLog float64) {
		for _, l := range lifetimes {
			t := math.Log(l.Duration.Hours() / longest)
			p := l.weight() * math.Exp(k*t)
			sum += p
			sumLog += p * (t + math.Log(longest))
		}
		return sum, sumLog
	}
	score := func(k float64) float64 {
		sum, sumLog := power(k)
		return sumLog/sum - 1/k - meanLog
	}
	low, high := 1e-3, 1.0
	for score(high) < 0 && high < 1e6 {
		high *= 2
	}
	for high-low > 1e-10*high {
		if mid := (low + high) / 2; score(mid) < 0 {
			low = mid
		} else {
			high = mid
		}
	}
	k := (low + high) / 2
	sum, _ := power(k)
	w := Weibull{Shape: k, Scale: nanoseconds(longest * math.Pow(sum/events, 1/k) * float64(time.Hour))}
	if err := w.Validate(); err != nil {
		return Weibull{}, fmt.Errorf("fit weibull: %w", err)
	}
	return w, nil
}

// Lifetimes are the up-times of a trace. The one that is running when the trace begins is left out, as its age is not
// known; the one that is running when it ends is censored.
func Lifetimes(t market.Trace) []Lifetime {
	var lifetimes []Lifetime
	start := -1 // tick at which the present up-time began; -1: down, or its beginning is not known
	for i, up := range t.Up {
		switch {
		case up && i > 0 && !t.Up[i-1]:
			start = i
		case !up && start >= 0:
			lifetimes = append(lifetimes, Lifetime{Duration: time.Duration(i-start) * t.Tick})
			start = -1
		}
	}
	if start >= 0 {
		lifetimes = append(lifetimes, Lifetime{Duration: time.Duration(len(t.Up)-start) * t.Tick, Censored: true})
	}
	return lifetimes
}
