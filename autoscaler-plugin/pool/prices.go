package pool

import (
	"sort"
	"time"

	"nomad-spotter/autoscaler-plugin/bid"
	"nomad-spotter/autoscaler-plugin/cloud"
	"nomad-spotter/autoscaler-plugin/market"
)

// priceMemory is how far back prices are remembered, and priceHorizon how far ahead they are forecast: a node that is to
// be outbid within the hour can still be replaced before.
const (
	priceMemory  = 14 * 24 * time.Hour
	priceHorizon = time.Hour
)

// prices remembers what offerings have cost since the loop began.
type prices map[string]*market.Series

// see takes up the price of an offering at a time, in $/h.
func (p prices) see(offering string, price float64, now time.Time) {
	s := p[offering]
	if s == nil {
		s = &market.Series{}
		p[offering] = s
	}
	if n := len(s.Points); n > 0 && (s.Points[n-1].Value == price || !now.After(s.Points[n-1].At)) {
		return
	}
	s.Points = append(s.Points, market.Point{At: now, Value: price})
	for len(s.Points) > 1 && now.Sub(s.Points[1].At) > priceMemory { // the second has held since before
		s.Points = s.Points[1:]
	}
}

// now is what an offering costs: what the provider said last, else what the pool file says.
func (p prices) now(o cloud.Offering) float64 {
	if s := p[o.Name]; s != nil && len(s.Points) > 0 {
		return s.Points[len(s.Points)-1].Value
	}
	return o.PriceUSDPerHour
}

// outbid is the probability that an offering's price is above a maximum in an hour, forecast from how it changed so far.
// Without a maximum, or a price that moved, it is 0.
func (p prices) outbid(offering string, maximum float64, now time.Time) float64 {
	s := p[offering]
	if s == nil || maximum <= 0 {
		return 0
	}
	forecast := bid.Persistence(*s, 1, now)
	const steps = 100 // the probability is known to a hundredth
	below := sort.Search(steps, func(i int) bool { return forecast(priceHorizon, float64(i)/steps) > maximum })
	return 1 - float64(below)/steps
}
