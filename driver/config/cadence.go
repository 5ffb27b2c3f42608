package config

import (
	"math"
	"time"

	"github.com/hashicorp/nomad/plugins/shared/hclspec"
)

// Cadence is what an automatic checkpoint interval goes by that belongs to the node: how often such instances are
// interrupted, and what they cost. What is zero has the agent's default.
type Cadence struct {
	MTBF             time.Duration // mean time from the launch of such an instance to its interruption
	HazardShape      float64       // of the Weibull distribution of that time
	NoticeSuccess    float64       // part of the interruptions that are told in time for a final checkpoint
	MaxInterval      time.Duration // 0: none
	SpotUSDPerHour   float64       // price of the node
	ReworkUSDPerHour float64       // price at which lost work is done again
	StorageUSDPerGB  float64       // of storing one GB of a checkpoint and keeping it
}

// cadenceBlock is the block as Nomad decodes it. A number with a fraction comes from Nomad as a text if it has no exact binary
// form, as 0.7 does, and as a number if it has, so that all of them are taken as texts.
type cadenceBlock struct {
	MTBF             string `codec:"mtbf"`
	HazardShape      string `codec:"hazard_shape"`
	NoticeSuccess    string `codec:"notice_success"`
	MaxInterval      string `codec:"max_interval"`
	SpotUSDPerHour   string `codec:"spot_usd_per_hour"`
	ReworkUSDPerHour string `codec:"rework_usd_per_hour"`
	StorageUSDPerGB  string `codec:"storage_usd_per_gb"`
}

func cadenceSchema() *hclspec.Spec {
	m := map[string]*hclspec.Spec{}
	for _, n := range []string{
		"mtbf", "hazard_shape", "notice_success", "max_interval", "spot_usd_per_hour", "rework_usd_per_hour", "storage_usd_per_gb",
	} {
		m[n] = hclspec.NewAttr(n, "string", false)
	}
	return hclspec.NewObject(m)
}

// shortestMTBF is the least that an instance is worth being used for.
const shortestMTBF = time.Minute

func (b cadenceBlock) cadence(f *faults) Cadence {
	c := Cadence{
		MTBF:          f.duration("cadence.mtbf", b.MTBF, 0),
		HazardShape:   f.number("cadence.hazard_shape", b.HazardShape),
		NoticeSuccess: f.number("cadence.notice_success", b.NoticeSuccess),
		MaxInterval:   f.duration("cadence.max_interval", b.MaxInterval, 0),

		SpotUSDPerHour:   f.number("cadence.spot_usd_per_hour", b.SpotUSDPerHour),
		ReworkUSDPerHour: f.number("cadence.rework_usd_per_hour", b.ReworkUSDPerHour),
		StorageUSDPerGB:  f.number("cadence.storage_usd_per_gb", b.StorageUSDPerGB),
	}
	if c.MTBF > 0 && c.MTBF < shortestMTBF {
		f.add("cadence.mtbf", `%q is less than %q; give the mean time until such a node is interrupted, such as "2h20m"`,
			c.MTBF, shortestMTBF)
	}
	if s := c.HazardShape; s != 0 && !(s >= 0.2 && s <= 5) {
		f.add("cadence.hazard_shape", `%v is not from 0.2 to 5; use 1 for a hazard that does not change with age, or leave it out`, s)
	}
	if p := c.NoticeSuccess; !(p >= 0 && p < 1) {
		f.add("cadence.notice_success",
			`%v is not from 0 to below 1; give the part of interruptions with time for a last checkpoint, such as 0.7`, p)
	}
	for _, p := range []struct {
		name  string
		value float64
	}{
		{"spot_usd_per_hour", c.SpotUSDPerHour},
		{"rework_usd_per_hour", c.ReworkUSDPerHour},
		{"storage_usd_per_gb", c.StorageUSDPerGB},
	} {
		if !(p.value >= 0) || math.IsInf(p.value, 0) {
			f.add("cadence."+p.name, `%v is no price; give 0 or more`, p.value)
		}
	}
	if (c.SpotUSDPerHour == 0) != (c.ReworkUSDPerHour == 0) {
		f.add("cadence.rework_usd_per_hour", `is %v and cadence.spot_usd_per_hour is %v; give both or neither`,
			c.ReworkUSDPerHour, c.SpotUSDPerHour)
	}
	if c.StorageUSDPerGB > 0 && c.SpotUSDPerHour == 0 {
		f.add("cadence.storage_usd_per_gb", `is %v without cadence.spot_usd_per_hour; give the price that it is weighed against`,
			c.StorageUSDPerGB)
	}
	return c
}
