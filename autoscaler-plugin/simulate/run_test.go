package simulate

import (
	"io"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-spotter/autoscaler-plugin/cost"
	"nomad-spotter/autoscaler-plugin/market"
)

// changes is a feed that is a list.
type changes []market.Change

func (c *changes) Next() (market.Change, error) {
	if len(*c) == 0 {
		return market.Change{}, io.EOF
	}
	first := (*c)[0]
	*c = (*c)[1:]
	return first, nil
}

func pool(zones int) []Offering {
	var o []Offering
	for i := range zones {
		zone := string(rune('a' + i))
		o = append(o, Offering{Name: "spot-" + zone, Kind: cost.Spot, Price: 1, Key: market.Key{Region: "r" + zone, Zone: "r" + zone + "1"}})
	}
	return append(o, Offering{Name: "on-demand", Kind: cost.OnDemand, Price: 3, Key: market.Key{Region: "home", Zone: "home1"}})
}

func always(p Placer) func(Job, *Market) Placer { return func(Job, *Market) Placer { return p } }

func untilLate(Job, *Market) Placer { return &SpotUntilLate{} }

// TestByHand follows one job through one interruption, with numbers that can be checked on paper.
func TestByHand(t *testing.T) {
	spec := &Spec{
		Name: "train", Work: 5 * time.Hour, Changeover: 30 * time.Minute, Ranks: 2,
		Checkpoint: Checkpoint{
			Bytes: 100e9, Share: 0.5, Stall: 6 * time.Minute, Interval: 54 * time.Minute, Bandwidth: 50e9 / 360, Keep: 3,
		},
	}
	var stays []Stay
	var ended Ended
	result, err := Run(Config{
		Offerings: pool(1),
		// Up at 1 h at 1 $/h, 2 $/h from 2 h on, down from 3.5 h to 4 h, then 1 $/h.
		Market: &changes{
			{Up: false, Price: 1},
			{At: time.Hour, Up: true, Price: 1},
			{At: 2 * time.Hour, Up: true, Price: 2},
			{At: 3*time.Hour + 30*time.Minute, Up: false, Price: math.NaN()},
			{At: 4 * time.Hour, Up: true, Price: 1},
		},
		Jobs:   &JobList{{Spec: spec}},
		Place:  always(AlwaysSpot{}),
		Done:   func(e Ended) { ended = e },
		Record: func(s Stay) { stays = append(stays, s) },
	})
	must.NoError(t, err)

	// Work begins at 1.5 h. Checkpoints begin at 2.4 and 3.4 h; the first is durable at 2.4 + 0.1 + 0.1 = 2.6 h and holds
	// 0.9 h. At 3.5 h 1.8 h are done and the second is complete, but not durable, so 0.9 h are lost. From 4.5 h on 4.1 h
	// are left, which takes four more checkpoints of 0.1 h: 4.5 + 4.1 + 0.4 = 9.0 h.
	must.Eq(t, 9*time.Hour, ended.At)
	must.Eq(t, 54*time.Minute, ended.Lost)
	must.Eq(t, time.Hour+30*time.Minute, ended.Waited)
	must.Eq(t, 1, ended.Interruptions)
	must.False(t, ended.Untouched)
	must.False(t, ended.Late)

	// First stay: 1 h at 1 $/h and 1.5 h at 2 $/h, times two instances. Second: 5 h at 1 $/h.
	u := ended.Usage
	must.Eq(t, 8.0, stays[1].Cost)
	must.Eq(t, 10.0, stays[3].Cost)
	total := u.Work.Total()
	total.Add(u.Stall.Total())
	total.Add(u.Recovery.Total())
	equal(t, 18, total.Cost)
	equal(t, 15, total.Hours)
	equal(t, 2*(0.5+0.9+4.1), u.Work.Spot.Hours) // the first start and what lasted
	equal(t, 2*(0.9+0.5), u.Recovery.Spot.Hours) // what was lost and the second start
	equal(t, 2*(0.2+0.4), u.Stall.Spot.Hours)    // six checkpoints
	equal(t, 2*5.5, u.OnDemandHours)             // the work and one start
	equal(t, 6, u.Storage.Writes)                //
	equal(t, 200e9*(9-2.5), u.Storage.ByteHours) // 100e9 × (1 + 2 × 0.5) from the first checkpoint at 2.5 h to the end
	equal(t, 0, u.Storage.EgressBytes)           // it stayed in its region
	must.Eq(t, 3, len(slices.DeleteFunc(slices.Clone(stays), func(s Stay) bool { return s.Offering == Nowhere && s.From == 0 })))
	must.Eq(t, ended.Usage, result.Usage)
	must.Eq(t, 9*time.Hour, result.Makespan)
}

func equal(t *testing.T, want, got float64) {
	t.Helper()
	must.InDelta(t, want, got, 1e-6*math.Max(1, math.Abs(want)))
}

// TestNotice: a last checkpoint that succeeds loses nothing.
func TestNotice(t *testing.T) {
	spec := &Spec{Name: "train", Work: 3 * time.Hour, Checkpoint: Checkpoint{Notice: 1}}
	result, err := Run(Config{
		Offerings: pool(1),
		Market:    &changes{{Up: true, Price: 1}, {At: 2 * time.Hour, Price: 1}, {At: 5 * time.Hour, Up: true, Price: 1}},
		Jobs:      &JobList{{Spec: spec}}, Place: always(AlwaysSpot{}),
	})
	must.NoError(t, err)
	must.Eq(t, 0, result.Lost)
	must.Eq(t, 6*time.Hour, result.Makespan)
	must.Eq(t, 1, result.Interruptions)
}

// TestMaxPrice: an instance is taken away when its market rises above the job's limit, and not bought above it.
func TestMaxPrice(t *testing.T) {
	spec := &Spec{Name: "train", Work: 3 * time.Hour, MaxPrice: 1.5, Checkpoint: Checkpoint{Notice: 1}}
	result, err := Run(Config{
		Offerings: pool(1),
		Market: &changes{
			{Up: true, Price: 1},
			{At: time.Hour, Up: true, Price: 1.5},
			{At: 2 * time.Hour, Up: true, Price: 1.6},
			{At: 4 * time.Hour, Up: true, Price: 1.2},
		},
		Jobs: &JobList{{Spec: spec}}, Place: always(&watching{}),
	})
	must.NoError(t, err)
	must.Eq(t, 1, result.Interruptions)
	must.Eq(t, 5*time.Hour, result.Makespan)
	equal(t, 1+1.5+1.2, result.Usage.Work.Spot.Cost)
}

// watching takes the first spot and asks again whenever it may.
type watching struct{}

func (watching) Place(s *State, m *Market) Placement {
	p := Placement{Offering: m.Cheapest(cost.Spot, s), Watch: true}
	if p.Offering == Nowhere {
		p.Review = m.Now + 30*time.Minute
	}
	return p
}

// TestReplicas: the first to finish wins, the others are stopped and paid until then.
func TestReplicas(t *testing.T) {
	spec := &Spec{Name: "train", Work: 3 * time.Hour, Replicas: 2}
	var ended Ended
	_, err := Run(Config{
		Offerings: pool(2),
		Market: &changes{
			{Offering: 0, Up: true, Price: 1},
			{Offering: 1, Up: true, Price: 2},
			{At: 2 * time.Hour, Offering: 0, Price: 1}, // the cheaper one is lost
		},
		Jobs: &JobList{{Spec: spec}}, Place: always(AlwaysSpot{}), Done: func(e Ended) { ended = e },
	})
	must.NoError(t, err)
	must.Eq(t, 3*time.Hour, ended.At)
	must.True(t, ended.Untouched)
	must.Eq(t, 1, ended.Interruptions)
	equal(t, 2*1+3*2, ended.Usage.Work.Spot.Cost+ended.Usage.Recovery.Spot.Cost)
}

// TestCapacity: what has a higher priority is served first, and freed room is filled at once.
func TestCapacity(t *testing.T) {
	offerings := pool(1)
	offerings[0].Capacity = 1
	low := &Spec{Name: "low", Work: time.Hour}
	high := &Spec{Name: "high", Work: time.Hour, Priority: 1}
	var order []string
	_, err := Run(Config{
		Offerings: offerings[:1], Market: &changes{{Price: 1}, {At: time.Hour, Up: true, Price: 1}},
		Jobs: &JobList{{Spec: low, ID: 0}, {Spec: high, ID: 1}, {Spec: low, ID: 2}}, Place: always(AlwaysSpot{}),
		Done: func(e Ended) { order = append(order, e.Name+" "+e.At.String()) },
	})
	must.NoError(t, err)
	must.Eq(t, []string{"high 2h0m0s", "low 3h0m0s", "low 4h0m0s"}, order)
}

// randomMarket flips offerings at random.
func randomMarket(r *rand.Rand, zones int, length time.Duration) *changes {
	var all changes
	for i := range zones {
		up := r.IntN(2) == 0
		for at := time.Duration(0); at < length; {
			all = append(all, market.Change{At: at, Offering: i, Up: up, Price: 0.5 + r.Float64()})
			if r.IntN(3) > 0 {
				up = !up
			}
			at += time.Duration(r.ExpFloat64() * float64(90*time.Minute)).Round(time.Second)
		}
	}
	slices.SortStableFunc(all, func(a, b market.Change) int { return int(a.At - b.At) })
	return &all
}

// TestProperties: whatever the market does, deadlines that on-demand can meet are met, time and work add up, and the same
// seed gives the same result.
func TestProperties(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		zones := 1 + r.IntN(4)
		length := 200 * time.Hour
		var specs []*Spec
		for range 3 {
			s := &Spec{
				Name: "train", Work: time.Duration(1+r.IntN(40)) * time.Hour, Changeover: time.Duration(r.IntN(30)) * time.Minute,
				Priority: r.IntN(3), Ranks: r.IntN(3), Replicas: 1 + r.IntN(min(zones, 2)),
				Checkpoint: Checkpoint{
					Bytes: 1e9, Share: r.Float64(), Stall: time.Duration(r.IntN(120)) * time.Second, Bandwidth: 1e7,
					Notice: float64(r.IntN(2)) * r.Float64(), Interval: time.Duration(r.IntN(3)) * 20 * time.Minute,
				},
			}
			earliest, ok := s.Earliest(pool(zones))
			must.True(t, ok)

			s.Deadline = earliest + time.Duration(r.IntN(30))*time.Hour
			specs = append(specs, s)
		}
		events := randomMarket(r, zones, length)
		run := func() (Result, []Stay, []Ended) {
			var jobs JobList
			for i := range 10 {
				jobs = append(jobs, Job{Spec: specs[i%3], ID: i, Arrive: time.Duration(i) * 7 * time.Hour})
			}
			feed := slices.Clone(*events)
			var stays []Stay
			var ended []Ended
			result, err := Run(Config{
				Offerings: pool(zones), Market: &feed, Jobs: &jobs, Seed: seed, Place: untilLate,
				Record: func(s Stay) { stays = append(stays, s) }, Done: func(e Ended) { ended = append(ended, e) },
			})
			must.NoError(t, err)
			return result, stays, ended
		}
		result, stays, ended := run()
		again, _, _ := run()
		must.True(t, reflect.DeepEqual(result, again), must.Sprintf("seed %d: two runs differ", seed))
		must.Eq(t, 10, result.Finished)
		must.Eq(t, 0, result.Late, must.Sprintf("seed %d", seed))

		type replica struct{ job, replica int }
		last := map[replica]Stay{}
		paid := 0.0
		for _, s := range stays {
			key := replica{s.ID, s.Replica}
			if before, ok := last[key]; ok {
				must.Eq(t, before.To, s.From)
				must.Eq(t, before.Left, s.Work)
			}
			must.True(t, s.Left >= 0 && s.Left <= s.Work && s.Lost >= 0 && s.Working >= s.From && s.Working <= s.To)
			last[key] = s
			paid += s.Cost
		}
		u := result.Usage
		total := u.Work.Total().Cost + u.Stall.Total().Cost + u.Recovery.Total().Cost
		must.InDelta(t, paid, total, 1e-6*paid)
		for _, e := range ended {
			if e.replicas() > 1 {
				continue
			}
			hours := e.Usage.Work.Total().Hours - float64(e.ranks())*e.Changeover.Hours()
			must.True(t, hours >= 0 && hours <= float64(e.ranks())*e.Work.Hours()*(1+1e-9), must.Sprintf("seed %d job %d", seed, e.ID))
		}
	}
}

// TestTable compares the table of checkpoints with a walk, second by second.
func TestTable(t *testing.T) {
	for seed := range uint64(10) {
		r := rand.New(rand.NewPCG(seed, 2))
		s := &schedule{
			start: time.Duration(r.IntN(300)) * time.Second, stall: time.Duration(r.IntN(60)) * time.Second,
			lag:      time.Duration(r.IntN(200)) * time.Second,
			interval: func(age time.Duration) time.Duration { return age/3 + 100*time.Second },
		}
		var worked, since time.Duration
		type saved struct{ work, at time.Duration }
		var saves []saved
		interval := s.interval(s.start).Truncate(time.Second)
		s.interval = func(age time.Duration) time.Duration { return (age/3 + 100*time.Second).Truncate(time.Second) }
		stalled := time.Duration(0)
		type bound struct{ risk, safe time.Duration }
		var bounds []bound // what risk said before, which holds until it is safe
		for age := time.Duration(0); age < 3*time.Hour; age += time.Second {
			durable := time.Duration(0)
			for _, c := range saves {
				if c.at+s.lag <= age {
					durable = c.work
				}
			}
			must.Eq(t, worked, s.worked(age))
			must.Eq(t, durable, s.durable(age))
			if risk, safe := s.risk(age); age%(47*time.Second) == 0 {
				bounds = append(slices.DeleteFunc(bounds, func(b bound) bool { return b.safe <= age }), bound{risk, safe})
			}
			for _, b := range bounds {
				if age < b.safe && worked-durable > b.risk {
					t.Fatalf("seed %d age %v: %v is at risk, more than %v until %v", seed, age, worked-durable, b.risk, b.safe)
				}
			}
			switch {
			case age < s.start:
			case stalled > 0:
				stalled -= time.Second
				if stalled == 0 {
					saves = append(saves, saved{worked, age + time.Second})
					interval, since = s.interval(age+time.Second), 0
				}
			default:
				worked, since = worked+time.Second, since+time.Second
				must.True(t, s.finish(worked) == age+time.Second)
				if since == interval {
					if stalled = s.stall; stalled == 0 {
						saves = append(saves, saved{worked, age + time.Second})
						interval, since = s.interval(age+time.Second), 0
					}
				}
			}
		}
	}
}

// TestFaults: all faults of a job at once, and an impossible deadline with the earliest that is possible.
func TestFaults(t *testing.T) {
	spec := &Spec{Name: "train", Work: 48 * time.Hour, Changeover: time.Hour, Deadline: 40 * time.Hour, Replicas: 3}
	_, err := Run(Config{Offerings: pool(1), Market: &changes{}, Jobs: &JobList{{Spec: spec}}, Place: untilLate})
	for _, want := range []string{"deadline: 40h0m0s cannot be met", "give at least 49h0m0s", "replicas: 3 need"} {
		must.StrContains(t, err.Error(), want)
	}
	_, err = Run(Config{Offerings: nil, Market: &changes{}, Jobs: &JobList{{Spec: spec}}, Place: untilLate})
	must.StrContains(t, err.Error(), "a pool needs at least one")
	spec = &Spec{Name: "train", Work: time.Hour}
	_, err = Run(Config{
		Offerings: pool(1), Market: &changes{{At: time.Hour}, {At: time.Minute}}, Jobs: &JobList{{Spec: spec}}, Place: untilLate,
	})
	must.StrContains(t, err.Error(), "1m0s comes after 1h0m0s")
	faults := (&Spec{Checkpoint: Checkpoint{Share: 2, Notice: math.NaN()}, Deadline: -1}).Check(pool(1))
	var all []string
	for _, f := range faults {
		all = append(all, f.Error())
	}
	must.Len(t, 4, faults, must.Sprint(strings.Join(all, "\n")))
}
