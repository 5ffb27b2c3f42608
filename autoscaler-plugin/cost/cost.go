// Package cost says what training on spot instances costs, and what it saves:
//
//	total = compute (hours × market price)
//	      + storage (bytes × price × time)
//	      + recovery (interruptions × recovery hours × on-demand price)
//
// It is one model for three views. A Plan says ahead what a job will use, a Record what it has used so far or did use in
// the end, a simulator counts what its jobs use; each gives a Usage, and only Prices.Of turns a Usage into money.
//
// Compute is split further, into hours that trained and hours that stood still for checkpoints, and storage into keeping
// and transfer, so that all that checkpoints and interruptions cost can be told apart from the training itself.
//
// Amounts are float64 in units of one currency: 53 bits hold the cents of any sum below 10^13 exactly enough to print.
// Nothing is rounded but for print: see Money and Breakdown.MarshalJSON. The package is pure: values and times go in, values
// come out.
package cost

import (
	"math"
	"slices"
	"time"

	"nomad-spotter/autoscaler-plugin/market"
)

// HoursPerMonth is the month by which storage is priced: 365 × 24 / 12 hours.
const HoursPerMonth = 730

// GiB is the unit by which object stores bill what is kept and sent: 2^30 bytes.
const GiB = 1 << 30

// requestsPerPrice is how many requests the price of requests is for.
const requestsPerPrice = 1000

// Kind is how capacity is bought.
type Kind string

// Kinds of capacity. What is prepaid for reserved capacity is spread over its hours by whoever sets its price.
const (
	Spot     Kind = "spot"
	OnDemand Kind = "on-demand"
	Reserved Kind = "reserved"
)

// Bought is time on instances and what was paid for it.
type Bought struct {
	Hours    float64 `json:"hours"`              // node-hours
	Cost     float64 `json:"cost"`               // paid for them
	Unpriced float64 `json:"unpriced,omitempty"` // those of the Hours whose price is not known and that Cost therefore lacks
}

// Buy adds node-hours at a price per hour. A price that is NaN is not known.
func (b *Bought) Buy(hours, price float64) {
	b.Hours += hours
	if math.IsNaN(price) {
		b.Unpriced += hours
		return
	}
	b.Cost += hours * price
}

// BuySpan adds the time from one moment to another at a price per hour that changes, billed by the moment. Where the
// series says nothing the price is not known. A span that ends before it begins is empty.
func (b *Bought) BuySpan(price market.Series, from, to time.Time) {
	if !from.Before(to) {
		return
	}
	next, _ := slices.BinarySearchFunc(price.Points, from, func(p market.Point, t time.Time) int { return p.At.Compare(t) })
	if next < len(price.Points) && price.Points[next].At.Equal(from) {
		next++
	}
	for from.Before(to) {
		until := to
		if next < len(price.Points) && price.Points[next].At.Before(until) {
			until = price.Points[next].At
		}
		if end := price.End; from.Before(end) && end.Before(until) {
			until = end
		}
		value, known := price.At(from)
		if !known {
			value = math.NaN()
		}
		b.Buy(until.Sub(from).Hours(), value)
		if next < len(price.Points) && until.Equal(price.Points[next].At) {
			next++
		}
		from = until
	}
}

// Add adds what was bought elsewhere.
func (b *Bought) Add(o Bought) {
	b.Hours += o.Hours
	b.Cost += o.Cost
	b.Unpriced += o.Unpriced
}

// Constant is a price that never changes.
func Constant(price float64) market.Series {
	return market.Series{Points: []market.Point{{Value: price}}}
}

// Hours is time by how it was bought.
type Hours struct {
	Spot     Bought `json:"spot"`
	OnDemand Bought `json:"on_demand"`
	Reserved Bought `json:"reserved"`
}

// Of returns the part of a kind, to be added to. An unknown kind counts as on-demand, the dearest.
func (h *Hours) Of(k Kind) *Bought {
	switch k {
	case Spot:
		return &h.Spot
	case Reserved:
		return &h.Reserved
	default:
		return &h.OnDemand
	}
}

// Add adds the hours of another.
func (h *Hours) Add(o Hours) {
	h.Spot.Add(o.Spot)
	h.OnDemand.Add(o.OnDemand)
	h.Reserved.Add(o.Reserved)
}

// Total is the time of all kinds.
func (h Hours) Total() Bought {
	b := h.Spot
	b.Add(h.OnDemand)
	b.Add(h.Reserved)
	return b
}

// Storage is what checkpoints take in a store and on the way to it.
type Storage struct {
	ByteHours   float64 `json:"byte_hours"`   // bytes × the hours that they are kept
	Writes      float64 `json:"writes"`       // requests that put, copy or list
	Reads       float64 `json:"reads"`        // requests that get
	EgressBytes float64 `json:"egress_bytes"` // sent to where it is paid for: another region, or out of the cloud
}

// Add adds the storage of another.
func (s *Storage) Add(o Storage) {
	s.ByteHours += o.ByteHours
	s.Writes += o.Writes
	s.Reads += o.Reads
	s.EgressBytes += o.EgressBytes
}

// Usage is what a job, or many, used or will use. Work, Stall and Recovery hold every paid hour once.
type Usage struct {
	Work          Hours   `json:"work"`            // training that lasted
	Stall         Hours   `json:"stall"`           // training stood still for a checkpoint
	Recovery      Hours   `json:"recovery"`        // starting again after an interruption, and the training that it undid
	Interruptions float64 `json:"interruptions"`   // expected ones may be a fraction
	OnDemandHours float64 `json:"on_demand_hours"` // that the same work takes on demand; what is saved is measured by them
	Storage       Storage `json:"storage"`
}

// Add adds the usage of another.
func (u *Usage) Add(o Usage) {
	u.Work.Add(o.Work)
	u.Stall.Add(o.Stall)
	u.Recovery.Add(o.Recovery)
	u.Interruptions += o.Interruptions
	u.OnDemandHours += o.OnDemandHours
	u.Storage.Add(o.Storage)
}

// Prices are the prices that do not depend on the instance that was bought, all in one currency.
type Prices struct {
	Currency string  `json:"currency"`        // ISO 4217, such as "USD"
	OnDemand float64 `json:"on_demand_price"` // per node-hour: what the job would cost without spot
	Storage  float64 `json:"storage_price"`   // per GiB and month of HoursPerMonth
	Writes   float64 `json:"write_price"`     // per 1000 requests
	Reads    float64 `json:"read_price"`      // per 1000 requests
	Egress   float64 `json:"egress_price"`    // per GiB
}

// Of says what a usage costs. It is the only place that does.
func (p Prices) Of(u Usage) Breakdown {
	work, stall, recovery := u.Work.Total(), u.Stall.Total(), u.Recovery.Total()
	return Breakdown{
		Currency: p.Currency,
		Compute:  work.Cost,
		Stall:    stall.Cost,
		Recovery: recovery.Cost,
		Storage: u.Storage.ByteHours/GiB/HoursPerMonth*p.Storage +
			u.Storage.Writes/requestsPerPrice*p.Writes + u.Storage.Reads/requestsPerPrice*p.Reads,
		Transfer:      u.Storage.EgressBytes / GiB * p.Egress,
		OnDemand:      u.OnDemandHours * p.OnDemand,
		UnpricedHours: work.Unpriced + stall.Unpriced + recovery.Unpriced,
	}
}

// Breakdown is a cost by component, in units of its currency.
type Breakdown struct {
	Currency      string  `json:"currency"`
	Compute       float64 `json:"compute"`                  // hours that trained
	Stall         float64 `json:"stall"`                    // hours that stood still for checkpoints
	Recovery      float64 `json:"recovery"`                 // hours that interruptions cost
	Storage       float64 `json:"storage"`                  // bytes kept, and requests
	Transfer      float64 `json:"transfer"`                 // bytes sent
	OnDemand      float64 `json:"on_demand"`                // what the same work costs on demand; no part of the total
	UnpricedHours float64 `json:"unpriced_hours,omitempty"` // hours of unknown price: the total lacks them
}

// Total is the sum of the components.
func (b Breakdown) Total() float64 { return b.Compute + b.Stall + b.Recovery + b.Storage + b.Transfer }

// Overhead is what checkpoints and interruptions cost: all but the training itself.
func (b Breakdown) Overhead() float64 { return b.Total() - b.Compute }

// Saved is what is paid less than on demand; negative where it is more.
func (b Breakdown) Saved() float64 { return b.OnDemand - b.Total() }

// SavedShare is the saved share of the on-demand cost, at most 1 and negative where spot is dearer; 0 where the work
// costs nothing on demand.
func (b Breakdown) SavedShare() float64 {
	if b.OnDemand == 0 {
		return 0
	}
	return b.Saved() / b.OnDemand
}
