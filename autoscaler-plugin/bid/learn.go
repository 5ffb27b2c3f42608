package bid

import (
	"errors"
	"time"
)

// standard are the features of the policies that are learned.
var standard = Features{
	PriceEdges:        []float64{0.12, 0.16, 0.22, 0.3, 0.4, 0.55, 0.75, 1, 1.3, 1.7, 2.5, 5, 10},
	WorkHours:         []float64{0.5, 1, 2, 4, 8, 16, 24, 36, 48},
	SlackHours:        []float64{0.25, 0.5, 0.75, 1, 1.5, 2, 3, 4, 6, 8, 12, 16, 24, 36, 48},
	InterruptionHours: []float64{0.1, 0.3, 0.8},
	DelayPrices:       []float64{0.1, 0.3, 0.6, 0.75, 1, 3, 15, 100},
}

// standardBids are edges of the prices' bins, so that a bin is below a bid or above it.
var standardBids = []float64{0.22, 0.3, 0.4, 0.55, 0.75, 1, 1.3, 1.7, 2.5, 5, 10}

// ErrStopped is the error of learning that was ended before it was done.
var ErrStopped = errors.New("learn: stopped")

// Learn makes a policy from price histories: it counts which prices follow which, and solves the Markov decision process
// of a job in such a market, for each price of delay and cost of an interruption. The same histories give the same policy.
// It calls progress after each of total parts; false ends it with ErrStopped. The caller adds where the histories come from.
func Learn(histories []*History, progress func(done, total int) bool) (*Policy, error) {
	return learn(histories, standard, standardBids, progress)
}

func learn(histories []*History, f Features, bids []float64, progress func(done, total int) bool) (*Policy, error) {
	m := newModel(histories, f.PriceEdges, bids)
	if len(m.seen) == 0 {
		return nil, errors.New("learn: no prices; give at least one history of some days")
	}
	p := &Policy{Version: Version, Features: f, Bids: bids}
	p.Training.Episodes = len(histories)
	for _, h := range histories {
		p.Training.Days += h.Length().Hours() / 24
	}
	for _, delay := range f.DelayPrices {
		for _, hours := range f.InterruptionHours {
			s := newSolver(m, f, bids, problem{changeover: hours / 2, rework: hours / 2, delay: delay})
			for place, rows := range tabulate(s, f) {
				t := Table{DelayPrice: delay, InterruptionHours: hours, OnDemand: place == onDemand}
				for _, row := range rows {
					t.Rows = append(t.Rows, string(row))
				}
				p.Tables = append(p.Tables, t)
			}
			if !progress(len(p.Tables)/2, len(f.DelayPrices)*len(f.InterruptionHours)) {
				return nil, ErrStopped
			}
		}
	}
	return p, nil
}

// tabulate solves a problem and keeps what is best at the work and slack of the features: by place and bin.
func tabulate(s *solver, f Features) [2][][]byte {
	var rows [2][][]byte
	for place := range rows {
		for range s.n {
			rows[place] = append(rows[place], make([]byte, len(f.WorkHours)*len(f.SlackHours)))
		}
	}
	work, slack := steps(f.WorkHours), steps(f.SlackHours)
	s.solve(func(r, free, place, x, choice int, _ float64) {
		i, isWork := work[r]
		j, isSlack := slack[free]
		if isWork && isSlack {
			rows[place][x][i*len(f.SlackHours)+j] = letter(choice)
		}
	})
	for place := range rows { // prices that were never seen are as the nearest that were
		for x := range rows[place] {
			best := s.seen[0]
			for _, y := range s.seen {
				if max(x-y, y-x) < max(x-best, best-x) {
					best = y
				}
			}
			copy(rows[place][x], rows[place][best])
		}
	}
	return rows
}

// steps are those that lists of hours stand for, with their places in the lists.
func steps(hours []float64) map[int]int {
	at := map[int]int{}
	for i, h := range hours {
		at[int(h*float64(time.Hour)/float64(step))] = i
	}
	return at
}

func letter(choice int) byte {
	switch choice {
	case nowhere:
		return letterWait
	case onDemand:
		return letterOnDemand
	}
	return letterBid + byte(choice-spot)
}
