package simulate

import (
	"io"
	"runtime"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-spotter/autoscaler-plugin/cost"
	"nomad-spotter/autoscaler-plugin/market"
)

func model() *Spec {
	return &Spec{
		Name: "train", Work: 40 * time.Hour, Changeover: 6 * time.Minute,
		Checkpoint: Checkpoint{Bytes: 1.2e9, Share: 0.6, Stall: 5 * time.Second, Bandwidth: 100 << 20, Keep: 3, Notice: 0.7},
	}
}

// TestSpotter_deadlines: whatever the market, every deadline that on-demand can meet is met, also the tightest, and it costs
// less than on-demand where there is time.
func TestSpotter_deadlines(t *testing.T) {
	offerings := pool(2)
	p := NewSpotter()
	for _, slack := range []time.Duration{0, time.Minute, time.Hour, 6 * time.Hour, 20 * time.Hour} {
		spec := model()
		spec.Work = 12 * time.Hour
		spec.Deadline = spec.Work + spec.Changeover + slack
		prices := cost.Prices{Currency: "USD", OnDemand: 3, Writes: 0.005}
		p.Storage = prices
		total := cost.Usage{}
		for seed := range uint64(6) {
			feed, err := market.NewCapacity(seed, 30*24*time.Hour, Likely(offerings, make([]time.Duration, 3)))
			must.NoError(t, err)
			var jobs JobList
			for i := range 40 {
				jobs = append(jobs, Job{Spec: spec, ID: i, Arrive: time.Duration(i) * 11 * time.Hour})
			}
			c := Config{Offerings: offerings, Market: feed, Jobs: &jobs, Seed: seed}
			p.Install(&c)
			r, err := Run(c)
			must.NoError(t, err)
			must.Eq(t, 0, r.Late, must.Sprintf("slack %v, seed %d", slack, seed))
			total.Add(r.Usage)
		}
		b := prices.Of(total)
		must.LessEq(t, 1+1e-9, b.Total()/b.OnDemand)
		if slack >= 20*time.Hour {
			must.Less(t, 0.6, b.Total()/b.OnDemand)
		}
	}
}

// TestSpotter_replicas: replicas that share one place on demand do not take it from each other, so that one of them always
// meets the deadline.
func TestSpotter_replicas(t *testing.T) {
	offerings := pool(3)
	for _, slack := range []time.Duration{time.Hour, 2 * time.Hour, 8 * time.Hour} {
		spec := model()
		spec.Work = 10 * time.Hour
		spec.Deadline = spec.Work + spec.Changeover + slack
		spec.Replicas, spec.Apart = 2, ByZone
		for seed := range uint64(6) {
			feed, err := market.NewCapacity(seed, 30*24*time.Hour, Likely(offerings, make([]time.Duration, 4)))
			must.NoError(t, err)
			var jobs JobList
			for i := range 30 {
				jobs = append(jobs, Job{Spec: spec, ID: i, Arrive: time.Duration(i) * 20 * time.Hour})
			}
			c := Config{Offerings: offerings, Market: feed, Jobs: &jobs, Seed: seed}
			NewSpotter().Install(&c)
			r, err := Run(c)
			must.NoError(t, err)
			must.Eq(t, 0, r.Late, must.Sprintf("slack %v, seed %d", slack, seed))
		}
	}
}

// TestSpotter_dear: spot that costs as much as on-demand is neither bought nor waited for, with a deadline or without.
func TestSpotter_dear(t *testing.T) {
	for _, deadline := range []time.Duration{0, 100 * time.Hour} {
		spec := model()
		spec.Deadline = deadline
		c := Config{
			Offerings: pool(1), Jobs: &JobList{{Spec: spec}},
			Market: &changes{{Price: 5}, {At: time.Hour, Up: true, Price: 5}, {At: 50 * time.Hour, Price: 5}},
		}
		NewSpotter().Install(&c)
		r, err := Run(c)
		must.NoError(t, err)
		must.Eq(t, 0, r.Usage.Work.Spot.Hours)
		must.Eq(t, spec.Work+spec.Changeover, r.Makespan)
	}
}

// TestSpotter_learns: a zone that was lost again and again while it was used is left alone, although it has been up for
// longer when jobs arrive than the other one, at the same price.
func TestSpotter_learns(t *testing.T) {
	events := changes{{Offering: 0, Up: true, Price: 1}, {Offering: 1, Up: true, Price: 1}}
	for h := range 200 {
		at := func(m int) time.Duration { return time.Duration(h)*time.Hour + time.Duration(m)*time.Minute }
		events = append(events,
			market.Change{At: at(20), Offering: 0, Price: 1}, market.Change{At: at(21), Offering: 0, Up: true, Price: 1},
			market.Change{At: at(57), Offering: 1, Price: 1}, market.Change{At: at(58), Offering: 1, Up: true, Price: 1},
		)
	}
	spec := model()
	spec.Work = 20 * time.Minute
	var jobs JobList
	for i := range 190 {
		jobs = append(jobs, Job{Spec: spec, ID: i, Arrive: time.Duration(i)*time.Hour + time.Minute})
	}
	c := Config{Offerings: pool(2), Market: &events, Jobs: &jobs}
	NewSpotter().Install(&c)
	r, err := Run(c)
	must.NoError(t, err)
	must.Less(t, 20, r.Offerings[0].Launches)
	must.Less(t, 20, r.Interruptions)
}

// TestSpotter_priority: what has high priority is on demand only.
func TestSpotter_priority(t *testing.T) {
	spec := model()
	spec.Priority = HighPriority
	c := Config{Offerings: pool(1), Market: &changes{{Up: true, Price: 1}}, Jobs: &JobList{{Spec: spec}}}
	NewSpotter().Install(&c)
	r, err := Run(c)
	must.NoError(t, err)
	must.Eq(t, 0, r.Offerings[0].Launches)
	must.Eq(t, 1, r.Offerings[1].Launches)
}

// TestSpotter_noSpot: where a pool has no spot at all, nobody waits for it.
func TestSpotter_noSpot(t *testing.T) {
	p, err := Look(3, 1, cost.Prices{Currency: "USD", OnDemand: 3}, func(uint64) (Config, error) {
		c := Config{Offerings: pool(0), Market: market.Merge(), Jobs: &JobList{{Spec: model()}}}
		NewSpotter().Install(&c)
		return c, nil
	})
	must.NoError(t, err)
	must.Eq(t, 0, p.Unfinished)
	must.InDelta(t, p.OnDemand, p.Cost.P50, 1)
}

// TestSpotter_moves: a replica leaves an offering whose price has risen far above another's, and loses nothing by it.
func TestSpotter_moves(t *testing.T) {
	c := Config{
		Offerings: pool(2), Jobs: &JobList{{Spec: model()}},
		Market: &changes{
			{Offering: 0, Up: true, Price: 1},
			{Offering: 1, Up: true, Price: 1.2},
			{At: 5 * time.Hour, Offering: 0, Up: true, Price: 2.9},
		},
	}
	NewSpotter().Install(&c)
	r, err := Run(c)
	must.NoError(t, err)
	must.Eq(t, 1, r.Moves)
	must.Eq(t, 0, r.Lost)
	must.Eq(t, 1, r.Offerings[1].Launches)
}

// stream hands out jobs without end.
type stream struct {
	spec *Spec
	n    int
	last time.Duration
}

func (s *stream) Next() (Job, bool) {
	at := time.Duration(s.n) * 2 * time.Hour
	if at > s.last {
		return Job{}, false
	}
	s.n++
	return Job{Spec: s.spec, ID: s.n, Arrive: at}, true
}

// TestRun_memory: what is alive after ten times the time is what was alive before.
func TestRun_memory(t *testing.T) {
	used := func(days int) uint64 {
		length := time.Duration(days) * 24 * time.Hour
		feed, err := market.NewCapacity(1, length, market.NineZones())
		must.NoError(t, err)
		var offerings []Offering
		for _, z := range market.NineZones().Zones {
			offerings = append(offerings, Offering{Name: z.Key.Zone, Key: z.Key, Kind: cost.Spot, Price: z.Price})
		}
		most := uint64(0)
		ended := 0
		_, err = Run(Config{
			Offerings: offerings, Market: feed, Jobs: &stream{spec: model(), last: length - 10*24*time.Hour}, Place: always(AlwaysSpot{}),
			Done: func(Ended) {
				if ended++; ended%(days*2) == 0 {
					runtime.GC()
					var m runtime.MemStats
					runtime.ReadMemStats(&m)
					most = max(most, m.HeapAlloc)
				}
			},
		})
		must.NoError(t, err)
		return most
	}
	used(45)
	short, long := used(45), used(450)
	if long > short+256<<10 {
		t.Fatalf("the heap grows with the length of the market: %d bytes after 45 days, %d after 450", short, long)
	}
}

// TestLook: the ranges are in order, and faults of a config come through.
func TestLook(t *testing.T) {
	spec := model()
	spec.Deadline = 60 * time.Hour
	prices := cost.Prices{Currency: "USD", OnDemand: 3}
	p, err := Look(30, 1, prices, func(seed uint64) (Config, error) {
		feed, err := market.NewCapacity(seed, 20*24*time.Hour, Likely(pool(2), make([]time.Duration, 3)))
		return Config{Offerings: pool(2), Market: feed, Jobs: &JobList{{Spec: spec}}, Place: untilLate}, err
	})
	must.NoError(t, err)
	must.Eq(t, 0, p.Late)
	must.True(t, p.Cost.P10 < p.Cost.P50 && p.Cost.P50 < p.Cost.P90 && p.Hours.P90 <= 60)
	must.InDelta(t, 40.1*3, p.OnDemand, 1e-9)
	never := model()
	never.MaxPrice = 0.1
	p, err = Look(200, 1, prices, func(uint64) (Config, error) {
		return Config{Offerings: pool(1), Market: market.Merge(), Jobs: &JobList{{Spec: never}}, Place: always(AlwaysSpot{})}, nil
	})
	must.NoError(t, err)
	must.Eq(t, 1, p.Unfinished) // no more than all
	must.Eq(t, 1, p.Late)
	_, err = Look(1, 1, prices, func(uint64) (Config, error) { return Config{}, io.ErrUnexpectedEOF })
	must.ErrorIs(t, err, io.ErrUnexpectedEOF)
	_, err = Look(0, 1, prices, nil)
	must.StrContains(t, err.Error(), "runs: 0 is below 1")
}

// TestSpotter_returns: a job that had to go on demand goes back to spot while that still leaves time, and so costs less than
// one that stays; and it is not late.
func TestSpotter_returns(t *testing.T) {
	run := func(install func(*Config)) Result {
		var events changes
		for h := range 150 {
			events = append(events, market.Change{At: time.Duration(h) * time.Hour, Up: h/4%2 == 0, Price: 1}) // 4 h up, 4 h down
		}
		spec := model()
		spec.Deadline = 52 * time.Hour
		var jobs JobList
		for i := range 8 {
			jobs = append(jobs, Job{Spec: spec, ID: i, Arrive: time.Duration(i) * time.Hour})
		}
		c := Config{Offerings: pool(1), Market: &events, Jobs: &jobs}
		install(&c)
		r, err := Run(c)
		must.NoError(t, err)
		must.Eq(t, 0, r.Late)
		return r
	}
	ours := run(func(c *Config) { NewSpotter().Install(c) })
	greedy := run(func(c *Config) { c.Place = untilLate })
	must.Greater(t, 8, ours.Moves)
	spent := func(r Result) float64 { return r.Offerings[0].Bought.Cost + r.Offerings[1].Bought.Cost }
	must.Less(t, 0.9*spent(greedy), spent(ours))
}

// TestSpotter_lastMinutes: a job with little left takes the next spot and does not wait for a calmer one. What is saved by
// waiting is a fraction of a cent.
func TestSpotter_lastMinutes(t *testing.T) {
	spec := model()
	spec.Deadline = 72 * time.Hour
	const lost = 40*time.Hour + 20*time.Minute // 4 minutes are left
	c := Config{Offerings: pool(2), Jobs: &JobList{{Spec: spec}}, Market: &changes{
		{Offering: 0, Up: true, Price: 1},
		{Offering: 1, Price: 1},
		{At: lost, Offering: 0, Price: 1},
		{At: lost, Offering: 1, Up: true, Price: 1},
	}}
	NewSpotter().Install(&c)
	r, err := Run(c)
	must.NoError(t, err)
	must.Eq(t, 1, r.Interruptions)
	must.Less(t, lost+time.Hour, r.Makespan)
}
