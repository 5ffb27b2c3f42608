package local

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"time"

	"nomad-spotter/autoscaler-plugin/market"
)

const clockFile = "market.json"

// readClock reads the market's clock; one that has not started is the zero clock.
func readClock(stateDir string) (market.Clock, error) {
	var c market.Clock
	err := readJSON(filepath.Join(stateDir, clockFile), &c)
	if errors.Is(err, fs.ErrNotExist) {
		return market.Clock{}, nil
	}
	return c, err
}

// startClock starts the market's clock if it stands. It returns the clock, and whether this call started it.
func startClock(ctx context.Context, stateDir string, scale float64, now time.Time) (market.Clock, bool, error) {
	unlock, err := lockFile(ctx, filepath.Join(stateDir, lockName))
	if err != nil {
		return market.Clock{}, false, err
	}
	defer unlock()
	clock, err := readClock(stateDir)
	if err != nil || !clock.Start.IsZero() {
		return clock, false, err
	}
	clock = market.Clock{Start: now.UTC(), Scale: scale}
	return clock, true, writeJSON(filepath.Join(stateDir, clockFile), clock)
}
