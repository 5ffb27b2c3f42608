package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"text/tabwriter"
	"time"

	"nomad-spotter/autoscaler-plugin/cost"
	"nomad-spotter/autoscaler-plugin/market"
	"nomad-spotter/autoscaler-plugin/simulate"
)

// The market of the mission's economics: p3.2xlarge, one V100.
const (
	missionType     = "p3.2xlarge"
	missionOnDemand = 3.06 // $/h, all of 2019 to 2023 in the regions of the recordings
	missionHours    = 1000 // GPU-hours of the job
	missionPrices   = "prices/aws-2019-12-to-2020-02-15.csv.gz"
	missionTraces   = "availability/aws-2023-02"
)

// mission is a recorded market that can be played again and again.
type mission struct {
	keys   []market.Key
	traces []market.Trace
	prices []market.Series // the same zones; nil: flat
	flat   float64
	start  time.Time
	length time.Duration
}

// missionSection prices a job of 1000 GPU-hours under the default policy beside the floor of the market's own prices.
func missionSection(w io.Writer, data string) error {
	if absent(w, filepath.Join(data, missionTraces)) || absent(w, filepath.Join(data, missionPrices)) {
		return nil
	}
	keys, traces, err := readZoneTraces(filepath.Join(data, missionTraces))
	if err != nil {
		return err
	}
	prices, err := readPrices(filepath.Join(data, missionPrices))
	if err != nil {
		return err
	}
	m, without := joinMarkets(keys, traces, prices.Spot)
	_, _ = fmt.Fprintf(w, "availability of February 2023 and prices of December 2019 to February 2020, both from their beginnings on; %d zones, "+
		"without %v, whose prices are not recorded\n%d GPU-hours, AdamW in fp32 of 100 M parameters: 1.2 GB, 5 s stall, 100 MiB/s, "+
		"three kept, 6 min changeover, 7 of 10 last checkpoints succeed; storage 0.023 $/GiB-month, 0.005 $/1000 writes\n"+
		"floor: the same hours at the cheapest spot price that can be had at each moment; lowest spot price of these types: 0.300 of on-demand\n",
		len(m.keys), without, missionHours)
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "job\tprices\tcheckpoints\tpolicy\tstarts\tcost $\tof on-demand\tsaved\tleast saved\tover floor\tworst\tlost h\tinterruptions\tlate")
	spotter := simulate.NewSpotter()
	flat := *m
	flat.prices, flat.flat = nil, 0.8
	for _, shape := range []missionShape{
		{"5 × 200 h", 1, 5, 200 * time.Hour, 0},
		{"5 × 200 h, deadline 250 h", 1, 5, 200 * time.Hour, 250 * time.Hour},
		{"4 ranks × 250 h", 4, 1, 250 * time.Hour, 0},
	} {
		for _, row := range []struct {
			m        *mission
			name     string
			onDemand float64
			share    float64
			policy   string
		}{
			{m, "recorded", missionOnDemand, 1, "spotter"},
			{m, "recorded", missionOnDemand, incrementalShare, "spotter"},
			{m, "recorded", missionOnDemand, incrementalShare, "spot-else-on-demand"},
			{&flat, "0.8 and 3.0", 3.0, 1, "spotter"},
			{&flat, "0.8 and 3.0", 3.0, incrementalShare, "spotter"},
		} {
			r, err := row.m.play(shape, row.share, row.onDemand, spotter, row.policy)
			if err != nil {
				return err
			}
			checkpoints := "full"
			if row.share < 1 {
				checkpoints = "incremental"
			}
			_, _ = fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\t%.2f\t%.1f %%\t%.2f %%\t%.2f %%\t%.3f\t%.3f\t%.1f\t%.1f\t%d\n", shape.name, row.name, checkpoints, row.policy,
				r.starts, r.cost/float64(r.starts), 100*r.share/float64(r.starts), 100-100*r.share/float64(r.starts), 100-100*r.worstShare, r.over/float64(r.starts), r.worstOver,
				r.lost/float64(r.starts), r.interruptions/float64(r.starts), r.late)
		}
	}
	return t.Flush()
}

// joinMarkets finds the recorded prices of the zones, and the first time at which all are known.
func joinMarkets(keys []market.Key, traces []market.Trace, prices []market.Series) (*mission, []string) {
	m := &mission{}
	var without []string
	for i, k := range keys {
		found := false
		for _, p := range prices {
			if p.Key.Zone == k.Zone && p.Key.Type == missionType {
				found = true
				m.prices = append(m.prices, p)
				if p.Points[0].At.After(m.start) {
					m.start = p.Points[0].At
				}
			}
		}
		if !found {
			without = append(without, k.Zone)
			continue
		}
		k.Type = missionType
		m.keys, m.traces = append(m.keys, k), append(m.traces, traces[i])
		m.length = max(m.length, traces[i].Length())
	}
	return m, without
}

// feed is the market from a time on.
func (m *mission) feed(from time.Duration) market.Feed {
	var up, prices []market.Feed
	for i, t := range m.traces {
		first := int(from / t.Tick)
		part := market.Trace{Tick: t.Tick, Up: t.Up[min(first, len(t.Up)):]}
		if m.prices == nil {
			up = append(up, part.Feed(m.flat))
			continue
		}
		up = append(up, part.Feed(math.NaN()))
		prices = append(prices, m.prices[i].Feed(m.start.Add(time.Duration(first)*t.Tick)))
	}
	if m.prices == nil {
		return market.Merge(up...)
	}
	return market.Priced(market.Merge(up...), market.Merge(prices...))
}

// missionShape is how the hours are split.
type missionShape struct {
	name     string
	ranks    int
	count    int
	work     time.Duration
	deadline time.Duration
}

// missionResult sums up the starts.
type missionResult struct {
	starts, late          int
	cost, share, over     float64
	worstShare, worstOver float64
	lost, interruptions   float64
}

// play starts the job every day as long as it ends within the recording.
func (m *mission) play(shape missionShape, share, onDemand float64, p *simulate.Spotter, policy string) (missionResult, error) {
	var r missionResult
	spec := &simulate.Spec{
		Name: "mission", Work: shape.work, Deadline: shape.deadline, Ranks: shape.ranks, Changeover: 6 * time.Minute,
		Checkpoint: checkpoint100M(share),
	}
	prices := cost.Prices{Currency: "USD", OnDemand: onDemand, Storage: 0.023, Writes: 0.005}
	room := max(shape.work+shape.work/4, shape.deadline)
	for from := time.Duration(0); from+room <= m.length; from += 24 * time.Hour {
		var jobs simulate.JobList
		for i := range shape.count {
			jobs = append(jobs, simulate.Job{Spec: spec, ID: i})
		}
		c := simulate.Config{Market: m.feed(from), Jobs: &jobs, Seed: uint64(from)}
		for i, k := range m.keys {
			price := m.flat
			if m.prices != nil {
				price, _ = m.prices[i].At(m.start.Add(from))
			}
			c.Offerings = append(c.Offerings, simulate.Offering{Name: k.Zone, Key: k, Kind: cost.Spot, Price: price})
		}
		c.Offerings = append(c.Offerings, simulate.Offering{
			Name: "on-demand", Kind: cost.OnDemand, Price: onDemand, Key: market.Key{Region: "on-demand"},
		})
		p.Storage = prices
		p.Install(&c)
		if policy != "spotter" {
			c.Place = func(simulate.Job, *simulate.Market) simulate.Placer { return simulate.SpotElseOnDemand{} }
		}
		result, err := simulate.Run(c)
		if err != nil {
			return r, err
		}
		floor, err := m.cheapest(from, result.Makespan)
		if err != nil {
			return r, err
		}
		total := prices.Of(result.Usage).Total()
		ratio, over := total/(missionHours*onDemand), total/(missionHours*floor)
		r.starts++
		r.late += result.Late
		r.cost, r.share, r.over = r.cost+total, r.share+ratio, r.over+over
		r.worstShare, r.worstOver = max(r.worstShare, ratio), max(r.worstOver, over)
		r.lost += result.Lost.Hours() * float64(shape.ranks)
		r.interruptions += float64(result.Interruptions)
	}
	return r, nil
}

// cheapest is the mean, over the moments at which there is spot, of the cheapest price that can be had.
func (m *mission) cheapest(from, length time.Duration) (float64, error) {
	feed := m.feed(from)
	prices := make([]float64, len(m.keys))
	for i := range prices {
		prices[i] = math.Inf(1)
	}
	least := math.Inf(1)
	var at time.Duration
	sum, hours := 0.0, 0.0
	for at < length {
		c, err := feed.Next()
		last := errors.Is(err, io.EOF)
		if last {
			c.At = length
		} else if err != nil {
			return 0, err
		}
		if d := (min(c.At, length) - at).Hours(); d > 0 && !math.IsInf(least, 1) {
			sum, hours = sum+d*least, hours+d
		}
		at = c.At
		if last {
			break
		}
		prices[c.Offering] = math.Inf(1)
		if c.Up {
			prices[c.Offering] = c.Price
		}
		least = math.Inf(1)
		for _, p := range prices {
			least = min(least, p)
		}
	}
	return sum / hours, nil
}
