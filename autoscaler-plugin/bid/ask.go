package bid

import (
	"fmt"
	"math"
	"time"

	"nomad-spotter/autoscaler-plugin/market"
)

// Ask is a question for the maximum price of one launch.
type Ask struct {
	Now                time.Time
	Prices             market.Series // the offering's spot prices up to now in $/h; what comes after now is not looked at
	OnDemandUSDPerHour float64       // of the same instance
	Forecast           Forecast      // of the price as a multiple of on-demand; nil: Persistence
	Priority           Priority
	OnDemand           bool          // the job runs on on-demand now
	Done               time.Duration // work that is done
	Work               time.Duration // work that is left; 0: not known, taken for a day's
	Elapsed            time.Duration // since the job was started
	Slack              time.Duration // time to the deadline beyond the work that is left; used only where Work is known
	Changeover         time.Duration // from the launch of an instance until it makes progress
	Rework             time.Duration // work lost with an instance, on average
}

// Answer is a maximum price, or the advice not to buy.
type Answer struct {
	Verb          Verb    // Spot: launch with the maximum price; Wait and OnDemand: do not launch spot now
	MaxUSDPerHour float64 // of Spot
	Reason        string  // in words
}

// usual is the work and the slack of a job of which nothing is known.
const usual = 24 * time.Hour

// MaxPrice answers by a strategy; nil is the on-demand cap. Where a bid changes nothing the answer is the on-demand price
// whatever the strategy says, so that no instance is lost over a price. Where the slack does not cover two changeovers and
// the most work that is lost, it is on-demand. It fails if the on-demand price is no number
// above 0.
func MaxPrice(s Strategy, a Ask) (Answer, error) {
	od := a.OnDemandUSDPerHour
	if math.IsNaN(od) || math.IsInf(od, 0) || od <= 0 {
		return Answer{}, fmt.Errorf("on-demand price of %s: %v is not above 0; give the $/h of the same instance", a.Prices.Key, od)
	}
	capped := func(reason string) (Answer, error) {
		return Answer{Verb: Spot, MaxUSDPerHour: od, Reason: "bid the on-demand price: " + reason}, nil
	}
	price, known := a.Prices.At(a.Now)
	if !known || price <= 0 {
		return capped("the spot price is not known now")
	}
	past := a.past()
	if v := Matters(past, od); !v.Matters {
		return capped(v.Reason)
	}
	if lost := 2 * (a.Changeover + a.Rework); a.Work > 0 && a.Slack < lost {
		why := fmt.Sprintf("on-demand: the slack of %.2f h does not cover a spot instance that is lost, %.2f h",
			a.Slack.Hours(), lost.Hours())
		return Answer{Verb: OnDemand, Reason: why}, nil
	}
	if s == nil {
		s = Fraction{Fraction: 1}
	}
	at := Situation{
		Price: price / od, Forecast: a.Forecast, DelayPrice: a.Priority.DelayPrice(), OnDemand: a.OnDemand,
		Done: a.Done, Work: a.Work, Elapsed: a.Elapsed, Slack: a.Slack, Changeover: a.Changeover, Rework: a.Rework,
	}
	if at.Forecast == nil {
		at.Forecast = Persistence(past, od, a.Now)
	}
	job := fmt.Sprintf("%.1f h of work and %.1f h of slack left", a.Work.Hours(), a.Slack.Hours())
	if a.Work <= 0 {
		at.Work, at.Slack = usual, usual
		job = "progress and deadline not known"
	}
	action := s.Choose(at)
	why := fmt.Sprintf("the price is %.2f of on-demand, %s, an interruption costs %.2f h, priority %s",
		at.Price, job, (at.Changeover + at.Rework).Hours(), a.Priority)
	switch action.Verb {
	case Wait:
		return Answer{Verb: Wait, Reason: "wait for a lower price: " + why}, nil
	case OnDemand:
		return Answer{Verb: OnDemand, Reason: "on-demand rather than spot: " + why}, nil
	case Spot:
	}
	if action.Max < at.Price {
		why = fmt.Sprintf("wait: the bid of %.2f of on-demand is below the price: %s", action.Max, why)
		return Answer{Verb: Wait, Reason: why}, nil
	}
	return Answer{
		Verb: Spot, MaxUSDPerHour: action.Max * od, Reason: fmt.Sprintf("bid %.2f of on-demand: %s", action.Max, why),
	}, nil
}

// past are the prices up to now.
func (a Ask) past() market.Series {
	s := a.Prices
	n := len(s.Points)
	for n > 0 && s.Points[n-1].At.After(a.Now) {
		n--
	}
	s.Points, s.End = s.Points[:n], a.Now.Add(time.Nanosecond)
	return s
}
