package market

import (
	"io"
	"math"
	"math/rand/v2"
	"time"
)

// Auction is the spot market of the years in which prices were bids: a price that lies well below on-demand for hours or
// days, is contended now and then, and spikes above on-demand, up to ten times. The ranges that DrawAuction draws from
// are set so that the prices have the published statistics of AWS in 2015 and 2016: g2.2xlarge, three zones, 173 days:
// 110 to 154 changes a day, 0.064 to 6.50 $/h at an on-demand price of 0.65, above it 3.7 to 18.5 % of the time;
// g2.8xlarge, three zones, 60 days: 85 to 183 changes a day, 0.28 to 26 $/h at 2.60.
//
// The market is in one of three regimes, each for a time with a Weibull distribution of shape below one, as up-times of
// spot instances have: calm, contended (dearer, at most on-demand) and spike (above on-demand). Within a regime the
// logarithm of the price is a mean-reverting walk around a level; the calm level itself drifts over days.
type Auction struct {
	OnDemand  float64       // $/h
	Calm      float64       // price of calm times as a share of on-demand
	Above     float64       // share of time above on-demand in the long run
	CalmMean  time.Duration // mean length of a calm time
	Contended time.Duration // mean length of a contended time
	Shape     float64       // Weibull shape of those lengths; 1: exponential
	Peak      float64       // Pareto exponent of the height of spikes; the lower, the higher
	Jitter    float64       // standard deviation of the logarithm of the price within a regime
	Gap       time.Duration // mean time between two changes in calm times; half of it in others
}

// DrawAuction draws the parameters of a market. Two seeds give two markets that differ in all of them.
func DrawAuction(r *rand.Rand) Auction {
	return Auction{
		OnDemand:  logUniform(r, 0.65, 2.60),
		Calm:      logUniform(r, 0.10, 0.22),
		Above:     logUniform(r, 0.05, 0.15),
		CalmMean:  time.Duration(logUniform(r, 4, 20) * float64(time.Hour)),
		Contended: time.Duration(logUniform(r, 0.5, 4) * float64(time.Hour)),
		Shape:     0.6 + 0.3*r.Float64(),
		Peak:      0.7 + 0.6*r.Float64(),
		Jitter:    0.05 + 0.10*r.Float64(),
		Gap:       time.Duration(logUniform(r, 9.5, 16) * float64(time.Minute)),
	}
}

func logUniform(r *rand.Rand, low, high float64) float64 {
	return low * math.Pow(high/low, r.Float64())
}

// regime is what a market is in.
type regime int

const (
	calm regime = iota
	contended
	spike
)

// next is where a regime goes: the chance of the first of the two others. The chain visits calm, contended and spike
// in the proportions 1 : 1.0625 : 0.725.
var next = [...]struct {
	first, second regime
	chance        float64
}{
	calm:      {contended, spike, 0.7},
	contended: {calm, spike, 0.6},
	spike:     {calm, contended, 0.5},
}

const (
	contendedVisits = 1.0625 // for each visit to calm
	spikeVisits     = 0.725
	highest         = 10              // the highest price as a multiple of on-demand: the provider's bound on bids
	driftTime       = 3 * 24          // hours in which the drift of the calm level is forgotten
	driftSize       = 0.15            // standard deviation of its logarithm
	reversion       = 0.3             // share of the way back to its level that the price goes at a change
	resolution      = 1e-4            // $/h, that of AWS's prices
	calmest         = 0.09            // the lowest price, as a share of on-demand
	hour            = 3600.0          // seconds
	shortest        = 1 * time.Minute // between two changes
)

// auction is the state of one market as it runs.
type auction struct {
	Auction
	random *rand.Rand
	at     float64 // time of the next change in seconds
	until  float64 // end of the regime in seconds
	regime regime
	level  float64 // of the regime, as a multiple of on-demand
	drift  float64 // of the calm level, logarithm
	walk   float64 // deviation of the logarithm of the price from its level
	price  float64 // last price handed out, $/h
}

// auctions are several markets in one feed.
type auctions struct {
	markets []auction
	length  float64 // seconds
}

// NewAuctions returns the prices of markets over a length of time, offering i that of markets[i]. The markets do not
// move together. Instances can always be had: at that price. The same seed gives the same prices.
func NewAuctions(seed uint64, length time.Duration, markets ...Auction) Feed {
	f := &auctions{length: length.Seconds(), markets: make([]auction, len(markets))}
	for i, m := range markets {
		a := &f.markets[i]
		*a = auction{Auction: m, random: rand.New(rand.NewPCG(seed, uint64(i)))}
		a.drift = driftSize * a.random.NormFloat64()
		a.enter(calm)
		a.until *= a.random.Float64() // it has been calm for a while
	}
	return f
}

// Prices returns the prices of one market as a series, from a start on.
func (a Auction) Prices(seed uint64, start time.Time, length time.Duration) Series {
	s := Series{End: start.Add(length)}
	feed := NewAuctions(seed, length, a)
	for {
		c, err := feed.Next()
		if err != nil { // the end: the feed knows no other
			return s
		}
		s.Points = append(s.Points, Point{At: start.Add(c.At), Value: c.Price})
	}
}

// Next returns the earliest change of all markets.
func (f *auctions) Next() (Change, error) {
	first := -1
	for i := range f.markets {
		if first < 0 || f.markets[i].at < f.markets[first].at {
			first = i
		}
	}
	if first < 0 || f.markets[first].at >= f.length {
		return Change{}, io.EOF
	}
	a := &f.markets[first]
	at := time.Duration(a.at * float64(time.Second))
	return Change{At: at, Offering: first, Up: true, Price: a.step()}, nil
}

// step returns the price from the present change on and moves to the next change.
func (a *auction) step() float64 {
	for {
		price := a.quote()
		gap := a.Gap.Seconds()
		if a.regime != calm {
			gap /= 2
		}
		wait := max(shortest.Seconds(), gap*a.random.ExpFloat64())
		a.drift += -a.drift*wait/(driftTime*hour) + driftSize*math.Sqrt(2*wait/(driftTime*hour))*a.random.NormFloat64()
		a.walk += -a.walk*reversion + a.Jitter*math.Sqrt(reversion*(2-reversion))*a.random.NormFloat64()
		a.at += wait
		for a.at >= a.until {
			a.leave()
		}
		if price != a.price { // one that is the same is no change
			a.price = price
			return price
		}
	}
}

// quote is the present price in $/h, within the bounds of the regime.
func (a *auction) quote() float64 {
	level, low, high := a.level, 1+resolution/a.OnDemand, float64(highest)
	switch a.regime {
	case calm:
		level, low, high = a.Calm*math.Exp(a.drift), calmest, 0.9
	case contended:
		low, high = calmest, 1
	case spike:
	}
	x := min(max(level*math.Exp(a.walk), low), high) * a.OnDemand
	return math.Round(x/resolution) * resolution
}

// leave ends a regime.
func (a *auction) leave() {
	to := next[a.regime]
	if a.random.Float64() < to.chance {
		a.enter(to.first)
	} else {
		a.enter(to.second)
	}
}

// enter begins a regime: its length and its level.
func (a *auction) enter(r regime) {
	a.regime = r
	mean := a.CalmMean.Seconds()
	switch r {
	case calm:
	case contended:
		mean = a.Contended.Seconds()
		a.level = a.Calm * math.Pow(1/a.Calm, 0.3+0.7*a.random.Float64())
	case spike:
		// The share above on-demand is spikeVisits*spike / (calm + contendedVisits*contended + spikeVisits*spike).
		mean = a.Above / (1 - a.Above) * (a.CalmMean.Seconds() + contendedVisits*a.Contended.Seconds()) / spikeVisits
		a.level = min(math.Pow(1-a.random.Float64(), -1/a.Peak), highest)
	}
	a.until += mean / math.Gamma(1+1/a.Shape) * math.Pow(a.random.ExpFloat64(), 1/a.Shape)
}
