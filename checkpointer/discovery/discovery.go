// Package discovery finds checkpoint stores in Consul. It is the only place of the checkpointer that knows Consul.
package discovery

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"

	consul "github.com/hashicorp/consul/api"

	"nomad-spotter/checkpointer/api"
)

// DefaultPriority is that of a store whose service has no "priority" in its meta data. Lower is preferred.
const DefaultPriority = 100

// Store is one registered store.
type Store struct {
	URL      string
	Priority int
	Node     string // Consul node that registered it
}

// Consul finds stores as healthy instances of a service.
type Consul struct {
	client  *consul.Client
	service string
}

// New returns a finder. Nothing is asked yet.
func New(c api.ConsulConfig) (*Consul, error) {
	conf := consul.DefaultConfig()
	conf.Address, conf.Token, conf.Datacenter = c.Address, c.Token, c.Datacenter
	client, err := consul.NewClient(conf)
	if err != nil {
		return nil, fmt.Errorf("consul.address %q: %w", c.Address, err)
	}
	return &Consul{client: client, service: c.Service}, nil
}

// Stores returns the healthy stores, preferred first. Several registrations of one URL count once. An instance without
// a URL in its meta data is left out; when none is left, the error says what to register.
func (c *Consul) Stores(ctx context.Context) ([]Store, error) {
	list, _, err := c.client.Health().Service(c.service, "", true, (&consul.QueryOptions{Near: "_agent"}).WithContext(ctx))
	if err != nil {
		return nil, fmt.Errorf("find service %s in Consul: %w", c.service, err)
	}
	out, nameless := stores(list)
	if len(out) == 0 {
		return nil, fmt.Errorf("service %s has no healthy instance with a store URL in Consul (%d without one): register it with meta url = \"file:///…\"", c.service, nameless)
	}
	return out, nil
}

// stores turns Consul's answer, nearest first, into stores by priority.
func stores(list []*consul.ServiceEntry) (out []Store, nameless int) {
	known := map[string]bool{}
	for _, e := range list {
		url := e.Service.Meta["url"]
		if url == "" {
			nameless++
			continue
		}
		if known[url] {
			continue
		}
		known[url] = true
		priority, err := strconv.Atoi(e.Service.Meta["priority"])
		if err != nil {
			priority = DefaultPriority
		}
		out = append(out, Store{URL: url, Priority: priority, Node: e.Node.Node})
	}
	slices.SortStableFunc(out, func(a, b Store) int { return cmp.Compare(a.Priority, b.Priority) })
	return out, nameless
}
