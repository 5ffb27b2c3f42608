package forecast

import (
	"math"
	"slices"
)

// Levels are the probabilities at which forecasts give quantiles: .05, .1 … .95.
var Levels = func() (l [19]float64) {
	for i := range l {
		l[i] = float64(i+1) / 20
	}
	return l
}()

// Pinball is the mean quantile loss of a forecast over Levels, in the unit of the quantiles (Koenker and Bassett 1978).
// Its least expected value is reached by the true quantiles alone.
func Pinball(quantiles *[len(Levels)]float64, outcome float64) float64 {
	sum := 0.0
	for i, q := range quantiles {
		if d := outcome - q; d >= 0 {
			sum += Levels[i] * d
		} else {
			sum += (Levels[i] - 1) * d
		}
	}
	return sum / float64(len(Levels))
}

// empirical is a growing set of numbers in order.
type empirical []float64

func (e *empirical) add(v float64) {
	i, _ := slices.BinarySearch(*e, v)
	*e = slices.Insert(*e, i, v)
}

// quantile interpolates between the order statistics (type 7 of Hyndman and Fan 1996, as R and NumPy do by default).
func (e empirical) quantile(p float64) float64 {
	h := p * float64(len(e)-1)
	i := int(h)
	if i+1 >= len(e) {
		return e[len(e)-1]
	}
	return e[i] + (h-float64(i))*(e[i+1]-e[i])
}

// summaryPoints are kept of a pool of sizes, at equal steps of probability.
const summaryPoints = 60

// summary is a growing multiset of numbers that is read as a few of its quantiles, refreshed as it grows.
type summary struct {
	all    []float64
	points []float64 // in order, of equal weight
	fresh  int       // length of all when points was made
}

func (s *summary) add(v float64) {
	s.all = append(s.all, v)
	if n := len(s.all); n >= s.fresh+max(1, s.fresh/20) {
		slices.Sort(s.all)
		s.fresh = n
		m := min(n, summaryPoints)
		s.points = s.points[:0]
		for i := range m {
			s.points = append(s.points, empirical(s.all).quantile((float64(i)+.5)/float64(m)))
		}
	}
}

// mass is a value and its probability.
type mass struct{ value, weight float64 }

// distribution is a discrete predictive distribution: masses in the order of their values, of total 1.
type distribution []mass

// quantiles reads the quantiles at ascending levels: the least value whose cumulated probability reaches the level.
func (d distribution) quantiles(levels []float64, out []float64) {
	cum, j := 0.0, 0
	for i, p := range levels {
		for j < len(d)-1 && cum+d[j].weight < p-1e-12 {
			cum += d[j].weight
			j++
		}
		out[i] = d[j].value
	}
}

// merge appends the masses of two sets of numbers in order, those of a with total weight wa, those of b with wb, each
// mapped by an increasing or (flip) decreasing linear function, in the order of the mapped values.
func merge(dst distribution, a, b []float64, wa, wb, shift, scale float64) distribution {
	na, nb := len(a), len(b)
	if na > 0 {
		wa /= float64(na)
	}
	if nb > 0 {
		wb /= float64(nb)
	}
	at := func(s []float64, i int) float64 {
		if scale < 0 {
			i = len(s) - 1 - i
		}
		return shift + scale*s[i]
	}
	va, vb := math.Inf(1), math.Inf(1)
	i, j := 0, 0
	if na > 0 {
		va = at(a, 0)
	}
	if nb > 0 {
		vb = at(b, 0)
	}
	for i < na || j < nb {
		if i < na && (j >= nb || va <= vb) {
			dst = append(dst, mass{va, wa})
			if i++; i < na {
				va = at(a, i)
			}
		} else {
			dst = append(dst, mass{vb, wb})
			if j++; j < nb {
				vb = at(b, j)
			}
		}
	}
	return dst
}
