package main

import (
	"fmt"
	"io"
	"math"
	"path/filepath"
	"text/tabwriter"
	"time"

	"nomad-spotter/autoscaler-plugin/hazard"
	"nomad-spotter/autoscaler-plugin/market"
)

// hazardHorizons are how far ahead it is said whether an instance is still up.
var hazardHorizons = [...]time.Duration{30 * time.Minute, time.Hour, 4 * time.Hour, 12 * time.Hour}

// hazardModels are what is compared, the first being the baseline.
var hazardModels = [...]string{"constant", "constant in hindsight", "constant per zone", "Weibull", "book"}

// hazardScore sums the losses of the models at one horizon.
type hazardScore struct {
	n          int
	brier, log [len(hazardModels)]float64
}

// hazardBin is a range of predicted probabilities of the book.
type hazardBin struct{ n, predicted, up float64 }

// hazardScores are the scores of one replay.
type hazardScores struct {
	horizon [len(hazardHorizons)]hazardScore
	bins    [10]hazardBin
}

// logLoss is the mean over horizons of the mean of a model.
func (s hazardScores) logLoss(model int) float64 {
	sum := 0.0
	for _, h := range s.horizon {
		sum += h.log[model] / float64(max(h.n, 1))
	}
	return sum / float64(len(hazardHorizons))
}

// hazardSection says how right the probabilities of staying up are, each recording by parameters fitted on the other.
func hazardSection(w io.Writer, data string) error {
	type recording struct {
		name   string
		keys   []market.Key
		traces []market.Trace
	}
	var sets []recording
	for _, name := range []string{"aws-2022-10", "aws-2023-02"} {
		keys, traces, err := readZoneTraces(filepath.Join(data, "availability", name))
		if err != nil {
			return err
		}
		if len(traces) == 0 {
			_, err := fmt.Fprintf(w, "skipped: no traces of %s in %q\n", name, data)
			return err
		}
		sets = append(sets, recording{name, keys, traces})
	}
	for i, fit := range sets {
		test := sets[1-i]
		params, rate, err := tuneHazard(fit.keys, fit.traces)
		if err != nil {
			return err
		}
		_, _ = fmt.Fprintf(w, "\nfitted on %s: Weibull k=%.3f lambda=%.3f h, constant %.3f/h, "+
			"weights region %g type %g zone %g, "+
			"trouble zone %g region %g memory %v\nscored on %s, from an empty book\n", fit.name, params.Base.Shape,
			params.Base.Scale.Hours(), rate, params.RegionWeight, params.TypeWeight, params.ZoneWeight, params.ZoneTrouble,
			params.RegionTrouble, params.Memory, test.name)
		s, err := replayHazard(params, rate, test.keys, test.traces)
		if err != nil {
			return err
		}
		if err := s.print(w); err != nil {
			return err
		}
	}
	p, test := hazard.Defaults(), sets[1]
	_, rate := hazardLifetimes(sets[0].traces)
	_, _ = fmt.Fprintf(w, "\nhazard.Defaults, fitted on %s but for the weights of region and type, 10: %+v\n"+
		"scored on %s, from an empty book\n",
		sets[0].name, p, test.name)
	s, err := replayHazard(p, rate, test.keys, test.traces)
	if err != nil {
		return err
	}
	return s.print(w)
}

// tuneHazard fits the base to the up-times, and the other parameters one after another, twice, to the log loss of a
// replay. With one region there is nothing to tell a region from the base by: its weight stays.
func tuneHazard(keys []market.Key, traces []market.Trace) (hazard.Params, float64, error) {
	all, rate := hazardLifetimes(traces)
	base, err := hazard.FitWeibull(all)
	if err != nil {
		return hazard.Params{}, 0, err
	}
	p := hazard.Params{Base: base, RegionWeight: 10, TypeWeight: 10, ZoneWeight: 10, Memory: 2 * time.Hour}
	s, err := replayHazard(p, rate, keys, traces)
	if err != nil {
		return p, rate, err
	}
	best := s.logLoss(len(hazardModels) - 1)
	memory := p.Memory.Hours()
	regions := map[string]bool{}
	for _, key := range keys {
		regions[key.Region] = true
	}
	for range 2 {
		for _, c := range []struct {
			value  *float64
			values []float64
		}{
			{&p.ZoneWeight, []float64{0.5, 1, 2, 5, 10, 20, 50, 100}},
			{&p.TypeWeight, []float64{0.5, 1, 2, 5, 10, 20, 50, 100}},
			{&p.RegionWeight, []float64{0.5, 1, 2, 5, 10, 20, 50, 100}},
			{&p.RegionTrouble, []float64{0, 0.25, 0.5, 1, 2, 4}},
			{&p.ZoneTrouble, []float64{0, 0.25, 0.5, 1, 2}},
			{&memory, []float64{0.5, 1, 2, 4, 8, 16}},
		} {
			if c.value == &p.RegionWeight && len(regions) == 1 {
				continue
			}
			keep := *c.value
			for _, v := range c.values {
				*c.value = v
				p.Memory = time.Duration(memory * float64(time.Hour))
				s, err := replayHazard(p, rate, keys, traces)
				if err != nil {
					return p, rate, err
				}
				if loss := s.logLoss(len(hazardModels) - 1); loss < best {
					best, keep = loss, v
				}
			}
			*c.value = keep
			p.Memory = time.Duration(memory * float64(time.Hour))
		}
	}
	return p, rate, nil
}

// hazardLifetimes are the up-times of traces, and their interruptions per hour.
func hazardLifetimes(traces []market.Trace) ([]hazard.Lifetime, float64) {
	var all []hazard.Lifetime
	var events, hours float64
	for _, t := range traces {
		for _, l := range hazard.Lifetimes(t) {
			all = append(all, l)
			hours += l.Duration.Hours()
			if !l.Censored {
				events++
			}
		}
	}
	return all, events / hours
}

// replayHazard holds an instance in each zone whenever it is up, asks for one every half hour where it is not, and scores what
// the models say every half hour, knowing only what was before. Instances of which the start is not known are left out.
func replayHazard(p hazard.Params, rate float64, keys []market.Key, traces []market.Trace) (hazardScores, error) {
	var s hazardScores
	book, err := hazard.NewBook(p)
	if err != nil {
		return s, err
	}
	start := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	_, hindsight := hazardLifetimes(traces)
	tick := traces[0].Tick
	every := max(1, int((30*time.Minute+tick/2)/tick))
	born := make([]int, len(traces)) // tick at which the present instance began; -1: none
	told := make([]int, len(traces)) // tick up to which the book knows that it was held
	events, hours := make([]float64, len(traces)), make([]float64, len(traces))
	for i := range born {
		born[i] = -1
	}
	for at := 1; at < len(traces[0].Up); at++ {
		now := start.Add(time.Duration(at) * tick)
		for i, t := range traces {
			event := hazard.Event{At: now, Key: keys[i], Kind: hazard.Held}
			if born[i] >= 0 {
				event.From, event.To = time.Duration(told[i]-born[i])*tick, time.Duration(at-born[i])*tick
			}
			switch up := t.Up[at]; {
			case up && !t.Up[at-1]:
				born[i], told[i] = at, at
				continue
			case !up && born[i] >= 0:
				event.Kind = hazard.Reclaimed
				born[i] = -1
				events[i]++
			case at%every != 0 || up && born[i] < 0:
				continue
			case !up:
				event.Kind = hazard.Refused
			}
			hours[i] += (event.To - event.From).Hours()
			told[i] = at
			if book, err = book.Observe(event); err != nil {
				return s, err
			}
		}
		if at%every != 0 {
			continue
		}
		for i, t := range traces {
			if born[i] < 0 {
				continue
			}
			age := time.Duration(at-born[i]) * tick
			for h, ahead := range hazardHorizons {
				end := at + int((ahead+tick/2)/tick)
				if end >= len(t.Up) {
					continue
				}
				next, changes := t.Next(time.Duration(at) * tick)
				up := !changes || next > time.Duration(end)*tick
				perZone := (p.ZoneWeight + events[i]) / (p.ZoneWeight/rate + hours[i])
				s.add(h, up, [len(hazardModels)]float64{
					math.Exp(-rate * ahead.Hours()), math.Exp(-hindsight * ahead.Hours()), math.Exp(-perZone * ahead.Hours()),
					p.Base.SurvivalFrom(age, ahead), book.Survival(keys[i], age, ahead, now),
				})
			}
		}
	}
	return s, nil
}

func (s *hazardScores) add(horizon int, up bool, predicted [len(hazardModels)]float64) {
	outcome := 0.0
	if up {
		outcome = 1
	}
	h := &s.horizon[horizon]
	h.n++
	for m, p := range predicted {
		p = min(max(p, 1e-6), 1-1e-6)
		h.brier[m] += (p - outcome) * (p - outcome)
		h.log[m] -= math.Log(1 - math.Abs(p-outcome))
	}
	p := predicted[len(hazardModels)-1]
	b := &s.bins[min(int(p*float64(len(s.bins))), len(s.bins)-1)]
	b.n++
	b.predicted += p
	b.up += outcome
}

func (s *hazardScores) print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "up for\tmodel\tn\tBrier\tskill\tlog loss\tskill")
	for i, h := range s.horizon {
		for m, name := range hazardModels {
			_, _ = fmt.Fprintf(t, "%v\t%s\t%d\t%.4f\t%+.1f %%\t%.4f\t%+.1f %%\n", hazardHorizons[i], name, h.n,
				h.brier[m]/float64(h.n),
				100*(1-h.brier[m]/h.brier[0]), h.log[m]/float64(h.n), 100*(1-h.log[m]/h.log[0]))
		}
	}
	_, _ = fmt.Fprintln(t, "\nbook says\tn\tmean\tup\tdifference")
	off, n := 0.0, 0.0
	for i, b := range s.bins {
		if b.n == 0 {
			continue
		}
		_, _ = fmt.Fprintf(t, "%.1f to %.1f\t%.0f\t%.3f\t%.3f\t%+.3f\n", float64(i)/10, float64(i+1)/10, b.n,
			b.predicted/b.n, b.up/b.n,
			(b.up-b.predicted)/b.n)
		off, n = off+math.Abs(b.up-b.predicted), n+b.n
	}
	_, _ = fmt.Fprintf(t, "mean\t%.0f\t\t\t%.3f off\n", n, off/n)
	return t.Flush()
}
