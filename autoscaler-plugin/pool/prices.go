package pool

import (
	"math"
	"sort"
	"time"

	"nomad-spotter/autoscaler-plugin/cloud"
	"nomad-spotter/autoscaler-plugin/market"
)

// priceMemory is how far back prices are remembered, and priceStep the least time between two of them: at most some
// 20,000 points of an offering, however often its price moves.
const (
	priceMemory = 14 * 24 * time.Hour
	priceStep   = time.Minute
)

// prices remembers what offerings have cost since the loop began.
type prices map[string]*priceRecord

// priceRecord is what an offering has cost, and what is to be expected of its price.
type priceRecord struct {
	market.Series
	outlook outlook
	made    time.Time // when the outlook was
	moved   bool      // the price, since then
}

// see takes up the price of an offering at a time, in $/h. What is no price is no news.
func (p prices) see(offering string, price float64, now time.Time) {
	if !(price > 0) || math.IsInf(price, 0) {
		return
	}
	r := p[offering]
	if r == nil {
		r = &priceRecord{outlook: steady()}
		p[offering] = r
	}
	n := len(r.Points)
	for n > 0 && r.Points[n-1].At.After(now) { // the clock went back
		n--
	}
	r.Points = r.Points[:n]
	switch {
	case n > 0 && r.Points[n-1].Value == price:
	case n > 0 && now.Sub(r.Points[n-1].At) < priceStep:
		r.Points[n-1].Value, r.moved = price, true
	default:
		r.Points, r.moved = append(r.Points, market.Point{At: now, Value: price}), true
	}
	for len(r.Points) > 1 && now.Sub(r.Points[1].At) > priceMemory { // the second has held since before
		r.Points = r.Points[1:]
	}
}

// now is what an offering costs: what the provider said last, else what the pool file says.
func (p prices) now(o cloud.Offering) float64 {
	if r := p[o.Name]; r != nil {
		return r.Points[len(r.Points)-1].Value
	}
	return o.PriceUSDPerHour
}

// outbid is the probability that an offering's price is above a maximum in an hour. Without a maximum it is 0.
func (p prices) outbid(offering string, maximum float64) float64 {
	r := p[offering]
	if r == nil || maximum <= 0 {
		return 0
	}
	price := r.Points[len(r.Points)-1].Value
	below := sort.Search(outlookSteps, func(i int) bool { return price*r.outlook[i] > maximum })
	return 1 - float64(below)/outlookSteps
}
