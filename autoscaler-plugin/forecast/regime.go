package forecast

import (
	"math"
	"time"
)

// Shift is a change of regime in a series.
type Shift struct {
	At   time.Time `json:"at"`   // when it was noticed
	Kind string    `json:"kind"` // "level up", "level down" or "larger moves"
}

// Detector watches the steps of a series for a lasting change, by Page-Hinkley sums (Page 1954; the two-sided CUSUM of
// the mean of the steps) and by the same sum over their sizes. A step is measured in units of the typical size of steps
// so far; the sums forgive Drift per step and alarm at Threshold.
type Detector struct {
	Drift     float64 // in typical sizes; half of the shift that is to be found (Hawkins and Olwell 1998)
	Threshold float64 // in typical sizes

	n, size        float64
	up, down, wide float64
}

// NewDetector looks for shifts of the mean of about one typical step; sums of independent Gaussian steps
// reach a threshold of 12 by chance about once in ten thousand steps.
func NewDetector() *Detector { return &Detector{Drift: .5, Threshold: 12} }

// learning is the number of steps that the typical size is learnt from before the sums begin.
const learning = 10

// Step takes up a step, a difference of the logarithm of the price, and says whether the regime changed with it. After an
// alarm it learns anew.
func (d *Detector) Step(at time.Time, r float64) (Shift, bool) {
	size := math.Abs(r)
	if d.n < learning || d.size == 0 {
		d.n++
		d.size += (size - d.size) / d.n
		return Shift{}, false
	}
	// Steps of many sizes count no more than four typical ones: one jump alone is no regime.
	z := max(-4, min(4, r/d.size))
	d.up = max(0, d.up+z-d.Drift)
	d.down = max(0, d.down-z-d.Drift)
	d.wide = max(0, d.wide+math.Abs(z)-1-d.Drift)
	d.n++
	d.size += (size - d.size) / min(d.n, 50)
	sum := max(d.up, d.down, d.wide)
	if sum <= d.Threshold {
		return Shift{}, false
	}
	kind := "larger moves"
	switch sum {
	case d.up:
		kind = "level up"
	case d.down:
		kind = "level down"
	}
	*d = Detector{Drift: d.Drift, Threshold: d.Threshold}
	return Shift{At: at, Kind: kind}, true
}
