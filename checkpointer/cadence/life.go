package cadence

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// life is the distribution of up-times under a hazard that is constant in each cell of a grid of ages. Times are in seconds.
type life struct {
	age  []float64
	rate []float64 // per second, from this age to the next; the last holds from there on
	risk []float64 // ∫ of the hazard up to this age
	area []float64 // ∫ of the survival function up to this age
}

// How far lives are looked at, and how finely.
const (
	maxAge   = 60 * 24 * 3600.0
	maxRisk  = 20.0 // one instance in 5·10⁸ gets so far
	maxCells = 100_000
)

var errNoLife = errors.New("the hazard leaves no instance alive for a second")

// newLife makes a grid of ages on which each age is followed by the next as step says, and which contains the jumps.
func newLife(h Hazard, step func(age float64) float64, jumps []float64) (*life, error) {
	l := &life{age: []float64{0}, risk: []float64{0}, area: []float64{0}}
	for a, risk := 0.0, 0.0; a < maxAge && risk < maxRisk && len(l.age) < maxCells; {
		next := min(a+max(step(a), 1), maxAge)
		for len(jumps) > 0 && jumps[0] <= a {
			jumps = jumps[1:]
		}
		if len(jumps) > 0 && jumps[0] < next {
			next = jumps[0]
		}
		d := next - a
		r := h(duration(a+d/2)) / 3600
		if !(r >= 0) {
			return nil, fmt.Errorf("the hazard is %v events per hour at the age %s: it must be 0 or more", r*3600, duration(a+d/2))
		}
		if math.IsInf(r, 1) {
			break
		}
		l.rate = append(l.rate, r)
		l.area = append(l.area, l.area[len(l.area)-1]+math.Exp(-risk)*spent(r, d))
		a, risk = next, risk+r*d
		l.age, l.risk = append(l.age, a), append(l.risk, risk)
	}
	if len(l.rate) == 0 {
		return nil, errNoLife
	}
	// What it was on average in the last tenth of the ages, since a cell may be empty.
	n := len(l.age) - 1
	since := l.age[n] * 0.9
	l.rate = append(l.rate, l.rate[n-1])
	l.rate[n] = (l.risk[n] - l.risks(since)) / (l.age[n] - since)
	return l, nil
}

// spent is ∫₀^d e^(-rx) dx.
func spent(r, d float64) float64 {
	if r*d < 1e-9 {
		return d
	}
	return -math.Expm1(-r*d) / r
}

func (l *life) last() int { return len(l.age) - 1 }

// cell is the index of the last age that is not above a.
func (l *life) cell(a float64) int {
	i, found := slices.BinarySearch(l.age, a)
	if !found {
		i--
	}
	return max(i, 0)
}

// risks is ∫ of the hazard up to an age.
func (l *life) risks(a float64) float64 {
	i := l.cell(a)
	return l.risk[i] + l.rate[i]*(a-l.age[i])
}

// mean is the mean life; +Inf if the hazard ends.
func (l *life) mean() float64 {
	n := l.last()
	return l.area[n] + math.Exp(-l.risk[n])/l.rate[n]
}

// wait is the τ for which τ·∫ of the hazard from a to a+τ is product, in seconds; +Inf if there is none. With a constant
// hazard h it is √(product/h).
func (l *life) wait(a, product float64) float64 {
	from := l.risks(a)
	reached := func(b float64) bool { return (b-a)*(l.risks(b)-from) >= product }
	low, high := 0.0, 1.0
	for !reached(a + high) {
		low, high = high, 2*high
		if high > 1e12 {
			return math.Inf(1)
		}
	}
	for high-low > 1e-3*high {
		if mid := (low + high) / 2; reached(a + mid) {
			high = mid
		} else {
			low = mid
		}
	}
	return high
}

// mark is an age with what belongs to it, so that it is looked up once.
type mark struct{ age, risk, lived float64 }

func (l *life) mark(a float64) mark {
	i := l.cell(a)
	d := a - l.age[i]
	return mark{a, l.risk[i] + l.rate[i]*d, l.area[i] + math.Exp(-l.risk[i])*spent(l.rate[i], d)}
}

// loss is ∫ f(x)·(x−since) dx between two ages, f being the density of the end of what has reached a; by parts.
func (a mark) loss(from, to mark, since float64) float64 {
	if to.age <= from.age {
		return 0
	}
	return (from.age-since)*a.survive(from) - (to.age-since)*a.survive(to) + (to.lived-from.lived)*math.Exp(a.risk)
}

// survive is the probability that what has reached a reaches b.
func (a mark) survive(b mark) float64 { return math.Exp(a.risk - b.risk) }
