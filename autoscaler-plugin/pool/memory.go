package pool

import (
	"maps"
	"time"

	"nomad-spotter/autoscaler-plugin/cloud"
)

// memory is what the loop remembers between ticks. All of it can be lost: it is rebuilt from the instances' records and
// from watching, at the price of waiting again.
type memory struct {
	offers  map[string]offerMemory
	nodes   map[string]nodeMemory
	counted map[string]time.Time // instances whose interruption has been held against their offering, and when last listed
	prices  prices
	hazards *hazards
}

type offerMemory struct {
	failures int       // in a row
	failedAt time.Time // the last one
	upSince  time.Time
}

type nodeMemory struct{ downSince time.Time }

func newMemory(c Config) (*memory, error) {
	h, err := newHazards(c)
	if err != nil {
		return nil, err
	}
	return &memory{
		offers: map[string]offerMemory{}, nodes: map[string]nodeMemory{}, counted: map[string]time.Time{}, prices: prices{}, hazards: h,
	}, nil
}

// unlisted is how long an instance is remembered that its provider does not list any more.
const unlisted = 24 * time.Hour

// fail holds a failure at a time against an offering. Failures during its pause are the same one: several launches that
// were refused together, or several instances that were taken together, make no longer pause than one.
func (m *memory) fail(c Config, offering string, at time.Time) {
	o := m.offers[offering]
	if !at.Before(m.retryAt(c, offering)) {
		o.failures++
	}
	if at.After(o.failedAt) {
		o.failedAt = at
	}
	o.upSince = time.Time{}
	m.offers[offering] = o
}

// interruptions holds notices and ends that nobody asked for against the offerings, each once, at the time they
// happened: what happened before a restart counts for what is left of its pause.
func (m *memory) interruptions(c Config, instances []cloud.Instance, now time.Time) {
	for _, i := range instances {
		at, interrupted := interruptedAt(i)
		if !interrupted {
			continue
		}
		_, counted := m.counted[i.ID]
		m.counted[i.ID] = now
		if !counted && now.Sub(at) < c.BackoffMax {
			m.fail(c, i.Offering, at)
		}
	}
	maps.DeleteFunc(m.counted, func(_ string, listed time.Time) bool { return now.Sub(listed) > unlisted })
}

// interruptedAt is when an instance got its notice, or ended without anybody asking for that.
func interruptedAt(i cloud.Instance) (time.Time, bool) {
	at := i.NoticedAt
	if at.IsZero() && i.State == cloud.Gone && !i.Terminated {
		at = i.EndedAt
	}
	return at, !at.IsZero()
}

// retryAt is the end of an offering's pause: Backoff after the first failure in a row, twice as long after each further
// one, at most BackoffMax. Example with 3m and 30m: 3m, 6m, 12m, 24m, 30m, 30m.
func (m *memory) retryAt(c Config, offering string) time.Time {
	o := m.offers[offering]
	if o.failures == 0 {
		return time.Time{}
	}
	wait := c.Backoff
	for i := 1; i < o.failures && wait < c.BackoffMax; i++ {
		wait *= 2
	}
	return o.failedAt.Add(min(wait, c.BackoffMax))
}

// nomadView is what Nomad said in one tick.
type nomadView struct {
	off   bool // the pool works without Nomad: every running instance is as good as a node that is ready
	known bool // Nomad answered, or is off
	nodes map[string]NomadNode
}

// view takes up what was seen in one look at the world, and returns what a decision is made from.
func (m *memory) view(
	c Config, desired int, instances []cloud.Instance, offers []cloud.Offer, nv nomadView, now time.Time,
) (View, error) {
	m.interruptions(c, instances, now)
	v := View{Now: now, Desired: desired, NomadKnown: nv.known}
	if err := m.market(c, instances, offers, now); err != nil {
		return View{}, err
	}
	v.Nodes = m.join(c, instances, nv, now)
	var err error
	v.Choices, err = m.choices(c, offers, now)
	return v, err
}

// market takes up what the market did: prices, capacity, and the lives of instances.
func (m *memory) market(c Config, instances []cloud.Instance, offers []cloud.Offer, now time.Time) error {
	for _, offer := range offers {
		m.prices.see(offer.Offering, offer.PriceUSDPerHour, now)
		if o, ok := findOffering(c, offer.Offering); ok {
			if err := m.hazards.available(o, offer.Available, now); err != nil {
				return err
			}
		}
	}
	m.prices.foresee(now)
	return m.hazards.lives(c, instances, now)
}

// choices joins the pool's offerings with the market and the memory.
func (m *memory) choices(c Config, offers []cloud.Offer, now time.Time) ([]Choice, error) {
	known := map[string]cloud.Offer{}
	for _, o := range offers {
		known[o.Offering] = o
	}
	choices := make([]Choice, 0, len(c.Offerings))
	for _, o := range c.Offerings {
		offer, spoken := known[o.Name]
		o.PriceUSDPerHour = m.prices.now(o)
		choice := Choice{Offering: o, Available: offer.Available || !spoken}
		if pause := m.retryAt(c, o.Name); pause.Sub(now) <= c.BackoffMax { // else the clock went back
			choice.RetryAt = pause
		}
		bid, err := m.ask(c, o, now)
		if err != nil {
			return nil, err
		}
		choice.Bid, choice.BidReason, choice.Unwanted = bid.usdPerHour, bid.reason, bid.unwanted
		choice.HazardPerHour = m.hazards.mean(o, 0, now)
		choice.Outbid = m.prices.outbid(o.Name, choice.Bid)
		om := m.offers[o.Name]
		switch {
		case !choice.usable(now) || choice.offer().Unsteady():
			om.upSince = time.Time{}
		case om.upSince.IsZero():
			om.upSince = now
		}
		m.offers[o.Name] = om
		choice.UpSince = om.upSince
		choices = append(choices, choice)
	}
	return choices, nil
}

// join joins the living instances with their Nomad nodes.
func (m *memory) join(c Config, instances []cloud.Instance, nomad nomadView, now time.Time) []Node {
	var nodes []Node
	living := map[string]bool{}
	for _, i := range instances {
		if i.State == cloud.Gone {
			continue
		}
		living[i.ID] = true
		n := Node{Instance: i, Up: nomad.off, Eligible: nomad.off}
		if nn, ok := nomad.nodes[i.ID]; ok {
			n.Joined, n.Up, n.Eligible = true, nn.Up, nn.Eligible
			n.Draining, n.DrainSince, n.Work = nn.Draining, nn.DrainSince, nn.Work
		}
		if i.Kind == cloud.Spot {
			n.PriceUSDPerHour = m.prices.now(cloud.Offering{Name: i.Offering, PriceUSDPerHour: i.PriceUSDPerHour})
			n.Outbid = m.prices.outbid(i.Offering, i.MaxPriceUSDPerHour)
			n.HazardPerHour = m.hazards.mean(offeringOf(c, i), now.Sub(i.LaunchedAt), now)
		}
		nm := m.nodes[i.ID]
		switch {
		case !nomad.known: // no news is no bad news
		case n.Up:
			nm.downSince = time.Time{}
			if o := m.offers[i.Offering]; i.State == cloud.Running && o.failures > 0 && i.LaunchedAt.After(o.failedAt) {
				o.failures = 0 // it can be had again
				m.offers[i.Offering] = o
			}
		case nm.downSince.IsZero() && n.Joined:
			nm.downSince = now
		case nm.downSince.IsZero():
			nm.downSince = i.LaunchedAt
		}
		m.nodes[i.ID] = nm
		n.DownSince = nm.downSince
		nodes = append(nodes, n)
	}
	for id := range m.nodes {
		if !living[id] {
			delete(m.nodes, id)
		}
	}
	return nodes
}

func findOffering(c Config, name string) (cloud.Offering, bool) {
	for _, o := range c.Offerings {
		if o.Name == name {
			return o, true
		}
	}
	return cloud.Offering{}, false
}

// offeringOf is the offering of an instance; one that has left the pool file is as its record says.
func offeringOf(c Config, i cloud.Instance) cloud.Offering {
	if o, ok := findOffering(c, i.Offering); ok {
		return o
	}
	return cloud.Offering{Name: i.Offering, Provider: i.Provider, Region: i.Region, Zone: i.Zone, Type: i.Type, Kind: i.Kind}
}
