// Package epoch gives out writer epochs where a store cannot: from Consul's key-value store, by compare-and-set.
package epoch

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"

	consul "github.com/hashicorp/consul/api"

	"nomad-spotter/checkpointer/api"
)

// prefix is where the last epoch of every lineage is, as decimal text.
const prefix = "spotter/epochs/"

// Consul gives out the epochs of one Consul datacenter. Consul's key-value store is not shared between datacenters, so
// that the datacenter is part of the name; every call names it, whichever agent is asked.
type Consul struct {
	client     *consul.Client
	datacenter string
}

// NewConsul asks the agent for its datacenter unless the configuration names one.
func NewConsul(ctx context.Context, c api.ConsulConfig) (*Consul, error) {
	conf := consul.DefaultConfig()
	conf.Address, conf.Token, conf.Datacenter = c.Address, c.Token, c.Datacenter
	client, err := consul.NewClient(conf)
	if err != nil {
		return nil, fmt.Errorf("consul.address %q: %w", c.Address, err)
	}
	if c.Datacenter != "" {
		return &Consul{client, c.Datacenter}, nil
	}
	q := (&consul.QueryOptions{}).WithContext(ctx)
	var self struct{ Config struct{ Datacenter string } }
	if _, err := client.Raw().Query("/v1/agent/self", &self, q); err != nil {
		return nil, fmt.Errorf("ask the Consul agent %s for its datacenter: %w", c.Address, err)
	}
	if self.Config.Datacenter == "" {
		return nil, fmt.Errorf("the Consul agent %s does not say of which datacenter it is: configure one", c.Address)
	}
	return &Consul{client, self.Config.Datacenter}, nil
}

// Name is "consul:" and the datacenter.
func (c *Consul) Name() string { return "consul:" + c.datacenter }

// Current returns the last epoch that was given out; 0 if none was.
func (c *Consul) Current(ctx context.Context, lineage string) (uint64, error) {
	last, _, err := c.read(ctx, lineage)
	return last, err
}

// Next gives out an epoch above the given one: the store may hold higher ones than Consul, after Consul was set up anew.
func (c *Consul) Next(ctx context.Context, lineage string, above uint64) (uint64, error) {
	for {
		last, index, err := c.read(ctx, lineage)
		if err != nil {
			return 0, err
		}
		next := max(last, above)
		if next == math.MaxUint64 {
			return 0, errors.New("there is no higher epoch")
		}
		next++
		// An index of 0 creates the key only if there is none (https://developer.hashicorp.com/consul/api-docs/kv, cas).
		pair := &consul.KVPair{Key: prefix + lineage, Value: []byte(strconv.FormatUint(next, 10)), ModifyIndex: index}
		ok, _, err := c.client.KV().CAS(pair, (&consul.WriteOptions{Datacenter: c.datacenter}).WithContext(ctx))
		if err != nil {
			return 0, fmt.Errorf("set epoch of %s in Consul: %w", lineage, err)
		}
		if ok {
			return next, nil
		}
	}
}

func (c *Consul) read(ctx context.Context, lineage string) (last, index uint64, err error) {
	q := (&consul.QueryOptions{Datacenter: c.datacenter, RequireConsistent: true}).WithContext(ctx)
	pair, _, err := c.client.KV().Get(prefix+lineage, q)
	if err != nil {
		return 0, 0, fmt.Errorf("read epoch of %s from Consul: %w", lineage, err)
	}
	if pair == nil {
		return 0, 0, nil
	}
	if last, err = strconv.ParseUint(string(pair.Value), 10, 64); err != nil {
		return 0, 0, fmt.Errorf("Consul's key %s%s holds %.40q, which is no epoch", prefix, lineage, pair.Value) //nolint:staticcheck // a name
	}
	return last, pair.ModifyIndex, nil
}
