package bid

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/shoenig/test/must"
)

// small are features that are learned fast.
var small = Features{
	PriceEdges:        []float64{0.22, 0.4, 0.75, 1, 1.7},
	WorkHours:         []float64{1, 3, 6, 12},
	SlackHours:        []float64{0.5, 1, 2, 3, 6, 12},
	InterruptionHours: []float64{0.3},
	DelayPrices:       []float64{0.1, 0.6},
}

var smallBids = []float64{0.4, 0.75, 1, 1.7}

func always(int, int) bool { return true }

func learnSmall(t *testing.T, histories ...*History) *Policy {
	t.Helper()
	p, err := learn(histories, small, smallBids, always)
	must.NoError(t, err)
	return p
}

// In markets that stand still it is clear what is best.
func TestLearn_still(t *testing.T) {
	s := Situation{Work: 6 * time.Hour, Slack: 6 * time.Hour, Changeover: 18 * time.Minute, DelayPrice: 0.1}
	cheap := learnSmall(t, ofTicks(t, repeat(300, 0.2)...))
	s.Price = 0.2
	must.Eq(t, Spot, cheap.Choose(s).Verb)
	s.OnDemand = true
	must.Eq(t, Spot, cheap.Choose(s).Verb)

	dear := learnSmall(t, ofTicks(t, repeat(300, 1.5)...))
	s = Situation{Price: 1.5, Work: 6 * time.Hour, Slack: 6 * time.Hour, Changeover: 18 * time.Minute, DelayPrice: 0.1}
	must.Eq(t, OnDemand, dear.Choose(s).Verb, must.Sprint("waiting is in vain"))
}

// Where every high price passes within the hour, a job that is in no hurry waits for that, and one that is runs on.
func TestLearn_passing(t *testing.T) {
	var prices []float64
	r := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		prices = append(append(prices, repeat(60+r.IntN(60), 0.2)...), repeat(6+r.IntN(3), 1.5)...)
	}
	p := learnSmall(t, ofTicks(t, prices...))
	s := Situation{Price: 1.5, Work: 6 * time.Hour, Slack: 6 * time.Hour, Changeover: 18 * time.Minute, DelayPrice: 0.1}
	must.Eq(t, Wait, p.Choose(s).Verb)
	s.Price = 0.2
	must.Eq(t, Spot, p.Choose(s).Verb)
}

// The values of the solver are what replays cost on average, in a market that is as the model has it: every quarter of an
// hour the price is drawn anew.
func TestSolver_value(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	var prices []float64
	for range 40_000 {
		price := 0.2
		if r.Float64() < 0.2 {
			price = 1.5
		}
		prices = append(prices, repeat(ticksPerStep, price)...)
	}
	h := ofTicks(t, prices...)
	m := newModel([]*History{h}, small.PriceEdges, smallBids)
	must.Len(t, 2, m.seen)
	const work, slack = 24, 24 // steps
	s := newSolver(m, small, smallBids, problem{changeover: 0.25, delay: 0.1})
	value := 0.0
	s.solve(func(r, free, place, x, choice int, cost float64) {
		if r == work && free == slack && place == nowhere && x == 0 {
			must.GreaterEq(t, spot, choice)
			value = cost
		}
	})
	policy := learnSmall(t, h)
	total, n := 0.0, 0
	job := Job{Work: work * step, Deadline: 2 * work * step, Changeover: 15 * time.Minute, DelayPrice: 0.1, Notice: true}
	for at := int(warmUp / Tick); at+4*work*ticksPerStep < len(h.prices); at += 50 * ticksPerStep {
		if h.prices[at] > 1 {
			continue
		}
		o := h.Run(at, job, policy)
		must.False(t, o.Missed)
		total += o.Cost + 0.1*o.Finish.Hours()
		n++
	}
	must.InDelta(t, value, total/float64(n), 0.05*value)
}

func TestLearn_same(t *testing.T) {
	a, b := learnSmall(t, auctionHistory(t, 1, 20)), learnSmall(t, auctionHistory(t, 1, 20))
	must.Eq(t, a, b)
	must.NotEq(t, a.Tables, learnSmall(t, auctionHistory(t, 2, 20)).Tables)
}

func TestLearn_faults(t *testing.T) {
	_, err := Learn(nil, always)
	must.ErrorContains(t, err, "no prices")
	_, err = learn([]*History{auctionHistory(t, 1, 10)}, small, smallBids, func(int, int) bool { return false })
	must.ErrorIs(t, err, ErrStopped)
}

// Even a small policy beats the on-demand cap and quantiles of the forecast on markets that it was not learned from, at
// the finish of each of its prices of delay. The full one is judged by the benchmark.
func TestContest_learned(t *testing.T) {
	var histories []*History
	for i := range uint64(20) {
		histories = append(histories, auctionHistory(t, i, 20))
	}
	c := NewContest(learnSmall(t, histories...))
	for i := range uint64(5) {
		h := auctionHistory(t, 100+i, 20)
		c.Add(h, Trials(h, 8, rand.New(rand.NewPCG(i, 0))))
	}
	results := c.Results(1)
	must.Len(t, 3*(1+len(small.DelayPrices)), results)
	must.Eq(t, results, c.Results(1))
	for _, r := range results {
		t.Logf("%+v", r)
		must.Zero(t, r.Missed)
		must.Between(t, r.Low, r.Saved, r.High)
		if r.Baseline != "any fraction" && r.At[:5] == "delay" {
			must.Less(t, r.Other, r.Cost)
		}
	}
}

func TestCheapest(t *testing.T) {
	points := []point{{cost: 1, finish: 1}, {cost: 0.4, finish: 1.2}, {cost: 0.6, finish: 1.1}, {cost: 0.9, finish: 1.15}}
	must.Eq(t, []point{points[0], points[2], points[1]}, frontier(points))
	must.True(t, math.IsInf(cheapest(points, 0.9), 1))
	for _, c := range []struct{ finish, cost float64 }{{1, 1}, {1.05, 0.8}, {1.1, 0.6}, {1.15, 0.5}, {1.2, 0.4}, {2, 0.4}} {
		must.InDelta(t, c.cost, cheapest(frontier(points), c.finish), 1e-9, must.Sprint(c.finish))
	}
}
