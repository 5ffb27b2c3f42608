package cost

import (
	"math"
	"testing"
	"time"

	"github.com/shoenig/test/must"
	"pgregory.net/rapid"

	"nomad-spotter/autoscaler-plugin/market"
)

func TestRecord_alone(t *testing.T) {
	// a is taken at 3 h with its newest durable checkpoint of 2 h; b replaces it, is ready at 3.5 h and still runs at 6 h.
	// The price doubles at 4 h.
	price := market.Series{Points: []market.Point{{At: at(0), Value: 1}, {At: at(4), Value: 2}}}
	r := Record{
		Instances: []Instance{
			{ID: "a", Kind: Spot, Price: price, Launched: at(0), Ready: at(0.5), Ended: at(3), Interrupted: true},
			{ID: "b", Kind: Spot, Price: price, Launched: at(3), Ready: at(3.5), Replaces: "a"},
		},
		Checkpoints: []Checkpoint{
			{Instance: "a", At: at(2), Stall: 15 * time.Minute, Bytes: GiB, Stored: at(2.5), Writes: 10, Reads: 4, EgressBytes: GiB},
			{Instance: "a", At: at(2.75), Bytes: 5 * GiB, Stored: at(3.25)}, // durable too late, but kept all the same
			{Instance: "b", At: at(5), Stall: 30 * time.Minute, Bytes: GiB, Stored: at(5), Removed: at(5.5)},
			{Instance: "b", At: at(5.9), Bytes: 7 * GiB}, // not stored yet
		},
	}
	u := r.Usage(at(6))
	must.Eq(t, Bought{Hours: 1 + 0.5, Cost: 1.5}, u.Recovery.Spot) // 2..3 and 3..3.5; the stall at 2 was undone as well
	must.Eq(t, Bought{Hours: 0.5, Cost: 1}, u.Stall.Spot)
	must.Eq(t, Bought{Hours: 2 + 2, Cost: 2 + 0.5 + 3}, u.Work.Spot)
	must.Eq(t, 1, u.Interruptions)
	must.Eq(t, 4, u.OnDemandHours)
	must.Eq(t, Storage{ByteHours: (3.5 + 5*2.75 + 0.5) * GiB, Writes: 10, Reads: 4, EgressBytes: GiB}, u.Storage)

	// At 2.9 h nobody knows yet that anything is lost.
	u = r.Usage(at(2.9))
	must.Eq(t, 0, u.Interruptions)
	must.Eq(t, 0, u.Recovery.Total().Hours)
	must.InDelta(t, 0.25, u.Stall.Spot.Hours, 1e-9)
	must.InDelta(t, 2.65, u.Work.Spot.Hours, 1e-9)
}

func TestRecord_inStep(t *testing.T) {
	// Two train in step, the second is taken at 4 h; what replaces it is ready at 5 h. The newest checkpoint is of 3 h.
	price := Constant(1)
	r := Record{
		InStep: true,
		Instances: []Instance{
			{ID: "a", Kind: OnDemand, Price: Constant(3), Launched: at(0)},
			{ID: "b", Kind: Spot, Price: price, Launched: at(0), Ended: at(4), Interrupted: true},
			{ID: "c", Kind: Spot, Price: price, Launched: at(4.25), Ready: at(5), Replaces: "b"},
			{ID: "d", Kind: Spot, Price: price, Launched: at(0), Ended: at(2)}, // ended by itself, before
		},
		Checkpoints: []Checkpoint{{At: at(3), Stall: time.Hour / 10, Stored: at(3)}},
	}
	u := r.Usage(at(6))
	must.Eq(t, Bought{Hours: 2, Cost: 6}, u.Recovery.OnDemand)                // 3..5: undone, then waiting
	must.InDelta(t, 1+0.75, u.Recovery.Spot.Hours, 1e-9)                      // 3..4 of b, the start of c
	must.InDelta(t, 0, u.Stall.Total().Hours, 1e-9)                           // all in what was undone
	must.InDelta(t, 4+3+1+2, u.Work.Total().Hours, 1e-9)                      // of a, b, c, d
	must.InDelta(t, 12+3+1+2+6+1.75, Prices{OnDemand: 3}.Of(u).Total(), 1e-9) // every paid hour once
	must.InDelta(t, 1+0.5, r.Usage(at(4.5)).Recovery.OnDemand.Hours, 1e-9, must.Sprint("still waiting"))
}

func TestRecord_nothingDurable(t *testing.T) {
	r := Record{Instances: []Instance{{ID: "a", Kind: Spot, Price: Constant(1), Launched: at(0), Ended: at(4), Interrupted: true}}}
	b := Prices{Currency: "USD", OnDemand: 3}.Of(r.Usage(at(9)))
	must.Eq(t, 4, b.Recovery)
	must.Eq(t, 0, b.Compute)
	must.Eq(t, 4, b.Total())
	must.Eq(t, -4, b.Saved(), must.Sprint("no work lasted, so on demand would have cost nothing"))
}

// Whatever happened: each paid hour is counted once, as one thing, and the components are the bill.
func TestRecord_everyHourOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		hour := func(name string) time.Time { return at(rapid.Float64Range(0, 20).Draw(t, name)) }
		r := Record{InStep: rapid.Bool().Draw(t, "in step")}
		ids := []string{"a", "b", "c", "d"}
		for _, id := range ids {
			i := Instance{
				ID: id, Kind: rapid.SampledFrom([]Kind{Spot, OnDemand, Reserved}).Draw(t, "kind"),
				Price: market.Series{Points: []market.Point{
					{At: at(2), Value: 1}, {At: at(7), Value: math.NaN()}, {At: at(9), Value: 0.3},
				}},
				Launched: hour("launched"), Interrupted: rapid.Bool().Draw(t, "interrupted"),
				Replaces: rapid.SampledFrom(append(ids, "")).Draw(t, "replaces"),
			}
			if rapid.Bool().Draw(t, "is ready") {
				i.Ready = hour("ready")
			}
			if rapid.Bool().Draw(t, "has ended") {
				i.Ended = hour("ended")
			}
			r.Instances = append(r.Instances, i)
		}
		for range rapid.IntRange(0, 6).Draw(t, "checkpoints") {
			r.Checkpoints = append(r.Checkpoints, Checkpoint{
				Instance: rapid.SampledFrom(ids).Draw(t, "of"), At: hour("at"), Stored: hour("stored"), Bytes: 1,
				Stall: time.Duration(rapid.IntRange(0, 7200).Draw(t, "stall")) * time.Second,
			})
		}
		now := hour("now")
		u := r.Usage(now)
		var bill Bought
		for _, i := range r.Instances {
			bill.Add(i.Bought(now))
		}
		var sum Bought
		for _, h := range []Hours{u.Work, u.Stall, u.Recovery} {
			for _, b := range []Bought{h.Spot, h.OnDemand, h.Reserved} {
				must.GreaterEq(t, -1e-9, min(b.Hours, b.Cost, b.Unpriced))
				sum.Add(b)
			}
		}
		must.InDelta(t, bill.Hours, sum.Hours, 1e-9)
		must.InDelta(t, bill.Cost, sum.Cost, 1e-9)
		must.InDelta(t, bill.Unpriced, sum.Unpriced, 1e-9)
		must.InDelta(t, u.Work.Total().Hours, u.OnDemandHours, 1e-9)
	})
}
