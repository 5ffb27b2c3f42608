package allocate

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Limits are what a mix must keep to. A zero value is no limit.
type Limits struct {
	OnDemandBase     int     // nodes that are on demand before any is spot
	OnDemandShare    float64 // of the nodes above the base, 0 to 1, rounded up
	RegionShare      float64 // of all nodes, the most that may be spot in one region; rounded down, but at least one node
	ZoneShare        float64 // the same for a zone
	OfferingShare    float64 // the same for an offering
	BudgetUSDPerHour float64 // sum of the prices of all nodes
}

// Node is a node that a pool has.
type Node struct {
	ID string
	Offer
	Age time.Duration
}

// Candidate is an offering that nodes may be bought from. Its offer is that of a new node.
type Candidate struct {
	Offer
	MaxNodes int    // the most nodes of the offering; 0: any number
	Unusable string // why it cannot be had now, in words such as "is sold out"; empty: it can
}

// Request is a pool as it is to be.
type Request struct {
	Nodes int // how many there are to be
	Held  []Node
	Limits
	Costs
}

// OnDemand is how many of the nodes are to be on demand: the base, and the share of the rest.
//
// Example: of 10 nodes with a base of 2 and a share of 0.3 it is 2 + ceil(2.4) = 5.
func (r Request) OnDemand() int {
	base := min(max(r.OnDemandBase, 0), r.Nodes)
	return base + int(math.Ceil(r.OnDemandShare*float64(r.Nodes-base)-1e-9))
}

// Pick is one node to buy.
type Pick struct {
	Offering string
	Base     bool // it is one of the on-demand nodes that there must be
	Reason   string
}

// Plan is what to buy.
type Plan struct {
	Picks   []Pick // in the order of their choice
	Missing int    // nodes that cannot be had within the limits
	Why     string // why they cannot
}

// Mix chooses what to buy so that a pool has its on-demand nodes and its number of nodes: one node at a time, the one
// that adds least to what the pool costs per hour, risks included, within the limits. Spot that risks more than it saves
// loses to on-demand by itself. Equal costs go to the offering with fewer of the pool's nodes in its region, then in its
// zone, then to on-demand, then to the first name.
//
// Where the budget is short, what would leave too little for the rest of the nodes at the lowest price is passed over.
// Nodes that are there are never given up here, also when they break a limit; Worst and Relocate do that. But where there
// are enough nodes, one on-demand node that there must be makes one too many, so that the worst of the others, which goes
// then, does not count in the budget: spot that took the place of the base must not keep it from coming back.
func Mix(r Request, candidates []Candidate) Plan {
	m := newMixer(r, candidates)
	var plan Plan
	spared := map[string]bool{} // nodes in whose place others come
	for m.onDemand < r.OnDemand() {
		reason := fmt.Sprintf("base: %d of %d on-demand nodes are there", m.onDemand, r.OnDemand())
		spare, crowded := Exit{}, false
		if m.total >= m.Nodes {
			spare, crowded = m.worst(func(n Node) bool { return !n.OnDemand && n.ID != "" && !spared[n.ID] })
		}
		if crowded {
			m.leave(spare.Node, 1)
			spared[spare.ID] = true
		}
		best, ok := m.best(func(c Candidate) bool { return c.OnDemand })
		if !ok {
			if crowded {
				m.leave(spare.Node, -1)
			}
			break // spot takes its place, as far as nodes are missing
		}
		plan.Picks = append(plan.Picks, Pick{Offering: best.Offering, Base: true, Reason: reason})
		m.buy(best)
	}
	for m.total < r.Nodes {
		reason := fmt.Sprintf("%d of %d nodes are there", m.total, r.Nodes)
		best, ok := m.best(nil)
		if !ok {
			plan.Missing = r.Nodes - m.total
			plan.Why = fmt.Sprintf("%s; nothing can be had: %s", reason, m.whyNot(Candidate{}, nil))
			break
		}
		plan.Picks = append(plan.Picks, Pick{Offering: best.Offering, Reason: reason + "; " + m.why(best)})
		m.buy(best)
	}
	return plan
}

// rounding is the difference in $/h below which sums are equal: their order must not matter.
const rounding = 1e-9

// Effective is what one more node would add to what a pool costs, in $/h with all risks.
func Effective(r Request, o Offer) float64 { return newMixer(r, nil).effective(o) }

// mixer is a pool with the picks so far.
type mixer struct {
	Request
	candidates []Candidate // by name
	crowd      *crowd
	byOffering map[string]int // all nodes
	leaving    map[string]int // nodes that are there until their replacements are, by region, zone and offering
	spent      float64        // $/h of all nodes but those
	total      int
	onDemand   int
}

func newMixer(r Request, candidates []Candidate) *mixer {
	m := &mixer{Request: r, crowd: newCrowd(), byOffering: map[string]int{}, leaving: map[string]int{}}
	m.Held = slices.Clone(r.Held)
	slices.SortFunc(m.Held, func(a, b Node) int { return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Offering, b.Offering)) })
	m.candidates = slices.Clone(candidates)
	slices.SortFunc(m.candidates, func(a, b Candidate) int { return cmp.Compare(a.Offering, b.Offering) })
	for i, c := range m.candidates {
		switch {
		case c.Unusable != "":
		case !(c.PriceUSDPerHour >= 0) || math.IsInf(c.PriceUSDPerHour, 0):
			m.candidates[i].Unusable = "has no known price"
		case !c.OnDemand && !(c.HazardPerHour >= 0 && !math.IsInf(c.HazardPerHour, 0) && !math.IsNaN(c.Outbid)):
			m.candidates[i].Unusable = "has no known hazard"
		case c.outbid():
			m.candidates[i].Unusable = c.passes()
		}
	}
	for _, n := range m.Held {
		m.count(n.Offer, 1)
	}
	return m
}

// passes says how likely an offer's price passes its maximum.
func (o Offer) passes() string {
	return fmt.Sprintf("passes its maximum price within the hour with a probability of %.0f %%", 100*o.Outbid)
}

func (m *mixer) count(o Offer, n int) {
	m.crowd.add(m.Costs, o, n)
	m.byOffering[o.Offering] += n
	m.spent += float64(n) * o.PriceUSDPerHour
	m.total += n
	if o.OnDemand {
		m.onDemand += n
	}
}

// buy adds a node of a candidate, under an ID that none of the pool's has.
func (m *mixer) buy(c Candidate) Node {
	n := Node{ID: fmt.Sprintf("\xff%08d", len(m.Held)), Offer: c.Offer}
	m.count(n.Offer, 1)
	m.Held = append(m.Held, n)
	return n
}

// effective is the effective price in steps of rounding.
func (m *mixer) effective(o Offer) float64 {
	return math.Round(m.crowd.effective(m.Costs, o, m.Nodes)/rounding) * rounding
}

// best is the candidate that adds least, among those wanted that can be had within the limits.
func (m *mixer) best(wanted func(Candidate) bool) (Candidate, bool) {
	var found, thrifty []Candidate
	reserve := m.reserve()
	for _, c := range m.candidates {
		if wanted != nil && !wanted(c) || m.refuse(c) != "" {
			continue
		}
		found = append(found, c)
		if m.BudgetUSDPerHour == 0 || m.spent+c.PriceUSDPerHour+reserve <= m.BudgetUSDPerHour+rounding {
			thrifty = append(thrifty, c)
		}
	}
	if len(thrifty) > 0 {
		found = thrifty
	}
	if len(found) == 0 {
		return Candidate{}, false
	}
	return slices.MinFunc(found, m.compare), true
}

func (m *mixer) compare(a, b Candidate) int {
	preference := func(o Offer) int {
		if o.OnDemand {
			return 0
		}
		return 1
	}
	return cmp.Or(
		cmp.Compare(m.effective(a.Offer), m.effective(b.Offer)),
		cmp.Compare(m.crowd.count[regionKey(a.Offer)], m.crowd.count[regionKey(b.Offer)]),
		cmp.Compare(m.crowd.count[zoneKey(a.Offer)], m.crowd.count[zoneKey(b.Offer)]),
		cmp.Compare(preference(a.Offer), preference(b.Offer)),
		cmp.Compare(a.Offering, b.Offering),
	)
}

// reserve is what the nodes after the next one cost at least, at the lowest price that can be had now.
func (m *mixer) reserve() float64 {
	rest := max(m.Nodes-m.total, m.OnDemand()-m.onDemand) - 1
	lowest := math.Inf(1)
	for _, c := range m.candidates {
		if c.Unusable == "" {
			lowest = min(lowest, c.PriceUSDPerHour)
		}
	}
	if rest <= 0 || math.IsInf(lowest, 1) {
		return 0
	}
	return float64(rest) * lowest
}

// refuse says why one more node of a candidate cannot be bought; empty: it can.
func (m *mixer) refuse(c Candidate) string {
	if c.Unusable != "" {
		return c.Unusable
	}
	if have := m.byOffering[c.Offering] + m.leaving[offeringKey(c.Offer)]; c.MaxNodes > 0 && have >= c.MaxNodes {
		return fmt.Sprintf("has %d nodes, max_nodes is %d", have, c.MaxNodes)
	}
	if text := m.overShare(c.Offer, true); text != "" {
		return text
	}
	if m.BudgetUSDPerHour > 0 && m.spent+c.PriceUSDPerHour > m.BudgetUSDPerHour+rounding {
		return fmt.Sprintf("at %.4g $/h exceeds the budget, of which %.4g of %.4g $/h are spent",
			c.PriceUSDPerHour, m.spent, m.BudgetUSDPerHour)
	}
	return ""
}

// overShare says which share the spot nodes of such an offer exceed, or would with one more; empty: none. One more comes
// beside those that are leaving.
func (m *mixer) overShare(o Offer, more bool) string {
	if o.OnDemand {
		return ""
	}
	for _, s := range []struct {
		share float64
		key   string
		have  int
		name  string
		of    string
	}{
		{m.RegionShare, regionKey(o), m.crowd.count[regionKey(o)], "max_share_per_region", "region " + o.Region},
		{m.ZoneShare, zoneKey(o), m.crowd.count[zoneKey(o)], "max_share_per_zone", "zone " + o.Zone},
		{m.OfferingShare, offeringKey(o), m.byOffering[o.Offering], "max_share_per_offering", "offering " + o.Offering},
	} {
		if more {
			s.have += m.leaving[s.key] + 1
		}
		if most := max(1, int(s.share*float64(m.Nodes)+1e-9)); s.share > 0 && s.have > most {
			return fmt.Sprintf("is kept to %d of %d nodes as spot in %s by %s", most, m.Nodes, s.of, s.name)
		}
	}
	return ""
}

// why says why the best candidate is it, before it is bought.
func (m *mixer) why(best Candidate) string {
	text := fmt.Sprintf("%s is the best at %s", best.Offering, m.crowd.explain(m.Costs, best.Offer, m.Nodes))
	if !best.OnDemand {
		return text
	}
	spot := func(c Candidate) bool { return !c.OnDemand }
	if slices.ContainsFunc(m.candidates, func(c Candidate) bool { return spot(c) && m.refuse(c) == "" }) {
		return text + ", spot is not worth its risk: " + m.whyNot(best, spot)
	}
	return "no spot can be had: " + m.whyNot(best, spot)
}

// whyNot says of every candidate of interest why it was passed over for the best.
func (m *mixer) whyNot(best Candidate, interest func(Candidate) bool) string {
	var reasons []string
	for _, c := range m.candidates {
		if interest != nil && !interest(c) {
			continue
		}
		reason := m.refuse(c)
		if reason == "" {
			reason = fmt.Sprintf("costs %s; %s %.4g",
				m.crowd.explain(m.Costs, c.Offer, m.Nodes), best.Offering, m.effective(best.Offer))
		}
		reasons = append(reasons, c.Offering+" "+reason)
	}
	if len(reasons) == 0 {
		return "the pool has no such offering"
	}
	return strings.Join(reasons, ", ")
}
