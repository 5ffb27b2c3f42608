package simulate

import (
	"sort"
	"time"
)

// schedule says when checkpoints happen on an instance that is left alone: a table over the instance's age, so that how far
// a run has come at any age is a search and not one event per checkpoint. Runs of the same kind share one.
//
//	age 0      start              begins[0]    +stall          begins[1]
//	|changeover|  work  ……………………… |  stall     |  work  …………… |
//
// It grows as far as somebody looks.
type schedule struct {
	start    time.Duration                     // age at which work begins
	stall    time.Duration                     // work stands still for so long at each checkpoint
	lag      time.Duration                     // from the end of the stall until the checkpoint is durable
	interval func(time.Duration) time.Duration // work until the next checkpoint, by age; 0: there is none any more
	begins   []time.Duration                   // ages at which checkpoints begin
	ended    bool
}

// step adds one checkpoint to the table; false means that there is none.
func (s *schedule) step() bool {
	if s.ended {
		return false
	}
	age := s.start
	if n := len(s.begins); n > 0 {
		age = s.begins[n-1] + s.stall
	}
	d := s.interval(age)
	if d <= 0 || age > forever-d {
		s.ended = true
		return false
	}
	s.begins = append(s.begins, age+max(d, minInterval))
	return true
}

// minInterval keeps a faulty cadence from filling the memory.
const minInterval = time.Second

// reach makes the table reach an age.
func (s *schedule) reach(age time.Duration) {
	for more := true; more && (len(s.begins) == 0 || s.begins[len(s.begins)-1] <= age); {
		more = s.step()
	}
}

// begun is how many checkpoints have begun at an age.
func (s *schedule) begun(age time.Duration) int {
	s.reach(age)
	return sort.Search(len(s.begins), func(i int) bool { return s.begins[i] > age })
}

// at is the work that checkpoint i holds.
func (s *schedule) at(i int) time.Duration { return s.begins[i] - s.start - time.Duration(i)*s.stall }

// worked is the work done at an age.
func (s *schedule) worked(age time.Duration) time.Duration {
	if age <= s.start {
		return 0
	}
	n := s.begun(age)
	if n > 0 && age < s.begins[n-1]+s.stall {
		return s.at(n - 1)
	}
	return age - s.start - time.Duration(n)*s.stall
}

// durable is the work that the newest durable checkpoint holds at an age.
func (s *schedule) durable(age time.Duration) time.Duration {
	n := s.begun(age - s.stall - s.lag)
	if n == 0 {
		return 0
	}
	return s.at(n - 1)
}

// saved is how many checkpoints are complete at an age.
func (s *schedule) saved(age time.Duration) int { return s.begun(age - s.stall) }

// finish is the age at which so much work is done. A checkpoint that would begin just then is left out.
func (s *schedule) finish(work time.Duration) time.Duration {
	for more := true; more && (len(s.begins) == 0 || s.at(len(s.begins)-1) < work); {
		more = s.step()
	}
	n := sort.Search(len(s.begins), func(i int) bool { return s.at(i) >= work })
	return s.start + work + time.Duration(n)*s.stall
}

// risk is the most work that an interruption could lose from an age on until the checkpoint after the next one is durable,
// and the age at which that is. Without further checkpoints both are without bound.
func (s *schedule) risk(age time.Duration) (work, safe time.Duration) {
	n := s.begun(age - s.stall - s.lag) // the first that is not durable yet
	for len(s.begins) < n+2 {
		if !s.step() {
			return forever, forever
		}
	}
	had := time.Duration(0)
	if n > 0 {
		had = s.at(n - 1)
	}
	durable := func(i int) time.Duration { return s.begins[i] + s.stall + s.lag }
	return max(s.worked(durable(n)-1)-had, s.worked(durable(n+1)-1)-s.at(n)), durable(n + 1)
}
