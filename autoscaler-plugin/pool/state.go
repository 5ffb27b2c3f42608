package pool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Desired is the durable part of a pool: how many nodes there are to be.
type Desired struct {
	Count     int       `json:"count"`
	ChangedAt time.Time `json:"changed_at,omitzero"` // last time that a Scale changed the count; zero if none did
}

// MostNodes is more than any pool has: a count beyond it is a slip.
const MostNodes = 1 << 20

// parseDesired reads what a store holds. Without a count it is an error, not 0, which would end every node.
func parseDesired(data []byte) (Desired, error) {
	var d struct {
		Count *int `json:"count"`
		Desired
	}
	switch err := json.Unmarshal(data, &d); {
	case err != nil:
		return Desired{}, err
	case d.Count == nil:
		return Desired{}, errors.New("count: missing")
	case *d.Count < 0 || *d.Count > MostNodes:
		return Desired{}, fmt.Errorf("count: %d is outside 0 to %d", *d.Count, MostNodes)
	}
	d.Desired.Count = *d.Count
	return d.Desired, nil
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
