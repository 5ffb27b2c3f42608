package market

import (
	"math"
	"slices"
	"time"
)

// Key names one offering's market, as a provider does. A field that does not apply is empty.
type Key struct {
	Provider string `json:"provider,omitempty"` // such as "aws"
	Region   string `json:"region,omitempty"`   // such as "us-west-2"
	Zone     string `json:"zone,omitempty"`     // such as "us-west-2a"; empty where prices hold for a region
	Type     string `json:"type,omitempty"`     // such as "p3.2xlarge"
}

// Point is a change of a series: Value holds from At until the next point. NaN is a gap: nothing is known from At on.
type Point struct {
	At    time.Time
	Value float64
}

// Series is a step function of time, such as a price in $/h or a number of available instances. Points are ordered by
// time, no two of them at the same.
type Series struct {
	Key    Key
	Points []Point
	End    time.Time // to here the last point is known to hold; zero: for ever
}

// At returns the value at a time; false before the first point, after the end and in gaps.
func (s Series) At(t time.Time) (float64, bool) {
	if !s.End.IsZero() && !t.Before(s.End) {
		return 0, false
	}
	i, found := slices.BinarySearchFunc(s.Points, t, func(p Point, t time.Time) int { return p.At.Compare(t) })
	if !found {
		i--
	}
	if i < 0 || math.IsNaN(s.Points[i].Value) {
		return 0, false
	}
	return s.Points[i].Value, true
}
