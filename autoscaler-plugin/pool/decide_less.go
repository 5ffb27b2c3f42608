package pool

import (
	"cmp"
	"fmt"
	"slices"
	"time"

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
	ready := d.readyNodes()
	surplus := d.total() - d.Desired
	for _, n := range d.dispensable() {
		if surplus <= 0 {
			return
		}
		if n.ready() && ready-1 < d.Desired {
			return // its replacement is not ready yet
		}
		surplus--
		d.staying = slices.DeleteFunc(d.staying, func(s Node) bool { return s.ID == n.ID })
		if n.ready() {
			ready--
		}
		reason := fmt.Sprintf("%d nodes are more than the %d desired", d.total()+1, d.Desired)
		if n.Kind == cloud.OnDemand {
			reason += fmt.Sprintf("; it is on-demand beyond the base of %d", d.base)
		}
		if !n.Joined {
			d.act(Terminate, n, "%s; it has not joined Nomad", reason)
			continue
		}
		d.act(Drain, n, "%s", reason)
	}
}

// dispensable orders the nodes that may go: on-demand beyond the base, then spot; of each those that are not ready,
// then the dearest, then those with the most neighbours, then the newest.
func (d *decision) dispensable() []Node {
	fallback := d.onDemand() - d.base
	nodes := slices.Clone(d.staying)
	key := func(n Node) (ready int, score float64) {
		if n.ready() {
			ready = 1
		}
		return ready, d.score(cloud.Offering{Kind: n.Kind, Region: n.Region, Zone: n.Zone, PriceUSDPerHour: n.PriceUSDPerHour})
	}
	slices.SortStableFunc(nodes, func(a, b Node) int {
		aReady, aScore := key(a)
		bReady, bScore := key(b)
		return cmp.Or(compareKind(a.Kind, b.Kind), cmp.Compare(aReady, bReady), -cmp.Compare(aScore, bScore),
			-a.LaunchedAt.Compare(b.LaunchedAt), cmp.Compare(a.ID, b.ID))
	})
	onDemand := 0
	return slices.DeleteFunc(nodes, func(n Node) bool {
		if n.Kind != cloud.OnDemand {
			return false
		}
		onDemand++
		return onDemand > fallback
	})
}

func compareKind(a, b cloud.Kind) int {
	rank := func(k cloud.Kind) int {
		if k == cloud.OnDemand {
			return 0
		}
		return 1
	}
	return cmp.Compare(rank(a), rank(b))
}

// returnToSpot launches one spot node to replace one fallback on-demand node, once spot has been there long enough and
// nothing else is under way. The on-demand node goes when the new one is ready: then there is one too many.
func (d *decision) returnToSpot() {
	quiet := d.total() == d.Desired && d.readyNodes() == d.Desired && len(d.pending) == 0 && len(d.draining) == 0
	if !quiet || d.onDemand() <= d.base {
		return
	}
	all := d.Choices
	d.Choices = slices.DeleteFunc(slices.Clone(all), func(o Choice) bool {
		return o.Kind == cloud.Spot && (o.UpSince.IsZero() || d.Now.Sub(o.UpSince) < d.ReturnAfter)
	})
	spot, ok := d.bestSpot()
	d.Choices = all
	if !ok {
		return
	}
	dearest := slices.MaxFunc(d.staying, func(a, b Node) int {
		return cmp.Or(-compareKind(a.Kind, b.Kind), cmp.Compare(a.PriceUSDPerHour, b.PriceUSDPerHour))
	})
	if spot.PriceUSDPerHour >= dearest.PriceUSDPerHour {
		return
	}
	d.launch(spot, "return to spot: %s at %.4g $/h has been available for %v, return_after is %v; it replaces on-demand at %.4g $/h",
		spot.Name, spot.PriceUSDPerHour, d.Now.Sub(spot.UpSince).Round(time.Second), d.ReturnAfter, dearest.PriceUSDPerHour)
}
