package pool

import (
	"fmt"
	"slices"
	"time"

	"nomad-spotter/autoscaler-plugin/allocate"
	"nomad-spotter/autoscaler-plugin/cloud"
)

// finishDrains ends nodes that are empty, and moves work that does not leave by itself.
func (d *decision) finishDrains() {
	for _, n := range d.draining {
		age := d.Now.Sub(n.DrainSince)
		switch {
		case n.Work == 0 || !n.Joined:
			d.act(Terminate, n, "drained")
		case !n.Up && d.Now.Sub(n.DownSince) >= d.BootTimeout:
			d.act(Terminate, n, "its Nomad node went down while it was drained")
		case age >= d.DrainDeadline:
			d.act(StopWork, n, "%d allocations are left after %v, drain_deadline is %v", n.Work, age.Round(time.Second), d.DrainDeadline)
		}
	}
}

// shrink gives away nodes above the desired count, the least useful first, and never a ready one that is still needed.
func (d *decision) shrink() {
	for d.total() > d.Desired {
		r := d.request()
		exit, ok := d.dispensable(r)
		if !ok {
			return
		}
		n := d.byID[exit.ID]
		reason := fmt.Sprintf("%d nodes are more than the %d desired", d.total(), d.Desired)
		if n.Kind == cloud.OnDemand {
			reason += fmt.Sprintf("; it is on-demand beyond the %d that there must be", r.OnDemand())
		} else {
			reason += "; " + exit.Reason
		}
		d.staying = slices.DeleteFunc(d.staying, func(s Node) bool { return s.ID == n.ID })
		if !n.Joined {
			d.act(Terminate, n, "%s; it has not joined Nomad", reason)
			continue
		}
		d.act(Drain, n, "%s", reason)
	}
}

// dispensable is the node that goes next: one that may take no work, as an operator has said; else the one that is best
// given up. If that one is ready and needed, one that is still booting goes, unless it is worth waiting for, or may replace
// one that is to be moved: forecasts swing, and what is launched at one look must not be ended at the next.
func (d *decision) dispensable(r allocate.Request) (allocate.Exit, bool) {
	closed := func(n allocate.Node) bool { return d.here(n) && d.byID[n.ID].Up && !d.byID[n.ID].Eligible }
	if exit, ok := allocate.Worst(r, closed); ok {
		return exit, true
	}
	exit, ok := allocate.Worst(r, d.here)
	if !ok || d.readyNodes() > d.Desired {
		return exit, ok
	}
	if d.byID[exit.ID].ready() {
		var booting allocate.Exit
		if booting, ok = allocate.Worst(r, func(n allocate.Node) bool { return d.here(n) && !d.byID[n.ID].ready() }); !ok || exit.Saves(booting) {
			return booting, false
		}
		exit = booting
	}
	return exit, d.byID[exit.ID].Joined || !d.moving()
}

// moving tells whether what is too much may be what was launched to replace nodes whose price may pass their maximum.
func (d *decision) moving() bool {
	return d.total()-d.Desired <= d.mostMoves() &&
		slices.ContainsFunc(d.staying, func(n Node) bool { return n.ready() && n.offer().Unsteady() })
}

// here tells nodes that there are from those that are only being launched.
func (d *decision) here(n allocate.Node) bool { return n.ID != "" }

// moveShare is the share of a pool that is moved at once, but at least one node.
const moveShare = 0.1

func (d *decision) mostMoves() int { return max(1, int(moveShare*float64(d.Desired))) }

// relocate launches replacements of nodes that are better moved, once nothing else is under way: of fallback on-demand
// nodes when spot is back, and of spot nodes that are likely to be taken or outbid. The old node goes when the new one is
// ready: then there is one too many. Spot replaces nothing before it has been there long enough.
//
// Nodes whose price may pass their maximum do not wait for other nodes to be drained, which may take longer than they have.
func (d *decision) relocate() {
	if d.total() != d.Desired || d.readyNodes() != d.Desired || len(d.pending) > 0 {
		return
	}
	candidates := d.candidates()
	for i, c := range d.Choices {
		up := d.Now.Sub(c.UpSince)
		if c.Kind == cloud.Spot && candidates[i].Unusable == "" && (c.UpSince.IsZero() || up < d.ReturnAfter) {
			candidates[i].Unusable = fmt.Sprintf("has been there for %v only, return_after is %v", up.Round(time.Second), d.ReturnAfter)
		}
	}
	movable := func(n allocate.Node) bool { return (n.OnDemand || d.Migrate) && (len(d.draining) == 0 || n.Unsteady()) }
	for _, move := range allocate.Relocate(d.request(), candidates, d.mostMoves(), movable) {
		d.launch(move.To, "it replaces "+move.From.ID+": "+move.Reason)
	}
}
