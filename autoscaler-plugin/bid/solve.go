package bid

import (
	"math"
	"slices"
)

// problem is what a job's interruptions and its delay cost.
type problem struct {
	changeover float64 // h
	rework     float64 // h, mean work lost with an instance; twice that is lost at worst
	delay      float64 // price of an hour until the job is done, as a multiple of an hour of on-demand
}

// The places that a job is in; on spot with bid b it is in place spot+b.
const (
	nowhere = iota
	onDemand
	spot
)

// solver finds what is best to do in every state of the model by backward induction: exact policy iteration, which needs
// one sweep since the time that is left never grows. A state is the bin of the price, the place of the job, the work r and
// the slack s in steps; r+s, the time to the deadline, falls by one with every step, and states of one sum form a diagonal.
// Values between two states of a diagonal are interpolated, so that changeovers and rework need not be whole steps.
type solver struct {
	*model
	problem
	bids  []float64
	most  int       // work and slack in steps up to which the model is solved
	tops  []float64 // by bin: its highest price
	n     int       // bins
	hours float64   // of a step
	// ahead[i] has the expected values one step before the diagonal i ago: by r, bin and place.
	ahead [][][][]float64
}

func newSolver(m *model, f Features, bids []float64, p problem) *solver {
	s := &solver{
		model: m, problem: p, bids: bids, n: len(m.to), hours: step.Hours(), tops: append(slices.Clone(f.PriceEdges), math.Inf(1)),
		most: int(math.Ceil(max(slices.Max(f.WorkHours), slices.Max(f.SlackHours)) / step.Hours())),
	}
	s.ahead = make([][][][]float64, 2+int(p.changeover/s.hours))
	for i := range s.ahead {
		s.ahead[i] = s.diagonal()
	}
	return s
}

func (s *solver) diagonal() [][][]float64 {
	d := make([][][]float64, s.most+1)
	for r := range d {
		d[r] = make([][]float64, s.n)
		for x := range d[r] {
			d[r][x] = make([]float64, spot+len(s.bids))
		}
	}
	return d
}

// value is the expected value of being in a place with r work, back steps from now, one step before the price is known.
func (s *solver) value(sum, back, r, place, x int) float64 {
	if r <= 0 {
		return 0
	}
	near, late := s.clamp(r, sum-back)
	return s.ahead[back-1][near][x][place] + late
}

// clamp brings an amount of work on the diagonal of a sum to where it is solved: at most what is solved, and no more than is
// done in time by on-demand; what is more is done late, at the cost that it returns.
func (s *solver) clamp(r, sum int) (near int, late float64) {
	late = max(0, float64(r-sum)) * s.hours * (1 + s.delay)
	return max(min(r, sum, s.most), sum-s.most, 1), late
}

// enter is the cost of moving to an instance at a mean price, and what follows.
func (s *solver) enter(sum, r, place, x int, price float64) float64 {
	whole := math.Floor(s.changeover / s.hours)
	part := s.changeover/s.hours - whole
	back := 1 + int(whole)
	if back >= sum {
		return float64(r)*s.hours*(price+s.delay) + s.changeover*(price+s.delay)
	}
	return s.hours*float64(back)*(price+s.delay) +
		(1-part)*s.value(sum, back, r-1, place, x) + part*s.value(sum, back, r, place, x)
}

// best is the best choice of a job that is not on spot: wait, on-demand, or spot with bid b as spot+b.
func (s *solver) best(sum, r, place, x int) (choice int, cost float64) {
	stay := s.enter(sum, r, onDemand, x, 1)
	if place == onDemand {
		stay = s.hours*(1+s.delay) + s.value(sum, 1, r-1, onDemand, x)
	}
	choice, cost = onDemand, stay
	if float64(sum-r-1)*s.hours < s.changeover {
		return choice, cost
	}
	if wait := s.hours*s.delay + s.value(sum, 1, r, nowhere, x); wait < cost {
		choice, cost = nowhere, wait
	}
	for b, bid := range s.bids {
		if bid < s.tops[x] {
			continue
		}
		if c := s.enter(sum, r, spot+b, x, s.paid[b][x]); c < cost {
			choice, cost = spot+b, c
		}
	}
	return choice, cost
}

// keep is the value of being on spot with a bid that the price does not exceed.
func (s *solver) keep(sum, r, b, x int) float64 {
	if r > 1 && float64(sum-r)*s.hours < s.changeover+2*s.rework { // the deadline is at stake
		return s.enter(sum, r, onDemand, x, 1)
	}
	return s.hours*(s.paid[b][x]+s.delay) + s.value(sum, 1, r-1, spot+b, x)
}

// solve calls visit with the best choice, and its cost, in each state in which the job is not on spot.
func (s *solver) solve(visit func(r, slack, place, x, choice int, cost float64)) {
	now := s.diagonal()
	for sum := 1; sum <= 2*s.most; sum++ {
		low, high := max(1, sum-s.most), min(s.most, sum)
		for r := low; r <= high; r++ {
			for _, x := range s.seen {
				for place := nowhere; place <= onDemand; place++ {
					choice, cost := s.best(sum, r, place, x)
					now[r][x][place] = cost
					visit(r, sum-r, place, x, choice, cost)
				}
				for b := range s.bids {
					now[r][x][spot+b] = s.keep(sum, r, b, x)
				}
			}
		}
		s.expect(now, sum, low, high)
	}
}

// expect takes the expectation of a diagonal's values over what a step may bring, and makes it the nearest one ahead. An
// instance that is lost has worked for half of the step.
func (s *solver) expect(now [][][]float64, sum, low, high int) {
	last := len(s.ahead) - 1
	next := s.ahead[last]
	copy(s.ahead[1:], s.ahead[:last])
	s.ahead[0] = next
	back := 0.5 + s.rework/s.hours
	whole := math.Floor(back)
	part := back - whole
	for r := low; r <= high; r++ {
		a, lateA := s.clamp(r+int(whole), sum)
		b, lateB := s.clamp(r+int(whole)+1, sum)
		near, far := now[a], now[b]
		late := (1-part)*lateA + part*lateB
		for _, x := range s.seen {
			total := next[r][x]
			clear(total)
			for _, to := range s.to[x] {
				lost := (1-part)*near[to.bin][nowhere] + part*far[to.bin][nowhere] + late
				values := now[r][to.bin][:len(total)]
				keep, lose := to.keep[:len(total)], to.lose[:len(total)]
				for place := range total {
					total[place] += keep[place]*values[place] + lose[place]*lost
				}
			}
		}
	}
}
