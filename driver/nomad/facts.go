package nomad

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/nomad/api"
)

// Facts are what a driver would like to know of a task but is not told in its TaskConfig. The client's max_kill_timeout
// is not in the API and stays unknown.
type Facts struct {
	JobType     string // "service", "batch", "system" or "sysbatch"
	JobPriority int
	KillTimeout time.Duration // as the job says; the client's max_kill_timeout may cut it
	KillSignal  string        // empty: the driver's default
	Restart     Restart
	Reschedule  Reschedule
}

// Restart is the restart block of the task, or else of its group.
type Restart struct {
	Attempts int
	Interval time.Duration
	Delay    time.Duration
	Mode     string // "fail" or "delay"
}

// Reschedule is the reschedule block of the group, as the server filled it in. Zero means never: so it is for system
// jobs.
type Reschedule struct {
	Attempts  int
	Interval  time.Duration
	Delay     time.Duration
	Unlimited bool
}

// Facts reads the facts of one task of an allocation.
func (c *Client) Facts(ctx context.Context, namespace, allocID, task string) (Facts, error) {
	need := namespaceRight("read allocation "+allocID, namespace, "read-job")
	need.hides = "Unknown allocation" // what 1.6 says with status 500 to a token without read-job
	var alloc *api.Allocation
	err := c.read(ctx, callTimeout, need, api.QueryOptions{Namespace: namespace}, func(o *api.QueryOptions) error {
		got, _, err := c.api.Allocations().Info(allocID, o)
		alloc = got
		return err
	})
	if err != nil {
		return Facts{}, err
	}
	return factsOf(alloc, task)
}

func factsOf(alloc *api.Allocation, task string) (Facts, error) {
	if alloc.Job == nil {
		return Facts{}, fmt.Errorf("read allocation %s: the answer holds no job", alloc.ID)
	}
	group := alloc.GetTaskGroup()
	if group == nil {
		return Facts{}, fmt.Errorf("read allocation %s: its job has no group %q", alloc.ID, alloc.TaskGroup)
	}
	f := Facts{
		JobType:     deref(alloc.Job.Type),
		JobPriority: deref(alloc.Job.Priority),
		Restart:     restartOf(group.RestartPolicy),
	}
	if r := group.ReschedulePolicy; r != nil {
		f.Reschedule = Reschedule{
			Attempts:  deref(r.Attempts),
			Interval:  deref(r.Interval),
			Delay:     deref(r.Delay),
			Unlimited: deref(r.Unlimited),
		}
	}
	for _, t := range group.Tasks {
		if t.Name != task {
			continue
		}
		f.KillTimeout, f.KillSignal = deref(t.KillTimeout), t.KillSignal
		if t.RestartPolicy != nil {
			f.Restart = restartOf(t.RestartPolicy)
		}
		return f, nil
	}
	return Facts{}, fmt.Errorf("read allocation %s: group %q has no task %q", alloc.ID, alloc.TaskGroup, task)
}

func restartOf(r *api.RestartPolicy) Restart {
	if r == nil {
		return Restart{}
	}
	return Restart{
		Attempts: deref(r.Attempts),
		Interval: deref(r.Interval),
		Delay:    deref(r.Delay),
		Mode:     deref(r.Mode),
	}
}

func deref[T any](p *T) T {
	var zero T
	if p == nil {
		return zero
	}
	return *p
}
