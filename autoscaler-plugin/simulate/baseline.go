package simulate

import (
	"time"

	"nomad-spotter/autoscaler-plugin/cost"
)

// The simple rules that others are measured by. None looks at anything but the present.

// AlwaysOnDemand runs on the cheapest on-demand from beginning to end.
type AlwaysOnDemand struct{}

// Place implements Placer.
func (AlwaysOnDemand) Place(s *State, m *Market) Placement {
	if s.Offering != Nowhere {
		return Placement{Offering: s.Offering}
	}
	return Placement{Offering: m.Cheapest(cost.OnDemand, s), Watch: true, Reason: "always on-demand"}
}

// AlwaysSpot runs on the cheapest spot that is up and waits while there is none, whatever the deadline. It stays where it is.
type AlwaysSpot struct{}

// Place implements Placer.
func (AlwaysSpot) Place(s *State, m *Market) Placement {
	if s.Offering != Nowhere {
		return Placement{Offering: s.Offering}
	}
	if o := m.Cheapest(cost.Spot, s); o != Nowhere {
		return Placement{Offering: o, Reason: "the cheapest spot that is up"}
	}
	return Placement{Offering: Nowhere, Watch: true, Reason: "no spot is up"}
}

// SpotElseOnDemand runs on the cheapest spot that is up, on on-demand while there is none, and goes back to spot at once.
type SpotElseOnDemand struct{}

// Place implements Placer.
func (SpotElseOnDemand) Place(s *State, m *Market) Placement {
	if s.Offering != Nowhere && m.Offerings[s.Offering].Kind == cost.Spot {
		return Placement{Offering: s.Offering}
	}
	if o := m.Cheapest(cost.Spot, s); o != Nowhere {
		return Placement{Offering: o, Reason: "the cheapest spot that is up"}
	}
	if s.Offering != Nowhere {
		return Placement{Offering: s.Offering, Watch: true}
	}
	return Placement{Offering: m.Cheapest(cost.OnDemand, s), Watch: true, Reason: "no spot is up"}
}

// SpotUntilLate runs on the cheapest spot that is up, waits while there is none, and goes to on-demand for good when
// waiting longer would be too late: the greedy rule of "Can't Be Late" (Wu et al., NSDI '24) in continuous time.
type SpotUntilLate struct {
	Margin time.Duration // of time left beyond what on-demand takes
	forced bool
}

// Place implements Placer.
func (p *SpotUntilLate) Place(s *State, m *Market) Placement {
	if p.forced && s.Offering != Nowhere && m.Offerings[s.Offering].Kind != cost.Spot {
		return Placement{Offering: s.Offering}
	}
	slack, review := s.Slack(m, p.Margin)
	if slack <= 0 {
		if o := m.Cheapest(cost.OnDemand, s); o != Nowhere {
			p.forced = true
			return Placement{Offering: o, Watch: true, Reason: "on-demand takes all the time that is left"}
		}
	}
	if s.Offering != Nowhere {
		return Placement{Offering: s.Offering, Review: review}
	}
	if o := m.Cheapest(cost.Spot, s); o != Nowhere {
		return Placement{Offering: o, Review: review, Reason: "the cheapest spot that is up"}
	}
	return Placement{Offering: Nowhere, Watch: true, Review: review, Reason: "no spot is up, and there is time"}
}

// Slack is the time to the deadline, less a margin, beyond what the work would take on demand if the replica lost all that
// is at risk; and when it is to be looked at again, which is early enough: until then it stays above 0, and what is at risk
// does not grow beyond it. Without a deadline it is endless, and the time of the review 0.
func (s *State) Slack(m *Market, margin time.Duration) (slack, review time.Duration) {
	if s.Job.Deadline == 0 {
		return forever, 0
	}
	slack = s.Job.Arrive + s.Job.Deadline - m.Now - margin - m.OnDemand(s, min(s.Left, s.Job.Work-s.Risk)+s.Risk)
	if slack < time.Second { // as fine as reviews are
		return min(slack, 0), 0
	}
	review = m.Now + slack
	if s.Offering != Nowhere && s.Safe < review {
		review = max(s.Safe, m.Now+slack/2, m.Now+time.Second)
	}
	return slack, review
}

// OnDemand is the time from a launch on the cheapest on-demand until so much work is done: changeover, and stalls if the job
// saves there. Without on-demand it is that of the first offering, if nothing takes it away.
func (m *Market) OnDemand(s *State, work time.Duration) time.Duration {
	best := 0
	for i, o := range m.Offerings {
		first := m.Offerings[best].Kind != cost.OnDemand
		if o.Kind == cost.OnDemand && (first || m.Price(i)*m.speed(best) < m.Price(best)*m.speed(i)) {
			best = i
		}
	}
	return m.schedule(s.Job.Spec, best).finish(needed(work, m.speed(best)))
}
