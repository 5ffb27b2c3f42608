package main

import (
	"fmt"
	"io"
	"runtime"
	"syscall"
	"time"

	"nomad-spotter/autoscaler-plugin/cost"
	"nomad-spotter/autoscaler-plugin/market"
	"nomad-spotter/autoscaler-plugin/simulate"
)

// speedLimit is the time in which 45 days of nine zones with 1000 jobs are to be simulated on one core.
const speedLimit = 2 * time.Second

// speedSection simulates jobs on the generator's market, on one core: jobs that come and go, and jobs that are alive all the
// time. Memory must not grow with the length of the market.
func speedSection(w io.Writer, _ string) error {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	fmt.Fprintln(w, "nine zones of the generator and on-demand, one core; CPU time beside 2 s; heap after a collection, when four fifths of the jobs have ended")
	fmt.Fprintln(w, "market   jobs  alive at once  policy             events  decisions  wall s   CPU s  of 2 s  heap MiB")
	for _, c := range []speedCase{
		{45, 1000, 48 * time.Hour, 72 * time.Hour, "spotter"},
		{45, 1000, 48 * time.Hour, 72 * time.Hour, "spot-else-on-demand"},
		{45, 1000, 40 * 24 * time.Hour, 0, "spotter"},
		{450, 10_000, 48 * time.Hour, 72 * time.Hour, "spotter"},
		{450, 10_000, 48 * time.Hour, 72 * time.Hour, "spot-else-on-demand"},
	} {
		if err := c.run(w); err != nil {
			return err
		}
	}
	return nil
}

type speedCase struct {
	days           int
	jobs           int
	work, deadline time.Duration
	policy         string
}

// evenly hands out jobs of one kind at equal distances.
type evenly struct {
	spec  *simulate.Spec
	n     int
	every time.Duration
	next  int
}

// Next implements simulate.Jobs.
func (e *evenly) Next() (simulate.Job, bool) {
	if e.next == e.n {
		return simulate.Job{}, false
	}
	j := simulate.Job{Spec: e.spec, ID: e.next, Arrive: time.Duration(e.next) * e.every}
	e.next++
	return j, true
}

func (c speedCase) run(w io.Writer) error {
	length := time.Duration(c.days) * 24 * time.Hour
	zones := market.NineZones()
	feed, err := market.NewCapacity(1, length, zones)
	if err != nil {
		return err
	}
	spec := &simulate.Spec{
		Name: "train", Work: c.work, Deadline: c.deadline, Changeover: 6 * time.Minute, Checkpoint: checkpoint100M(incrementalShare),
	}
	every := length - c.work
	if c.deadline > 0 {
		every = length - c.deadline
	}
	jobs := &evenly{spec: spec, n: c.jobs, every: max(every, 0) / time.Duration(c.jobs)}
	config := simulate.Config{Offerings: withOnDemand(zones, 3.06), Market: feed, Jobs: jobs, Seed: 1}
	alive, most, used := 0, 0, uint64(0)
	count := &census{Jobs: jobs, alive: &alive, most: &most}
	config.Jobs = count
	config.Done = func(e simulate.Ended) {
		if alive--; e.ID == c.jobs*4/5 {
			used = heap()
		}
	}
	if c.policy == "spotter" {
		simulate.NewSpotter().Install(&config)
	} else {
		config.Place = func(simulate.Job, *simulate.Market) simulate.Placer { return simulate.SpotElseOnDemand{} }
	}
	start, before := time.Now(), processorTime()
	result, err := simulate.Run(config)
	wall, took := time.Since(start), processorTime()-before
	if err != nil {
		return err
	}
	ratio := "-"
	if c.days == 45 {
		ratio = fmt.Sprintf("%.2f", took.Seconds()/speedLimit.Seconds())
	}
	fmt.Fprintf(w, "%3d d  %6d  %13d  %-18s %6d  %9d  %6.2f  %6.2f  %6s  %8.1f\n",
		c.days, c.jobs, most, c.policy, result.Changes, result.Decisions, wall.Seconds(), took.Seconds(), ratio, float64(used)/(1<<20))
	if result.Late > 0 {
		fmt.Fprintf(w, "  %d jobs were late\n", result.Late)
	}
	return nil
}

// census counts the jobs that are alive.
type census struct {
	simulate.Jobs
	alive, most *int
}

// Next implements simulate.Jobs.
func (c *census) Next() (simulate.Job, bool) {
	j, ok := c.Jobs.Next()
	if ok {
		*c.alive++
		*c.most = max(*c.most, *c.alive)
	}
	return j, ok
}

// processorTime is the time that the process has had a processor, which other processes do not lengthen.
func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// withOnDemand is a pool of the zones of a market and on-demand.
func withOnDemand(c market.Capacity, onDemand float64) []simulate.Offering {
	var offerings []simulate.Offering
	for _, z := range c.Zones {
		offerings = append(offerings, simulate.Offering{Name: z.Key.Zone, Key: z.Key, Kind: cost.Spot, Price: z.Price})
	}
	return append(offerings, simulate.Offering{
		Name: "on-demand", Kind: cost.OnDemand, Price: onDemand, Key: market.Key{Region: "on-demand", Zone: "on-demand"},
	})
}

// The checkpoints of a model of 100 million parameters: weights and both moments of AdamW in fp32 are 12 bytes for each
// parameter. An incremental one adds 60 %, as the mission's worked example takes it.
const (
	modelBytes       = 100e6 * 12
	incrementalShare = 0.6
)

// checkpoint100M is how such a model is saved: a stall of 5 s, 100 MiB/s to the store, the newest three kept, and seven of
// ten last checkpoints after a notice in time.
func checkpoint100M(share float64) simulate.Checkpoint {
	return simulate.Checkpoint{
		Bytes: modelBytes, Share: share, Stall: 5 * time.Second, Bandwidth: 100 << 20, Keep: 3, Notice: 0.7,
	}
}
