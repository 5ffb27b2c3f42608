package bid

import (
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
// 15 to 60 min, with and without a notice that suffices. Their prices are known up to the deadline; there may be fewer
// than n where the history is short.
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
		start := r.IntN(len(h.prices))
		if h.holds(start, int(j.Deadline/Tick)+2) {
			trials = append(trials, Trial{Start: start, Job: j})
		}
	}
	return trials
}

// Baseline is a family of strategies, with all the parameters that it is tried with.
type baseline struct {
	name       string
	strategies []Strategy
}

// baselines are what a policy is compared with. Each may also take on-demand always.
func baselines() []baseline {
	capped, fraction, forecast := baseline{name: "on-demand cap"}, baseline{name: "fraction"}, baseline{name: "forecast quantile"}
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
	all := []baseline{capped, fraction, forecast}
	for i := range all {
		all[i].strategies = append(all[i].strategies, AlwaysOnDemand{})
	}
	return all
}

// sums are of the outcomes of one strategy in one history.
type sums struct{ cost, finish float64 }

// Contest has a policy and the baselines do the same jobs.
type Contest struct {
	policy    *Policy
	baselines []baseline
	work      []float64  // by history, h
	learned   [][]sums   // by priority and history
	others    [][][]sums // by baseline, strategy and history
	jobs      int
	missed    int
}

// NewContest prepares a contest for a policy.
func NewContest(p *Policy) *Contest {
	c := &Contest{policy: p, baselines: baselines(), learned: make([][]sums, len(priorities))}
	for _, b := range c.baselines {
		c.others = append(c.others, make([][]sums, len(b.strategies)))
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
	run := func(s Strategy, priority Priority) sums {
		var sum sums
		for _, t := range trials {
			t.Job.Priority = priority
			o := h.Run(t.Start, t.Job, s)
			sum.cost += o.Cost
			sum.finish += o.Finish.Hours()
			if o.Missed {
				c.missed++
			}
		}
		return sum
	}
	for p := range c.learned {
		c.learned[p] = append(c.learned[p], run(c.policy, Priority(p)))
	}
	for b, family := range c.baselines {
		for i, s := range family.strategies {
			c.others[b][i] = append(c.others[b][i], run(s, Low))
		}
	}
}

// Result compares the policy at one priority with a family of baselines. Costs are multiples of the on-demand price of
// the work, finishes multiples of the work.
type Result struct {
	Priority  string  `json:"priority"`
	Baseline  string  `json:"baseline"`
	Histories int     `json:"histories"`
	Jobs      int     `json:"jobs"`
	Missed    int     `json:"missed"` // deadlines, of all strategies
	Finish    float64 `json:"finish"` // of the policy
	Cost      float64 `json:"cost"`   // of the policy
	// BaselineCost is the least cost at which the family finishes no later on average, with the parameters that are best in
	// hindsight on these very jobs, or drawn between two of them.
	BaselineCost float64 `json:"baseline_cost"`
	With         string  `json:"with"` // those parameters
	// Saved is 1 - Cost/BaselineCost, with its 95 % confidence interval: bootstrap over histories, the best parameters chosen
	// anew in each sample.
	Saved float64 `json:"saved"`
	Low   float64 `json:"saved_low"`
	High  float64 `json:"saved_high"`
}

// resamples is the number of bootstrap samples.
const resamples = 1000

// Results compares. The same seed gives the same confidence intervals.
func (c *Contest) Results(seed uint64) []Result {
	n := len(c.work)
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	var results []Result
	for p := range c.learned {
		for b := range c.baselines {
			if n == 0 {
				continue
			}
			own := c.mean(c.learned[p], all)
			with, cost := c.frontier(b, all, own.finish)
			r := Result{
				Priority: Priority(p).String(), Baseline: c.baselines[b].name, Histories: n, Jobs: c.jobs, Missed: c.missed,
				Finish: own.finish, Cost: own.cost, BaselineCost: cost, With: with, Saved: 1 - own.cost/cost,
			}
			random := rand.New(rand.NewPCG(seed, 0))
			saved := make([]float64, resamples)
			sample := make([]int, n)
			for i := range saved {
				for k := range sample {
					sample[k] = random.IntN(n)
				}
				own := c.mean(c.learned[p], sample)
				_, cost := c.frontier(b, sample, own.finish)
				saved[i] = 1 - own.cost/cost
			}
			slices.Sort(saved)
			r.Low, r.High = saved[resamples*25/1000], saved[resamples*975/1000-1]
			results = append(results, r)
		}
	}
	return results
}

// mean is the cost and the finish per hour of work over histories, which may be there several times.
func (c *Contest) mean(of []sums, histories []int) sums {
	var sum sums
	work := 0.0
	for _, h := range histories {
		sum.cost += of[h].cost
		sum.finish += of[h].finish
		work += c.work[h]
	}
	return sums{cost: sum.cost / work, finish: sum.finish / work}
}

// frontier is the least cost of a family at a mean finish, and the strategies that reach it: a job may be given to one of
// two strategies by lot, so that whatever lies between two points can be had.
func (c *Contest) frontier(b int, histories []int, finish float64) (with string, cost float64) {
	points := make([]sums, len(c.others[b]))
	for i := range points {
		points[i] = c.mean(c.others[b][i], histories)
	}
	cost = math.Inf(1)
	var first, second int
	for i, p := range points {
		if p.finish <= finish && p.cost < cost {
			cost, first, second = p.cost, i, i
		}
	}
	for i, p := range points {
		for j, q := range points {
			if p.finish > finish || q.finish <= finish {
				continue
			}
			share := (finish - p.finish) / (q.finish - p.finish)
			if mixed := p.cost + share*(q.cost-p.cost); mixed < cost {
				cost, first, second = mixed, i, j
			}
		}
	}
	s := c.baselines[b].strategies
	with = fmt.Sprint(s[first])
	if second != first {
		with += " / " + fmt.Sprint(s[second])
	}
	return with, cost
}
