package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	nomadapi "github.com/hashicorp/nomad/api"
)

// StopLimit is how long Stop may take.
const StopLimit = 90 * time.Second

// Stop ends everything in order: jobs, the autoscaler (or it would launch what is stopped), instances, servers. It then
// looks for anything left, ends that too, and says so in the error. The cluster's folder is removed unless keep.
func (c *Cluster) Stop(ctx context.Context, keep bool) error {
	err := c.stopAll(ctx)
	if err == nil && !keep {
		return os.RemoveAll(c.Dir)
	}
	return err
}

func (c *Cluster) stopAll(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, StopLimit)
	defer cancel()
	var errs []error
	if c.server != nil && !c.server.ended() {
		errs = append(errs, c.purgeJobs(ctx))
	}
	c.autoscaler.stop()
	errs = append(errs, c.stopInstances(ctx))
	c.server.stop()
	c.consul.stop()
	if c.files != nil {
		errs = append(errs, c.files.Close())
	}
	errs = append(errs, c.leftovers(ctx))
	return errors.Join(errs...)
}

// purgeJobs stops every job and waits a little for their tasks to end, so that stores are complete. What does not end
// by then goes with its instance.
func (c *Cluster) purgeJobs(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	jobs, _, err := c.Nomad.Jobs().List((&nomadapi.QueryOptions{}).WithContext(ctx))
	if err != nil {
		return fmt.Errorf("list jobs: %w", err)
	}
	for _, j := range jobs {
		if _, _, err := c.Nomad.Jobs().Deregister(j.ID, false, (&nomadapi.WriteOptions{}).WithContext(ctx)); err != nil {
			return fmt.Errorf("stop job %s: %w", j.ID, err)
		}
	}
	_ = Poll(ctx, 100*time.Millisecond, func() bool { // what is over when the wait is, is no fault
		allocs, _, err := c.Nomad.Allocations().List((&nomadapi.QueryOptions{}).WithContext(ctx))
		if err != nil {
			return false
		}
		for _, a := range allocs {
			if a.ClientStatus == nomadapi.AllocClientStatusRunning || a.ClientStatus == nomadapi.AllocClientStatusPending {
				return false
			}
		}
		return true
	})
	return nil
}

// stopInstances kills the instances of the pool, as a cloud terminates machines.
func (c *Cluster) stopInstances(ctx context.Context) error {
	all, err := c.Instances()
	if err != nil {
		return err
	}
	for _, i := range all {
		if i.State != Gone {
			// An instance whose supervisor is gone does not answer; the check for leftovers finds what it left.
			_ = c.Reclaim(ctx, i.ID, 0)
		}
	}
	alive := 0
	err = Poll(ctx, 100*time.Millisecond, func() bool {
		alive = len(c.marked())
		for _, p := range c.processes {
			if !p.ended() {
				alive--
			}
		}
		return alive <= 0
	})
	if err != nil {
		return fmt.Errorf("%d processes of instances live on: %w", alive, err)
	}
	return nil
}
