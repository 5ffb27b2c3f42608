package pool

import (
	"math"
	"os"
	"path/filepath"
	"time"

	"nomad-spotter/autoscaler-plugin/bid"
	"nomad-spotter/autoscaler-plugin/cloud"
	"nomad-spotter/autoscaler-plugin/market"
)

// BidConfig says at which maximum price spot instances are asked for.
type BidConfig struct {
	Strategy bid.Strategy // nil: the on-demand price
	Priority bid.Priority // of the jobs that the pool is for
}

// bids checks how maximum prices are chosen.
func (c *checker) bids(b *bidBlock) BidConfig {
	if b == nil {
		return BidConfig{}
	}
	var config BidConfig
	var err error
	if config.Priority, err = bid.ParsePriority(b.Priority); b.Priority == "" {
		config.Priority = bid.Middle
	} else if err != nil {
		c.add("bid.%v", err)
	}
	switch {
	case (b.Policy == "") == (b.Fraction == nil):
		c.add("bid: give exactly one of policy, a file that `spotter bids train` wrote, and fraction, of the on-demand price")
	case b.Fraction != nil:
		if !(*b.Fraction > 0) || math.IsInf(*b.Fraction, 0) {
			c.add("bid.fraction: %v is not above 0; 1 is the on-demand price", *b.Fraction)
		}
		config.Strategy = bid.Fraction{Fraction: *b.Fraction, Fallback: bid.Eager}
	case !filepath.IsAbs(b.Policy):
		c.add("bid.policy: %q is relative; give an absolute path", b.Policy)
	default:
		data, err := os.ReadFile(b.Policy)
		var policy *bid.Policy
		if err == nil {
			policy, err = bid.ParsePolicy(data)
		}
		if err != nil {
			c.add("bid.policy: %v", err)
			break
		}
		config.Strategy = policy
	}
	return config
}

// asked is at which maximum price an offering is asked for.
type asked struct {
	usdPerHour float64 // 0: none
	reason     string  // why that much, in words; empty where no strategy was chosen
	unwanted   string  // why it is not to be had at any price; empty: it is
}

// ask has package bid choose the maximum price of a spot offering. Without a strategy, where no price is known, and where
// a bid changes nothing it is the on-demand price, which is also what providers take where none is asked for.
func (m *memory) ask(c Config, o cloud.Offering, now time.Time) (asked, error) {
	onDemand := onDemandPrice(c, o.Type)
	if o.Kind == cloud.OnDemand || onDemand <= 0 {
		return asked{}, nil
	}
	ask := bid.Ask{
		Now: now, Prices: market.Series{Key: keyOf(o)}, OnDemandUSDPerHour: onDemand, Priority: c.Bid.Priority,
		Changeover: c.Changeover, Rework: c.LostWork,
	}
	if s := m.prices[o.Name]; s != nil {
		ask.Prices.Points = s.Points
	}
	answer, err := bid.MaxPrice(c.Bid.Strategy, ask)
	switch {
	case err != nil:
		return asked{}, err
	case answer.Verb != bid.Spot:
		return asked{unwanted: "is not bid for, " + answer.Reason}, nil
	case c.Bid.Strategy == nil:
		return asked{usdPerHour: answer.MaxUSDPerHour}, nil
	}
	return asked{usdPerHour: answer.MaxUSDPerHour, reason: answer.Reason}, nil
}

// onDemandPrice is the cheapest on-demand price of a type, else of any, else the dearest price.
func onDemandPrice(c Config, instanceType string) float64 {
	same, other, dearest := 0.0, 0.0, 0.0
	for _, o := range c.Offerings {
		dearest = max(dearest, o.PriceUSDPerHour)
		switch {
		case o.Kind != cloud.OnDemand:
		case o.Type == instanceType && (same == 0 || o.PriceUSDPerHour < same):
			same = o.PriceUSDPerHour
		case other == 0 || o.PriceUSDPerHour < other:
			other = o.PriceUSDPerHour
		}
	}
	for _, p := range []float64{same, other} {
		if p > 0 {
			return p
		}
	}
	return dearest
}
