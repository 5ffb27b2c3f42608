package cadence

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Schedule is when to checkpoint at every age of an instance.
//
// It minimises what the instance wastes until its end. V(a), the expected waste from an age a on at which a checkpoint has
// just been made, is the least over the interval τ of
//
//	∫ f(x)·loss(x) dx + S(b)·(C + V(b)),  b = a + τ + C,
//
// where S and f are the survival function and the density of the up-time of what has reached a, and C is the price of a
// checkpoint. It is found backwards from an age that hardly any instance reaches. As each checkpoint counts with the
// probability that it comes to be made, an instance whose hazard falls is left alone longer while it is young than its
// hazard alone would say, and one that will hardly outlive the stall is given no checkpoint at all.
type Schedule struct {
	terms    Terms
	life     *life
	from     float64   // age at which training begins, in seconds
	interval []float64 // s, at each age of the grid; +Inf: no checkpoint is worth its stall
	value    []float64 // V of each age, in seconds of the instance
}

// perInterval is how many ages of the grid there are in an interval.
const perInterval = 10

// slight is the part by which checkpoints must waste less than none do.
const slight = 1e-6

// New computes the schedule for terms and a hazard. Compute it once for a set of terms: it takes tens of milliseconds, and
// for stalls of a second hundreds. jumps are ages at
// which the hazard changes abruptly, if it does; elsewhere it should change little within a tenth of an interval.
func New(t Terms, h Hazard, jumps ...time.Duration) (*Schedule, error) {
	if err := t.Check(); err != nil {
		return nil, fmt.Errorf("cadence: %w", err)
	}
	s := &Schedule{terms: t, from: t.Restart.Seconds()}
	at := make([]float64, len(jumps))
	for i, j := range jumps {
		at[i] = j.Seconds()
	}
	slices.Sort(at)
	rough, err := newLife(h, func(age float64) float64 { return age / 50 }, at)
	if err != nil {
		return nil, fmt.Errorf("cadence: %w", err)
	}
	s.life, err = newLife(h, func(age float64) float64 {
		return min(max(rough.wait(age, 2*t.priced()/t.rework()), t.least()), max(age/10, 600)) / perInterval
	}, at)
	if err != nil {
		return nil, fmt.Errorf("cadence: %w", err)
	}
	s.solve(at)
	return s, nil
}

// Interval is how long training goes on from a checkpoint at an age of the instance, or from the start of training, until the
// next one. worth is false if none is worth its stall before the instance ends.
func (s *Schedule) Interval(age time.Duration) (interval time.Duration, worth bool) {
	a, l := age.Seconds(), s.life
	i := l.cell(a)
	tau := s.interval[i]
	if i < l.last() && !math.IsInf(tau, 1) {
		// The age at which the next one begins changes little from one age of the grid to the next.
		part := (a - l.age[i]) / (l.age[i+1] - l.age[i])
		if next := s.interval[i+1]; !math.IsInf(next, 1) {
			tau += part * (next - tau)
		}
	}
	return duration(tau), !math.IsInf(tau, 1)
}

// Waste is what an instance is expected to waste in its life, in time of the instance that costs as much, and how long that
// life is on average.
func (s *Schedule) Waste() (waste, life time.Duration) {
	start := s.life.mark(s.from)
	v := start.lived + math.Exp(-start.risk)*s.at(s.from)
	return duration(v + s.terms.NoticeSuccess*s.terms.Final.Seconds()), duration(s.life.mean())
}

// solve fills in interval and value, from the end backwards.
func (s *Schedule) solve(jumps []float64) {
	l, t := s.life, s.terms
	n := l.last()
	s.interval, s.value = make([]float64, n+1), make([]float64, n+1)
	s.interval[n], s.value[n] = s.steady(l.rate[n])
	end := len(jumps)
	for i := n - 1; i >= 0; i-- {
		a := l.mark(l.age[i])
		best, least := math.Inf(1), s.never(a)*(1-slight)
		try := func(tau float64) {
			tau = t.bound(tau)
			if c := s.cost(i, a, tau); c < least {
				best, least = tau, c
			}
		}
		usual := l.wait(a.age, 2*t.priced()/t.rework())
		if math.IsInf(usual, 1) {
			usual = l.age[n] - a.age
		}
		for f := 1.0 / 8; f < 20; f *= 1.4 {
			try(usual * f)
		}
		if next := s.interval[i+1]; !math.IsInf(next, 1) {
			try(next + l.age[i+1] - a.age) // the same checkpoint as seen from the age after this one
		}
		// Just before the hazard jumps up.
		for end > 0 && jumps[end-1] > a.age+8*usual {
			end--
		}
		for _, j := range slices.Backward(jumps[:end]) {
			if j < a.age+t.Stall.Seconds() {
				break
			}
			try(j - t.Stall.Seconds() - a.age)
		}
		for step := 1.2; step > 1.003 && !math.IsInf(best, 1); step = math.Sqrt(step) {
			mid := best
			try(mid * step)
			try(mid / step)
		}
		if math.IsInf(best, 1) {
			least = s.never(a)
		}
		s.interval[i], s.value[i] = best, least
	}
}

// never is the expected waste from an age on without any further checkpoint.
func (s *Schedule) never(a mark) float64 {
	l := s.life
	n := l.last()
	begin := a
	if a.age > s.from { // what ends within the lag has lost more, which is a part of the cost of the checkpoint before
		begin = l.mark(a.age + s.terms.Lag.Seconds())
	}
	end := l.mark(max(l.age[n], begin.age))
	lost := a.loss(begin, end, a.age)
	if h := l.rate[n]; h > 0 {
		lost += a.survive(end) * (end.age - a.age + 1/h)
	}
	return s.terms.rework() * lost
}

// cost is the expected waste from an age of the grid on if the next checkpoint begins after tau, in seconds.
func (s *Schedule) cost(i int, a mark, tau float64) float64 {
	l, t := s.life, s.terms
	stall := t.Stall.Seconds()
	c := l.mark(a.age + tau)   // the stall begins
	b := l.mark(c.age + stall) // and ends
	begin, durable := a, b
	if lag := t.Lag.Seconds(); lag > 0 {
		durable = l.mark(b.age + lag)
		if a.age > s.from { // until then it is work from before a that would be lost
			begin = l.mark(a.age + lag)
		}
	}
	// What is lost is the work since a: up to c it grows, during the stall it stays, then it grows until b is durable.
	lost := a.loss(begin, c, a.age)
	if f := later(begin, c); f.age < b.age {
		lost += tau * (a.survive(f) - a.survive(b))
	}
	lost += a.loss(later(begin, b), durable, a.age+stall)
	out := t.rework()*lost + a.loss(c, b, c.age)
	live := a.survive(b)
	// Up to the next age V(b) lies between this V and the next one: V = out + live·(C + (1-part)·V + part·next).
	if next := l.age[i+1]; b.age < next {
		part := (b.age - a.age) / (next - a.age)
		return (out + live*(t.priced()+part*s.value[i+1])) / (1 - live*(1-part))
	}
	return out + live*(t.priced()+s.at(b.age))
}

func later(a, b mark) mark {
	if a.age > b.age {
		return a
	}
	return b
}

// at is V between ages of the grid.
func (s *Schedule) at(age float64) float64 {
	l := s.life
	i := l.cell(age)
	if i == l.last() {
		return s.value[i]
	}
	part := (age - l.age[i]) / (l.age[i+1] - l.age[i])
	return s.value[i] + part*(s.value[i+1]-s.value[i])
}

// steady is the interval and V under a hazard per second that stays as it is: the waste of an interval over the probability
// that it is the last one.
func (s *Schedule) steady(h float64) (tau, value float64) {
	t := s.terms
	w, stall, lag := t.rework(), t.Stall.Seconds(), t.Lag.Seconds()
	if h <= 0 {
		return t.bound(math.Inf(1)), 0
	}
	tau = t.bound(exact(t.priced(), 1/(h*w)))
	work, live := math.Exp(-h*tau), math.Exp(-h*(tau+stall)) // probabilities to get to the stall, and through it
	lost := (1-(1+h*tau)*work)/h + tau*(work-live)
	lost += tau * -math.Expm1(-h*lag) // the work before, while its checkpoint is not durable yet
	broken := work * (1 - (1+h*stall)*math.Exp(-h*stall)) / h
	value = (w*lost + broken + live*t.priced()) / (1 - live)
	if none := w / h; none*(1-slight) <= value {
		return math.Inf(1), none
	}
	return tau, value
}
