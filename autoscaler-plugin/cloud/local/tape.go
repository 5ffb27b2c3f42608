package local

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"nomad-spotter/autoscaler-plugin/market"
)

// tape is what the market of one offering plays: when it can be had, and at which price if the recording has prices.
type tape struct {
	market.Trace
	prices []float64 // $/h, one per tick; empty: the pool file's price, always
}

// readTape reads a trace in the format of spot-traces, of which some have a list "prices" beside "data".
func readTape(data []byte) (tape, error) {
	trace, err := market.ParseTrace(data)
	if err != nil {
		return tape{}, err
	}
	var file struct {
		Prices []float64 `json:"prices"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		return tape{}, fmt.Errorf("parse trace: prices: %w; give one number in $/h per tick", err)
	}
	if len(file.Prices) > 0 && len(file.Prices) != len(trace.Up) {
		return tape{}, fmt.Errorf("parse trace: prices: %d of them for %d ticks; give one per tick, or none",
			len(file.Prices), len(trace.Up))
	}
	if i := slices.IndexFunc(file.Prices, func(p float64) bool { return !(p >= 0) || math.IsInf(p, 0) }); i >= 0 {
		return tape{}, fmt.Errorf("parse trace: prices[%d]: %v is negative; give $/h, 0 or more", i, file.Prices[i])
	}
	return tape{Trace: trace, prices: file.Prices}, nil
}

// price is what an instance costs at a position; false: the recording does not say.
func (t tape) price(position time.Duration) (float64, bool) {
	if len(t.prices) == 0 {
		return 0, false
	}
	i := 0
	if position > 0 {
		i = int(min(position/t.Tick, time.Duration(len(t.prices)-1)))
	}
	return t.prices[i], true
}

// below is when an instance can be had and is left alone whose maximum price is given; 0 is no maximum.
func (t tape) below(maximum float64) market.Trace {
	if maximum == 0 || len(t.prices) == 0 {
		return t.Trace
	}
	out := market.Trace{Tick: t.Tick, Up: make([]bool, len(t.Up))}
	for i, up := range t.Up {
		out.Up[i] = up && t.prices[i] <= maximum
	}
	return out
}
