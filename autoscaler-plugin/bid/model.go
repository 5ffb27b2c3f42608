package bid

import "time"

// step is the time between two decisions in the model that a policy is learned from.
const step = 15 * time.Minute

const ticksPerStep = int(step / Tick)

// model is a Markov chain of the prices of a market, in bins,, counted in price histories.
type model struct {
	seen []int         // the bins that were seen
	to   [][]successor // by bin
	paid [][]float64   // by bid and bin: mean price of a step, nothing being paid once the price exceeds the bid
}

// successor is a bin that follows another after a step.
type successor struct {
	bin  int
	keep []float64 // by place: share of all steps that lead there, and in which the job keeps its place
	lose []float64 // by place: share in which the price exceeds the bid on the way
}

// newModel counts what follows what in the histories.
func newModel(histories []*History, edges, bids []float64) *model {
	n := len(edges) + 1
	c := counter{bids: bids, from: make([]float64, n), pairs: make([]map[int]*pair, n), paid: make([][]float64, len(bids))}
	for b := range bids {
		c.paid[b] = make([]float64, n)
	}
	for _, h := range histories {
		for i, known := range h.known {
			if known > ticksPerStep {
				c.count(bin(edges, h.prices[i]), bin(edges, h.prices[i+ticksPerStep]), h.prices[i:i+ticksPerStep+1])
			}
		}
	}
	return c.model()
}

// counter counts steps.
type counter struct {
	bids  []float64
	from  []float64       // by bin: steps from it
	pairs []map[int]*pair // by bin and successor
	paid  [][]float64     // by bid and bin: sum of the prices paid
}

type pair struct {
	n    float64
	lost []float64 // by bid
}

// count takes up one step with the prices at its ticks, that at its end included.
func (c *counter) count(from, to int, prices []float64) {
	if c.pairs[from] == nil {
		c.pairs[from] = map[int]*pair{}
	}
	p := c.pairs[from][to]
	if p == nil {
		p = &pair{lost: make([]float64, len(c.bids))}
		c.pairs[from][to] = p
	}
	p.n++
	c.from[from]++
	for b, bid := range c.bids {
		for i, price := range prices {
			if price > bid {
				p.lost[b]++
				break
			}
			if i < ticksPerStep {
				c.paid[b][from] += price / float64(ticksPerStep)
			}
		}
	}
}

func (c *counter) model() *model {
	m := &model{to: make([][]successor, len(c.from)), paid: c.paid}
	for from, n := range c.from {
		if n == 0 {
			continue
		}
		m.seen = append(m.seen, from)
		for b := range c.bids {
			m.paid[b][from] /= n
		}
		for to := range c.from { // in order, so that sums come out the same every time
			p := c.pairs[from][to]
			if p == nil || c.from[to] == 0 { // nothing is known of what follows the last price of all
				continue
			}
			s := successor{bin: to, keep: make([]float64, spot+len(c.bids)), lose: make([]float64, spot+len(c.bids))}
			for place := range s.keep {
				if place >= spot {
					s.lose[place] = p.lost[place-spot] / n
				}
				s.keep[place] = p.n/n - s.lose[place]
			}
			m.to[from] = append(m.to[from], s)
		}
	}
	return m
}
