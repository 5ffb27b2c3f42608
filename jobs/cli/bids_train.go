package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"nomad-spotter/autoscaler-plugin/bid"
	"nomad-spotter/autoscaler-plugin/forecast"
	"nomad-spotter/autoscaler-plugin/market"
)

// BidTraining says what a policy of bids is learned from and judged by.
type BidTraining struct {
	Prices   string                    // file of recorded prices; empty: auctions
	OnDemand PriceList                 // for instance types whose on-demand price is not known
	Seed     uint64                    // of the auctions and the jobs
	Episodes int                       // auctions to learn from
	HeldOut  int                       // auctions to judge by
	Days     int                       // length of an auction
	Jobs     int                       // in each history to judge by
	Learn    func(market.Auction) bool // which auctions to learn from; nil: all
	Judge    func(market.Auction) bool // which auctions to judge by; nil: all
}

func (t BidTraining) validate() error {
	var faults []error
	for _, f := range []struct {
		name           string
		value, low, up int
	}{
		{"episodes", t.Episodes, 1, 10_000}, {"held-out", t.HeldOut, 0, 10_000}, {"days", t.Days, 5, 3650}, {"jobs", t.Jobs, 0, 10_000},
	} {
		if f.value < f.low || f.value > f.up {
			faults = append(faults, fmt.Errorf("--%s: %d is outside %d to %d", f.name, f.value, f.low, f.up))
		}
	}
	return errors.Join(faults...)
}

// PriceList is a flag of prices in $/h by instance type, such as g2.2xlarge=0.65,g2.8xlarge=2.60.
type PriceList map[string]float64

// String is the list as it is given.
func (l *PriceList) String() string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(*l)) {
		all = append(all, fmt.Sprintf("%s=%g", name, (*l)[name]))
	}
	return strings.Join(all, ",")
}

// Type is the name of the flag's type.
func (*PriceList) Type() string { return "TYPE=PRICE,…" }

// Set adds the prices of a list.
func (l *PriceList) Set(text string) error {
	for s := range strings.SplitSeq(text, ",") {
		name, price, _ := strings.Cut(s, "=")
		v, err := strconv.ParseFloat(price, 64)
		if name == "" || err != nil || math.IsNaN(v) || math.IsInf(v, 0) || v <= 0 {
			return fmt.Errorf("%q is no type with a price above 0; write it like g2.2xlarge=0.65", s)
		}
		if *l == nil {
			*l = PriceList{}
		}
		(*l)[name] = v
	}
	return nil
}

// Of is the on-demand price of an offering: of the list, else of the file, else the list price of AWS; NaN: not known.
func (l PriceList) Of(key market.Key, prices market.Prices) float64 {
	if v, ok := l[key.Type]; ok {
		return v
	}
	for _, s := range prices.OnDemand {
		if s.Key == key && len(s.Points) > 0 {
			return s.Points[0].Value
		}
	}
	return forecast.ListPrice(key)
}

// errNoBid is the error of prices on which bids cannot be learned.
var errNoBid = errors.New("no policy is written: on these prices a bid changes nothing; let requests be capped at on-demand")

// TrainBids learns a policy and judges it in sample and held out. Progress is drawn on a terminal.
func TrainBids(ctx context.Context, t BidTraining, stderr io.Writer) (*bid.Policy, error) {
	learn, judge, source := auctionHistories(t)
	if t.Prices != "" {
		var err error
		if learn, judge, err = recordedHistories(t); err != nil {
			return nil, err
		}
		source = filepath.Base(t.Prices)
	}
	known := learn[:min(len(learn), max(len(judge), 1))]
	const parts = 100 // of the bar: the learning as much as all judging
	total := parts + len(known) + len(judge)
	progress := bar(stderr, int64(total), "bids")
	defer progress.Finish() //nolint:errcheck // a bar that is not drawn harms nothing
	policy, err := bid.Learn(learn, func(done, of int) bool {
		_ = progress.Set(done * parts / of)
		return ctx.Err() == nil
	})
	if err != nil {
		return nil, errors.Join(err, ctx.Err())
	}
	policy.Training.Source, policy.Training.Seed = source, t.Seed
	for _, part := range []struct {
		histories []*bid.History
		stream    uint64
		results   *[]bid.Result
	}{{known, 0, &policy.Training.InSample}, {judge, heldOut, &policy.Training.HeldOut}} {
		c := bid.NewContest(policy)
		for i, h := range part.histories {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			c.Add(h, bid.Trials(h, t.Jobs, rand.New(rand.NewPCG(^t.Seed, part.stream+uint64(i)))))
			_ = progress.Add(1)
		}
		*part.results = append([]bid.Result{}, c.Results(t.Seed)...) // a list, also where nothing was judged
	}
	return policy, nil
}

// heldOut is the first random stream of what is held out: its markets have other parameters and other prices.
const heldOut = 1 << 32

func auctionHistories(t BidTraining) (learn, judge []*bid.History, source string) {
	start := time.Date(2016, 1, 1, 0, 0, 0, 0, time.UTC)
	draw := func(n int, stream uint64, take func(market.Auction) bool) []*bid.History {
		var histories []*bid.History
		for i := stream; len(histories) < n; i++ {
			r := rand.New(rand.NewPCG(t.Seed, i))
			a := market.DrawAuction(r)
			if take != nil && !take(a) {
				continue
			}
			h, err := bid.NewHistory(a.Prices(r.Uint64(), start, time.Duration(t.Days)*24*time.Hour), a.OnDemand)
			if err != nil {
				panic(err) // the generator makes valid series
			}
			histories = append(histories, h)
		}
		return histories
	}
	if t.Prices != "" {
		return nil, nil, ""
	}
	return draw(t.Episodes, 0, t.Learn), draw(t.HeldOut, heldOut, t.Judge), "generated auctions"
}

// recordedHistories are the first two thirds of each series of a file, and their last thirds. Series on which a bid
// changes nothing are left out; if it changes nothing on any, that is the error.
func recordedHistories(t BidTraining) (learn, judge []*bid.History, err error) {
	prices, err := readPrices(t.Prices)
	if err != nil {
		return nil, nil, err
	}
	var faults, reasons []error
	most, which := math.NaN(), ""
	for _, s := range prices.Spot {
		od := t.OnDemand.Of(s.Key, prices)
		v := bid.Matters(s, od)
		if !v.Matters {
			if which == "" || math.IsNaN(most) || v.Waiting > most {
				most, which = v.Waiting, s.Key.String()+": "+v.Reason
			}
			continue
		}
		if math.IsNaN(od) {
			faults = append(faults, fmt.Errorf("--on-demand: the price of %s is not known; give it like %s=0.65", s.Key.Type, s.Key.Type))
			continue
		}
		split := s.Points[0].At.Add(s.End.Sub(s.Points[0].At) * 2 / 3)
		for i, part := range []market.Series{cut(s, s.Points[0].At, split), cut(s, split, s.End)} {
			h, err := bid.NewHistory(part, od)
			switch {
			case err != nil:
				reasons = append(reasons, err)
			case i == 0:
				learn = append(learn, h)
			default:
				judge = append(judge, h)
			}
		}
	}
	switch {
	case len(faults) > 0:
		slices.SortFunc(faults, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
		return nil, nil, errors.Join(slices.CompactFunc(faults, func(a, b error) bool { return a.Error() == b.Error() })...)
	case len(learn) == 0 && len(reasons) == 0:
		return nil, nil, fmt.Errorf("%s: %w\nnone of %d series crosses a bid that matters; most could be gained at %s",
			t.Prices, errNoBid, len(prices.Spot), which)
	case len(learn) == 0:
		return nil, nil, errors.Join(reasons...)
	}
	return learn, judge, nil
}

// cut is the part of a series from one time up to another.
func cut(s market.Series, from, to time.Time) market.Series {
	part := market.Series{Key: s.Key, End: to}
	if v, known := s.At(from); known {
		part.Points = append(part.Points, market.Point{At: from, Value: v})
	}
	for _, p := range s.Points {
		if p.At.After(from) && p.At.Before(to) {
			part.Points = append(part.Points, p)
		}
	}
	return part
}
