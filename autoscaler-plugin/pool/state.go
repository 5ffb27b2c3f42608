package pool

import (
	"context"
	"errors"
	"time"
)

// Desired is the durable part of a pool: how many nodes there are to be.
type Desired struct {
	Count     int       `json:"count"`
	ChangedAt time.Time `json:"changed_at,omitzero"` // last time that a Scale changed the count; zero if none did
}

// ErrLeaseLost says that a pool is another process's by now: nothing was written.
var ErrLeaseLost = errors.New("the pool's lease was lost")

// Store keeps the desired count of one pool, and the lease of whoever may change it. The lease is exclusive among all
// processes that use the same store, and ends when its holder dies.
type Store interface {
	// Load returns the desired count; false means that none was ever saved. It needs no lease.
	Load(ctx context.Context) (Desired, bool, error)
	// Acquire waits for the lease. The error is the context's, or that of a store that does not answer.
	Acquire(ctx context.Context) (Lease, error)
}

// Lease is the right to run a pool.
type Lease interface {
	// Save writes the desired count; when it returns nil the count survives a crash of anything. Without the lease it
	// writes nothing and returns ErrLeaseLost.
	Save(ctx context.Context, d Desired) error
	// Lost is closed once the lease is not held any more, by loss or by release.
	Lost() <-chan struct{}
	// Release gives the lease up.
	Release(ctx context.Context) error
}

// OpenStore opens the store that a pool's state block names.
func OpenStore(c Config) (Store, error) {
	if c.State.Consul != "" {
		return newConsulStore(c.State, c.Name)
	}
	return newFileStore(c.State.File), nil
}
