package pool

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"nomad-spotter/autoscaler-plugin/cloud"
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
	for _, i := range instances {
		ir := InstanceReport{Instance: i, Hours: i.Hours(now), CostUSD: i.CostUSD(now)}
		r.Instances = append(r.Instances, ir)
		r.NodeHours[string(i.Kind)] += ir.Hours
		r.CostUSD += ir.CostUSD
		r.OnDemandCostUSD += ir.Hours * dearestOnDemand
	}
	return r
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
