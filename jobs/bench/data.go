package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"nomad-spotter/autoscaler-plugin/market"
)

// absent tells that data is not there, and says so.
func absent(w io.Writer, path string) bool {
	if _, err := os.Stat(path); err != nil {
		fmt.Fprintf(w, "\nskipped: %v\n", err)
		return true
	}
	return false
}

// readZoneTraces reads the zones of a directory.
func readZoneTraces(dir string) ([]market.Key, []market.Trace, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, nil, err
	}
	var keys []market.Key
	var traces []market.Trace
	for _, name := range names {
		if filepath.Base(name) == "slices.json" {
			continue
		}
		content, err := os.ReadFile(name)
		if err != nil {
			return nil, nil, err
		}
		trace, err := market.ParseTrace(content)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", name, err)
		}
		key, err := market.TraceKey("aws", filepath.Base(name))
		if err != nil {
			return nil, nil, err
		}
		keys, traces = append(keys, key), append(traces, trace)
	}
	return keys, traces, nil
}

// readPrices reads a file of recorded prices.
func readPrices(path string) (market.Prices, error) {
	f, err := os.Open(path)
	if err != nil {
		return market.Prices{}, err
	}
	defer f.Close()
	prices, err := market.ReadPrices(f)
	if err != nil {
		return prices, fmt.Errorf("%s: %w", path, err)
	}
	return prices, nil
}
