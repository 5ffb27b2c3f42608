package cadence

import "time"

// Tally is what instances did whose lives were played through.
type Tally struct {
	Up          time.Duration // that the instances were up, together
	Stalled     time.Duration // that training stood still for checkpoints, finished or not
	Lost        time.Duration // work that has to be done again
	Restarted   time.Duration // before training went on
	Final       time.Duration // that final checkpoints took
	Checkpoints int           // that were finished, final ones aside
}

// Waste is the part of the up-time in which nothing was done that lasted.
func (t Tally) Waste() float64 {
	return float64(t.Stalled+t.Lost+t.Restarted+t.Final) / float64(t.Up)
}

// Add plays the life of one instance that was interrupted after up. next is the interval from an age on, false for no further
// checkpoint. Whether a notice comes in time is no matter of chance here: what is lost without one counts with its probability,
// and so does a final checkpoint.
func (t *Tally) Add(up time.Duration, terms Terms, next func(age time.Duration) (interval time.Duration, worth bool)) {
	age := min(terms.Restart, up)
	t.Up += up
	t.Restarted += age
	var done, safe time.Duration // work of this instance
	for age < up {
		interval, worth := next(age)
		if !worth || interval >= up-age {
			done += up - age
			break
		}
		done += interval
		age += interval
		t.Stalled += min(terms.Stall, up-age)
		age += terms.Stall
		if age <= up {
			t.Checkpoints++
		}
		if age+terms.Lag <= up {
			safe = done
		}
	}
	t.Lost += time.Duration((1 - terms.NoticeSuccess) * float64(done-safe))
	t.Final += time.Duration(terms.NoticeSuccess * float64(min(terms.Final, done)))
}
