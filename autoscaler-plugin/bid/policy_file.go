package bid

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
)

// ParsePolicy reads a policy as MarshalIndent prints it. It reports every fault with its field path: an unknown version,
// numbers out of order or range, tables that are missing or of the wrong size, letters that stand for nothing.
func ParsePolicy(data []byte) (*Policy, error) {
	var head struct {
		Version *int `json:"version"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return nil, fmt.Errorf("parse bid policy: %w; give a file that `spotter bids train` wrote", err)
	}
	switch {
	case head.Version == nil:
		return nil, errors.New("parse bid policy: version: missing; give a file that `spotter bids train` wrote")
	case *head.Version != Version:
		return nil, fmt.Errorf("parse bid policy: version: %d is unknown, this program reads %d; train the policy again",
			*head.Version, Version)
	}
	var p Policy
	if err := json.Unmarshal(data, &p); err != nil {
		return nil, fmt.Errorf("parse bid policy: %w", err)
	}
	if err := errors.Join(p.faults()...); err != nil {
		return nil, fmt.Errorf("parse bid policy: %w", err)
	}
	return &p, nil
}

func (p *Policy) faults() []error {
	faults := []error{
		ascending("features.price_edges", p.Features.PriceEdges, math.MaxInt32),
		ascending("features.work_hours", p.Features.WorkHours, math.MaxInt32),
		ascending("features.slack_hours", p.Features.SlackHours, math.MaxInt32),
		ascending("features.interruption_hours", p.Features.InterruptionHours, math.MaxInt32),
		ascending("features.delay_prices", p.Features.DelayPrices, math.MaxInt32),
		ascending("bids", p.Bids, maxBids),
	}
	faults = slices.DeleteFunc(faults, func(err error) bool { return err == nil })
	for _, r := range slices.Concat(p.Training.InSample, p.Training.HeldOut) {
		for _, x := range []float64{r.Finish, r.Cost, r.Other, r.Saved, r.Low, r.High} {
			if math.IsNaN(x) || math.IsInf(x, 0) {
				faults = append(faults, fmt.Errorf("training: result at %s beside %s: %v is no number", r.At, r.Baseline, x))
			}
		}
	}
	if len(faults) > 0 {
		return faults // the shape of the tables follows from the features
	}
	want := len(p.Features.DelayPrices) * len(p.Features.InterruptionHours) * 2
	if len(p.Tables) != want {
		return []error{fmt.Errorf("tables: there are %d, %d prices of delay with %d costs of an interruption and 2 places need %d",
			len(p.Tables), len(p.Features.DelayPrices), len(p.Features.InterruptionHours), want)}
	}
	for i, t := range p.Tables {
		faults = append(faults, p.tableFaults(i, t)...)
	}
	return faults
}

// tableFaults are those of table i, which must be the one that its place in the list says.
func (p *Policy) tableFaults(i int, t Table) []error {
	var faults []error
	costs := p.Features.InterruptionHours
	delay, cost, onDemand := p.Features.DelayPrices[i/2/len(costs)], costs[i/2%len(costs)], i%2 == 1
	if t.DelayPrice != delay || t.InterruptionHours != cost || t.OnDemand != onDemand {
		faults = append(faults, fmt.Errorf("tables[%d]: it has delay_price %v, interruption_hours %v, on_demand %v; "+
			"here must be %v, %v, %v", i, t.DelayPrice, t.InterruptionHours, t.OnDemand, delay, cost, onDemand))
	}
	if rows := len(p.Features.PriceEdges) + 1; len(t.Rows) != rows {
		return append(faults, fmt.Errorf("tables[%d].rows: there are %d, %d bins of the price need %d", i, len(t.Rows), rows, rows))
	}
	columns := len(p.Features.WorkHours) * len(p.Features.SlackHours)
	for j, row := range t.Rows {
		if len(row) != columns {
			faults = append(faults, fmt.Errorf("tables[%d].rows[%d]: it has %d letters, must have %d", i, j, len(row), columns))
		}
		for _, letter := range []byte(row) {
			if letter != letterWait && letter != letterOnDemand && (letter < letterBid || int(letter-letterBid) >= len(p.Bids)) {
				faults = append(faults, fmt.Errorf("tables[%d].rows[%d]: letter %q is none of w, o, and a to %c for the bids",
					i, j, letter, letterBid+rune(len(p.Bids)-1)))
				break
			}
		}
	}
	return faults
}

// ascending reports a list that is empty, too long, not above 0, or not ascending.
func ascending(name string, values []float64, most int) error {
	switch {
	case len(values) == 0:
		return fmt.Errorf("%s: missing or empty", name)
	case len(values) > most:
		return fmt.Errorf("%s: %d values, at most %d are allowed", name, len(values), most)
	}
	for i, v := range values {
		if math.IsNaN(v) || math.IsInf(v, 0) || v <= 0 {
			return fmt.Errorf("%s[%d]: %v is not above 0", name, i, v)
		}
		if i > 0 && v <= values[i-1] {
			return fmt.Errorf("%s[%d]: %v is not above %v before it", name, i, v, values[i-1])
		}
	}
	return nil
}
