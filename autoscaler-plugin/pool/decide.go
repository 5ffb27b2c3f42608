package pool

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"nomad-spotter/autoscaler-plugin/cloud"
)

// Node is a living instance together with what Nomad knows of it.
type Node struct {
	cloud.Instance
	Joined     bool      // Nomad knows the node
	Up         bool      // Nomad hears from it
	DownSince  time.Time // since when it is not up; its launch, if it never was
	Eligible   bool      // work may be placed on it
	Draining   bool      // this pool is emptying it
	DrainSince time.Time
	Work       int // allocations that have not ended; counted only while it drains
}

func (n Node) ready() bool { return n.Up && n.Eligible }

// Choice is an offering together with what is known of its market.
type Choice struct {
	cloud.Offering
	Available bool      // as far as the provider knows, a launch would succeed
	RetryAt   time.Time // after failures and interruptions it is left alone until then
	UpSince   time.Time // since when it could have been used without a break; zero: it cannot be now
}

func (c Choice) usable(now time.Time) bool { return c.Available && !now.Before(c.RetryAt) }

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
	Verb     Verb
	Offering string
	Provider string // where the instance is, or is to be
	Instance string // empty for a launch
	Reason   string
}

// Shares of its price by which an offering seems dearer for every spot node that the pool already has in the same
// failure domain. Nodes of one region are lost together more often than nodes of two (correlation of availability 0.40
// inside a region, 0.14 across, measured on nine V100 zones of AWS in February 2023), so a second node in a region
// goes to a region that costs up to half as much again.
const (
	regionPenalty = 0.50
	zonePenalty   = 0.25
)

// Decide compares a pool with what it is to be and returns what to change now. It is a pure function: the same view
// gives the same actions, whatever the order of nodes and choices in it.
//
// Noticed, draining and given-up instances do not count, so that their replacements are launched while they still run.
// A ready node is drained only if as many ready nodes as desired remain.
func Decide(c Config, v View) []Action {
	d := newDecision(c, v)
	if v.NomadKnown {
		d.giveUp()
	}
	d.fillBase()
	d.fillRest()
	if v.NomadKnown {
		d.finishDrains()
		d.shrink()
		d.returnToSpot()
	}
	order := []Verb{Launch, Undrain, Drain, StopWork, GiveUp, Terminate}
	slices.SortStableFunc(d.actions, func(a, b Action) int {
		return cmp.Compare(slices.Index(order, a.Verb), slices.Index(order, b.Verb))
	})
	return d.actions
}

// decision is the work in progress of one Decide.
type decision struct {
	Config
	View
	base     int    // on-demand nodes that there must be
	staying  []Node // what counts: running and neither draining nor given up
	draining []Node
	pending  []cloud.Offering // launches decided on
	actions  []Action
}

func newDecision(c Config, v View) *decision {
	d := &decision{Config: c, View: v, base: min(c.OnDemandBase, v.Desired)}
	d.Nodes = slices.Clone(v.Nodes)
	slices.SortFunc(d.Nodes, func(a, b Node) int { return cmp.Or(a.LaunchedAt.Compare(b.LaunchedAt), cmp.Compare(a.ID, b.ID)) })
	d.Choices = slices.Clone(v.Choices)
	slices.SortFunc(d.Choices, func(a, b Choice) int { return cmp.Compare(a.Name, b.Name) })
	for _, n := range d.Nodes {
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

// fillBase sees to the on-demand base.
func (d *decision) fillBase() {
	for d.onDemand() < d.base {
		have := fmt.Sprintf("base: %d of %d on-demand nodes are there", d.onDemand(), d.base)
		if d.undrain(have, func(n Node) bool { return n.Kind == cloud.OnDemand }) {
			continue
		}
		o, ok := d.best(cloud.OnDemand)
		if !ok {
			return
		}
		d.launch(o, "%s", have)
	}
}

// fillRest sees to the rest: by spot, and by on-demand where there is no spot.
func (d *decision) fillRest() {
	for d.total() < d.Desired {
		have := fmt.Sprintf("%d of %d nodes are there", d.total(), d.Desired)
		if d.undrain(have, func(Node) bool { return true }) {
			continue
		}
		if spot, ok := d.bestSpot(); ok {
			d.launch(spot, "%s; %s", have, d.why(spot))
			continue
		}
		fallback, ok := d.best(cloud.OnDemand)
		if !ok {
			return // nothing can be had; the next tick tries again
		}
		d.launch(fallback, "%s; no spot can be had: %s", have, d.whyNoSpot(fallback))
	}
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

func (d *decision) launch(o Choice, format string, args ...any) {
	d.actions = append(d.actions, Action{Verb: Launch, Offering: o.Name, Provider: o.Provider, Reason: fmt.Sprintf(format, args...)})
	d.pending = append(d.pending, o.Offering)
}

// neighbours counts the pool's spot nodes in the region and in the zone of an offering.
func (d *decision) neighbours(o cloud.Offering) (region, zone int) {
	see := func(kind cloud.Kind, r, z string) {
		if kind == cloud.Spot && r == o.Region {
			region++
			if z == o.Zone {
				zone++
			}
		}
	}
	for _, n := range d.staying {
		see(n.Kind, n.Region, n.Zone)
	}
	for _, p := range d.pending {
		see(p.Kind, p.Region, p.Zone)
	}
	return region, zone
}

// score is what offerings are compared by, lowest first: the price, raised for spot by the neighbours it would have.
// Example: at 0.80 $/h with one neighbour in the region and none in the zone it is 0.80 * 1.5 = 1.20.
func (d *decision) score(o cloud.Offering) float64 {
	if o.Kind != cloud.Spot {
		return o.PriceUSDPerHour
	}
	region, zone := d.neighbours(o)
	return o.PriceUSDPerHour * (1 + regionPenalty*float64(region) + zonePenalty*float64(zone))
}

// best is the usable offering of a kind with the lowest score. Ties go to fewer neighbours, then to the first name.
func (d *decision) best(kind cloud.Kind) (Choice, bool) {
	var found []Choice
	for _, o := range d.Choices {
		if o.Kind == kind && o.usable(d.Now) {
			found = append(found, o)
		}
	}
	if len(found) == 0 {
		return Choice{}, false
	}
	return slices.MinFunc(found, func(a, b Choice) int {
		aRegion, aZone := d.neighbours(a.Offering)
		bRegion, bZone := d.neighbours(b.Offering)
		return cmp.Or(cmp.Compare(d.score(a.Offering), d.score(b.Offering)), cmp.Compare(aRegion, bRegion),
			cmp.Compare(aZone, bZone), cmp.Compare(a.Name, b.Name))
	}), true
}

// bestSpot is the best spot offering that is not dearer than on-demand.
func (d *decision) bestSpot() (Choice, bool) {
	onDemand, haveOnDemand := d.best(cloud.OnDemand)
	all := d.Choices
	defer func() { d.Choices = all }()
	d.Choices = slices.DeleteFunc(slices.Clone(all), func(o Choice) bool {
		return o.Kind == cloud.Spot && haveOnDemand && o.PriceUSDPerHour > onDemand.PriceUSDPerHour
	})
	return d.best(cloud.Spot)
}

func (d *decision) why(o Choice) string {
	region, zone := d.neighbours(o.Offering)
	if region == 0 {
		return fmt.Sprintf("%s is the best spot offering at %.4g $/h, none of the pool's spot nodes is in %s", o.Name, o.PriceUSDPerHour, o.Region)
	}
	return fmt.Sprintf("%s is the best spot offering at %.4g $/h, which counts as %.4g with %d spot nodes in %s, %d of them in %s",
		o.Name, o.PriceUSDPerHour, d.score(o.Offering), region, o.Region, zone, o.Zone)
}

// whyNoSpot says of every spot offering why it was passed over for a fallback.
func (d *decision) whyNoSpot(fallback Choice) string {
	text := ""
	for _, o := range d.Choices {
		if o.Kind != cloud.Spot {
			continue
		}
		if text != "" {
			text += ", "
		}
		switch {
		case !o.Available:
			text += o.Name + " is not available"
		case d.Now.Before(o.RetryAt):
			text += fmt.Sprintf("%s is left alone for %v", o.Name, o.RetryAt.Sub(d.Now).Round(time.Second))
		default:
			text += fmt.Sprintf("%s costs %.4g $/h, %s %.4g", o.Name, o.PriceUSDPerHour, fallback.Name, fallback.PriceUSDPerHour)
		}
	}
	if text == "" {
		return "the pool has no spot offering"
	}
	return text
}
