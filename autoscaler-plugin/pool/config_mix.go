package pool

import (
	"math"
	"time"

	"nomad-spotter/autoscaler-plugin/allocate"
	"nomad-spotter/autoscaler-plugin/cloud"
)

// Defaults of what interruptions cost. They decide how much dearer an offering may be for being calmer.
const (
	// From an interruption until its replacement works: between the 1.2 and the 24 minutes of the literature.
	defaultChangeover = 6 * time.Minute
	// Work done again, on average: where the notice saves seven checkpoints of ten, three tenths of half of 20 minutes.
	defaultLostWork = 3 * time.Minute
	// Mean time that a V100 zone of AWS that took its nodes back had none, February 2023: 2.2 h over nine zones.
	defaultOutage = 2 * time.Hour
	// How long a node is expected to be needed yet.
	defaultHorizon = 4 * time.Hour
)

// minLifetime is far below what any offering has.
const minLifetime = time.Minute

// What the hours of an interruption are priced at.
const (
	recoverOnDemand = "on-demand" // the cheapest on-demand price of the pool; without one, the dearest price
	recoverSpot     = "spot"      // the price of the node that was lost
)

// limits checks what a mix must keep to.
func (c *checker) limits(b poolBlock) allocate.Limits {
	if b.OnDemandBase < 0 {
		c.add("on_demand_base: %d is negative; give 0 or more", b.OnDemandBase)
	}
	if !(b.OnDemandShare >= 0 && b.OnDemandShare <= 1) {
		c.add("on_demand_share: %v is outside 0 to 1; it is a share of the nodes above on_demand_base", b.OnDemandShare)
	}
	limits := allocate.Limits{
		OnDemandBase: b.OnDemandBase, OnDemandShare: b.OnDemandShare,
		RegionShare:   c.share("max_share_per_region", b.RegionShare),
		ZoneShare:     c.share("max_share_per_zone", b.ZoneShare),
		OfferingShare: c.share("max_share_per_offering", b.OfferingShare),
	}
	if b.Budget != nil {
		limits.BudgetUSDPerHour = *b.Budget
		if !(*b.Budget > 0) || math.IsInf(*b.Budget, 0) {
			c.add("budget_usd_per_hour: %v is not above 0; leave it out for no limit", *b.Budget)
		}
	}
	return limits
}

func (c *checker) share(field string, share *float64) float64 {
	if share == nil {
		return 0
	}
	if !(*share > 0 && *share <= 1) {
		c.add("%s: %v is outside 0 to 1; it is a share of the pool's nodes, as in 0.5; leave it out for no limit", field, *share)
	}
	return *share
}

// costs checks what interruptions cost, but for prices.
func (c *checker) costs(b poolBlock) allocate.Costs {
	switch b.Recovery {
	case "", recoverOnDemand, recoverSpot:
	default:
		c.add("recovery: %q is unknown; give %q or %q", b.Recovery, recoverOnDemand, recoverSpot)
	}
	return allocate.Costs{
		Changeover: c.duration("changeover", b.Changeover, defaultChangeover),
		LostWork:   c.durationOr0("lost_work", b.LostWork, defaultLostWork),
		Outage:     c.duration("outage", b.Outage, defaultOutage),
		Horizon:    c.duration("horizon", b.Horizon, defaultHorizon),
	}
}

// prices derives from the offerings what time lost and outages cost, and checks the limits that need them.
func (c *checker) prices(b poolBlock, config *Config) {
	onDemand, spot, dearest := math.Inf(1), math.Inf(1), 0.0
	for _, o := range config.Offerings {
		dearest = max(dearest, o.PriceUSDPerHour)
		if o.Kind == cloud.OnDemand {
			onDemand = min(onDemand, o.PriceUSDPerHour)
		} else {
			spot = min(spot, o.PriceUSDPerHour)
		}
	}
	switch {
	case !math.IsInf(onDemand, 1):
		if need := float64(b.OnDemandBase) * onDemand; config.BudgetUSDPerHour > 0 && need > config.BudgetUSDPerHour {
			c.add("budget_usd_per_hour: %v does not pay for on_demand_base: %d nodes at %v $/h are %v $/h; "+
				"raise the one or lower the other", config.BudgetUSDPerHour, b.OnDemandBase, onDemand, need)
		}
	case b.OnDemandBase > 0:
		c.add("on_demand_base: %d, but no offering has kind = %q; add one or set the base to 0", b.OnDemandBase, cloud.OnDemand)
	case b.OnDemandShare > 0:
		c.add("on_demand_share: %v, but no offering has kind = %q; add one or leave the share out", b.OnDemandShare, cloud.OnDemand)
	}
	if least := min(onDemand, spot); config.BudgetUSDPerHour > 0 && config.BudgetUSDPerHour < least && !math.IsInf(least, 1) {
		c.add("budget_usd_per_hour: %v does not pay for one node: the cheapest offering is %v $/h; raise it, or leave it out for no limit",
			config.BudgetUSDPerHour, least)
	}
	if math.IsInf(onDemand, 1) {
		onDemand = dearest
	}
	if b.Recovery != recoverSpot {
		config.RecoveryUSDPerHour = onDemand
	}
	if !math.IsInf(spot, 1) {
		config.PremiumUSDPerHour = max(0, onDemand-spot)
	}
}

func (c *checker) maxNodes(field string, o offeringBlock) int {
	if o.MaxNodes == nil {
		return 0
	}
	if *o.MaxNodes < 1 {
		c.add("%s.max_nodes: %d is below 1; remove the offering instead, or leave it out for no limit", field, *o.MaxNodes)
	}
	return *o.MaxNodes
}

func (c *checker) lifetime(field string, o offeringBlock) time.Duration {
	if o.Lifetime == "" {
		return 0
	}
	if o.Kind != string(cloud.Spot) {
		c.add("%s.mean_lifetime: given for kind %q; only %q instances are taken back", field, o.Kind, cloud.Spot)
	}
	d := c.duration(field+".mean_lifetime", o.Lifetime, 0)
	if d > 0 && d < minLifetime {
		c.add("%s.mean_lifetime: %v is below %v; leave it out if it is not known", field, d, minLifetime)
	}
	return d
}
