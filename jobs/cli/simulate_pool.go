package cli

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"

	"nomad-spotter/autoscaler-plugin/cost"
	"nomad-spotter/autoscaler-plugin/market"
	"nomad-spotter/autoscaler-plugin/simulate"
)

// Schema of the parts of a pool file that a simulation needs. The pool reads the rest.
type (
	poolFile struct {
		Pools []poolBlock `hcl:"pool,block"`
		Rest  hcl.Body    `hcl:",remain"`
	}
	poolBlock struct {
		Name      string          `hcl:"name,label"`
		Offerings []offeringBlock `hcl:"offering,block"`
		Rest      hcl.Body        `hcl:",remain"`
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
		Trace    string   `hcl:"trace,optional"`
		Rest     hcl.Body `hcl:",remain"`
	}
)

// offer is an offering of a pool, with where its market is recorded.
type offer struct {
	simulate.Offering
	trace    string        // path of its recording; empty: it is matched by zone and type
	lifetime time.Duration // until an instance is taken back, as far as the pool file says
}

// minLifetime is far below what any offering has: nothing is ever done where instances live shorter.
const minLifetime = time.Minute

// parsePool reads the offerings of a pool out of a pool file. An empty name is the only pool of the file. Spot comes first.
// It reports all faults together.
func parsePool(data []byte, filename, name string) ([]offer, error) {
	var file poolFile
	if err := decodeHCL(data, filename, &file); err != nil {
		return nil, err
	}
	names := make([]string, 0, len(file.Pools))
	for _, p := range file.Pools {
		if slices.Contains(names, p.Name) {
			return nil, fmt.Errorf("pool %q: given twice; names must differ", p.Name)
		}
		names = append(names, p.Name)
	}
	if len(names) == 0 {
		return nil, errors.New(`pool: none given; add pool "NAME" { … }`)
	}
	i := slices.Index(names, name)
	switch {
	case name == "" && len(names) == 1:
		i = 0
	case name == "":
		return nil, fmt.Errorf("pool: there are several, %s; name one with --pool-name", strings.Join(names, ", "))
	case i < 0:
		return nil, fmt.Errorf("pool %q is not in the file; it has %s", name, strings.Join(names, ", "))
	}
	c := &fieldChecker{prefix: fmt.Sprintf("pool %q: ", names[i])}
	var offers []offer
	seen := map[string]bool{}
	for _, b := range file.Pools[i].Offerings {
		if seen[b.Name] {
			c.add("offering %q: given twice; names must differ", b.Name)
		}
		seen[b.Name] = true
		offers = append(offers, readOffering(b, c, filepath.Dir(filename)))
	}
	slices.SortStableFunc(offers, func(a, b offer) int { return spotFirst(a.Kind) - spotFirst(b.Kind) })
	for _, err := range simulate.CheckOfferings(offerings(offers)) {
		c.add("%w", err)
	}
	return offers, errors.Join(c.faults...)
}

func spotFirst(k cost.Kind) int {
	if k == cost.Spot {
		return 0
	}
	return 1
}

func readOffering(b offeringBlock, c *fieldChecker, dir string) offer {
	field := func(name string) string { return fmt.Sprintf("offering %q: %s", b.Name, name) }
	o := offer{Offering: simulate.Offering{
		Name: b.Name, Kind: cost.Kind(b.Kind), Price: b.Price,
		Key: market.Key{Provider: b.Provider, Region: b.Region, Zone: b.Zone, Type: b.Type},
	}, trace: b.Trace}
	if o.Key.Zone == "" {
		o.Key.Zone = b.Region
	}
	if b.MaxNodes != nil {
		o.Capacity = c.count(field("max_nodes"), b.MaxNodes)
	}
	o.lifetime = c.duration(field("mean_lifetime"), b.Lifetime, 0)
	if o.lifetime > 0 && o.lifetime < minLifetime {
		c.add("%s: %v is below %v; leave it out if it is not known", field("mean_lifetime"), o.lifetime, minLifetime)
	}
	if o.trace != "" && !filepath.IsAbs(o.trace) {
		o.trace = filepath.Join(dir, o.trace)
	}
	if o.Kind != cost.Spot && o.trace != "" {
		c.add("%s: given for kind %q; only %q is ever taken away", field("trace"), b.Kind, cost.Spot)
	}
	return o
}

// poolOfTraces makes a pool of recordings: spot of each at one price, and on-demand.
func poolOfTraces(recordings []recording, spot, onDemand float64) ([]offer, error) {
	c := &fieldChecker{}
	for _, p := range []struct {
		flag  string
		price float64
	}{{"--spot-price", spot}, {"--on-demand-price", onDemand}} {
		if !(p.price >= 0 && p.price <= simulate.MostPrice) {
			c.add("%s: %v is outside 0 to %v; give $/h of one instance", p.flag, p.price, float64(simulate.MostPrice))
		}
	}
	var offers []offer
	for _, r := range recordings {
		name := strings.TrimSuffix(filepath.Base(r.path), ".json")
		if slices.ContainsFunc(offers, func(o offer) bool { return o.Name == name }) {
			c.add("--traces: %s and another file have the same name; give a pool file that tells them apart", r.path)
		}
		offers = append(offers, offer{
			Offering: simulate.Offering{Name: name, Kind: cost.Spot, Price: spot, Key: r.key}, trace: r.path,
		})
	}
	offers = append(offers, offer{Offering: simulate.Offering{
		Name: "on-demand", Kind: cost.OnDemand, Price: onDemand, Key: market.Key{Region: "on-demand", Zone: "on-demand"},
	}})
	return offers, errors.Join(c.faults...)
}

// offerings are the offers as a simulation takes them.
func offerings(offers []offer) []simulate.Offering {
	list := make([]simulate.Offering, len(offers))
	for i, o := range offers {
		list[i] = o.Offering
	}
	return list
}
