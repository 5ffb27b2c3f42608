package market

import (
	"math"
	"time"
)

// Clock maps the wall clock to a position in the traces of one market. The zero clock has not started: the market
// stands still at its first tick.
type Clock struct {
	Start time.Time `json:"start"` // wall-clock time of position 0
	Scale float64   `json:"scale"` // market seconds per wall second; 60 plays an hour in a minute
}

// Position is how far the market has come at a wall-clock time.
func (c Clock) Position(now time.Time) time.Duration {
	if c.Start.IsZero() || now.Before(c.Start) {
		return 0
	}
	position := float64(now.Sub(c.Start)) * c.Scale
	if position >= math.MaxInt64 {
		return math.MaxInt64
	}
	return time.Duration(position)
}

// Wall is the wall-clock time at which the market reaches a position; false means that the clock has not started.
// It rounds up, so that the position has been reached at the time returned.
func (c Clock) Wall(position time.Duration) (time.Time, bool) {
	if c.Start.IsZero() || c.Scale <= 0 {
		return time.Time{}, false
	}
	wall := math.Ceil(float64(position) / c.Scale)
	if wall >= math.MaxInt64 {
		return time.Time{}, false
	}
	return c.Start.Add(time.Duration(wall)), true
}
