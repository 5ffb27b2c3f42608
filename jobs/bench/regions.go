package main

import (
	"fmt"
	"io"
	"path/filepath"
	"text/tabwriter"
	"time"

	"nomad-spotter/autoscaler-plugin/cost"
	"nomad-spotter/autoscaler-plugin/market"
	"nomad-spotter/autoscaler-plugin/simulate"
)

// The interruption rate that jobs in one zone are to have, and how finely the length of the job is searched for it.
const (
	singleRate   = 0.15
	regionsEvery = 10 * time.Minute // between two jobs
	regionsStart = 6 * time.Minute  // changeover
	settled      = 10 * time.Minute // as a pool's return_after: how long spot must have been up to be trusted
)

// regionsSection runs a job in one zone and in several places at once, and says how often no replica got through.
func regionsSection(w io.Writer, data string) error {
	keys, traces, err := readZoneTraces(filepath.Join(data, missionTraces))
	if err != nil {
		return err
	}
	if len(keys) == 0 {
		_, err := fmt.Fprintf(w, "skipped: no %s in %q\n", missionTraces, data)
		return err
	}
	r := &regions{keys: keys, traces: traces, length: traces[0].Length(), spotter: simulate.NewSpotter()}
	length, zone, rate, err := r.lengthFor()
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(w, "a job every %v over %.1f days, 6 min changeover, checkpoints of 1.2 GB; it starts where spot is up, or waits; "+
		"the first replica to finish ends the others\nsettled: the replicas start together, where spot has been up for 10 min; "+
		"no zone at all: the share of jobs that no zone would have let through from their starts on\n"+
		"length L = %.2f h of work: with it the best single zone, %s, interrupts %.1f %% of the jobs (wanted: 15 %% ± 2)\n",
		regionsEvery, r.length.Hours()/24, length.Hours(), zone, 100*rate)
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "how\tn\tjobs\tno replica untouched\tno zone at all\tcost $/job\tover one zone\tof on-demand\tmean time h\tinterruptions/job")
	single := 0.0
	for _, c := range []regionsCase{
		{name: "best single zone", zone: zone, replicas: 1},
		{name: "best single zone, settled", zone: zone, replicas: 1, together: true},
		{name: "any zone, by policy", replicas: 1},
		{name: "any zone, settled", replicas: 1, together: true},
		{name: "regions, as they are up", replicas: 2},
		{name: "regions, as they are up", replicas: 3},
		{name: "regions, all settled", replicas: 2, together: true},
		{name: "regions, all settled", replicas: 3, together: true},
		{name: "zones, as they are up", replicas: 2, spread: true},
		{name: "zones, as they are up", replicas: 3, spread: true},
		{name: "zones, all settled", replicas: 2, spread: true, together: true},
		{name: "zones, all settled", replicas: 3, spread: true, together: true},
		{name: "zones, all settled", replicas: 4, spread: true, together: true},
	} {
		result, time, err := r.play(length, c)
		if err != nil {
			return err
		}
		prices := cost.Prices{Currency: "USD", OnDemand: missionOnDemand, Storage: 0.023, Writes: 0.005}
		b := prices.Of(result.Usage)
		jobs := float64(result.Jobs)
		perJob := b.Total() / jobs
		if single == 0 {
			single = perJob
		}
		_, _ = fmt.Fprintf(t, "%s\t%d\t%d\t%.1f %%\t%.1f %%\t%.3f\t%+.0f %%\t%.1f %%\t%.2f\t%.2f\n", c.name, c.replicas, result.Jobs,
			100*(1-float64(result.Untouched)/jobs), 100*r.bound, perJob, 100*(perJob/single-1), 100*(1-b.SavedShare()), time.Hours(),
			float64(result.Interruptions)/jobs)
	}
	return t.Flush()
}

type regions struct {
	keys    []market.Key
	traces  []market.Trace
	length  time.Duration
	spotter *simulate.Spotter
	bound   float64 // share of the jobs of the last run that no zone at all would have let through from their starts on
}

type regionsCase struct {
	name     string
	zone     string // the only one; empty: all
	replicas int
	spread   bool // replicas are in zones of their own by the allocator, not in regions
	together bool // they start together, where spot has been up for settled
}

// together waits until all replicas of a job can start where spot has settled, and then does as another placer.
type together struct {
	simulate.Placer
	started bool
}

// Place implements simulate.Placer.
func (p *together) Place(s *simulate.State, m *simulate.Market) simulate.Placement {
	if !p.started {
		places := map[string]bool{}
		wake := time.Duration(0)
		for i, o := range m.Offerings {
			if since := m.Since(i) + settled; m.Up(i) && since > m.Now {
				if wake == 0 || since < wake {
					wake = since
				}
			} else if m.Up(i) {
				if places[o.Key.Region] = true; s.Job.Apart == simulate.ByZone {
					places[o.Key.Zone] = true
					delete(places, o.Key.Region)
				}
			}
		}
		if len(places) < s.Job.Replicas {
			return simulate.Placement{Offering: simulate.Nowhere, Watch: true, Review: wake, Reason: "too few places are up"}
		}
		p.started = true
	}
	return p.Placer.Place(s, m)
}

// lengthFor is the length of the job at which the zone that interrupts least interrupts as many as it should.
func (r *regions) lengthFor() (length time.Duration, zone string, rate float64, err error) {
	low, high := 5*time.Minute, 12*time.Hour
	for range 9 {
		length = (low + high) / 2
		rate = 1
		for _, k := range r.keys {
			result, _, err := r.play(length, regionsCase{zone: k.Zone, replicas: 1})
			if err != nil {
				return 0, "", 0, err
			}
			if touched := 1 - float64(result.Untouched)/float64(result.Jobs); touched < rate {
				rate, zone = touched, k.Zone
			}
		}
		switch {
		case rate > singleRate+0.005:
			high = length
		case rate < singleRate-0.005:
			low = length
		default:
			return length, zone, rate, nil
		}
	}
	return length, zone, rate, nil
}

// play runs jobs that arrive all the time, as long as there is room to finish within the recording.
func (r *regions) play(length time.Duration, c regionsCase) (simulate.Result, time.Duration, error) {
	spec := &simulate.Spec{
		Name: "task", Work: length, Changeover: regionsStart, Replicas: c.replicas, Checkpoint: checkpoint100M(incrementalShare),
	}
	if c.spread {
		spec.Apart = simulate.ByZone
	}
	var feeds []market.Feed
	var config simulate.Config
	for i, k := range r.keys {
		if c.zone != "" && k.Zone != c.zone {
			continue
		}
		const price = 0.918
		feeds = append(feeds, r.traces[i].Feed(price))
		config.Offerings = append(config.Offerings, simulate.Offering{Name: k.Zone, Key: k, Kind: cost.Spot, Price: price})
	}
	config.Market = market.Merge(feeds...)
	room := 48*time.Hour + length
	config.Jobs = &evenly{spec: spec, n: int((r.length - room) / regionsEvery), every: regionsEvery}
	total := time.Duration(0)
	starts := map[int]time.Duration{}
	config.Record = func(s simulate.Stay) {
		if _, known := starts[s.ID]; !known && s.Offering != simulate.Nowhere {
			starts[s.ID] = s.From
		}
	}
	config.Done = func(e simulate.Ended) { total += e.At - e.Arrive }
	r.spotter.Spread = c.spread
	r.spotter.Install(&config)
	if c.zone != "" {
		config.Place = func(simulate.Job, *simulate.Market) simulate.Placer { return simulate.AlwaysSpot{} }
	}
	if c.together {
		inner := config.Place
		config.Place = func(j simulate.Job, m *simulate.Market) simulate.Placer {
			return &together{Placer: inner(j, m)}
		}
	}
	result, err := simulate.Run(config)
	r.bound = 0
	for _, at := range starts {
		if !r.some(at, length+regionsStart) {
			r.bound += 1 / float64(len(starts))
		}
	}
	return result, total / time.Duration(max(result.Jobs, 1)), err
}

// some reports whether any zone was up from a time on for so long.
func (r *regions) some(at, length time.Duration) bool {
	for _, t := range r.traces {
		next, changes := t.Next(at)
		if t.At(at) && (!changes || next >= at+length) {
			return true
		}
	}
	return false
}
