// Package market answers what a spot market did and does, from recorded traces and prices or from a seeded generator: is
// an offering available at a moment, at what price, and when does that change next. It is pure: bytes and times go in,
// values come out. It never opens a file, reads a clock or launches anything.
package market

import (
	"encoding/json"
	"time"
)

// Trace is the availability of one offering, sampled at regular ticks: Up[i] holds from i*Tick up to (i+1)*Tick.
type Trace struct {
	Tick time.Duration // length of one tick in the market's own time
	Up   []bool        // true = instances can be had and are left alone
}

// MarshalJSON prints a trace in the format that ParseTrace reads.
func (t Trace) MarshalJSON() ([]byte, error) {
	var f struct {
		Metadata struct {
			GapSeconds float64 `json:"gap_seconds"`
		} `json:"metadata"`
		Data []int `json:"data"`
	}
	f.Metadata.GapSeconds = t.Tick.Seconds()
	f.Data = make([]int, len(t.Up))
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
