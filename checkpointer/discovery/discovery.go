// Package discovery finds checkpoint stores in Consul, and registers them there. It is the only place of the checkpointer
// that knows Consul.
//
// A store is an instance of a service, with its URL as the meta key "url". Healthy ones are ordered by
//
//  1. "priority", a whole number, the lowest first, 100 without one: the operator's word, whatever the network says;
//  2. datacenter: the agent's own, or the one that was asked for, before others, and those by the network coordinates of
//     their servers, as Consul lists them. Others are asked only when the agent's own has no healthy store;
//  3. "region": that of the agent's node (its node meta key "region") before others;
//  4. the network coordinates of the nodes that registered them, the nearest to the agent first.
package discovery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	consul "github.com/hashicorp/consul/api"

	"nomad-spotter/checkpointer/api"
)

// DefaultPriority is that of a store whose service has no "priority" in its meta data. Lower is preferred.
const DefaultPriority = 100

// maxDatacenters is how many other datacenters are asked when the own has no store.
const maxDatacenters = 8

// Store is one registered store.
type Store struct {
	URL          string
	Priority     int
	Region       string // "" where the registration names none
	Datacenter   string // of Consul
	Node         string // Consul node that registered it
	SingleWriter bool   // it cannot create conditionally: whoever registered it vouches for one writer per lineage
}

// Consul finds stores as healthy instances of a service.
type Consul struct {
	client     *consul.Client
	service    string
	datacenter string
}

// New returns a finder. Nothing is asked yet.
func New(c api.ConsulConfig) (*Consul, error) {
	conf := consul.DefaultConfig()
	conf.Address, conf.Token, conf.Datacenter = c.Address, c.Token, c.Datacenter
	client, err := consul.NewClient(conf)
	if err != nil {
		return nil, fmt.Errorf("consul.address %q: %w", c.Address, err)
	}
	return &Consul{client: client, service: c.Service, datacenter: c.Datacenter}, nil
}

// Stores returns the healthy stores, preferred first. Several registrations of one URL count once. An instance without
// a URL in its meta data is left out; when none is left, the error says what to register.
func (c *Consul) Stores(ctx context.Context) ([]Store, error) {
	out, nameless, err := c.in(ctx, c.datacenter)
	if err != nil {
		return nil, fmt.Errorf("find service %s in Consul: %w", c.service, err)
	}
	var away error
	if len(out) == 0 && c.datacenter == "" {
		out, away = c.elsewhere(ctx)
	}
	if len(out) == 0 {
		err := fmt.Errorf("service %s has no healthy instance with a store URL in Consul (%d without one): register it with meta url = \"file:///…\"", c.service, nameless)
		return nil, errors.Join(err, away)
	}
	return order(out, c.region(ctx, out)), nil
}

// in asks one datacenter; "" is the agent's own. The nearest comes first.
func (c *Consul) in(ctx context.Context, datacenter string) (out []Store, nameless int, err error) {
	q := (&consul.QueryOptions{Near: "_agent", Datacenter: datacenter}).WithContext(ctx)
	list, _, err := c.client.Health().Service(c.service, "", true, q)
	if err != nil {
		return nil, 0, err
	}
	out, nameless = stores(list)
	return out, nameless, nil
}

// elsewhere asks the other datacenters, the nearest first. One that cannot be reached is passed over.
func (c *Consul) elsewhere(ctx context.Context) (out []Store, err error) {
	var known []string
	if _, err := c.client.Raw().Query("/v1/catalog/datacenters", &known, (&consul.QueryOptions{}).WithContext(ctx)); err != nil {
		return nil, fmt.Errorf("list datacenters: %w", err)
	}
	var errs []error
	for _, dc := range known[:min(len(known), maxDatacenters+1)] {
		list, _, err := c.in(ctx, dc)
		if err != nil {
			errs = append(errs, fmt.Errorf("datacenter %s: %w", dc, err))
			continue
		}
		for _, s := range list {
			if !slices.ContainsFunc(out, func(o Store) bool { return o.URL == s.URL }) {
				out = append(out, s)
			}
		}
	}
	return out, errors.Join(errs...)
}

// region returns the region of the agent's node; "" if it has none, cannot be asked, or it does not matter.
func (c *Consul) region(ctx context.Context, list []Store) string {
	if !slices.ContainsFunc(list, func(s Store) bool { return s.Region != list[0].Region }) || ctx.Err() != nil {
		return ""
	}
	var self struct{ Meta map[string]string }
	if _, err := c.client.Raw().Query("/v1/agent/self", &self, (&consul.QueryOptions{}).WithContext(ctx)); err != nil {
		return ""
	}
	return self.Meta["region"]
}

// stores turns Consul's answer into stores, in its order.
func stores(list []*consul.ServiceEntry) (out []Store, nameless int) {
	known := map[string]bool{}
	for _, e := range list {
		meta := e.Service.Meta
		url := meta["url"]
		if url == "" {
			nameless++
			continue
		}
		if known[url] {
			continue
		}
		known[url] = true
		priority, err := strconv.Atoi(meta["priority"])
		if err != nil {
			priority = DefaultPriority
		}
		out = append(out, Store{
			URL: url, Priority: priority, Region: meta["region"], Datacenter: e.Node.Datacenter, Node: e.Node.Node,
			SingleWriter: meta["single_writer"] == "true",
		})
	}
	return out, nameless
}

// order sorts stores that are listed datacenter by datacenter, nearest first. region is the caller's, "" if not known.
func order(list []Store, region string) []Store {
	far := map[string]int{} // datacenters in the order of the list
	for _, s := range list {
		if _, ok := far[s.Datacenter]; !ok {
			far[s.Datacenter] = len(far)
		}
	}
	away := func(s Store) int {
		if region == "" || s.Region == region {
			return 0
		}
		return 1
	}
	out := slices.Clone(list)
	slices.SortStableFunc(out, func(a, b Store) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(far[a.Datacenter], far[b.Datacenter]), cmp.Compare(away(a), away(b)))
	})
	return out
}
