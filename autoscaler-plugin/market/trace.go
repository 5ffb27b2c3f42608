// Package market answers what a spot market did and does, from recorded traces: is an offering available at a moment,
// and when does that change next. It is pure: bytes and times go in, values come out. It never opens a file, reads a
// clock or launches anything.
package market

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"
)

// maxTick bounds the length of one tick, so that a position in any trace fits a time.Duration.
const maxTick = 24 * time.Hour

// maxTicks bounds a trace: 2^16 ticks of a day are 179 years, and less than the 292 years of a time.Duration.
const maxTicks = 1 << 16

// Trace is the availability of one offering, sampled at regular ticks: Up[i] holds from i*Tick up to (i+1)*Tick.
type Trace struct {
	Tick time.Duration // length of one tick in the market's own time
	Up   []bool        // true = instances can be had and are left alone
}

// file is the layout of skypilot-org/spot-traces: {"metadata":{"gap_seconds":195},"data":[1,0,…]}, 1 = available.
type file struct {
	Metadata struct {
		GapSeconds *float64 `json:"gap_seconds"`
	} `json:"metadata"`
	Data []float64 `json:"data"`
}

// ParseTrace reads a trace in the format of spot-traces. It reports every fault it finds, each with its field path.
func ParseTrace(data []byte) (Trace, error) {
	var f file
	if err := json.Unmarshal(data, &f); err != nil {
		return Trace{}, fmt.Errorf("parse trace: %w; it must be JSON like {\"metadata\":{\"gap_seconds\":195},\"data\":[1,0]}", err)
	}
	var faults []error
	var tick time.Duration
	switch gap := f.Metadata.GapSeconds; {
	case gap == nil:
		faults = append(faults, errors.New("metadata.gap_seconds: missing; give the length of a tick in seconds"))
	case *gap < 0.001 || *gap > maxTick.Seconds() || math.IsNaN(*gap):
		faults = append(faults, fmt.Errorf("metadata.gap_seconds: %v is outside 0.001 to %v", *gap, maxTick.Seconds()))
	default:
		tick = time.Duration(math.Round(*gap * float64(time.Second)))
	}
	switch {
	case len(f.Data) == 0:
		faults = append(faults, errors.New("data: empty; give at least one tick, 1 = available, 0 = not"))
	case len(f.Data) > maxTicks:
		faults = append(faults, fmt.Errorf("data: %d ticks are more than %d; cut the trace", len(f.Data), maxTicks))
	}
	up := make([]bool, len(f.Data))
	for i, v := range f.Data {
		if v != 0 && v != 1 {
			faults = append(faults, fmt.Errorf("data[%d]: %v is neither 0 (not available) nor 1 (available)", i, v))
			break // one bad value usually means that the file is of another kind; the rest would only repeat it
		}
		up[i] = v == 1
	}
	if len(faults) > 0 {
		return Trace{}, fmt.Errorf("parse trace: %w", errors.Join(faults...))
	}
	return Trace{Tick: tick, Up: up}, nil
}

// MarshalJSON prints a trace in the format that ParseTrace reads.
func (t Trace) MarshalJSON() ([]byte, error) {
	var f file
	gap := t.Tick.Seconds()
	f.Metadata.GapSeconds = &gap
	f.Data = make([]float64, len(t.Up))
	for i, up := range t.Up {
		if up {
			f.Data[i] = 1
		}
	}
	return json.Marshal(f)
}

// Length is the time that the trace covers.
func (t Trace) Length() time.Duration { return time.Duration(len(t.Up)) * t.Tick }

// At reports whether the offering is available at a position in the trace. Before the start it is what the first tick
// says, after the end what the last one says; an empty trace is always available.
func (t Trace) At(position time.Duration) bool {
	if len(t.Up) == 0 {
		return true
	}
	return t.Up[t.tick(position)]
}

// Next returns the position of the first change after the given one; false means that there is none.
func (t Trace) Next(position time.Duration) (time.Duration, bool) {
	if len(t.Up) == 0 {
		return 0, false
	}
	first := t.tick(position)
	for i := first + 1; i < len(t.Up); i++ {
		if t.Up[i] != t.Up[first] {
			return time.Duration(i) * t.Tick, true
		}
	}
	return 0, false
}

func (t Trace) tick(position time.Duration) int {
	if position < 0 || t.Tick <= 0 {
		return 0
	}
	return min(int(position/t.Tick), len(t.Up)-1)
}

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
