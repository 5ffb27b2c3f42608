package hazard

import "time"

// Defaults are the parameters that are shipped, fitted on the recordings of October 2022 (four zones of us-west-2, K80 and
// V100), so that those of February 2023 (nine zones in three regions) check them: `make bench-policy SECTION=hazard`. Base
// is the fit to the 315 up-times of that recording; ZoneWeight, the trouble factors and Memory have the lowest log loss of
// P(up for the next 1/2, 1, 4 and 12 h) there. One region does not tell a region from the rest, nor two types much of
// types: RegionWeight and TypeWeight are set to ten interruptions by judgement.
func Defaults() Params {
	return Params{
		Base:          Weibull{Shape: 0.744, Scale: 5614 * time.Second},
		RegionWeight:  10,
		TypeWeight:    10,
		ZoneWeight:    2,
		ZoneTrouble:   1,
		RegionTrouble: 1,
		Memory:        time.Hour,
	}
}
