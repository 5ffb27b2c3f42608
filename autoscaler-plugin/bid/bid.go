// Package bid says at which maximum price to ask for a spot instance, where the market is an auction: one pays the
// market's price while it is at or below the bid, and loses the instance when it rises above. A bid is made at the launch
// and holds for the life of the instance. The package also says whether a bid matters at all, which it no longer does
// where prices are smoothed by the provider. It is pure: prices, times and a job's progress in, a bid and its reason out.
//
// Prices are multiples of the on-demand price wherever no unit is named.
package bid

import (
	"fmt"
	"time"
)

// Priority is how much a job's delay is worth avoiding.
type Priority int

// The priorities. A pool runs high ones on on-demand and asks for no bid.
const (
	Low Priority = iota
	Middle
	High
)

var priorities = [...]string{Low: "low", Middle: "middle", High: "high"}

func (p Priority) String() string {
	if p < 0 || int(p) >= len(priorities) {
		return fmt.Sprintf("Priority(%d)", int(p))
	}
	return priorities[p]
}

// delayPrices are what an hour until a job is done is taken to cost, in hours of on-demand.
var delayPrices = [...]float64{Low: 0.1, Middle: 0.6, High: 3}

// DelayPrice is what an hour until a job of this priority is done is taken to cost, in hours of on-demand.
func (p Priority) DelayPrice() float64 { return delayPrices[p] }

// ParsePriority reads low, middle or high.
func ParsePriority(s string) (Priority, error) {
	for p, name := range priorities {
		if s == name {
			return Priority(p), nil
		}
	}
	return 0, fmt.Errorf("priority: %q is none of low, middle, high", s)
}

// Verb is what a strategy does.
type Verb int

// The verbs.
const (
	Wait     Verb = iota // run nowhere until the market has moved
	OnDemand             // run on on-demand, or stay there
	Spot                 // ask for a spot instance
)

// Action is what a strategy chooses.
type Action struct {
	Verb Verb
	Max  float64 // of Spot: the maximum price. Below the market's price it is not filled.
}

// Situation is what is known when a job is not on spot and something must be chosen for it.
type Situation struct {
	Price      float64       // the market's, now
	Forecast   Forecast      // of the market's price
	DelayPrice float64       // what an hour until the job is done costs, in hours of on-demand: see Priority
	OnDemand   bool          // the job runs on on-demand now
	Done       time.Duration // work that is done
	Work       time.Duration // work that is left
	Elapsed    time.Duration // since the job was started
	Slack      time.Duration // time to the deadline beyond the work that is left
	Changeover time.Duration // from the launch of an instance until it makes progress
	Rework     time.Duration // what losing an instance costs in work to be done again, on average
}

// Strategy chooses for jobs that are not on spot. That deadlines are met is not its task: see Run.
type Strategy interface {
	Choose(s Situation) Action
}
