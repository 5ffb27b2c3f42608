package pool

import (
	"time"

	"nomad-spotter/autoscaler-plugin/cloud"
	"nomad-spotter/autoscaler-plugin/market"
)

// priceMemory is how far back prices are remembered.
const priceMemory = 14 * 24 * time.Hour

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
