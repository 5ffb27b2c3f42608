package allocate

import (
	"cmp"
	"fmt"
	"slices"
)

// Shares of what a node costs that a move must save. The first keeps small differences from moving work about; the
// second, once the replacement is there, keeps a move that has begun from being given up for a difference that has shrunk.
const (
	moveSaving = 0.10
	keepSaving = 0.05
)

// Probabilities of a price above a node's maximum within the hour. From the first on the node's work is moved before that
// happens, whatever it costs: it is lost otherwise, as likely as not. From the second on nothing is moved there: forecasts
// swing from one look to the next, and nodes must not swing with them.
const (
	outbidLikely = 0.5
	outbidMaybe  = 0.3
)

// Unsteady tells whether the market may pass the offer's maximum price so soon that nothing is moved there, and that a move
// away from there that has begun is not given up.
func (o Offer) Unsteady() bool { return !o.OnDemand && o.Outbid >= outbidMaybe }

func (o Offer) outbid() bool { return !o.OnDemand && o.Outbid >= outbidLikely }

// Exit is a node that a pool is best rid of.
type Exit struct {
	Node
	EffectiveUSDPerHour float64 // what the pool saves without it, risks included
	Reason              string
	urgency             urgency
}

// urgency is why a node must go whatever that saves.
type urgency int

const (
	none urgency = iota
	overShare
	outbid
)

// Saves tells whether giving a node away is so much better than giving away the other one that it is worth to wait for the
// other, which is there but not ready: the node must go, or saves more.
func (e Exit) Saves(other Exit) bool {
	return e.urgency > other.urgency || e.EffectiveUSDPerHour-other.EffectiveUSDPerHour >= keepSaving*e.EffectiveUSDPerHour
}

// Worst is the node that a pool is best rid of, among those that may go. On-demand nodes that the pool must have stay.
// First come nodes whose price is about to pass their maximum, then those of a region, zone or offering that has more
// than its share, then those that save most. Of equals the youngest goes, then the one with the first ID.
func Worst(r Request, may func(Node) bool) (Exit, bool) {
	m := newMixer(r, nil)
	worst, found := m.worst(may)
	if found {
		worst.Reason = m.whyExit(worst)
	}
	return worst, found
}

// worst is Worst but for the reason, which takes longer to write than all else.
func (m *mixer) worst(may func(Node) bool) (worst Exit, found bool) {
	for _, n := range m.Held {
		if !may(n) || n.OnDemand && m.onDemand <= m.OnDemand() {
			continue
		}
		e := m.exit(n)
		better := cmp.Or(cmp.Compare(e.urgency, worst.urgency), cmp.Compare(e.EffectiveUSDPerHour, worst.EffectiveUSDPerHour),
			-cmp.Compare(n.Age, worst.Age))
		if !found || better > 0 {
			worst, found = e, true
		}
	}
	return worst, found
}

// exit is a node as one to go.
func (m *mixer) exit(n Node) Exit {
	e := Exit{Node: n}
	switch {
	case n.outbid():
		e.urgency = outbid
	case m.overShare(n.Offer, false) != "":
		e.urgency = overShare
	}
	m.crowd.add(m.Costs, n.Offer, -1)
	e.EffectiveUSDPerHour = m.effective(n.Offer)
	m.crowd.add(m.Costs, n.Offer, 1)
	return e
}

// whyExit says why a node is the one to go.
func (m *mixer) whyExit(e Exit) string {
	switch e.urgency {
	case outbid:
		return fmt.Sprintf("its price passes its maximum within the hour with a probability of %.0f %%", 100*e.Outbid)
	case overShare:
		return "the pool " + m.overShare(e.Offer, false)
	case none:
	}
	m.crowd.add(m.Costs, e.Offer, -1)
	defer m.crowd.add(m.Costs, e.Offer, 1)
	return "it costs " + m.crowd.explain(m.Costs, e.Offer, m.Nodes)
}

// Relocation is a node and what replaces it: the replacement is bought first, and the node goes when that is ready.
type Relocation struct {
	From   Node
	To     string // offering
	Reason string
}

// Relocate returns moves that pay, at most so many, of nodes that may be moved. A node is moved
//
//   - when the market is about to pass its maximum price;
//   - when its region, zone or offering has more than its share;
//   - when staying costs more than going: (stay - go)*Horizon > Changeover*(price of the replacement + RecoveryUSDPerHour),
//     all with their risks, and at least a tenth of what the node costs now. In the changeover both nodes are paid for, and
//     the work stands still once. As the hazard falls with age, an old node is not left for an equal new one.
//
// The last covers fallback on-demand nodes when spot is back, and spot nodes whose region has begun to lose others.
// Replacements keep to the limits beside the nodes that are still there, but for the budget, in which a node that goes
// does not count: else a pool that has spent it on demand could not go back to spot.
func Relocate(r Request, candidates []Candidate, most int, may func(Node) bool) []Relocation {
	m := newMixer(r, candidates)
	for i, c := range m.candidates {
		if c.Unusable == "" && c.Unsteady() {
			m.candidates[i].Unusable = c.passes()
		}
	}
	var moves []Relocation
	seen := map[string]bool{} // nodes that were decided on, and replacements
	for len(moves) < most {
		worst, ok := m.worst(func(n Node) bool { return !seen[n.ID] && may(n) })
		if !ok {
			break
		}
		worst.Reason = m.whyExit(worst)
		seen[worst.ID] = true
		m.leave(worst.Node, 1)
		move, to, ok := m.relocate(worst)
		if ok {
			moves = append(moves, move)
			m.Held = slices.DeleteFunc(m.Held, func(n Node) bool { return n.ID == worst.ID })
			seen[m.buy(to).ID] = true
			continue
		}
		m.leave(worst.Node, -1)
		if worst.urgency == none {
			break // what costs less saves less
		}
	}
	return moves
}

// leave takes a node out of the pool and off the bill, but not out of what other limits count: it is there until its
// replacement is. Minus 1 undoes that.
func (m *mixer) leave(n Node, sign int) {
	m.count(n.Offer, -sign)
	m.leaving[offeringKey(n.Offer)] += sign
	if !n.OnDemand {
		m.leaving[regionKey(n.Offer)] += sign
		m.leaving[zoneKey(n.Offer)] += sign
	}
}

// relocate decides on the move of a node that is leaving.
func (m *mixer) relocate(worst Exit) (Relocation, Candidate, bool) {
	n := worst.Node
	to, ok := m.best(nil)
	if !ok {
		return Relocation{}, to, false
	}
	move := Relocation{From: n, To: to.Offering}
	stay, next := m.effective(n.Offer), m.effective(to.Offer)
	if worst.urgency != none {
		move.Reason = fmt.Sprintf("%s; %s replaces it, at %s", worst.Reason, to.Offering, m.crowd.explain(m.Costs, to.Offer, m.Nodes))
		return move, to, true
	}
	recovery := m.RecoveryUSDPerHour
	if recovery == 0 {
		recovery = n.PriceUSDPerHour
	}
	cost := m.Changeover.Hours() * (to.PriceUSDPerHour + recovery)
	saving := stay - next
	if saving < moveSaving*stay || saving*m.Horizon.Hours() <= cost {
		return Relocation{}, to, false
	}
	move.Reason = fmt.Sprintf("%s costs %s; %s costs %s: a move saves %.3g $ in %v and costs %.3g",
		n.ID, m.crowd.explain(m.Costs, n.Offer, m.Nodes), to.Offering, m.crowd.explain(m.Costs, to.Offer, m.Nodes),
		saving*m.Horizon.Hours(), m.Horizon, cost)
	return move, to, true
}
