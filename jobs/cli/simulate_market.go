package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"nomad-spotter/autoscaler-plugin/cost"
	"nomad-spotter/autoscaler-plugin/market"
)

// recording is a file of recorded availability.
type recording struct {
	path string
	key  market.Key
}

// findRecordings lists the traces that paths name: files, and of directories every *.json but slices.json.
func findRecordings(paths []string) ([]recording, error) {
	var faults []error
	var found []recording
	add := func(path string) {
		key, err := market.TraceKey("", filepath.Base(path))
		if err != nil {
			faults = append(faults, fmt.Errorf("--traces: %w", err))
			return
		}
		found = append(found, recording{path, key})
	}
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			faults = append(faults, fmt.Errorf("--traces: %w; give files, or directories of them", err))
			continue
		}
		if !info.IsDir() {
			add(path)
			continue
		}
		files, err := filepath.Glob(filepath.Join(path, "*.json"))
		if err != nil {
			return nil, err
		}
		before := len(found)
		for _, f := range files {
			if filepath.Base(f) != "slices.json" {
				add(f)
			}
		}
		if len(found) == before {
			faults = append(faults, fmt.Errorf("--traces: %s holds no *.json; give a directory of traces, or files", path))
		}
	}
	return found, errors.Join(faults...)
}

// maxChecked is how many ticks of a trace are kept to judge its polarity.
const maxChecked = 1 << 16

// checkTraces reads traces from beginning to end and reports the faults of all of them together. It returns the length of
// the longest.
func checkTraces(recordings []recording, polarity market.Polarity) (time.Duration, error) {
	var faults []error
	var names []string
	var keys []market.Key
	var traces []market.Trace
	length := time.Duration(0)
	for _, r := range recordings {
		t, n, err := readWhole(r.path, polarity)
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", r.path, err))
			continue
		}
		length = max(length, n)
		names, keys, traces = append(names, filepath.Base(r.path)), append(keys, r.key), append(traces, t)
	}
	if polarity == market.PolarityAsk {
		faults = append(faults, market.CheckPolarity(names, keys, traces))
	}
	return length, errors.Join(faults...)
}

func readWhole(path string, polarity market.Polarity) (market.Trace, time.Duration, error) {
	f, err := os.Open(path)
	if err != nil {
		return market.Trace{}, 0, err
	}
	defer f.Close()
	r, err := market.OpenTrace(f, polarity)
	if err != nil {
		return market.Trace{}, 0, err
	}
	t := market.Trace{Tick: r.Tick()}
	for {
		up, err := r.Next()
		switch {
		case errors.Is(err, io.EOF):
			return t, r.Position(), nil
		case err != nil:
			return market.Trace{}, 0, err
		case len(t.Up) < maxChecked:
			t.Up = append(t.Up, up)
		}
	}
}

// scene is a pool on recorded markets, which can be played again and again.
type scene struct {
	offers   []offer
	polarity market.Polarity
	prices   []market.Series // of the spot offerings, if they are recorded
	start    time.Time       // of the prices
	length   time.Duration   // of the longest recording
}

// setScene finds the recordings of every spot offering and checks all inputs. It reports all faults together.
func setScene(offers []offer, recordings []recording, prices string, polarity market.Polarity) (*scene, error) {
	s := &scene{offers: offers, polarity: polarity}
	var faults []error
	var used []recording
	for i := range offers {
		o := &offers[i]
		if o.Kind != cost.Spot {
			continue
		}
		if o.trace == "" {
			r, err := matchRecording(o, recordings)
			if err != nil {
				faults = append(faults, err)
				continue
			}
			o.trace = r.path
		}
		used = append(used, recording{o.trace, o.Key})
	}
	if len(used) == 0 && len(faults) == 0 {
		faults = append(faults, errors.New("offering: none is spot; add one, or see `spotter cost` for what on-demand costs"))
	}
	var err error
	s.length, err = checkTraces(used, polarity)
	faults = append(faults, err)
	if prices != "" {
		faults = append(faults, s.readPrices(prices))
	}
	return s, errors.Join(faults...)
}

// matchRecording finds the recording of an offering's zone; where there are several, that of its type.
func matchRecording(o *offer, recordings []recording) (recording, error) {
	var zone, same []recording
	for _, r := range recordings {
		if r.key.Zone != o.Key.Zone {
			continue
		}
		zone = append(zone, r)
		if r.key.Type == o.Key.Type {
			same = append(same, r)
		}
	}
	if len(zone) == 1 {
		return zone[0], nil
	}
	if len(same) == 1 {
		return same[0], nil
	}
	if len(zone) == 0 {
		names := make([]string, len(recordings))
		for i, r := range recordings {
			names[i] = filepath.Base(r.path)
		}
		have := "there is none: give them with --traces"
		if len(names) > 0 {
			have = "there are " + strings.Join(names, ", ")
		}
		return recording{}, fmt.Errorf("offering %q: zone %q has no trace; %s; add the missing one as ZONE_TYPE.json, "+
			"name it in the offering as trace = \"FILE\", or take the offering out of the pool", o.Name, o.Key.Zone, have)
	}
	names := make([]string, len(zone))
	for i, r := range zone {
		names[i] = r.path
	}
	return recording{}, fmt.Errorf("offering %q: zone %q has several traces, %s, and type %q tells none of them; "+
		"name one in the offering as trace = \"FILE\"", o.Name, o.Key.Zone, strings.Join(names, ", "), o.Key.Type)
}

// readPrices finds the recorded prices of the spot offerings, and the first time at which all of them are known.
func (s *scene) readPrices(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("--prices: %w", err)
	}
	defer f.Close()
	all, err := market.ReadPrices(f)
	if err != nil {
		return fmt.Errorf("--prices: %s: %w", path, err)
	}
	have := make([]market.Key, len(all.Spot))
	for i, p := range all.Spot {
		have[i] = p.Key
	}
	var want []market.Key
	for _, o := range s.offers {
		if o.Kind == cost.Spot {
			k := o.Key
			k.Provider = "" // pool files name the plugin that launches, price files the cloud
			want = append(want, k)
		}
	}
	found, err := market.Match(want, have)
	if err != nil {
		return fmt.Errorf("--prices: %s: %w", path, err)
	}
	for _, i := range found {
		p := all.Spot[i]
		s.prices = append(s.prices, p)
		if first := p.Points[0].At; first.After(s.start) {
			s.start = first
		}
	}
	return nil
}

// play opens the market from its beginning. The caller closes it.
func (s *scene) play() (market.Feed, io.Closer, error) {
	var feeds, prices []market.Feed
	var files closers
	for _, o := range s.offers {
		if o.Kind != cost.Spot {
			continue
		}
		f, err := os.Open(o.trace)
		if err != nil {
			return nil, nil, errors.Join(err, files.Close())
		}
		files = append(files, f)
		r, err := market.OpenTrace(f, s.polarity)
		if err != nil {
			return nil, nil, errors.Join(fmt.Errorf("%s: %w", o.trace, err), files.Close())
		}
		feeds = append(feeds, r.Feed(o.Price))
	}
	for _, p := range s.prices {
		prices = append(prices, p.Feed(s.start))
	}
	feed := market.Merge(feeds...)
	if len(prices) > 0 {
		feed = market.Until(market.Priced(feed, market.Merge(prices...)), s.length)
	}
	return feed, files, nil
}

// closers are closed together.
type closers []io.Closer

// Close implements io.Closer.
func (c closers) Close() error {
	var faults []error
	for _, f := range c {
		if err := f.Close(); err != nil && !errors.Is(err, fs.ErrClosed) {
			faults = append(faults, err)
		}
	}
	return errors.Join(faults...)
}

// onDemand is the lowest price of on-demand in $/h, by which savings are measured; without any, the highest price.
func (s *scene) onDemand() float64 {
	var list, all []float64
	for _, o := range s.offers {
		all = append(all, o.Price)
		if o.Kind == cost.OnDemand {
			list = append(list, o.Price)
		}
	}
	if len(list) > 0 {
		return slices.Min(list)
	}
	return slices.Max(all)
}
