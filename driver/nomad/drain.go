package nomad

import "time"

// Drain is the state of an operator's drain of this node.
type Drain struct {
	Active    bool
	Cancelled bool      // not active because it was cancelled, rather than complete or never begun
	Started   time.Time // zero when unknown
	Deadline  time.Time // when Nomad stops what is left; zero means none
	Force     bool      // Nomad stops everything at once
	// IgnoreSystemJobs is the drain's own flag: allocations of system jobs stay.
	IgnoreSystemJobs bool
}
