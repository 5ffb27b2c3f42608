package pool

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"nomad-spotter/autoscaler-plugin/allocate"
	"nomad-spotter/autoscaler-plugin/cloud"
)

// Node is a living instance together with what Nomad knows of it and what its market is like. Its price is what it costs
// now, which for spot may differ from that of its launch.
type Node struct {
	cloud.Instance
	Risk
	Joined     bool      // Nomad knows the node
	Up         bool      // Nomad hears from it
	DownSince  time.Time // since when it is not up; its launch, if it never was
	Eligible   bool      // work may be placed on it
	Draining   bool      // this pool is emptying it
	DrainSince time.Time
	Work       int // allocations that have not ended; counted only while it drains
}

func (n Node) ready() bool { return n.Up && n.Eligible }

// Risk is how likely an instance is to be taken back.
type Risk struct {
	HazardPerHour float64 // interruptions to expect, mean over the pool's horizon from its age on
	Outbid        float64 // probability that the market passes its maximum price within the hour
}

// Choice is an offering together with what is known of its market. Its price is what it costs now, its risk that of a new
// instance.
type Choice struct {
	cloud.Offering
	Risk
	Bid       float64   // maximum price to ask for, in $/h; 0: none
	BidReason string    // why that much, in words
	Unwanted  string    // why it is not to be had at any price, in words; empty: it is
	Available bool      // as far as the provider knows, a launch would succeed
	RetryAt   time.Time // after failures and interruptions it is left alone until then
	UpSince   time.Time // since when nodes could have been moved to it without a break; zero: they cannot be now
}

func (c Choice) usable(now time.Time) bool {
	return c.Available && c.Unwanted == "" && !now.Before(c.RetryAt)
}

// View is all that a decision is made from.
type View struct {
	Now        time.Time
	Desired    int
	NomadKnown bool // false: Nomad did not answer, nothing is known of nodes
	Nodes      []Node
	Choices    []Choice
}

// Verb is what an action does.
type Verb string

// The verbs, in the order in which one tick carries them out: capacity comes before it goes.
const (
	Launch    Verb = "launch"    // start an instance of the offering
	Undrain   Verb = "undrain"   // keep a node that was being emptied
	Drain     Verb = "drain"     // let no more work onto the node and move what is there
	StopWork  Verb = "stop-work" // move the work that a drain has not moved in time by stopping it
	GiveUp    Verb = "give-up"   // end an instance that does not work, and leave its offering alone for a while
	Terminate Verb = "terminate" // end the instance
)

// Action is one change to the pool, with its reason in words.
type Action struct {
	Verb     Verb    `json:"verb"`
	Offering string  `json:"offering"`
	Provider string  `json:"provider"`                        // where the instance is, or is to be
	Instance string  `json:"instance,omitempty"`              // empty for a launch
	Bid      float64 `json:"max_price_usd_per_hour,omitzero"` // of a launch: maximum price; 0: none
	Reason   string  `json:"reason"`
}

// Decision is what to change now.
type Decision struct {
	Actions []Action
	Short   string // why nodes are missing that cannot be had; empty if none are
}

// Decide compares a pool with what it is to be and returns what to change now. Where nodes are bought, which one is best
// given up, and when one is better moved is decided by package allocate; this decides when that may be done. It is a pure
// function: the same view gives the same decision, whatever the order of nodes and choices in it.
//
// Noticed, draining and given-up instances do not count, so that their replacements are launched while they still run.
// A ready node is drained only if as many ready nodes as desired remain.
func Decide(c Config, v View) Decision {
	d := newDecision(c, v)
	if v.NomadKnown {
		d.giveUp()
	}
	short := d.fill()
	if v.NomadKnown {
		d.finishDrains()
		d.shrink()
		d.relocate()
	}
	order := []Verb{Launch, Undrain, Drain, StopWork, GiveUp, Terminate}
	slices.SortStableFunc(d.actions, func(a, b Action) int {
		return cmp.Compare(slices.Index(order, a.Verb), slices.Index(order, b.Verb))
	})
	return Decision{Actions: d.actions, Short: short}
}

// decision is the work in progress of one Decide.
type decision struct {
	Config
	View
	byID     map[string]Node
	staying  []Node // what counts: running and neither draining nor given up
	draining []Node
	pending  []Choice // launches decided on
	actions  []Action
}

func newDecision(c Config, v View) *decision {
	d := &decision{Config: c, View: v, byID: map[string]Node{}}
	d.Nodes = slices.Clone(v.Nodes)
	slices.SortFunc(d.Nodes, func(a, b Node) int { return cmp.Or(a.LaunchedAt.Compare(b.LaunchedAt), cmp.Compare(a.ID, b.ID)) })
	d.Choices = slices.Clone(v.Choices)
	slices.SortFunc(d.Choices, func(a, b Choice) int { return cmp.Compare(a.Name, b.Name) })
	for _, n := range d.Nodes {
		d.byID[n.ID] = n
		switch {
		case n.State != cloud.Running: // noticed: it is leaving, and its deadline ends it
		case n.Draining:
			d.draining = append(d.draining, n)
		default:
			d.staying = append(d.staying, n)
		}
	}
	return d
}

// act decides on an action on a node.
func (d *decision) act(verb Verb, n Node, format string, args ...any) {
	d.actions = append(d.actions, Action{
		Verb: verb, Offering: n.Offering, Provider: n.Provider, Instance: n.ID, Reason: fmt.Sprintf(format, args...),
	})
}

// onDemand is how many on-demand nodes there will be once the launches have come up.
func (d *decision) onDemand() int {
	n := 0
	for _, s := range d.staying {
		if s.Kind == cloud.OnDemand {
			n++
		}
	}
	for _, o := range d.pending {
		if o.Kind == cloud.OnDemand {
			n++
		}
	}
	return n
}

func (d *decision) total() int { return len(d.staying) + len(d.pending) }

func (d *decision) readyNodes() int {
	n := 0
	for _, s := range d.staying {
		if s.ready() {
			n++
		}
	}
	return n
}

// giveUp ends instances whose node does not come up, or does not come back.
func (d *decision) giveUp() {
	d.staying = slices.DeleteFunc(d.staying, func(n Node) bool {
		down := d.Now.Sub(n.DownSince)
		if n.Up || down < d.BootTimeout {
			return false
		}
		d.act(GiveUp, n, "its Nomad node has not been ready for %v, boot_timeout is %v", down.Round(time.Second), d.BootTimeout)
		return true
	})
}

// fill sees to the on-demand nodes that there must be, and to the number of nodes. It returns why some cannot be had.
func (d *decision) fill() (short string) {
	for {
		r := d.request()
		if onDemand := d.onDemand(); onDemand < r.OnDemand() {
			reason := fmt.Sprintf("base: %d of %d on-demand nodes are there", onDemand, r.OnDemand())
			if d.undrain(reason, func(n Node) bool { return n.Kind == cloud.OnDemand }) {
				continue
			}
		}
		plan := allocate.Mix(r, d.candidates())
		base := 0
		for _, p := range plan.Picks {
			if p.Base {
				base++
			}
		}
		if missing := d.Desired - d.total() - base; missing > 0 &&
			d.undrain(fmt.Sprintf("%d of %d nodes are there", d.total()+base, d.Desired), func(Node) bool { return true }) {
			continue
		}
		for _, p := range plan.Picks {
			d.launch(p.Offering, p.Reason)
		}
		return plan.Why
	}
}

// request is the pool with its launches as allocate sees it.
func (d *decision) request() allocate.Request {
	r := allocate.Request{Nodes: d.Desired, Limits: d.Limits, Costs: d.Costs}
	for _, n := range d.staying {
		r.Held = append(r.Held, allocate.Node{ID: n.ID, Age: d.Now.Sub(n.LaunchedAt), Offer: n.offer()})
	}
	for _, p := range d.pending {
		r.Held = append(r.Held, allocate.Node{Offer: p.offer()})
	}
	return r
}

func (n Node) offer() allocate.Offer {
	return allocate.Offer{
		Offering: n.Offering, Region: n.Region, Zone: n.Zone, Type: n.Type, OnDemand: n.Kind == cloud.OnDemand,
		PriceUSDPerHour: n.PriceUSDPerHour, HazardPerHour: n.HazardPerHour, Outbid: n.Outbid,
	}
}

func (c Choice) offer() allocate.Offer {
	return allocate.Offer{
		Offering: c.Name, Region: c.Region, Zone: c.Zone, Type: c.Type, OnDemand: c.Kind == cloud.OnDemand,
		PriceUSDPerHour: c.PriceUSDPerHour, HazardPerHour: c.HazardPerHour, Outbid: c.Outbid,
	}
}

// candidates are the choices as allocate sees them.
func (d *decision) candidates() []allocate.Candidate {
	out := make([]allocate.Candidate, 0, len(d.Choices))
	for _, c := range d.Choices {
		candidate := allocate.Candidate{Offer: c.offer(), MaxNodes: c.MaxNodes}
		switch {
		case !c.Available:
			candidate.Unusable = "is not available"
		case c.Unwanted != "":
			candidate.Unusable = c.Unwanted
		case d.Now.Before(c.RetryAt):
			candidate.Unusable = fmt.Sprintf("is left alone for %v", c.RetryAt.Sub(d.Now).Round(time.Second))
		}
		out = append(out, candidate)
	}
	return out
}

// undrain takes back the drain of the cheapest wanted node: a node that is there is better than one that must boot.
func (d *decision) undrain(reason string, wanted func(Node) bool) bool {
	best := -1
	for i, n := range d.draining {
		if n.Up && wanted(n) && (best < 0 || n.PriceUSDPerHour < d.draining[best].PriceUSDPerHour) {
			best = i
		}
	}
	if best < 0 || !d.NomadKnown {
		return false
	}
	n := d.draining[best]
	d.draining = slices.Delete(d.draining, best, best+1)
	d.staying = append(d.staying, n)
	d.act(Undrain, n, "%s; its drain is taken back", reason)
	return true
}

func (d *decision) launch(offering, reason string) {
	c := d.Choices[slices.IndexFunc(d.Choices, func(c Choice) bool { return c.Name == offering })]
	if c.BidReason != "" {
		reason += "; " + c.BidReason
	}
	d.actions = append(d.actions, Action{Verb: Launch, Offering: c.Name, Provider: c.Provider, Bid: c.Bid, Reason: reason})
	d.pending = append(d.pending, c)
}
