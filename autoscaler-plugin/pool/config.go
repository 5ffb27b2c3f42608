package pool

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/gohcl"
	"github.com/hashicorp/hcl/v2/hclparse"

	"nomad-spotter/autoscaler-plugin/allocate"
	"nomad-spotter/autoscaler-plugin/cloud"
)

// Schema of a pool file, as HCL reads it.
type (
	fileBlock struct {
		Pools []poolBlock `hcl:"pool,block"`
	}
	poolBlock struct {
		Name          string          `hcl:"name,label"`
		Unit          string          `hcl:"unit,optional"`
		OnDemandBase  int             `hcl:"on_demand_base,optional"`
		OnDemandShare float64         `hcl:"on_demand_share,optional"`
		RegionShare   *float64        `hcl:"max_share_per_region,optional"`
		ZoneShare     *float64        `hcl:"max_share_per_zone,optional"`
		OfferingShare *float64        `hcl:"max_share_per_offering,optional"`
		Budget        *float64        `hcl:"budget_usd_per_hour,optional"`
		Changeover    string          `hcl:"changeover,optional"`
		LostWork      string          `hcl:"lost_work,optional"`
		Recovery      string          `hcl:"recovery,optional"`
		Outage        string          `hcl:"outage,optional"`
		Horizon       string          `hcl:"horizon,optional"`
		Migrate       *bool           `hcl:"migrate,optional"`
		Bid           *bidBlock       `hcl:"bid,block"`
		Interval      string          `hcl:"interval,optional"`
		BootTimeout   string          `hcl:"boot_timeout,optional"`
		DrainDeadline string          `hcl:"drain_deadline,optional"`
		Backoff       string          `hcl:"backoff,optional"`
		BackoffMax    string          `hcl:"backoff_max,optional"`
		ReturnAfter   string          `hcl:"return_after,optional"`
		State         *stateBlock     `hcl:"state,block"`
		Nomad         *NomadConfig    `hcl:"nomad,block"`
		Providers     []providerBlock `hcl:"provider,block"`
		Offerings     []offeringBlock `hcl:"offering,block"`
	}
	stateBlock struct {
		Consul     string `hcl:"consul,optional"`
		Token      string `hcl:"token,optional"`
		Prefix     string `hcl:"prefix,optional"`
		SessionTTL string `hcl:"session_ttl,optional"`
		File       string `hcl:"file,optional"`
	}
	bidBlock struct {
		Policy   string   `hcl:"policy,optional"`
		Fraction *float64 `hcl:"fraction,optional"`
		Priority string   `hcl:"priority,optional"`
	}
	providerBlock struct {
		Name string   `hcl:"name,label"`
		Body hcl.Body `hcl:",remain"`
	}
	offeringBlock struct {
		Name     string   `hcl:"name,label"`
		Provider string   `hcl:"provider"`
		Region   string   `hcl:"region"`
		Zone     string   `hcl:"zone,optional"`
		Type     string   `hcl:"type"`
		Kind     string   `hcl:"kind"`
		Price    float64  `hcl:"price_usd_per_hour"`
		MaxNodes *int     `hcl:"max_nodes,optional"`
		Lifetime string   `hcl:"mean_lifetime,optional"`
		Body     hcl.Body `hcl:",remain"`
	}
)

// NomadConfig says which Nomad the pool's nodes belong to. What is empty comes from the autoscaler agent.
type NomadConfig struct {
	Address string `hcl:"address,optional"`
	Token   string `hcl:"token,optional"`
	Region  string `hcl:"region,optional"`
	CAFile  string `hcl:"ca_file,optional"`
}

// StateConfig says where the desired count is kept: in Consul or in a file.
type StateConfig struct {
	Consul     string // address; empty means File
	Token      string
	Prefix     string        // of the keys in Consul
	SessionTTL time.Duration // how long a dead holder keeps the lease, at least; Consul may take twice as long
	File       string
}

// Config is one checked pool of a pool file.
type Config struct {
	Name string
	allocate.Limits
	allocate.Costs
	Migrate       bool // spot nodes are replaced before they are taken, when that pays
	Bid           BidConfig
	Interval      time.Duration // between two looks at the world
	BootTimeout   time.Duration // an instance whose node is not ready for so long is given up
	DrainDeadline time.Duration // what still runs on a drained node after so long is moved by stopping it
	Backoff       time.Duration // first pause of an offering that failed or was interrupted; doubles with each repeat
	BackoffMax    time.Duration
	ReturnAfter   time.Duration // spot must have been available for so long before it replaces a node that is there
	State         StateConfig
	Nomad         NomadConfig
	Offerings     []cloud.Offering
}

// Pool is one pool of a pool file with its providers opened.
type Pool struct {
	Config
	Providers map[string]Provider
	Source    string // the text of the pool file
}

// Opener makes a provider from its part of a pool file. It checks all of it, reports all faults together, and touches
// nothing yet.
type Opener func(cloud.Setup) (Provider, error)

// Defaults of a pool.
const (
	defaultInterval      = 5 * time.Second
	defaultBootTimeout   = 10 * time.Minute
	defaultDrainDeadline = time.Hour
	defaultBackoff       = 3 * time.Minute
	defaultBackoffMax    = 30 * time.Minute
	defaultReturnAfter   = 10 * time.Minute
	defaultPrefix        = "spotter/pools"
	defaultSessionTTL    = 15 * time.Second
	minSessionTTL        = 10 * time.Second // Consul refuses less
	maxSessionTTL        = 24 * time.Hour
	maxDuration          = 10 * 365 * 24 * time.Hour // so that sums of durations fit their type
	maxPrice             = 1e6                       // $/h of a node: more is in another unit
	maxNameLength        = 40                        // names become parts of instance IDs, node names and paths of sockets
)

var plainName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]*$`)

// Load reads a pool file and opens the providers it names. It reports all faults of the file together.
func Load(path string, openers map[string]Opener) ([]Pool, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read pool file: %w", err)
	}
	pools, err := Parse(data, path, openers)
	if err != nil {
		return nil, fmt.Errorf("pool file %s:\n%w", path, err)
	}
	return pools, nil
}

// Parse is Load for the text of a pool file.
func Parse(data []byte, filename string, openers map[string]Opener) ([]Pool, error) {
	file, diags := hclparse.NewParser().ParseHCL(data, filename)
	var blocks fileBlock
	if !diags.HasErrors() {
		diags = append(diags, gohcl.DecodeBody(file.Body, nil, &blocks)...)
	}
	if diags.HasErrors() {
		return nil, describe(diags)
	}
	var faults []error
	if len(blocks.Pools) == 0 {
		faults = append(faults, errors.New(`pool: none given; add pool "NAME" { … }`))
	}
	pools := make([]Pool, 0, len(blocks.Pools))
	seen := map[string]bool{}
	for _, b := range blocks.Pools {
		p, errs := parsePool(b, openers)
		if seen[b.Name] {
			errs = append(errs, fmt.Errorf("pool %q: given twice; names must differ", b.Name))
		}
		seen[b.Name] = true
		faults = append(faults, errs...)
		p.Source = string(data)
		pools = append(pools, p)
	}
	return pools, errors.Join(faults...)
}

// Find picks a pool by name; an empty name is the only pool of the file.
func Find(pools []Pool, name string) (Pool, error) {
	names := make([]string, 0, len(pools))
	for _, p := range pools {
		if p.Name == name || name == "" && len(pools) == 1 {
			return p, nil
		}
		names = append(names, p.Name)
	}
	if name == "" {
		return Pool{}, fmt.Errorf("the pool file has %d pools, %s; say which is meant", len(pools), strings.Join(names, ", "))
	}
	return Pool{}, fmt.Errorf("pool %q is not in the pool file; it has %s", name, strings.Join(names, ", "))
}

func describe(diags hcl.Diagnostics) error {
	var errs []error
	for _, d := range diags {
		if d.Severity == hcl.DiagError {
			errs = append(errs, fmt.Errorf("line %d: %s: %s", d.Subject.Start.Line, d.Summary, d.Detail))
		}
	}
	return errors.Join(errs...)
}

func parsePool(b poolBlock, openers map[string]Opener) (Pool, []error) {
	c := &checker{prefix: fmt.Sprintf("pool %q", b.Name)}
	if !plainName.MatchString(b.Name) || len(b.Name) > maxNameLength {
		c.add("the name must be 1 to %d letters, digits and dashes", maxNameLength)
	}
	if b.Unit != "" && b.Unit != "nodes" {
		c.add("unit: %q is unknown; the only unit is \"nodes\"", b.Unit)
	}
	p := Pool{Config: Config{
		Name:          b.Name,
		Limits:        c.limits(b),
		Costs:         c.costs(b),
		Migrate:       b.Migrate == nil || *b.Migrate,
		Bid:           c.bids(b.Bid),
		Interval:      c.duration("interval", b.Interval, defaultInterval),
		BootTimeout:   c.duration("boot_timeout", b.BootTimeout, defaultBootTimeout),
		DrainDeadline: c.duration("drain_deadline", b.DrainDeadline, defaultDrainDeadline),
		Backoff:       c.duration("backoff", b.Backoff, defaultBackoff),
		BackoffMax:    c.duration("backoff_max", b.BackoffMax, max(defaultBackoffMax, lenient(b.Backoff))),
		ReturnAfter:   c.duration("return_after", b.ReturnAfter, defaultReturnAfter),
		State:         c.state(b.State),
	}}
	if p.Backoff > p.BackoffMax {
		c.add("backoff: %v is above backoff_max, %v; lower the one or raise the other", p.Backoff, p.BackoffMax)
	}
	if b.Nomad != nil {
		p.Nomad = *b.Nomad
		if p.Nomad.Address != "" {
			c.url("nomad.address", p.Nomad.Address, "http://127.0.0.1:4646")
		}
	}
	setups := c.offerings(b, &p)
	c.prices(b, &p.Config)
	p.Providers = c.open(b, setups, openers)
	return p, c.errs
}

// checker gathers the faults of one pool.
type checker struct {
	prefix string
	errs   []error
}

func (c *checker) add(format string, args ...any) {
	c.errs = append(c.errs, fmt.Errorf(c.prefix+": "+format, args...))
}

// lenient reads a duration for a default that depends on it; its faults are reported where it is read itself.
func lenient(text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0
	}
	return d
}

func (c *checker) duration(field, text string, fallback time.Duration) time.Duration {
	return c.durationFrom(1, "not above 0", field, text, fallback)
}

// durationOr0 reads a duration that may be 0.
func (c *checker) durationOr0(field, text string, fallback time.Duration) time.Duration {
	return c.durationFrom(0, "negative; give 0s or more", field, text, fallback)
}

func (c *checker) durationFrom(least time.Duration, fault, field, text string, fallback time.Duration) time.Duration {
	if text == "" {
		return fallback
	}
	d, err := time.ParseDuration(text)
	switch {
	case err != nil:
		c.add("%s: %q is not a duration; write it like \"30s\"", field, text)
	case d < least:
		c.add("%s: %s is %s", field, text, fault)
	case d > maxDuration:
		c.add("%s: %s is more than ten years, %s; give less", field, text, maxDuration)
	}
	return d
}

func (c *checker) url(field, text, example string) {
	if u, err := url.Parse(text); err != nil || u.Host == "" && u.Scheme != "unix" || u.Scheme == "" {
		c.add("%s: %q is not a URL; write it like %q", field, text, example)
	}
}

func (c *checker) state(b *stateBlock) StateConfig {
	if b == nil {
		c.add(`state: missing; add state { consul = "http://127.0.0.1:8500" } or state { file = "/var/lib/spotter/%s.json" }`, "pool")
		return StateConfig{}
	}
	s := StateConfig{Consul: b.Consul, Token: b.Token, Prefix: strings.Trim(b.Prefix, "/"), File: b.File}
	if s.Prefix == "" {
		s.Prefix = defaultPrefix
	}
	s.SessionTTL = c.duration("state.session_ttl", b.SessionTTL, defaultSessionTTL)
	if s.SessionTTL > 0 && (s.SessionTTL < minSessionTTL || s.SessionTTL > maxSessionTTL) {
		c.add("state.session_ttl: %v is outside what Consul takes, %v to %v", s.SessionTTL, minSessionTTL, maxSessionTTL)
	}
	switch {
	case (b.Consul == "") == (b.File == ""):
		c.add("state: consul is %q and file is %q; give exactly one of them", b.Consul, b.File)
	case b.Consul != "":
		c.url("state.consul", b.Consul, "http://127.0.0.1:8500")
	case !filepath.IsAbs(b.File):
		c.add("state.file: %q is relative; give an absolute path", b.File)
	}
	return s
}

// offerings checks the offerings and sorts them to their providers.
func (c *checker) offerings(b poolBlock, p *Pool) map[string]*cloud.Setup {
	setups := map[string]*cloud.Setup{}
	for _, pr := range b.Providers {
		if setups[pr.Name] != nil {
			c.add("provider %q: given twice", pr.Name)
		}
		setups[pr.Name] = &cloud.Setup{Pool: b.Name, Body: pr.Body}
	}
	seen := map[string]bool{}
	for _, o := range b.Offerings {
		field := fmt.Sprintf("offering %q", o.Name)
		if !plainName.MatchString(o.Name) || len(o.Name) > maxNameLength {
			c.add("%s: the name must be 1 to %d letters, digits and dashes", field, maxNameLength)
		}
		if seen[o.Name] {
			c.add("%s: given twice; names must differ", field)
		}
		seen[o.Name] = true
		kind := cloud.Kind(o.Kind)
		if kind != cloud.Spot && kind != cloud.OnDemand {
			c.add("%s.kind: %q is unknown; give %q or %q", field, o.Kind, cloud.Spot, cloud.OnDemand)
		}
		if !(o.Price >= 0 && o.Price <= maxPrice) {
			c.add("%s.price_usd_per_hour: %v is outside 0 to %v; give $/h of one node", field, o.Price, float64(maxPrice))
		}
		for _, attr := range [][2]string{{"region", o.Region}, {"type", o.Type}} {
			if attr[1] == "" {
				c.add("%s.%s: empty", field, attr[0])
			}
		}
		offering := cloud.Offering{
			Name: o.Name, Provider: o.Provider, Region: o.Region, Zone: o.Zone, Type: o.Type, Kind: kind, PriceUSDPerHour: o.Price,
			MaxNodes: c.maxNodes(field, o), MeanLifetime: c.lifetime(field, o),
		}
		if offering.Zone == "" {
			offering.Zone = o.Region
		}
		p.Offerings = append(p.Offerings, offering)
		setup := setups[o.Provider]
		if setup == nil {
			c.add("%s.provider: %q has no provider block; add provider %q { … } to the pool", field, o.Provider, o.Provider)
			continue
		}
		setup.Offerings = append(setup.Offerings, cloud.OfferingSetup{Offering: offering, Body: o.Body})
	}
	if len(b.Offerings) == 0 {
		c.add("offering: none given; a pool needs at least one")
	}
	return setups
}

func (c *checker) open(b poolBlock, setups map[string]*cloud.Setup, openers map[string]Opener) map[string]Provider {
	known := make([]string, 0, len(openers))
	for name := range openers {
		known = append(known, name)
	}
	sort.Strings(known)
	providers := map[string]Provider{}
	for _, pr := range b.Providers {
		open := openers[pr.Name]
		if open == nil {
			c.add("provider %q: unknown; known are %s", pr.Name, strings.Join(known, ", "))
			continue
		}
		provider, err := open(*setups[pr.Name])
		if err != nil {
			for line := range strings.SplitSeq(err.Error(), "\n") {
				c.add("%s", line)
			}
			continue
		}
		providers[pr.Name] = provider
	}
	return providers
}
