package simulate

import (
	"time"

	"nomad-spotter/autoscaler-plugin/cost"
	"nomad-spotter/autoscaler-plugin/market"
)

// Offering is one thing that a pool may buy. Its market is the feed's offering of the same index; offerings that the feed
// does not have are always there, at Price.
type Offering struct {
	Name     string
	Key      market.Key
	Kind     cost.Kind
	Price    float64 // $/h of one instance, until the feed knows better
	Speed    float64 // work done per hour in relation to the hours that Spec.Work counts; 0 is 1
	Capacity int     // instances that the pool may have of it at once; 0: any number
}

// Checkpoint says what saving a job's state takes.
type Checkpoint struct {
	Bytes     float64       // of a full checkpoint, all ranks together
	Share     float64       // share of Bytes that an incremental checkpoint adds; 1, like 0: every checkpoint is a full one
	Stall     time.Duration // training stands still for so long at each
	Bandwidth float64       // bytes/s to the store, all ranks together; 0: a checkpoint is durable when its stall is over
	Keep      int           // the newest so many are kept in the store; 0 is 1
	Notice    float64       // chance that the last checkpoint after a notice is durable in time, 0 to 1
	Interval  time.Duration // between checkpoints; 0: Config.Cadence decides
}

// Apart says how far apart the replicas of a job are.
type Apart uint8

// Failure domains that two replicas of one job never share.
const (
	ByRegion Apart = iota
	ByZone
)

// Spec is what jobs of one kind have in common.
type Spec struct {
	Name       string
	Work       time.Duration // at speed 1, on Ranks instances, without any stall
	Deadline   time.Duration // after the job's arrival; 0: none
	Priority   int           // more is served first where capacity is short
	Ranks      int           // instances of one offering that run it, all or none; 0 is 1
	Replicas   int           // so many run at once, the first to finish ends the others; 0 is 1
	Apart      Apart         // what two replicas of a job never share
	Changeover time.Duration // from a launch to the first work: boot, pull, restore
	MaxPrice   float64       // $/h of one instance: above it the job is never on spot; 0: no limit
	Checkpoint Checkpoint
}

// ranks is how many instances a replica has.
func (s *Spec) ranks() int { return max(s.Ranks, 1) }

// Job is one piece of work that arrives at a time.
type Job struct {
	*Spec
	ID     int           // unique in a run; random numbers depend on it, not on what else runs
	Arrive time.Duration // since the start of the market
}

// Jobs hands out jobs in the order of their arrival; false after the last.
type Jobs interface {
	Next() (Job, bool)
}

// JobList is a list of jobs in the order of their arrival.
type JobList []Job

// Next implements Jobs.
func (l *JobList) Next() (Job, bool) {
	if len(*l) == 0 {
		return Job{}, false
	}
	j := (*l)[0]
	*l = (*l)[1:]
	return j, true
}
