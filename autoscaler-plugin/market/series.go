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

// Validate reports every point that is out of order, doubled, infinite or below 0, and an end before the last point.
func (s Series) Validate() error {
	var f faults
	for i, p := range s.Points {
		if math.IsInf(p.Value, 0) || p.Value < 0 {
			f.add("points[%d]: %v is outside 0 to the largest number; NaN marks a gap", i, p.Value)
		}
		if i == 0 {
			continue
		}
		switch before := s.Points[i-1].At; {
		case p.At.Equal(before):
			f.add("points[%d]: %s is there twice; leave one of them", i, p.At.Format(time.RFC3339Nano))
		case p.At.Before(before):
			f.add("points[%d]: %s is before points[%d], %s; sort by time",
				i, p.At.Format(time.RFC3339Nano), i-1, before.Format(time.RFC3339Nano))
		}
	}
	if n := len(s.Points); n > 0 && !s.End.IsZero() && s.End.Before(s.Points[n-1].At) {
		f.add("end: %s is before the last point, %s", s.End.Format(time.RFC3339Nano), s.Points[n-1].At.Format(time.RFC3339Nano))
	}
	return f.err("series " + s.Key.String())
}

// Resample returns the n values at start, start+step and so on; NaN where At knows none. Step must be above 0.
func (s Series) Resample(start time.Time, step time.Duration, n int) []float64 {
	values := make([]float64, n)
	next := 0 // the first point after the present time
	for i := range values {
		t := start.Add(time.Duration(i) * step)
		for next < len(s.Points) && !s.Points[next].At.After(t) {
			next++
		}
		values[i] = math.NaN()
		if next > 0 && (s.End.IsZero() || t.Before(s.End)) {
			values[i] = s.Points[next-1].Value
		}
	}
	return values
}
