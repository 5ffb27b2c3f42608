package pool

import (
	"errors"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-spotter/autoscaler-plugin/allocate"
	"nomad-spotter/autoscaler-plugin/cloud"
)

var openers = map[string]Opener{
	"memory": func(s cloud.Setup) (Provider, error) {
		attributes, _ := s.Body.JustAttributes()
		if _, broken := attributes["broken"]; broken {
			return nil, errors.New("provider \"memory\".broken: first fault\nprovider \"memory\".broken: second fault")
		}
		return newMemoryCloud(), nil
	},
}

const wholePool = `
pool "training" {
  unit           = "nodes"
  on_demand_base = 1
  interval       = "2s"
  boot_timeout   = "5m"
  drain_deadline = "30m"
  backoff        = "1m"
  backoff_max    = "8m"
  return_after   = "20m"
  state { consul = "http://127.0.0.1:8500" }
  nomad {
    address = "http://127.0.0.1:4646"
    token   = "secret"
  }
  provider "memory" {}
  offering "spot-west" {
    provider           = "memory"
    region             = "west"
    type               = "cpu2"
    kind               = "spot"
    price_usd_per_hour = 0.8
    trace              = "/traces/west.json"
  }
  offering "od" {
    provider           = "memory"
    region             = "east"
    zone               = "east-1a"
    type               = "cpu2"
    kind               = "on-demand"
    price_usd_per_hour = 3
  }
}
`

func TestParse(t *testing.T) {
	pools, err := Parse([]byte(wholePool), "pool.hcl", openers)
	must.NoError(t, err)
	p, err := Find(pools, "")
	must.NoError(t, err)
	must.Eq(t, Config{
		Name: "training", Limits: allocate.Limits{OnDemandBase: 1}, Migrate: true,
		Costs: allocate.Costs{
			Changeover: 6 * time.Minute, LostWork: 3 * time.Minute, RecoveryUSDPerHour: 3,
			Outage: 2 * time.Hour, PremiumUSDPerHour: 2.2, Horizon: 4 * time.Hour,
		},
		Interval: 2 * time.Second, BootTimeout: 5 * time.Minute, DrainDeadline: 30 * time.Minute,
		Backoff: time.Minute, BackoffMax: 8 * time.Minute, ReturnAfter: 20 * time.Minute,
		State: StateConfig{Consul: "http://127.0.0.1:8500", Prefix: "spotter/pools", SessionTTL: 15 * time.Second},
		Nomad: NomadConfig{Address: "http://127.0.0.1:4646", Token: "secret"},
		Offerings: []cloud.Offering{
			{Name: "spot-west", Provider: "memory", Region: "west", Zone: "west", Type: "cpu2", Kind: cloud.Spot, PriceUSDPerHour: 0.8},
			{Name: "od", Provider: "memory", Region: "east", Zone: "east-1a", Type: "cpu2", Kind: cloud.OnDemand, PriceUSDPerHour: 3},
		},
	}, p.Config)
	must.MapContainsKey(t, p.Providers, "memory")

	_, err = Find(pools, "serving")
	must.ErrorContains(t, err, `pool "serving" is not in the pool file; it has training`)
	_, err = Find([]Pool{{Config: Config{Name: "a"}}, {Config: Config{Name: "b"}}}, "")
	must.ErrorContains(t, err, "the pool file has 2 pools, a, b; say which is meant")
}

func TestParse_defaults(t *testing.T) {
	pools, err := Parse([]byte(`
pool "p" {
  state { file = "/var/lib/spotter/p.json" }
  provider "memory" {}
  offering "a" {
    provider           = "memory"
    region             = "r"
    type               = "t"
    kind               = "spot"
    price_usd_per_hour = 0
  }
}`), "pool.hcl", openers)
	must.NoError(t, err)
	c := pools[0].Config
	must.Eq(t, 0, c.OnDemandBase)
	must.Eq(t, 5*time.Second, c.Interval)
	must.Eq(t, 10*time.Minute, c.BootTimeout)
	must.Eq(t, time.Hour, c.DrainDeadline)
	must.Eq(t, 3*time.Minute, c.Backoff)
	must.Eq(t, 30*time.Minute, c.BackoffMax)
	must.Eq(t, 10*time.Minute, c.ReturnAfter)
}

// All faults come together, each with its field, its value and what to do.
func TestParse_faults(t *testing.T) {
	_, err := Parse([]byte(`
pool "bad name" {
  unit           = "gpus"
  on_demand_base = 2
  interval       = "0s"
  backoff        = "10m"
  backoff_max    = "5m"
  return_after   = "soon"
  state {
    consul      = "http://127.0.0.1:8500"
    file        = "/x"
    session_ttl = "5s"
  }
  nomad { address = "127.0.0.1" }
  provider "memory" { broken = true }
  provider "aws" {}
  offering "a" {
    provider           = "memory"
    region             = ""
    type               = "t"
    kind               = "reserved"
    price_usd_per_hour = -1
  }
  offering "a" {
    provider           = "gcp"
    region             = "r"
    type               = "t"
    kind               = "spot"
    price_usd_per_hour = 1
  }
}
pool "bad name" {
  state { file = "relative" }
}`), "pool.hcl", openers)
	must.Error(t, err)
	for _, want := range []string{
		`pool "bad name": the name must be`,
		`unit: "gpus" is unknown`,
		`interval: 0s is not above 0`,
		`backoff: 10m0s is above backoff_max, 5m0s`,
		`return_after: "soon" is not a duration`,
		`state: consul is "http://127.0.0.1:8500" and file is "/x"; give exactly one`,
		`state.session_ttl: 5s is outside what Consul takes, 10s to 24h0m0s`,
		`nomad.address: "127.0.0.1" is not a URL; write it like "http://127.0.0.1:4646"`,
		`provider "memory".broken: first fault`,
		`provider "memory".broken: second fault`,
		`provider "aws": unknown; known are memory`,
		`offering "a".region: empty`,
		`offering "a".kind: "reserved" is unknown; give "spot" or "on-demand"`,
		`offering "a".price_usd_per_hour: -1 is outside 0 to 1e+06`,
		`offering "a": given twice`,
		`offering "a".provider: "gcp" has no provider block`,
		`on_demand_base: 2, but no offering has kind = "on-demand"`,
		`state.file: "relative" is relative`,
		`offering: none given`,
		`pool "bad name": given twice`,
	} {
		must.StrContains(t, err.Error(), want)
	}
}

func TestParse_hcl(t *testing.T) {
	_, err := Parse([]byte("pool \"p\" {\n  intervall = \"2s\"\n}\n"), "pool.hcl", openers)
	must.ErrorContains(t, err, "line 2")
	must.ErrorContains(t, err, `"intervall"`)
	_, err = Parse([]byte(""), "pool.hcl", openers)
	must.ErrorContains(t, err, `add pool "NAME"`)
	_, err = Load("/no/such/pool.hcl", openers)
	must.ErrorContains(t, err, "read pool file: open /no/such/pool.hcl")
}
