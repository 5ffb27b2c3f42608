// Package pool keeps a pool of instances at its desired size. It reads the pool file, keeps the desired count durably
// under a lease, watches instances, their Nomad nodes and the market, decides by pure functions what to change, and has
// providers and Nomad do it. It never places work: that is Nomad's task; it never launches without the lease.
package pool

import (
	"cmp"
	"context"
	"slices"

	"nomad-spotter/autoscaler-plugin/cloud"
)

// Provider is where instances come from. Every call must return when its context ends.
type Provider interface {
	// Launch starts one instance, or returns the one an earlier call with the same ID started. An error that wraps
	// cloud.ErrUnavailable means: no capacity, try another offering. After any error the instance does not run.
	Launch(ctx context.Context, req cloud.Launch) (cloud.Instance, error)
	// List returns all instances of the pool, ended ones that are still billed or recorded included.
	List(ctx context.Context) ([]cloud.Instance, error)
	// Terminate ends an instance and returns once it is gone. Ending one that is gone is no error; an unknown one is
	// cloud.ErrNotFound.
	Terminate(ctx context.Context, id, reason string) error
	// Offers says which offerings can be had at the moment, and at which price. One that is missing may be had or not.
	Offers(ctx context.Context) ([]cloud.Offer, error)
}

// sortInstances puts instances in the order of their launches.
func sortInstances(instances []cloud.Instance) {
	slices.SortFunc(instances, func(a, b cloud.Instance) int {
		return cmp.Or(a.LaunchedAt.Compare(b.LaunchedAt), cmp.Compare(a.ID, b.ID))
	})
}
