package simulate

import (
	"fmt"
	"math"
	"slices"
	"time"

	"gonum.org/v1/gonum/stat"

	"nomad-spotter/autoscaler-plugin/cost"
	"nomad-spotter/autoscaler-plugin/market"
)

// Range is where a figure lies in 10, 50 and 90 % of the runs.
type Range struct {
	P10 float64 `json:"p10"`
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90"`
}

// Prospect is what jobs may be expected to cost, and when they are done, over many markets.
type Prospect struct {
	Runs          int     `json:"runs"`
	Cost          Range   `json:"cost"`          // of all jobs
	Hours         Range   `json:"finish_h"`      // from the first arrival to the last end
	Interruptions Range   `json:"interruptions"` //
	Saved         Range   `json:"saved_share"`   // of what on-demand costs
	OnDemandShare Range   `json:"ondemand_share"`
	Late          float64 `json:"late_share"`       // share of the runs in which a job missed its deadline
	Unfinished    float64 `json:"unfinished_share"` // share of the runs in which a job was not done when the market ended
	OnDemand      float64 `json:"ondemand_cost"`
}

// Look runs jobs on so many markets, each made and decided on by set with a seed of its own, and returns the ranges.
func Look(runs int, seed uint64, prices cost.Prices, set func(seed uint64) (Config, error)) (Prospect, error) {
	if runs < 1 {
		return Prospect{}, fmt.Errorf("runs: %d is below 1; some hundreds give steady ranges", runs)
	}
	p := Prospect{Runs: runs}
	columns := make([][]float64, 5)
	late, unfinished := 0, 0
	for i := range runs {
		config, err := set(seed + uint64(i))
		if err != nil {
			return Prospect{}, err
		}
		r, err := Run(config)
		if err != nil {
			return Prospect{}, err
		}
		b := prices.Of(r.Usage)
		onDemand := share(r.Usage.Work.OnDemand.Hours+r.Usage.Recovery.OnDemand.Hours+r.Usage.Stall.OnDemand.Hours,
			r.Usage.Work.Total().Hours+r.Usage.Recovery.Total().Hours+r.Usage.Stall.Total().Hours)
		for c, v := range []float64{b.Total(), r.Makespan.Hours(), float64(r.Interruptions), b.SavedShare(), onDemand} {
			columns[c] = append(columns[c], v)
		}
		late += count(r.Late > 0)
		unfinished += count(r.Finished < r.Jobs)
		p.OnDemand = b.OnDemand
	}
	p.Late, p.Unfinished = float64(late)/float64(runs), float64(unfinished)/float64(runs)
	for c, r := range []*Range{&p.Cost, &p.Hours, &p.Interruptions, &p.Saved, &p.OnDemandShare} {
		slices.Sort(columns[c])
		at := func(q float64) float64 { return stat.Quantile(q, stat.LinInterp, columns[c], nil) }
		*r = Range{P10: at(0.1), P50: at(0.5), P90: at(0.9)}
	}
	return p, nil
}

func share(part, whole float64) float64 {
	if whole == 0 {
		return 0
	}
	return part / whole
}

// The generator's market where nothing else is known of an offering: what the nine zones of AWS of February 2023 have in
// common.
const (
	usualUp    = 2*time.Hour + 44*time.Minute // mean up-time, all nine zones
	usualDown  = 2*time.Hour + 9*time.Minute
	upShape    = 0.617
	downShape  = 0.70
	priceMove  = 7 * time.Hour
	priceStep  = 0.0037
	regional   = 1.1 // as market.NineZones
	world      = 0.85
	spellHours = 14
)

// Likely is a market for the spot offerings of a pool, which must come first, as far as it is known: lifetimes are mean
// times until an instance is taken back, 0 where nothing is known. Zones of a region move together.
func Likely(offerings []Offering, lifetimes []time.Duration) market.Capacity {
	c := market.Capacity{Regional: regional, World: world, Spell: spellHours * time.Hour}
	for i, o := range offerings {
		if o.Kind != cost.Spot {
			break
		}
		z := market.ZoneCapacity{
			Key: o.Key, UpMean: usualUp, UpShape: upShape, DownMean: usualDown, DownShape: downShape,
			Price: math.Max(o.Price, 1e-9), PriceMove: priceMove, PriceStep: priceStep,
		}
		if lifetimes[i] > 0 {
			z.UpMean = lifetimes[i]
		}
		c.Zones = append(c.Zones, z)
	}
	return c
}
