package bid

import (
	"fmt"
	"math"
	"slices"
	"time"

	"nomad-spotter/autoscaler-plugin/market"
)

const (
	judgeWork   = 24 * time.Hour // work of the job by which Matters judges
	judgeWindow = 48 * time.Hour // its deadline
	judgeStarts = 6 * time.Hour  // between two starts of it

	// little is the share of its cost below which what a job gains by a bid is nothing: a changeover of a quarter of an
	// hour, the price of being reclaimed once, is 1 % of 24 h.
	little = 0.01
)

// Verdict is whether a bid matters in a market, and why.
type Verdict struct {
	Matters bool
	Above   float64 // share of time that the price was above on-demand
	Waiting float64 // share of its cost that a job saves at most by choosing its hours; NaN: not known
	Reason  string  // in words
}

// Matters judges whether the maximum price of a request changes anything in a market. It does where the price rises above
// on-demand, so that a request that is capped there is reclaimed by price, and where waiting for a lower price can pay,
// as a low bid does. The second is judged by a bound that no bid can beat: a job of 24 h of work that has 48 h of time,
// knows the prices beforehand, runs in the cheapest hours and moves free of charge. Where neither holds, instances are
// reclaimed for other reasons than the price, and every bid from the price up to on-demand comes to the same.
//
// The series is in $/h, as is the on-demand price, which may be NaN where it is not known: then only waiting counts.
func Matters(s market.Series, onDemandUSDPerHour float64) Verdict {
	v := Verdict{Waiting: math.NaN()}
	if len(s.Points) == 0 {
		v.Reason = "nothing is known of the price"
		return v
	}
	end := s.End
	if end.IsZero() {
		end = s.Points[len(s.Points)-1].At
	}
	lowest, highest := math.Inf(1), 0.0
	var known, above time.Duration
	for i, p := range s.Points {
		if math.IsNaN(p.Value) {
			continue
		}
		until := end
		if i+1 < len(s.Points) {
			until = s.Points[i+1].At
		}
		known += until.Sub(p.At)
		lowest, highest = min(lowest, p.Value), max(highest, p.Value)
		if p.Value > onDemandUSDPerHour*(1+1e-9) {
			above += until.Sub(p.At)
		}
	}
	v.Above = above.Hours() / max(known.Hours(), 1e-9)
	v.Waiting = waiting(s.Resample(s.Points[0].At, sampling, int(end.Sub(s.Points[0].At)/sampling)))
	span := fmt.Sprintf("in %.1f days the price was between %.4g and %.4g $/h", known.Hours()/24, lowest, highest)
	switch {
	case above > 0:
		v.Matters = true
		v.Reason = fmt.Sprintf("%s, %.1f %% of the time above on-demand, %.4g: the bid decides when an instance is lost",
			span, 100*v.Above, onDemandUSDPerHour)
	case math.IsNaN(v.Waiting):
		v.Reason = fmt.Sprintf("%s; that is not %.0f h without a gap, too little to tell whether a bid matters",
			span, judgeWindow.Hours())
	case v.Waiting > little:
		v.Matters = true
		v.Reason = fmt.Sprintf("%s: waiting for low prices saves up to %.1f %%", span, 100*v.Waiting)
	default:
		never := ""
		if !math.IsNaN(onDemandUSDPerHour) {
			never = fmt.Sprintf(", never above on-demand, %.4g", onDemandUSDPerHour)
		}
		v.Reason = fmt.Sprintf("a bid changes nothing here: %s%s, and waiting for low prices saves at most %.2f %%; "+
			"instances are reclaimed for capacity, not by price", span, never, 100*v.Waiting)
	}
	return v
}

// waiting is the bound of Matters on hourly prices; NaN if no window is known.
func waiting(hourly []float64) float64 {
	work, window := int(judgeWork/sampling), int(judgeWindow/sampling)
	first, cheapest := 0.0, 0.0
	for i := 0; i+window <= len(hourly); i += int(judgeStarts / sampling) {
		sorted := slices.Clone(hourly[i : i+window])
		if slices.ContainsFunc(sorted, math.IsNaN) {
			continue
		}
		for _, p := range sorted[:work] {
			first += p
		}
		slices.Sort(sorted)
		for _, p := range sorted[:work] {
			cheapest += p
		}
	}
	if first == 0 {
		return math.NaN()
	}
	return 1 - cheapest/first
}
