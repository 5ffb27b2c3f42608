package nomad

import (
	"context"
	"errors"
	"time"

	"github.com/hashicorp/nomad/api"
)

// Drain is the state of an operator's drain of this node.
type Drain struct {
	Active    bool
	Cancelled bool      // not active because it was cancelled, rather than complete or never begun
	Started   time.Time // on the server's clock; zero when unknown
	Deadline  time.Time // when Nomad stops what is left; zero means none
	Force     bool      // Nomad stops everything at once
	// IgnoreSystemJobs is the drain's own flag: allocations of system jobs stay.
	IgnoreSystemJobs bool
}

// drainOf reads the drain out of a node. Deadline < 0 in the specification means force, 0 means none.
func drainOf(n *api.Node) Drain {
	s := n.DrainStrategy
	if s == nil {
		return Drain{Cancelled: n.LastDrain != nil && n.LastDrain.Status == api.DrainStatusCanceled}
	}
	d := Drain{Active: true, Started: s.StartedAt, IgnoreSystemJobs: s.IgnoreSystemJobs}
	switch {
	case s.Deadline < 0:
		d.Force = true
	case s.Deadline > 0:
		d.Deadline = s.ForceDeadline
	}
	return d
}

const (
	retryFirst   = time.Second
	retryMax     = 15 * time.Second
	retryRefused = 30 * time.Second // a token is mended by people
	// pollFloor bounds how often the watch may ask when the server answers blocking queries at once.
	pollFloor = 200 * time.Millisecond
)

// WatchDrain emits the drain of the node at the start and whenever it changes, until ctx is done. It says once in the
// log that it lost Nomad, why, and when Nomad is back; it never gives up.
func (n *Node) WatchDrain(ctx context.Context, emit func(Drain)) {
	log := n.c.log.With("node_id", n.id)
	need := nodeRight("read the node's drain", "read")
	var index uint64
	var last Drain
	var seen, lost bool
	wait := retryFirst
	for ctx.Err() == nil {
		node, at, err := n.info(ctx, need, index)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			var e *Error
			pause := wait
			wait = min(2*wait, retryMax)
			if errors.As(err, &e) && e.Refused() {
				pause = retryRefused
			}
			if !lost {
				lost = true
				if e != nil && e.Refused() {
					log.Error("drains of this node are not seen", "error", err, "hint", e.Hint())
				} else {
					log.Warn("drains of this node are not seen, retrying", "error", err)
				}
			}
			index = 0
			if !sleep(ctx, pause) {
				return
			}
			continue
		}
		if lost {
			log.Info("drains of this node are seen again")
		}
		lost, wait = false, retryFirst
		index = nextIndex(index, at)
		if d := drainOf(node); !seen || d != last {
			seen, last = true, d
			emit(d)
		}
		if !sleep(ctx, pollFloor) {
			return
		}
	}
}

// nextIndex follows Nomad's rule for blocking queries: an index that went backwards (a restored snapshot) starts again
// without blocking, and 0 would never block.
func nextIndex(prev, got uint64) uint64 {
	if got < prev {
		return 0
	}
	return max(got, 1)
}

// sleep waits for d and reports whether ctx is still alive.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
