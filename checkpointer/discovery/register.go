package discovery

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strconv"
	"time"

	consul "github.com/hashicorp/consul/api"
)

// Registration is what Consul is told of a store.
type Registration struct {
	ID           string // of the instance; unique per Consul agent
	URL          string
	Region       string // where the store is; "" leaves it open
	Priority     int
	SingleWriter bool // the store cannot create conditionally
	// TTL is how long the instance stays healthy after Register or Pass. 0: it has no health check.
	TTL time.Duration
}

// InstanceID is the ID for a store whose operator has given none.
func InstanceID(url string) string {
	return fmt.Sprintf("checkpoint-store-%x", sha256.Sum256([]byte(url)))[:len("checkpoint-store-")+12]
}

func checkID(instance string) string { return "service:" + instance + ":store" }

// Register makes a store known with its Consul agent, as healthy. An earlier registration of the same ID is replaced.
func (c *Consul) Register(ctx context.Context, r Registration) error {
	meta := map[string]string{"url": r.URL, "priority": strconv.Itoa(r.Priority)}
	if r.Region != "" {
		meta["region"] = r.Region
	}
	if r.SingleWriter {
		meta["single_writer"] = "true"
	}
	reg := &consul.AgentServiceRegistration{ID: r.ID, Name: c.service, Meta: meta}
	if r.TTL > 0 {
		reg.Check = &consul.AgentServiceCheck{
			CheckID: checkID(r.ID), Name: "small write and read", TTL: r.TTL.String(), Status: consul.HealthPassing,
		}
	}
	opts := consul.ServiceRegisterOpts{ReplaceExistingChecks: true}.WithContext(ctx)
	if err := c.client.Agent().ServiceRegisterOpts(reg, opts); err != nil {
		return fmt.Errorf("register %s as %s in Consul: %w", r.URL, r.ID, err)
	}
	return nil
}

// Pass says that a registered store works, Fail that it does not. note is for people.
func (c *Consul) Pass(ctx context.Context, id, note string) error {
	return c.update(ctx, id, note, consul.HealthPassing)
}

// Fail says that a registered store does not work. note is for people.
func (c *Consul) Fail(ctx context.Context, id, note string) error {
	return c.update(ctx, id, note, consul.HealthCritical)
}

func (c *Consul) update(ctx context.Context, id, note, status string) error {
	if err := c.client.Agent().UpdateTTLOpts(checkID(id), note, status, (&consul.QueryOptions{}).WithContext(ctx)); err != nil {
		return fmt.Errorf("tell Consul that %s is %s: %w", id, status, err)
	}
	return nil
}

// Deregister removes a registration. One that is not there is an error.
func (c *Consul) Deregister(ctx context.Context, id string) error {
	if err := c.client.Agent().ServiceDeregisterOpts(id, (&consul.QueryOptions{}).WithContext(ctx)); err != nil {
		return fmt.Errorf("deregister %s from Consul: %w", id, err)
	}
	return nil
}
