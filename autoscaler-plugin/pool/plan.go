package pool

import (
	"context"
	"time"

	"nomad-spotter/autoscaler-plugin/allocate"
)

// Plan is what a pool would do, without any of it being done.
type Plan struct {
	Pool      string           `json:"pool"`
	Desired   int              `json:"desired"`
	Offerings []OfferingReport `json:"offerings"`
	Actions   []Action         `json:"actions"`
	Short     string           `json:"short,omitempty"` // why nodes are missing that cannot be had
}

// OfferingReport is what an offering costs and risks at the moment.
type OfferingReport struct {
	Offering            string  `json:"offering"`
	Kind                string  `json:"kind"`
	Region              string  `json:"region"`
	Zone                string  `json:"zone"`
	PriceUSDPerHour     float64 `json:"price_usd_per_hour"`
	MaxPriceUSDPerHour  float64 `json:"max_price_usd_per_hour,omitzero"` // that would be asked for
	HazardPerHour       float64 `json:"hazard_per_hour"`                 // interruptions of a new instance, mean over the horizon
	EffectiveUSDPerHour float64 `json:"effective_usd_per_hour"`          // of one more node beside those that stay, risks included
	Unusable            string  `json:"unusable,omitempty"`              // why it cannot be had
}

// Plan looks at the pool once and decides, for its desired count or another one. What only a running loop remembers is
// not known: prices of the past, and refused launches. Offerings that can be had are taken to have been there long enough
// to return to. Without a Nomad address in the pool file every running instance counts as a ready node.
func (p Pool) Plan(ctx context.Context, count *int, now time.Time) (Plan, error) {
	store, err := OpenStore(p.Config)
	if err != nil {
		return Plan{}, err
	}
	desired, _, err := store.Load(ctx)
	if err != nil {
		return Plan{}, err
	}
	if count != nil {
		desired.Count = *count
	}
	instances, err := p.List(ctx)
	if err != nil {
		return Plan{}, err
	}
	offers, err := p.offers(ctx)
	if err != nil {
		return Plan{}, err
	}
	nv := nomadView{off: true, known: true}
	if cfg := mergeNomad(nil, p.Nomad); cfg.Address != "" {
		hand, err := newNomadNodes(cfg, p.Name)
		if err != nil {
			return Plan{}, err
		}
		nv = nomadView{known: true}
		if nv.nodes, err = hand.list(ctx); err != nil {
			return Plan{}, err
		}
	}
	m, err := newMemory(p.Config)
	if err != nil {
		return Plan{}, err
	}
	v, err := m.view(p.Config, desired.Count, instances, offers, nv, now)
	if err != nil {
		return Plan{}, err
	}
	for i := range v.Choices {
		if !v.Choices[i].UpSince.IsZero() {
			v.Choices[i].UpSince = now.Add(-p.ReturnAfter)
		}
	}
	return newPlan(p.Config, v), nil
}

func newPlan(c Config, v View) Plan {
	d := newDecision(c, v)
	r := d.request()
	plan := Plan{Pool: c.Name, Desired: v.Desired, Offerings: []OfferingReport{}, Actions: []Action{}}
	for i, candidate := range d.candidates() {
		choice := d.Choices[i]
		plan.Offerings = append(plan.Offerings, OfferingReport{
			Offering: choice.Name, Kind: string(choice.Kind), Region: choice.Region, Zone: choice.Zone,
			PriceUSDPerHour: choice.PriceUSDPerHour, MaxPriceUSDPerHour: choice.Bid, HazardPerHour: choice.HazardPerHour,
			EffectiveUSDPerHour: allocate.Effective(r, candidate.Offer), Unusable: candidate.Unusable,
		})
	}
	decision := Decide(c, v)
	plan.Actions = append(plan.Actions, decision.Actions...)
	plan.Short = decision.Short
	return plan
}
