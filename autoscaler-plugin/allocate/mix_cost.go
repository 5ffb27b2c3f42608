package allocate

import (
	"fmt"
	"math"
	"time"
)

// Offer is what a node of an offering costs and risks.
type Offer struct {
	Offering        string
	Region          string
	Zone            string // within the region
	Type            string // instance type
	OnDemand        bool   // never taken back: HazardPerHour and Outbid count for nothing
	PriceUSDPerHour float64
	HazardPerHour   float64 // interruptions to expect, mean over Costs.Horizon from the node's age on
	Outbid          float64 // probability, 0 to 1, that the market passes the node's maximum price within the hour
}

// hazard is the rate of interruptions of both causes, per hour: capacity that is wanted back, and a price above the
// maximum. A probability p within an hour is the rate -ln(1-p).
func (o Offer) hazard() float64 {
	if o.OnDemand {
		return 0
	}
	const most = 0.999 // else the rate is infinite
	return o.HazardPerHour - math.Log1p(-min(max(o.Outbid, 0), most))
}

// Costs are what interruptions cost a pool.
type Costs struct {
	Changeover         time.Duration // from an interruption until a replacement works: boot, image, restore
	LostWork           time.Duration // work that is done again, on average
	RecoveryUSDPerHour float64       // price of those hours; 0: the interrupted node's own
	Outage             time.Duration // how long an offering that took a node back has none, on average
	PremiumUSDPerHour  float64       // what a node costs more on demand than as spot, usually
	Horizon            time.Duration // how long a node is expected to be needed yet
}

// interruption is what one interruption of a node costs, in $.
//
// Example: 6 min and 3 min at 3 $/h are 0.45 $.
func (c Costs) interruption(o Offer) float64 {
	price := c.RecoveryUSDPerHour
	if price == 0 {
		price = o.PriceUSDPerHour
	}
	return (c.Changeover + c.LostWork).Hours() * price
}

// outages is how often per hour a place in the pool loses its node and its offering at once, when it is up for 1/hazard
// and then out for Outage, again and again. Example: 0.44/h and 2 h are 0.44/(1+0.88) = 0.23.
func (c Costs) outages(o Offer) float64 {
	h := o.hazard()
	return h / (1 + h*c.Outage.Hours())
}

// Correlations of spot availability: how much more likely a node's offering is out when another one's is. All are
// correlations of the up/down series of recorded AWS zones.
const (
	// One market, which is one type in one zone: of 16 V100 nodes asked for at once the first could be had 44 to 63 % of
	// the time, the sixteenth 41 to 46 % (spot-traces, August 2023). Two nested series of 0.535 and 0.435 correlate by
	// sqrt(0.435*0.465/(0.535*0.565)) = 0.82; nodes in between by more.
	sameMarket = 0.80
	// One type, two zones of a region: mean of the pairs among nine V100 zones, February 2023; two in October 2022: 0.45.
	sameRegion = 0.40
	// One type, two regions: mean of the pairs among the nine zones.
	otherRegion = 0.14
	// Two types: K80 and V100 in one zone or two of us-west-2, October 2022: 0.02 to 0.12, mean 0.09.
	otherType = 0.09
)

// crowd sums up the spot nodes of a pool, so that what a further node adds to their common risk is found without going
// through them.
//
// A place in the pool whose node is lost is filled from the pool's other offerings, at about the same price, or on demand,
// if those are out too. The more of the pool goes at once, the fewer are left: the probability that on-demand must fill
// a place is taken as the share of the pool that is lost along with it. That share is, for node i of a pool of N, the sum
// of the correlations with the other nodes, weighted for unequal rates, over N. With e the outages per hour and k the
// premium of one, the pool pays
//
//	1/N * sum over pairs i<j of  correlation(i,j) * sqrt(e_i*e_j) * (k_i + k_j)   in $/h
//
// for losses that come together: the quadratic form of a mean-variance portfolio, with a price in place of an aversion to
// risk. One more node adds its own row of it.
type crowd struct {
	rate    map[string]float64 // sum of sqrt(e) by market, region and type, type, and "" for all
	premium map[string]float64 // sum of k*sqrt(e)
	count   map[string]int     // spot nodes by the same keys, and by region and zone whatever the type
}

func newCrowd() *crowd {
	return &crowd{rate: map[string]float64{}, premium: map[string]float64{}, count: map[string]int{}}
}

// circle is one set of nodes around a node and by how much its correlation exceeds that of the next wider one.
type circle struct {
	key  string
	more float64
}

func circles(o Offer) [4]circle {
	return [4]circle{
		{"", otherType},
		{"type\x00" + o.Type, otherRegion - otherType},
		{"region\x00" + o.Type + "\x00" + o.Region, sameRegion - otherRegion},
		{"market\x00" + o.Type + "\x00" + o.Region + "\x00" + o.Zone, sameMarket - sameRegion},
	}
}

func regionKey(o Offer) string { return "in\x00" + o.Region }

func offeringKey(o Offer) string { return "of\x00" + o.Offering }

func zoneKey(o Offer) string { return "in\x00" + o.Region + "\x00" + o.Zone }

// add counts a node n times; -1 takes it away.
func (w *crowd) add(c Costs, o Offer, n int) {
	if o.OnDemand {
		return
	}
	e := math.Sqrt(c.outages(o))
	for _, k := range circles(o) {
		w.rate[k.key] += float64(n) * e
	}
	w.count[regionKey(o)] += n
	w.count[zoneKey(o)] += n
}

// joint is what one more node adds to the cost of losses that come together, in $/h, in a pool of that many nodes.
func (w *crowd) joint(c Costs, o Offer, nodes int) float64 {
	if o.OnDemand || nodes == 0 {
		return 0
	}
	rate := 0.0
	for _, k := range circles(o) {
		rate += k.more * w.rate[k.key]
	}
	premium := max(0, c.PremiumUSDPerHour) * c.Outage.Hours()
	return max(0, 2*premium*math.Sqrt(c.outages(o))*rate/float64(nodes))
}

// effective is what one more node costs per hour with all that it risks.
//
// Example: 0.80 $/h, 0.44 interruptions per hour at 0.45 $ each, outages of 2 h, and on-demand 2.20 $/h dearer. Alone it is
// 0.80 + 0.44*0.45 = 0.998. As the second spot node of a market in a pool of three it adds 2 * 4.4 * 0.80 * 0.234 / 3 =
// 0.549; as the second in another zone of the region 0.275, in another region 0.096.
func (w *crowd) effective(c Costs, o Offer, nodes int) float64 {
	return o.PriceUSDPerHour + o.hazard()*c.interruption(o) + w.joint(c, o, nodes)
}

// explain says what an effective price is made of.
func (w *crowd) explain(c Costs, o Offer, nodes int) string {
	if o.OnDemand {
		return fmt.Sprintf("%.4g $/h on demand", o.PriceUSDPerHour)
	}
	text := fmt.Sprintf("%.4g $/h, which counts as %.4g with %.3g interruptions an hour of %.3g $", o.PriceUSDPerHour,
		w.effective(c, o, nodes), o.hazard(), c.interruption(o))
	if region := w.count[regionKey(o)]; region > 0 {
		text += fmt.Sprintf(" and %d spot nodes in %s, %d of them in %s", region, o.Region, w.count[zoneKey(o)], o.Zone)
	}
	return text
}
