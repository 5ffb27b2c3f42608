// Package hazard answers how likely an instance of an offering is to be interrupted at its age: a Weibull distribution of
// up-times, fitted by maximum likelihood, and a book that starts from what providers publish and learns from the pool's
// own launches, reclaims and refusals. It is pure: values and times go in, values come out. It never reads a clock or a
// file, and it never decides.
package hazard

import (
	"fmt"
	"math"
	"time"

	"gonum.org/v1/gonum/mathext"
)

// MinAge is the age below which Rate does not rise any more. The rate of a Weibull of a shape below 1 is infinite at age
// 0; no recorded market is sampled finer than this (the zones of 2023-02 have no run below 585 s), so nothing is known of
// younger instances.
const MinAge = 5 * time.Minute

// Weibull is a distribution of up-times: P(up-time > t) = exp(-(t/Scale)^Shape). A shape below 1 means that the hazard
// falls with age, which is what every recorded spot market shows; 1 is the exponential distribution.
type Weibull struct {
	Shape float64       `json:"shape"`    // k > 0
	Scale time.Duration `json:"scale_ns"` // lambda > 0: 1/e = 36.8 % of the instances get as old
}

// Validate reports every parameter that is outside its range.
func (w Weibull) Validate() error {
	switch {
	case !(w.Shape > 0) || math.IsInf(w.Shape, 1):
		return fmt.Errorf("weibull: shape %v must be a number above 0; recorded spot markets have 0.5 to 0.9", w.Shape)
	case w.Scale <= 0:
		return fmt.Errorf("weibull: scale %v must be above 0; recorded spot markets have 1 to 2 h", w.Scale)
	}
	return nil
}

// Rate is the hazard in interruptions per hour of an instance of that age; ages below MinAge count as MinAge.
func (w Weibull) Rate(age time.Duration) float64 {
	x := float64(max(age, MinAge)) / float64(w.Scale)
	return w.Shape / w.Scale.Hours() * math.Pow(x, w.Shape-1)
}

// Cumulative is the integral of the hazard from 0 to an age, without the floor of Rate: the expected number of
// interruptions if every interrupted instance were replaced by one of the same age. Survival is exp(-Cumulative).
func (w Weibull) Cumulative(age time.Duration) float64 {
	if age <= 0 {
		return 0
	}
	return math.Pow(float64(age)/float64(w.Scale), w.Shape)
}

// Survival is the probability that an instance gets older than an age.
func (w Weibull) Survival(age time.Duration) float64 { return math.Exp(-w.Cumulative(age)) }

// SurvivalFrom is the probability that an instance of that age stays up for a further time.
func (w Weibull) SurvivalFrom(age, further time.Duration) float64 {
	return math.Exp(w.Cumulative(age) - w.Cumulative(max(age, 0)+max(further, 0)))
}

// Quantile is the age by which a share p of the instances has been interrupted; 0 <= p < 1. It is at most
// math.MaxInt64 ns.
func (w Weibull) Quantile(p float64) time.Duration { return w.QuantileFrom(0, p) }

// QuantileFrom is the further time within which a share p of the instances of that age is interrupted.
func (w Weibull) QuantileFrom(age time.Duration, p float64) time.Duration {
	age = max(age, 0)
	total := float64(w.Scale) * math.Pow(w.Cumulative(age)-math.Log1p(-min(max(p, 0), 1)), 1/w.Shape)
	return nanoseconds(total - float64(age))
}

// Mean is the mean up-time.
func (w Weibull) Mean() time.Duration {
	return nanoseconds(float64(w.Scale) * math.Gamma(1+1/w.Shape))
}

// MeanResidual is the mean time that an instance of that age still stays up. With s = 1/Shape and x = Cumulative(age) it
// is Scale*s*e^x*Gamma(s,x), Gamma(s,x) being the upper incomplete gamma function.
func (w Weibull) MeanResidual(age time.Duration) time.Duration {
	s, x := 1/w.Shape, w.Cumulative(age)
	return nanoseconds(float64(w.Scale) * s * scaledGamma(s, x))
}

// scaledGamma is e^x*Gamma(s,x). Where e^x gets large it takes the continued fraction of Legendre (Press et al.,
// Numerical Recipes, 6.2), in which the exponentials cancel, by the method of Lentz.
func scaledGamma(s, x float64) float64 {
	if x < s+1 {
		return math.Exp(x) * math.Gamma(s) * mathext.GammaIncRegComp(s, x)
	}
	const tiny = 1e-300
	b := x + 1 - s
	c, d := 1/tiny, 1/b
	h := d
	for i := 1; i < 500; i++ {
		a := -float64(i) * (float64(i) - s)
		b += 2
		if d = a*d + b; math.Abs(d) < tiny {
			d = tiny
		}
		if c = b + a/c; math.Abs(c) < tiny {
			c = tiny
		}
		d = 1 / d
		h *= d * c
		if math.Abs(d*c-1) < 1e-14 {
			break
		}
	}
	return math.Pow(x, s) * h
}

// nanoseconds rounds to a duration, from 0 to the longest.
func nanoseconds(ns float64) time.Duration {
	switch {
	case !(ns > 0):
		return 0
	case ns >= math.MaxInt64:
		return math.MaxInt64
	}
	return time.Duration(math.Round(ns))
}
