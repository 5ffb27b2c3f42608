package cadence

import (
	"math"
	"time"
)

// The classic intervals hold for a hazard that is the same at every age: interruptions come at random, once in mtbf on
// average. Other terms than the stall enter them by Equivalent.

// Young is √(2CM), the first-order interval (Young, "A first order approximation to the optimum checkpoint interval",
// CACM 17, 1974), C being the stall and M the mean time between interruptions.
func Young(stall, mtbf time.Duration) time.Duration {
	return duration(math.Sqrt(2 * stall.Seconds() * mtbf.Seconds()))
}

// Daly is the higher-order interval (Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps",
// FGCS 22, 2006, equation 37), as LLNL's SCR uses it: √(2CM)·[1 + ⅓√(C/2M) + ⅑(C/2M)] − C for C < 2M, else M.
func Daly(stall, mtbf time.Duration) time.Duration {
	c, m := stall.Seconds(), mtbf.Seconds()
	if c >= 2*m {
		return mtbf
	}
	x := c / (2 * m)
	return duration(math.Sqrt(2*c*m)*(1+math.Sqrt(x)/3+x/9) - c)
}

// Exact is the interval that is optimal for interruptions at random: M·(1 + W₀(−e^(−C/M−1))), W₀ being the principal branch
// of Lambert's function.
func Exact(stall, mtbf time.Duration) time.Duration {
	return duration(exact(stall.Seconds(), mtbf.Seconds()))
}

func exact(c, m float64) float64 {
	return m * oneLess(c/m)
}

// oneLess is 1 + W₀(−e^(−x−1)): the y in [0, 1) with y + ln(1−y) = −x. Newton's method on that equation keeps the precision
// which 1+W₀ loses near the branch point.
func oneLess(x float64) float64 {
	if x <= 0 {
		return 0
	}
	y := 1 - math.Exp(-x-1) // from above for large x
	if x < 1 {
		y = math.Sqrt(2*x) / (1 + math.Sqrt(2*x)/3) // the first terms of the series
	}
	for range 50 {
		next := y + (y+math.Log1p(-y)+x)*(1-y)/y // the slope is -y/(1-y)
		if !(next > 0) {
			next = y / 2
		}
		if next >= 1 {
			next = (1 + y) / 2
		}
		if math.Abs(next-y) <= 1e-15*y {
			return next
		}
		y = next
	}
	return y
}

// Equivalent is the stall with which a classic interval takes the other terms into account: τ = √(2M(C+k/c_s)/(1−p)·c_s/c_r),
// k being what storing a checkpoint costs, c_s and c_r the prices of the instance and of rework, p the probability that a
// final checkpoint succeeds.
func (t Terms) Equivalent() time.Duration { return duration(t.priced() / t.rework()) }
