package evacuate

import (
	"fmt"
	"strings"
	"time"

	"nomad-spotter/driver/nomad"
)

// slowRestart is the longest delay of a restart block that leaves a two-minute notice enough time: a task that is ended
// as failed waits for it on the node before Nomad reschedules.
const slowRestart = 60 * time.Second

// unlimited is the block that shipped job files use.
const unlimited = `reschedule { attempts = 0, unlimited = true, delay = "5s", delay_function = "constant" }`

// Warning says, in one sentence, whether a job's own reschedule and restart blocks would end it, or hold it up, when its
// task is moved by ending it as failed; empty means neither. A stop of the allocation over the API is not counted by
// Nomad, but the driver has only failing left when the API refuses or cannot be reached.
//
// Nomad's defaults: service jobs are rescheduled without limit; batch jobs once in 24 h, so the second reclaim of a day
// ends the job. System jobs are never moved.
func Warning(f nomad.Facts) string {
	var faults []string
	if f.JobType == "service" || f.JobType == "batch" {
		switch r := f.Reschedule; {
		case r.Unlimited:
		case r.Attempts <= 0:
			faults = append(faults, fmt.Sprintf("its reschedule block (attempts = %d, unlimited = false) lets no move happen: the first ends the job; use %s",
				r.Attempts, unlimited))
		default:
			faults = append(faults, fmt.Sprintf("its reschedule block allows %s in %s, one more ends the job; use %s",
				moves(r.Attempts), short(r.Interval), unlimited))
		}
		switch r := f.Restart; {
		case r.Attempts > 0 && r.Delay > slowRestart:
			faults = append(faults, fmt.Sprintf("its restart block (delay = %q) keeps a failed task on the node too long; use %q or less",
				short(r.Delay), short(slowRestart)))
		case r.Attempts > 0 && r.Mode == "delay" && r.Interval > slowRestart:
			faults = append(faults, fmt.Sprintf("its restart block (mode = \"delay\", interval = %q) keeps a task that failed %d times on the node; use mode = \"fail\"",
				short(r.Interval), r.Attempts))
		}
	}
	if len(faults) == 0 {
		return ""
	}
	return "If a reclaim has to move this " + f.JobType + " task by failing it: " + strings.Join(faults, "; ")
}

func moves(n int) string {
	if n == 1 {
		return "1 move"
	}
	return fmt.Sprintf("%d moves", n)
}

// short prints 24h0m0s as 24h and 1m0s as 1m.
func short(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
