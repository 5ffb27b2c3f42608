// Package simulate runs jobs on a market and says what they cost, when they are done and what happened to them. It asks the
// same pure decisions as the pool and the checkpointer do in production, and it never sees more of the market than they do.
//
// Run is a simulation of discrete events: the market's changes, arrivals of jobs, ends of jobs, and the times at which a
// decision wants to be asked again. Checkpoints are no events, a table over the instance's age holds them; so a run takes
// time for what happens, not for how long it lasts, and memory for the jobs that are alive.
//
// What is simulated: a job runs on its ranks' instances of one offering, all or none. A launch takes the changeover until
// work begins. Checkpoints stop the work for their stall and are durable some time later. When the market takes an
// instance, the work since the newest durable checkpoint is lost, unless the last checkpoint after the notice succeeds. A
// replica that is moved by decision saves first, at the price of a stall on the old instance, and then starts anew: the
// overlap of old and new by which a pool hides the changeover is not counted. Instances are paid by the moment at the
// market's price of the moment. The price of a stay is spread evenly over its time.
//
// It is pure: it reads no clock, file or network, and random numbers come from its seed.
package simulate

import (
	"time"

	"nomad-spotter/autoscaler-plugin/cost"
	"nomad-spotter/autoscaler-plugin/market"
)

// Config is a market, what a pool may buy on it, and the jobs that it has to do.
type Config struct {
	Offerings []Offering
	Market    market.Feed // of the offerings of the same indices
	Jobs      Jobs
	Seed      uint64

	// Place makes the placer of a job. It is called when the job arrives.
	Place func(j Job, m *Market) Placer

	// Cadence says when a job saves on an instance of an offering that is launched now; nil: never. Runs with the same
	// Rhythm share what is computed of it. Nil: only Checkpoint.Interval counts.
	Cadence func(s *Spec, offering int) *Rhythm

	// Observe is told each change of the market before it happens. Nil: nobody listens.
	Observe func(m *Market, c market.Change)

	// Done is told each job that has ended, and Record each stay of a replica on an offering or in the queue. Nil: nobody
	// listens. What they get is not kept.
	Done   func(Ended)
	Record func(Stay)
}

// Rhythm is when a job saves.
type Rhythm struct {
	// Interval is the work until the next checkpoint, by the age of the instance; 0 or less: there is none any more.
	Interval func(age time.Duration) time.Duration
}

// Stay is the time of a replica at one place.
type Stay struct {
	Job      string
	ID       int
	Replica  int
	Offering int // Nowhere: it waited
	From, To time.Duration
	Work     time.Duration // work left at From, at speed 1
	Left     time.Duration // work left at To, after what was lost
	Working  time.Duration // when the work began, at most To
	Reason   string        // why it was there
	End      End           // how it ended
	Cost     float64       // $ for instances: Training, Stalls and Recovery
	Training float64       // $ for work that lasted, and for the first start
	Stalls   float64       // $ for checkpoints
	Recovery float64       // $ for other starts, and for work that was lost
	Lost     time.Duration // work that has to be done again
}

// End is how a stay ended.
type End string

// Ends of a stay.
const (
	Finished    End = "finished"    // the work is done
	Interrupted End = "interrupted" // the market took the instance
	Moved       End = "moved"       // by decision
	Started     End = "started"     // it waited, and got an instance
	Stopped     End = "stopped"     // another replica was first
	Unfinished  End = "unfinished"  // the simulation ended
)

// Ended is what became of a job.
type Ended struct {
	Job
	At            time.Duration // when it was finished; meaningless if it was not
	Finished      bool
	Late          bool // after its deadline, or never
	Usage         cost.Usage
	Launches      int
	Interruptions int
	Moves         int
	Lost          time.Duration // work done twice
	Waited        time.Duration // by the replicas, together
	Untouched     bool          // the replica that finished was never interrupted
}

// Result is the sum over all jobs.
type Result struct {
	Jobs, Finished, Late int
	Untouched            int           // jobs that were finished by a replica that was never interrupted
	Makespan             time.Duration // from the first arrival to the last end
	Usage                cost.Usage
	Launches             int
	Interruptions        int
	Moves                int
	Lost                 time.Duration
	Waited               time.Duration
	Offerings            []Used        // by the index of the offering
	Decisions            int           // how often a placer was asked
	Changes              int           // of the market
	Market               time.Duration // the last change of the market; from then on it stood still
}

// Used is what was used of an offering.
type Used struct {
	Bought        cost.Bought
	Launches      int
	Interruptions int
}

func (r *Result) add(e *Ended) {
	r.Finished += count(e.Finished)
	r.Late += count(e.Late)
	r.Untouched += count(e.Untouched)
	r.Usage.Add(e.Usage)
	r.Launches += e.Launches
	r.Interruptions += e.Interruptions
	r.Moves += e.Moves
	r.Lost += e.Lost
	r.Waited += e.Waited
}

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}
