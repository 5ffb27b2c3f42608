package market

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/shoenig/test/must"
)

func TestParseTrace(t *testing.T) {
	trace, err := ParseTrace([]byte(`{"metadata":{"gap_seconds":195},"data":[1,1,0,1]}`))
	must.NoError(t, err)
	must.Eq(t, Trace{Tick: 195 * time.Second, Up: []bool{true, true, false, true}}, trace)
	must.Eq(t, 780*time.Second, trace.Length())
}

func TestParseTrace_faults(t *testing.T) {
	cases := map[string]struct {
		in   string
		want []string
	}{
		"not json":        {`[1,0`, []string{"parse trace", "gap_seconds"}},
		"nothing":         {`{}`, []string{"metadata.gap_seconds: missing", "data: empty"}},
		"zero gap":        {`{"metadata":{"gap_seconds":0},"data":[1]}`, []string{"metadata.gap_seconds: 0"}},
		"negative gap":    {`{"metadata":{"gap_seconds":-195},"data":[1]}`, []string{"-195"}},
		"more than a day": {`{"metadata":{"gap_seconds":86401},"data":[1]}`, []string{"86401"}},
		"a price":         {`{"metadata":{"gap_seconds":1},"data":[1,0.3,0.4]}`, []string{"data[1]: 0.3"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := ParseTrace([]byte(c.in))
			must.Error(t, err)
			for _, want := range c.want {
				must.StrContains(t, err.Error(), want)
			}
		})
	}
}

func TestTrace_positions(t *testing.T) {
	trace := Trace{Tick: 10 * time.Second, Up: []bool{true, true, false, true}}
	cases := []struct {
		position time.Duration
		up       bool
		next     time.Duration
		changes  bool
	}{
		{-time.Second, true, 20 * time.Second, true},
		{0, true, 20 * time.Second, true},
		{20*time.Second - 1, true, 20 * time.Second, true},
		{20 * time.Second, false, 30 * time.Second, true},
		{30*time.Second - 1, false, 30 * time.Second, true},
		{30 * time.Second, true, 0, false},
		{time.Hour, true, 0, false},
		{math.MaxInt64, true, 0, false},
	}
	for _, c := range cases {
		must.Eq(t, c.up, trace.At(c.position), must.Sprintf("at %v", c.position))
		next, changes := trace.Next(c.position)
		must.Eq(t, c.next, next, must.Sprintf("next after %v", c.position))
		must.Eq(t, c.changes, changes)
	}
	must.True(t, Trace{}.At(0))
}

func TestClock(t *testing.T) {
	start := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	clock := Clock{Start: start, Scale: 60}
	must.Eq(t, 0, clock.Position(start.Add(-time.Hour)))
	must.Eq(t, time.Hour, clock.Position(start.Add(time.Minute)))
	wall, ok := clock.Wall(2 * time.Hour)
	must.True(t, ok)
	must.Eq(t, start.Add(2*time.Minute), wall)

	must.Eq(t, 0, Clock{Scale: 60}.Position(start))
	_, ok = Clock{Scale: 60}.Wall(time.Hour)
	must.False(t, ok)
	must.Eq(t, math.MaxInt64, Clock{Start: start, Scale: 1e12}.Position(start.Add(1e6*time.Hour)))
}

// The wall-clock time of a position is never too early, whatever the scale: a supervisor that wakes then finds the
// market changed, and does not wait for the next poll.
func TestClock_wallHasReached(t *testing.T) {
	start := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	for _, scale := range []float64{0.1, 1, 3, 7.7, 60, 3600} {
		clock := Clock{Start: start, Scale: scale}
		for i := range 50 {
			position := time.Duration(i) * 195 * time.Second
			wall, ok := clock.Wall(position)
			must.True(t, ok)
			must.GreaterEq(t, position, clock.Position(wall.Add(time.Microsecond)), must.Sprintf("scale %v", scale))
		}
	}
}

func FuzzParseTrace(f *testing.F) {
	f.Add([]byte(`{"metadata":{"gap_seconds":195},"data":[1,0,1]}`))
	f.Add([]byte(`{"metadata":{"gap_seconds":0.25},"data":[0]}`))
	f.Add([]byte(`{"metadata":{"gap_seconds":1e300},"data":[]}`))
	f.Add([]byte(`{"data":[2]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		trace, err := ParseTrace(data)
		if err != nil {
			return
		}
		printed, err := json.Marshal(trace)
		must.NoError(t, err)
		again, err := ParseTrace(printed)
		must.NoError(t, err)
		must.Eq(t, trace, again)
		for _, at := range []time.Duration{math.MinInt64, 0, trace.Length() - 1, trace.Length(), math.MaxInt64} {
			next, ok := trace.Next(at)
			if ok && trace.At(next) == trace.At(at) {
				t.Fatalf("no change at %v after %v", next, at)
			}
		}
	})
}

// The recorded zones are read as they are, where they are at hand: SPOTTER_DATA names the folder of recorded markets.
func TestParseTrace_recorded(t *testing.T) {
	dir := os.Getenv("SPOTTER_DATA")
	if dir == "" {
		t.Skip("SPOTTER_DATA is not set: no recorded traces to read")
	}
	files, err := filepath.Glob(filepath.Join(dir, "availability/aws-2023-02/*.json"))
	must.NoError(t, err)
	must.SliceNotEmpty(t, files)
	for _, file := range files {
		if filepath.Base(file) == "slices.json" {
			continue
		}
		data, err := os.ReadFile(file)
		must.NoError(t, err)
		trace, err := ParseTrace(data)
		must.NoError(t, err, must.Sprint(file))
		must.Greater(t, 1000, len(trace.Up))
	}
}
