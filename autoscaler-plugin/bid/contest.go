package bid

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// Trial is a job that starts at a tick of a history.
type Trial struct {
	Start int
	Job   Job
}

// Trials draws jobs of 6 to 48 h of work with slack of 10 to 150 % of it, changeovers of 3 to 24 min, checkpoints every
// 15 to 60 min, with and without a notice that suffices. Their prices are known from three days before the start up to the
// deadline; there may be fewer than n where the history is short.
func Trials(h *History, n int, r *rand.Rand) []Trial {
	var trials []Trial
	for range n {
		work := 6 * math.Pow(8, r.Float64())
		deadline := work * (1.1 + 1.4*r.Float64())
		changeover := 0.05 * math.Pow(8, r.Float64())
		j := Job{
			Work: hours(work), Deadline: max(hours(deadline), hours(work+changeover)+2*Tick), Changeover: hours(changeover),
			Checkpoint: hours(0.25 * math.Pow(4, r.Float64())), Notice: r.IntN(2) == 0,
		}
		if start := r.IntN(len(h.prices)); h.holds(start, int(j.Deadline/Tick)+2) {
			trials = append(trials, Trial{Start: start, Job: j})
		}
	}
	return trials
}

// family is a kind of strategy with all the parameters that it is tried with.
type family struct {
	name       string
	strategies []Strategy
}

// baselines are what a policy is compared with. Each may also take on-demand always.
func baselines() []family {
	capped, fraction, forecast := family{name: "on-demand cap"}, family{name: "any fraction"}, family{name: "forecast quantile"}
	for _, fallback := range []Fallback{Patient, Paced, Eager} {
		capped.strategies = append(capped.strategies, Fraction{Fraction: 1, Fallback: fallback})
		for _, x := range []float64{0.22, 0.3, 0.4, 0.55, 0.75, 1, 1.3, 1.7, 2.5} {
			fraction.strategies = append(fraction.strategies, Fraction{Fraction: x, Fallback: fallback})
		}
		for _, horizon := range []time.Duration{time.Hour, 6 * time.Hour, 24 * time.Hour} {
			for _, q := range []float64{0.5, 0.75, 0.9, 0.95, 0.99} {
				for _, top := range []float64{0, 1} {
					forecast.strategies = append(forecast.strategies, Quantile{Q: q, Horizon: horizon, Cap: top, Fallback: fallback})
				}
			}
		}
	}
	return []family{capped, forecast, fraction}
}

// point is what a strategy costs and when it finishes, summed over jobs or per hour of work.
type point struct{ cost, finish float64 }

// Contest has a policy and the baselines do the same jobs.
type Contest struct {
	policy   *Policy
	families []family    // the first is the policy, a strategy for each price of delay
	work     []float64   // by history, h
	sums     [][][]point // by family, strategy and history
	always   []point     // on-demand, by history
	jobs     int
	missed   int
}

// patience is a policy at one price of delay.
type patience struct {
	*Policy
	delay float64
}

// Choose asks the policy.
func (p patience) Choose(s Situation) Action {
	s.DelayPrice = p.delay
	return p.Policy.Choose(s)
}

func (p patience) String() string { return fmt.Sprintf("delay price %v", p.delay) }

// NewContest prepares a contest for a policy.
func NewContest(p *Policy) *Contest {
	learned := family{name: "learned"}
	for _, delay := range p.Features.DelayPrices {
		learned.strategies = append(learned.strategies, patience{Policy: p, delay: delay})
	}
	c := &Contest{policy: p, families: append([]family{learned}, baselines()...)}
	for _, f := range c.families {
		c.sums = append(c.sums, make([][]point, len(f.strategies)))
	}
	return c
}

// Add runs trials in one history.
func (c *Contest) Add(h *History, trials []Trial) {
	if len(trials) == 0 {
		return
	}
	work := 0.0
	for _, t := range trials {
		work += t.Job.Work.Hours()
	}
	c.work = append(c.work, work)
	c.jobs += len(trials)
	run := func(s Strategy) point {
		var sum point
		for _, t := range trials {
			o := h.Run(t.Start, t.Job, s)
			sum.cost += o.Cost
			sum.finish += o.Finish.Hours()
			if o.Missed {
				c.missed++
			}
		}
		return sum
	}
	for f, family := range c.families {
		for i, s := range family.strategies {
			c.sums[f][i] = append(c.sums[f][i], run(s))
		}
	}
	c.always = append(c.always, run(AlwaysOnDemand{}))
}

// Result compares the policy with a family of baselines at one mean finish. Costs are multiples of the on-demand price
// of the work, finishes multiples of the work.
type Result struct {
	At        string  `json:"at"` // whose finish it is
	Baseline  string  `json:"baseline"`
	Histories int     `json:"histories"`
	Jobs      int     `json:"jobs"`
	Missed    int     `json:"missed"` // deadlines, by any strategy
	Finish    float64 `json:"finish"`
	Cost      float64 `json:"cost"`          // of the policy
	Other     float64 `json:"baseline_cost"` // of the baselines, with the parameters that are best in hindsight on these very jobs
	// Saved is 1 - Cost/Other with its 95 % confidence interval: bootstrap over histories, the parameters chosen anew in
	// each sample.
	Saved float64 `json:"saved"`
	Low   float64 `json:"saved_low"`
	High  float64 `json:"saved_high"`
}

// resamples is the number of bootstrap samples.
const resamples = 1000

// Results compares at the finish of the policy at each price of delay, and at that finish at which the family comes
// closest to the policy. The cost at a finish is the least of which a strategy, or two drawn by lot, finish no later on
// average; the policy draws between its prices of delay, a family between its parameters, both also take on-demand. The
// same seed gives the same intervals.
func (c *Contest) Results(seed uint64) []Result {
	var results []Result
	if len(c.work) == 0 {
		return nil
	}
	all := make([]int, len(c.work))
	for i := range all {
		all[i] = i
	}
	for f := 1; f < len(c.families); f++ {
		results = append(results, c.result(f, -1, all, seed))
		for i := range c.families[0].strategies {
			results = append(results, c.result(f, i, all, seed))
		}
	}
	return results
}

// result compares with family f at the finish of strategy i of the policy, or where the family comes closest for i < 0.
func (c *Contest) result(f, i int, all []int, seed uint64) Result {
	r := Result{Baseline: c.families[f].name, Histories: len(all), Jobs: c.jobs, Missed: c.missed}
	var at Strategy
	r.Finish, r.Cost, r.Other, at = c.compare(f, i, all)
	r.Saved, r.At = 1-r.Cost/r.Other, fmt.Sprint(at)
	random := rand.New(rand.NewPCG(seed, uint64(f)))
	saved := make([]float64, resamples)
	sample := make([]int, len(all))
	for k := range saved {
		for j := range sample {
			sample[j] = random.IntN(len(all))
		}
		_, own, other, _ := c.compare(f, i, sample)
		saved[k] = 1 - own/other
	}
	slices.Sort(saved)
	r.Low, r.High = saved[resamples*25/1000], saved[resamples*975/1000-1]
	return r
}

// compare returns a finish, the costs at it, and whose finish it is, over histories which may be there several times.
func (c *Contest) compare(f, i int, histories []int) (finish, own, other float64, at Strategy) {
	learned, family := c.points(0, histories), c.points(f, histories)
	best := frontier(family)
	if i >= 0 {
		p := learned[i]
		return p.finish, p.cost, cheapest(best, p.finish), c.families[0].strategies[i]
	}
	ours, least := frontier(learned), math.Inf(1)
	for k, s := range append(slices.Clone(c.families[f].strategies), Strategy(AlwaysOnDemand{})) {
		p := family[k]
		if !slices.Contains(best, p) {
			continue // no one would use these parameters
		}
		cost := cheapest(ours, p.finish)
		saved := 1 - cost/p.cost
		if _, last := s.(AlwaysOnDemand); last && at != nil {
			break // both may take it
		}
		if saved < least {
			least, finish, own, other, at = saved, p.finish, cost, p.cost, s
		}
	}
	return finish, own, other, at
}

// points are the costs and finishes of a family per hour of work; the last is that of on-demand.
func (c *Contest) points(f int, histories []int) []point {
	work := 0.0
	for _, h := range histories {
		work += c.work[h]
	}
	mean := func(of []point) point {
		var sum point
		for _, h := range histories {
			sum.cost += of[h].cost
			sum.finish += of[h].finish
		}
		return point{cost: sum.cost / work, finish: sum.finish / work}
	}
	points := make([]point, 0, len(c.sums[f])+1)
	for _, of := range c.sums[f] {
		points = append(points, mean(of))
	}
	return append(points, mean(c.always))
}

// frontier are the points that no other point, nor two others by lot, beat: the lower convex hull from the earliest finish to
// the least cost.
func frontier(points []point) []point {
	sorted := slices.Clone(points)
	slices.SortFunc(sorted, func(a, b point) int { return cmp.Or(cmp.Compare(a.finish, b.finish), cmp.Compare(a.cost, b.cost)) })
	var hull []point
	for _, p := range sorted {
		if n := len(hull); n > 0 && p.cost >= hull[n-1].cost {
			continue
		}
		for n := len(hull); n > 1; n = len(hull) {
			a, b := hull[n-2], hull[n-1]
			if (b.cost-a.cost)*(p.finish-a.finish) < (p.cost-a.cost)*(b.finish-a.finish) {
				break // b is below the line from a to p
			}
			hull = hull[:n-1]
		}
		hull = append(hull, p)
	}
	return hull
}

// cheapest is the least cost at which one point of a frontier, or two of them by lot, finish no later on average; without
// end where none does.
func cheapest(hull []point, finish float64) float64 {
	i, found := slices.BinarySearchFunc(hull, finish, func(p point, finish float64) int { return cmp.Compare(p.finish, finish) })
	switch {
	case found:
		return hull[i].cost
	case i == 0:
		return math.Inf(1)
	case i == len(hull):
		return hull[i-1].cost
	}
	a, b := hull[i-1], hull[i]
	return a.cost + (finish-a.finish)/(b.finish-a.finish)*(b.cost-a.cost)
}
