package pool

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"nomad-spotter/autoscaler-plugin/cloud"
	"nomad-spotter/autoscaler-plugin/cost"
)

// Report is what a pool is and has cost, over all instances that its providers still know, ended ones included.
type Report struct {
	Pool            string             `json:"pool"`
	Desired         *int               `json:"desired"` // nil: none was ever set
	Instances       []InstanceReport   `json:"instances"`
	NodeHours       map[string]float64 `json:"node_hours"` // by kind
	CostUSD         float64            `json:"cost_usd"`
	OnDemandCostUSD float64            `json:"ondemand_cost_usd"` // the same node-hours at the pool's dearest on-demand price
}

// InstanceReport is an instance with what it has cost until the report.
type InstanceReport struct {
	cloud.Instance
	Hours   float64 `json:"hours"`
	CostUSD float64 `json:"cost_usd"`
}

// NewReport adds up what instances have cost at a time. Without an on-demand offering the comparison is the dearest
// offering of the pool.
func NewReport(c Config, desired *int, instances []cloud.Instance, now time.Time) Report {
	r := Report{
		Pool: c.Name, Desired: desired, Instances: make([]InstanceReport, 0, len(instances)),
		NodeHours: map[string]float64{string(cloud.Spot): 0, string(cloud.OnDemand): 0},
	}
	dearest, dearestOnDemand := 0.0, math.Inf(-1)
	for _, o := range c.Offerings {
		dearest = max(dearest, o.PriceUSDPerHour)
		if o.Kind == cloud.OnDemand {
			dearestOnDemand = max(dearestOnDemand, o.PriceUSDPerHour)
		}
	}
	if math.IsInf(dearestOnDemand, -1) {
		dearestOnDemand = dearest
	}
	var record cost.Record
	for _, i := range instances {
		c := bill(i)
		record.Instances = append(record.Instances, c)
		b := c.Bought(now)
		r.Instances = append(r.Instances, InstanceReport{Instance: i, Hours: b.Hours, CostUSD: b.Cost})
		r.NodeHours[string(i.Kind)] += b.Hours
	}
	// Whose training an instance ran and what of it lasted is not known here: every hour counts as work.
	total := cost.Prices{Currency: "USD", OnDemand: dearestOnDemand}.Of(record.Usage(now))
	r.CostUSD, r.OnDemandCostUSD = total.Total(), total.OnDemand
	return r
}

// bill is an instance as its cost is computed: by the moment, at the price of its launch.
func bill(i cloud.Instance) cost.Instance {
	b := cost.Instance{
		ID: i.ID, Kind: cost.Kind(i.Kind), Price: cost.Constant(i.PriceUSDPerHour), Launched: i.LaunchedAt,
	}
	if i.State == cloud.Gone {
		b.Ended = i.EndedAt
	}
	return b
}

// Status reads a pool's report from its store and its providers. It needs no lease and changes nothing.
func (p Pool) Status(ctx context.Context, now time.Time) (Report, error) {
	store, err := OpenStore(p.Config)
	if err != nil {
		return Report{}, err
	}
	desired, known, err := store.Load(ctx)
	if err != nil {
		return Report{}, err
	}
	instances, err := p.List(ctx)
	if err != nil {
		return Report{}, err
	}
	var count *int
	if known {
		count = &desired.Count
	}
	return NewReport(p.Config, count, instances, now), nil
}

// List returns the instances of all providers, ended ones included.
func (p Pool) List(ctx context.Context) ([]cloud.Instance, error) {
	var all []cloud.Instance
	var faults []error
	for name, provider := range p.Providers {
		instances, err := provider.List(ctx)
		if err != nil {
			faults = append(faults, fmt.Errorf("provider %s: %w", name, err))
		}
		all = append(all, instances...)
	}
	sortInstances(all)
	return all, errors.Join(faults...)
}

// offers returns what the market of all providers says.
func (p Pool) offers(ctx context.Context) ([]cloud.Offer, error) {
	var all []cloud.Offer
	var faults []error
	for name, provider := range p.Providers {
		offers, err := provider.Offers(ctx)
		if err != nil {
			faults = append(faults, fmt.Errorf("provider %s: %w", name, err))
		}
		all = append(all, offers...)
	}
	return all, errors.Join(faults...)
}
