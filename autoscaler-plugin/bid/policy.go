package bid

import (
	"slices"
	"time"
)

// Policy is a learned strategy: a table of what to do by the market's price, the work and the slack that are left, the
// price of delay, and what an interruption costs. How long the price has been in its band, its usual level and the share of
// the past days that it was above on-demand were tried as further features; none of them lowered the cost on markets
// that were not learned from.
type Policy struct {
	Version  int      `json:"version"`
	Training Training `json:"training"`
	Features Features `json:"features"`
	// Bids are the maximum prices that the policy chooses from, ascending.
	Bids []float64 `json:"bids"`
	// Tables has one table for each price of delay, cost of an interruption, and place that the job is in, in this order.
	Tables []Table `json:"tables"`
}

// Features says how a situation is put into a table, its row and its column. All lists are ascending.
type Features struct {
	PriceEdges []float64 `json:"price_edges"` // rows: a price belongs to the first bin whose edge it does not exceed
	WorkHours  []float64 `json:"work_hours"`  // columns: the nearest to the work that is left counts
	SlackHours []float64 `json:"slack_hours"` // columns: the largest that is at most the slack counts
	// InterruptionHours are the changeover and the mean rework together; the nearest table counts.
	InterruptionHours []float64 `json:"interruption_hours"`
	// DelayPrices are what an hour until the job is done costs, in hours of on-demand; the nearest table counts.
	DelayPrices []float64 `json:"delay_prices"`
}

// Table is the part of a policy for one price of delay, cost of an interruption, and place.
type Table struct {
	DelayPrice        float64 `json:"delay_price"`
	InterruptionHours float64 `json:"interruption_hours"`
	OnDemand          bool    `json:"on_demand"` // the job runs on on-demand; else nowhere
	// Rows has a row for each bin of the price, in it a letter for each amount of work, and for each of these one for each
	// slack: w waits, o takes on-demand, a bids the first of the bids, b the second and so on.
	Rows []string `json:"rows"`
}

// Training says what a policy was learned from, so that it can be learned again, and how it did.
type Training struct {
	Source   string   `json:"source"` // "auctions", or the name of a file of prices
	Seed     uint64   `json:"seed"`
	Episodes int      `json:"episodes"` // price histories
	Days     float64  `json:"days"`     // of prices in all of them
	InSample []Result `json:"in_sample"`
	HeldOut  []Result `json:"held_out"`
}

// Version is the version of policies that this package writes, and the only one that it reads.
const Version = 1

// The letters of a row.
const (
	letterBid      = 'a' // the first bid
	letterOnDemand = 'o'
	letterWait     = 'w'
	maxBids        = letterOnDemand - letterBid
)

// bin is the index of the first edge that x does not exceed.
func bin(edges []float64, x float64) int {
	i, _ := slices.BinarySearch(edges, x)
	return i
}

// nearest is the index of the value nearest to x by ratio.
func nearest(values []float64, x float64) int {
	i, _ := slices.BinarySearch(values, x)
	switch {
	case i == 0:
		return 0
	case i == len(values), x*x < values[i]*values[i-1]:
		return i - 1
	}
	return i
}

// floor is the index of the largest value that is at most x; the first if there is none.
func floor(values []float64, x float64) int {
	i, found := slices.BinarySearch(values, x)
	if found {
		return i
	}
	return max(0, i-1)
}

// column of an amount of work and slack. A job that is longer than the table knows is taken for the longest, with a
// slack that is the same share of its work.
func (f Features) column(work, slack time.Duration) int {
	w, s := work.Hours(), slack.Hours()
	if longest := f.WorkHours[len(f.WorkHours)-1]; w > longest {
		s *= longest / w
	}
	return nearest(f.WorkHours, w)*len(f.SlackHours) + floor(f.SlackHours, s)
}

// table is the index of the table for a situation.
func (f Features) table(s Situation) int {
	cost := nearest(f.InterruptionHours, (s.Changeover + s.Rework).Hours())
	i := (nearest(f.DelayPrices, s.DelayPrice)*len(f.InterruptionHours) + cost) * 2
	if s.OnDemand {
		i++
	}
	return i
}

// Choose looks the situation up.
func (p *Policy) Choose(s Situation) Action {
	row := p.Tables[p.Features.table(s)].Rows[bin(p.Features.PriceEdges, s.Price)]
	return p.action(row[p.Features.column(s.Work, s.Slack)])
}

func (p *Policy) action(letter byte) Action {
	switch letter {
	case letterWait:
		return Action{Verb: Wait}
	case letterOnDemand:
		return Action{Verb: OnDemand}
	}
	return Action{Verb: Spot, Max: p.Bids[letter-letterBid]}
}
