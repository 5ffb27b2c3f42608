package bid

import (
	"fmt"
	"time"
)

// Fallback is what a job does while the market's price is above its bid.
type Fallback int

// The fallbacks.
const (
	Patient Fallback = iota // wait
	Paced                   // wait while progress is uniform or better, else on-demand (Uniform Progress, NSDI'24)
	Eager                   // on-demand
)

// choose bids a price, or falls back while the market is above it.
func (f Fallback) choose(s Situation, bid float64) Action {
	switch {
	case s.Price <= bid:
		return Action{Verb: Spot, Max: bid}
	case f == Eager, f == Paced && behind(s):
		return Action{Verb: OnDemand}
	}
	return Action{Verb: Wait}
}

// behind reports whether a job has done less than its share for the time that has passed, or, on on-demand, for the time
// that will have passed after two changeovers, so that it does not leave as soon as it has caught up.
func behind(s Situation) bool {
	elapsed := s.Elapsed
	if s.OnDemand {
		elapsed += 2 * s.Changeover
	}
	total, deadline := s.Done+s.Work, s.Elapsed+s.Work+s.Slack
	return float64(s.Done)*float64(deadline) < float64(elapsed)*float64(total)
}

// Fraction bids a fixed fraction of the on-demand price. 1 is the on-demand cap, the default of a provider.
type Fraction struct {
	Fraction float64
	Fallback Fallback
}

// Choose bids the fraction.
func (f Fraction) Choose(s Situation) Action { return f.Fallback.choose(s, f.Fraction) }

// Fixed bids a price in $/h.
type Fixed struct {
	USDPerHour         float64
	OnDemandUSDPerHour float64
	Fallback           Fallback
}

// Choose bids the price.
func (f Fixed) Choose(s Situation) Action {
	return f.Fallback.choose(s, f.USDPerHour/f.OnDemandUSDPerHour)
}

// Quantile bids a quantile of the price that is forecast.
type Quantile struct {
	Q        float64
	Horizon  time.Duration
	Cap      float64 // the highest bid; 0: none
	Fallback Fallback
}

// Choose bids the quantile.
func (q Quantile) Choose(s Situation) Action {
	bid := s.Forecast(q.Horizon, q.Q)
	if q.Cap > 0 {
		bid = min(bid, q.Cap)
	}
	return q.Fallback.choose(s, bid)
}

// AlwaysOnDemand never bids.
type AlwaysOnDemand struct{}

// Choose takes on-demand.
func (AlwaysOnDemand) Choose(Situation) Action { return Action{Verb: OnDemand} }

func (f Fallback) String() string {
	return [...]string{Patient: "patient", Paced: "paced", Eager: "eager"}[f]
}

func (f Fraction) String() string { return fmt.Sprintf("%.2f %v", f.Fraction, f.Fallback) }

func (q Quantile) String() string {
	top := "uncapped"
	if q.Cap > 0 {
		top = fmt.Sprintf("at most %.2f", q.Cap)
	}
	return fmt.Sprintf("q%.0f of %v, %s, %v", 100*q.Q, q.Horizon, top, q.Fallback)
}

func (AlwaysOnDemand) String() string { return "on-demand" }
