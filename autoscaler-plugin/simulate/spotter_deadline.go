package simulate

import (
	"time"

	"nomad-spotter/autoscaler-plugin/allocate"
	"nomad-spotter/autoscaler-plugin/cost"
)

// Bounds of a plan for jobs with deadlines: how fine its ticks are at most, how many it may have, and how often it is made
// anew by what has been learned since.
const (
	deadlineTick   = 10 * time.Minute
	deadlineTicks  = 300
	deadlineStarts = 3 // ticks of a changeover, about
	deadlineEvery  = 7 * 24 * time.Hour
)

// planKey is what jobs that share a plan have in common.
type planKey struct{ changeover, tick time.Duration }

// deadlinePlan says of jobs with one changeover whether they run on spot, on demand or wait. Where on spot is the
// allocator's choice, so spot as a whole is one place: it is lost when the offering that a job is on is, and another one may
// be up then.
type deadlinePlan struct {
	*allocate.Deadlines
	made time.Duration
	view allocate.View
}

// deadlineGrid is the grid of a plan that is large enough for a job. Ticks are in steps of a quarter, so that jobs of many
// lengths share few plans, and long enough for a start on spot to be a few of them.
func deadlineGrid(s *Spec) allocate.Grid {
	tick := deadlineTick
	for s.Deadline/tick > deadlineTicks || s.Changeover/tick > deadlineStarts {
		tick += tick / 4
	}
	return allocate.Grid{
		Tick: tick, Changeover: s.Changeover, Ticks: int(s.Deadline / tick), Work: int((s.Work + tick - 1) / tick),
	}
}

// plan is the plan for a job; nil where there is nothing to plan: no deadline, no on-demand or no spot.
func (p *Spotter) plan(s *State, m *Market) *deadlinePlan {
	if s.Job.Deadline == 0 {
		return nil
	}
	grid := deadlineGrid(s.Job.Spec)
	key := planKey{grid.Changeover, grid.Tick}
	d := p.plans[key]
	fits := d != nil && d.Ticks >= grid.Ticks && d.Work >= grid.Work
	if fits && m.Now < d.made+deadlineEvery {
		return d
	}
	spot, onDemand, spots := Nowhere, Nowhere, 0
	for i, o := range m.Offerings {
		price := func(j int) float64 { return m.Price(j) / m.speed(j) }
		spots += count(o.Kind == cost.Spot)
		switch {
		case o.Kind == cost.OnDemand && (onDemand == Nowhere || price(i) < price(onDemand)):
			onDemand = i
		case o.Kind == cost.Spot && (spot == Nowhere || p.book.Level(o.Key) < p.book.Level(m.Offerings[spot].Key)):
			spot = i
		}
	}
	if spot == Nowhere || onDemand == Nowhere {
		return nil
	}
	if !fits {
		if d != nil {
			grid.Ticks, grid.Work = max(grid.Ticks, d.Ticks), max(grid.Work, d.Work)
		}
		d = &deadlinePlan{
			Deadlines: allocate.NewDeadlines(grid),
			view:      allocate.View{Up: make([]bool, 1), Age: make([]int, 1)},
		}
		p.plans[key] = d
	}
	d.made = m.Now
	elsewhere := 0.0
	if spots > 1 {
		elsewhere = (p.elsewhere + 1) / (p.lost + 2)
	}
	d.Solve(allocate.Market{
		OnDemand: m.Price(onDemand) / m.speed(onDemand),
		Gap:      allocate.EndsOf(allocate.Prior2022.Down, d.Tick),
		Zones: []allocate.Zone{{
			Price: m.Price(spot) / m.speed(spot), Ends: allocate.EndsOf(p.book.Weibull(m.Offerings[spot].Key), d.Tick),
			Elsewhere: elsewhere,
		}},
	})
	return d
}

// choose asks the plan about a replica. spot is where it is or would be on spot; Nowhere: none is up.
func (d *deadlinePlan) choose(s *State, m *Market, spot int) allocate.Choice {
	on := allocate.Waiting
	if s.Offering != Nowhere {
		if on = 0; m.Offerings[s.Offering].Kind != cost.Spot {
			on = allocate.OnDemand
		}
	}
	d.view.Up[0] = spot != Nowhere
	d.view.Age[0], d.view.Gap = 1, 1+int(m.gap()/d.Tick)
	if spot != Nowhere {
		d.view.Age[0] = 1 + int(m.upFor(spot)/d.Tick)
	}
	return d.Choose(allocate.Job{
		Left: s.Job.Arrive + s.Job.Deadline - m.Now, Work: s.Left, Overhead: s.Start, On: on,
	}, d.view)
}

// gap is how long there has been no spot, or some.
func (m *Market) gap() time.Duration {
	up, down := forever, time.Duration(0)
	for i, o := range m.Offerings {
		switch {
		case o.Kind != cost.Spot:
		case m.Up(i):
			up = min(up, m.Since(i))
		default:
			down = max(down, m.Since(i))
		}
	}
	if up < forever {
		return m.Now - up
	}
	return m.Now - down
}

// byDeadline places a replica of a job with a deadline, for which there is still more time than on-demand takes.
func (d *spotter) byDeadline(plan *deadlinePlan, s *State, m *Market, slack, review time.Duration) Placement {
	if s.Offering != Nowhere && m.Offerings[s.Offering].Kind == cost.Spot {
		return d.stay(s, m, review)
	}
	best := d.p.best(s, m)
	spot := best.offering
	if spot != Nowhere && m.Offerings[spot].Kind != cost.Spot {
		spot = m.Cheapest(cost.Spot, s)
	}
	if s.Offering != Nowhere && spot != Nowhere && slack <= d.p.entry(s, m, spot) {
		spot = Nowhere // it would have to come back before it has saved anything
	}
	c := plan.choose(s, m, spot)
	if c.On == allocate.Waiting && spot != Nowhere && c.Spot-c.Wait < m.Price(spot)/m.speed(spot) {
		c.On = 0 // waiting saves less than a tick of spot costs: to be done earlier is worth as much
	}
	next := m.Now + plan.Tick
	if review > 0 {
		next = min(next, review)
	}
	p := Placement{Watch: true, Review: next, Reason: inMoney(c, plan.Tick, s.Job.ranks()).Reason() + " $"}
	switch c.On {
	case allocate.OnDemand:
		p.Offering = s.Offering
		if s.Offering == Nowhere {
			p.Offering = m.Cheapest(cost.OnDemand, s)
		}
	case allocate.Waiting:
		p.Offering = Nowhere
	default:
		p.Offering, p.Review = spot, review
		if spot == best.offering {
			p.Reason = best.reason + "; " + p.Reason
		}
	}
	return p
}

// inMoney is a choice with its costs in $ for all ranks, of those in $/h of one node times ticks.
func inMoney(c allocate.Choice, tick time.Duration, ranks int) allocate.Choice {
	hours := tick.Hours() * float64(ranks)
	c.Wait, c.Spot, c.OnDemand = c.Wait*hours, c.Spot*hours, c.OnDemand*hours
	return c
}

// entry is the time to spare that a start on spot takes: changeover, and what could be lost before the first checkpoints.
func (p *Spotter) entry(s *State, m *Market, spot int) time.Duration {
	t := m.schedule(s.Job.Spec, spot)
	risk, _ := t.risk(t.start)
	return s.Job.Changeover + min(risk, s.Job.Work)
}
