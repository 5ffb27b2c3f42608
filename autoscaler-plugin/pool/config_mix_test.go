package pool

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-spotter/autoscaler-plugin/allocate"
)

// mixPool is a pool file with options of the pool, of a spot offering and of an on-demand one.
func mixPool(options, spotOptions, onDemandOptions string) string {
	return fmt.Sprintf(`
pool "p" {
  %s
  state { file = "/var/lib/spotter/p.json" }
  provider "memory" {}
  offering "s" {
    provider           = "memory"
    region             = "r"
    type               = "t"
    kind               = "spot"
    price_usd_per_hour = 1
    %s
  }
  offering "od" {
    provider           = "memory"
    region             = "r"
    type               = "t"
    kind               = "on-demand"
    price_usd_per_hour = 4
    %s
  }
}`, options, spotOptions, onDemandOptions)
}

func TestParse_mix(t *testing.T) {
	pools, err := Parse([]byte(mixPool(`
  on_demand_base         = 1
  on_demand_share        = 0.25
  max_share_per_region   = 1
  max_share_per_zone     = 0.5
  max_share_per_offering = 0.4
  budget_usd_per_hour    = 20
  changeover             = "90s"
  lost_work              = "0s"
  recovery               = "spot"
  outage                 = "1h"
  horizon                = "12h"
  migrate                = false`, `max_nodes = 3
    mean_lifetime = "30h"`, "")), "pool.hcl", openers)
	must.NoError(t, err)
	c := pools[0].Config
	must.Eq(t, allocate.Limits{
		OnDemandBase: 1, OnDemandShare: 0.25, RegionShare: 1, ZoneShare: 0.5, OfferingShare: 0.4, BudgetUSDPerHour: 20,
	}, c.Limits)
	must.Eq(t, allocate.Costs{Changeover: 90 * time.Second, Outage: time.Hour, PremiumUSDPerHour: 3, Horizon: 12 * time.Hour}, c.Costs)
	must.False(t, c.Migrate)
	must.Eq(t, 3, c.Offerings[0].MaxNodes)
	must.Eq(t, 30*time.Hour, c.Offerings[0].MeanLifetime)

	pools, err = Parse([]byte(mixPool("", "", "")), "pool.hcl", openers)
	must.NoError(t, err)
	c = pools[0].Config
	must.Eq(t, allocate.Limits{}, c.Limits)
	must.Eq(t, allocate.Costs{
		Changeover: 6 * time.Minute, LostWork: 3 * time.Minute, RecoveryUSDPerHour: 4,
		Outage: 2 * time.Hour, PremiumUSDPerHour: 3, Horizon: 4 * time.Hour,
	}, c.Costs)
	must.True(t, c.Migrate)

	// Without on-demand, time lost costs the dearest price, and spot of one price has nothing dearer to fall back to.
	text := mixPool("", "", "")
	pools, err = Parse([]byte(text[:strings.Index(text, `  offering "od"`)]+"}"), "pool.hcl", openers)
	must.NoError(t, err)
	must.Eq(t, 1, pools[0].RecoveryUSDPerHour)
	must.Eq(t, 0, pools[0].PremiumUSDPerHour)
}

func TestParse_mixFaults(t *testing.T) {
	_, err := Parse([]byte(mixPool(`
  on_demand_base         = 3
  on_demand_share        = 1.5
  max_share_per_region   = 0
  max_share_per_zone     = -1
  max_share_per_offering = 2
  budget_usd_per_hour    = 10
  changeover             = "0s"
  lost_work              = "-1s"
  recovery               = "free"
  outage                 = "long"
  horizon                = "0s"`, `max_nodes = 0
    mean_lifetime = "x"`, `mean_lifetime = "5h"`)), "pool.hcl", openers)
	must.Error(t, err)
	for _, want := range []string{
		`on_demand_share: 1.5 is outside 0 to 1`,
		`max_share_per_region: 0 is outside 0 to 1`,
		`max_share_per_zone: -1 is outside`,
		`max_share_per_offering: 2 is outside`,
		`budget_usd_per_hour: 10 does not pay for on_demand_base: 3 nodes at 4 $/h are 12 $/h`,
		`changeover: 0s is not above 0`,
		`lost_work: -1s is negative; give 0s or more`,
		`recovery: "free" is unknown; give "on-demand" or "spot"`,
		`outage: "long" is not a duration`,
		`horizon: 0s is not above 0`,
		`offering "s".max_nodes: 0 is below 1`,
		`offering "s".mean_lifetime: "x" is not a duration`,
		`offering "od".mean_lifetime: given for kind "on-demand"`,
	} {
		must.StrContains(t, err.Error(), want)
	}
	_, err = Parse([]byte(mixPool("budget_usd_per_hour = -1", "", "")), "pool.hcl", openers)
	must.ErrorContains(t, err, "budget_usd_per_hour: -1 is not above 0")
	for _, c := range []struct{ top, spot, want string }{
		{`changeover = "2562047h"`, "", "changeover: 2562047h is more than ten years, 87600h0m0s; give less"},
		{`horizon = "100000h"`, "", "horizon: 100000h is more than ten years"},
		{`return_after = "2562047h"`, "", "return_after: 2562047h is more than ten years"},
		{"budget_usd_per_hour = 0.01", "", "budget_usd_per_hour: 0.01 does not pay for one node: the cheapest offering is "},
		{"", `mean_lifetime = "1ns"`, `offering "s".mean_lifetime: 1ns is below 1m0s`},
	} {
		_, err := Parse([]byte(mixPool(c.top, c.spot, "")), "pool.hcl", openers)
		must.ErrorContains(t, err, c.want)
		must.Eq(t, 1, len(strings.Split(err.Error(), "\n")), must.Sprint(err))
	}
	text := mixPool("on_demand_share = 0.5", "", "")
	_, err = Parse([]byte(text[:strings.Index(text, `  offering "od"`)]+"}"), "pool.hcl", openers)
	must.ErrorContains(t, err, `on_demand_share: 0.5, but no offering has kind = "on-demand"`)
}
