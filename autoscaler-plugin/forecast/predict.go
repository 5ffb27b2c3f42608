package forecast

import (
	"fmt"
	"math"
	"time"

	"nomad-spotter/autoscaler-plugin/market"
)

// Prediction is what is known at the end of the record about the price of a series some time later.
type Prediction struct {
	Key        market.Key           `json:"key"`
	At         time.Time            `json:"at"`        // from when
	Price      float64              `json:"price"`     // $/h then
	Horizon    float64              `json:"horizon_h"` // hours
	Quantiles  [len(Levels)]float64 `json:"quantiles"` // $/h, at .05, .1 … .95
	Low        float64              `json:"low90"`     // $/h, the calibrated 90 % interval
	High       float64              `json:"high90"`
	ChanceMove float64              `json:"chance_of_move"`
	Model      string               `json:"model"`
	Why        string               `json:"why"`
	Losses     map[string]float64   `json:"losses,omitempty"` // of each model on this series, as a multiple of persistence's
	Windows    int                  `json:"windows"`          // that the choice rests on, of this series
	Shifts     []Shift              `json:"shifts,omitempty"` // changes of regime within the last Recent
}

// Recent is how long a change of regime counts as a warning.
const Recent = 7 * 24 * time.Hour

// Predict back-tests the models on the record and forecasts from its last known prices, by series and then horizon.
func Predict(series []market.Series, horizons []time.Duration) ([]Prediction, error) {
	p, err := NewPanel(series, horizons)
	if err != nil {
		return nil, err
	}
	p.run(func(window) {})
	k := len(p.grid.times) - 1
	now := p.grid.times[k]
	var out []Prediction
	for i, s := range p.series {
		if math.IsNaN(p.values[i][k]) { // not on offer at the end
			continue
		}
		seen := p.situation(i, k)
		for hi, h := range p.horizons {
			r := &h.records[i]
			f := p.forecast(hi, i, k, seen)
			q := Prediction{
				Key: s.Key, At: now, Price: f.price, Horizon: h.length.Hours(), Quantiles: f.forecast, Low: f.low, High: f.high,
				ChanceMove: f.chanceMoves, Model: Models[f.chosen], Windows: int(r.n),
			}
			for _, shift := range p.shifts[i] {
				if now.Sub(shift.At) <= Recent {
					q.Shifts = append(q.Shifts, shift)
				}
			}
			if r.n > 0 && r.loss[persistence] > 0 {
				q.Losses = map[string]float64{}
				for m, ok := range f.tried {
					if ok {
						q.Losses[Models[m]] = r.loss[m] / r.loss[persistence]
					}
				}
			}
			q.Why = why(h, r, f.chosen)
			out = append(out, q)
		}
	}
	return out, nil
}

// why puts the reason for a choice into words.
func why(h *horizon, r *record, chosen int) string {
	switch {
	case r.n == 0:
		return "no forecast of this series is judged yet; best on all series"
	case chosen == persistence && r.loss[persistence] == 0:
		return fmt.Sprintf("persistence is best here: the price did not move in %.0f windows", r.n)
	case chosen == persistence:
		return fmt.Sprintf("persistence is best here: no model has less loss over %.0f windows", r.n)
	case r.loss[persistence] == 0:
		return fmt.Sprintf("the price did not move in %.0f windows, which are few; best on all series", r.n)
	}
	here, all := r.loss[chosen]/r.loss[persistence], h.loss[chosen]/h.loss[persistence]
	if here > 1 {
		return fmt.Sprintf("%.2f of persistence's loss over all series; the %.2f here rest on few moves", all, here)
	}
	return fmt.Sprintf("%.2f of persistence's loss over %.0f windows here, %.2f over all series", here, r.n, all)
}
