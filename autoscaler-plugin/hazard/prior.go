package hazard

import (
	"fmt"
	"math"

	"nomad-spotter/autoscaler-plugin/market"
)

// Advisor is a range of AWS's Spot Instance Advisor: the share of instances of a type in a region that were interrupted
// in a month. The numbers are those of its data file.
type Advisor int

// Ranges of the advisor.
const (
	AdvisorBelow5  Advisor = iota // less than 5 % a month
	Advisor5To10                  // 5 to 10 %
	Advisor10To15                 // 10 to 15 %
	Advisor15To20                 // 15 to 20 %
	AdvisorAbove20                // more than 20 %, the range of every V100 and K80 whose up-times Defaults comes from
)

// advisorShare is the middle of each range; for the last, which has no end, an assumption.
var advisorShare = [...]float64{0.025, 0.075, 0.125, 0.175, 0.25}

// Level is the level of a book's prior: 1 for the range in which the recorded markets lie, and for the others in the
// proportion of their monthly rates, -ln(1-share). Only the order is the provider's word; the proportions are an
// assumption, which own history corrects.
func (a Advisor) Level() (float64, error) {
	if a < 0 || int(a) >= len(advisorShare) {
		return 0, fmt.Errorf("advisor range %d is outside 0 (below 5 %%) to %d (above 20 %%)", a, len(advisorShare)-1)
	}
	return math.Log1p(-advisorShare[a]) / math.Log1p(-advisorShare[AdvisorAbove20]), nil
}

// PlacementLevel is the factor on a prior for AWS's spot placement score, 1 (a request is likely to fail) to 10: from 2 to
// 1/2, by equal ratios. No recording at hand has scores: the size of the factor is an assumption.
func PlacementLevel(score int) (float64, error) {
	if score < 1 || score > 10 {
		return 0, fmt.Errorf("placement score %d is outside 1 to 10", score)
	}
	return math.Exp2((5.5 - float64(score)) / 4.5), nil
}

// SetPrior returns the book with the level of an offering as by the provider's data, above 0. What has been learnt
// before stays, relative to the prior of its time.
func (b Book) SetPrior(key market.Key, level float64) (Book, error) {
	if !(level > 0) || math.IsInf(level, 1) {
		return b, fmt.Errorf("prior of %s: level %v must be a number above 0; 1 is as the recorded markets", key, level)
	}
	b, i := b.with(key)
	b.Records[i].Prior = level
	return b, nil
}
