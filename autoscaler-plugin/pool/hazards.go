package pool

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"nomad-spotter/autoscaler-plugin/cloud"
	"nomad-spotter/autoscaler-plugin/hazard"
	"nomad-spotter/autoscaler-plugin/market"
)

// hazards is what the pool knows of how long spot instances live: a book that begins with what the pool file says of
// them, and learns from the records of the pool's instances, and from refusals. The book is not stored: after a restart
// the records tell it again, and what was refused has faded soon anyway.
type hazards struct {
	book    hazard.Book
	horizon time.Duration
	told    map[string]told // by instance
	full    map[string]bool // offerings of which nothing can be had, as their provider said last
}

// told is what of an instance's life is in the book.
type told struct {
	to     time.Duration // up to which age
	whole  bool          // to its end
	listed time.Time     // when its provider listed it last
}

// tellEvery is the least part of a life that the book is told of while an instance lives.
const tellEvery = 10 * time.Minute

func newHazards(c Config) (*hazards, error) {
	book, err := hazard.NewBook(hazard.Defaults())
	if err != nil {
		return nil, err
	}
	for _, o := range c.Offerings {
		if o.MeanLifetime == 0 {
			continue
		}
		// A level l shortens the mean of a Weibull distribution to l^(-1/shape) of what it was.
		base := book.Params.Base
		if book, err = book.SetPrior(keyOf(o), math.Pow(float64(base.Mean())/float64(o.MeanLifetime), base.Shape)); err != nil {
			return nil, fmt.Errorf("offering %q: %w", o.Name, err)
		}
	}
	return &hazards{book: book, horizon: c.Horizon, told: map[string]told{}, full: map[string]bool{}}, nil
}

func keyOf(o cloud.Offering) market.Key {
	return market.Key{Provider: o.Provider, Region: o.Region, Zone: o.Zone, Type: o.Type}
}

// mean is the hazard in interruptions per hour that an instance is expected to have over the pool's horizon from its age
// on.
func (h *hazards) mean(o cloud.Offering, age time.Duration, now time.Time) float64 {
	if o.Kind == cloud.OnDemand {
		return 0
	}
	const least = 1e-300 // of a probability that would be 0
	return -math.Log(max(least, h.book.Survival(keyOf(o), age, h.horizon, now))) / h.horizon.Hours()
}

// lives takes up how long the instances have lived and how they ended.
func (h *hazards) lives(c Config, instances []cloud.Instance, now time.Time) error {
	var events []hazard.Event
	for _, i := range instances {
		if i.Kind == cloud.Spot && !i.LaunchedAt.IsZero() { // else it has no age yet
			events = append(events, h.life(c, i, now)...)
		}
	}
	// In the order of their times, so that each hour is seen with the trouble of its time.
	slices.SortStableFunc(events, func(a, b hazard.Event) int {
		return cmp.Or(a.At.Compare(b.At), a.Key.Compare(b.Key), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.From, b.From))
	})
	for _, e := range events {
		book, err := h.book.Observe(e)
		if err != nil {
			return err
		}
		h.book = book
	}
	maps.DeleteFunc(h.told, func(_ string, t told) bool { return now.Sub(t.listed) > unlisted })
	return nil
}

// life is the part of an instance's life that the book has not been told.
func (h *hazards) life(c Config, i cloud.Instance, now time.Time) []hazard.Event {
	end, kind := now, hazard.Held
	at, interrupted := interruptedAt(i)
	switch {
	case interrupted:
		end, kind = at, hazard.Reclaimed
	case i.State == cloud.Gone:
		end = i.EndedAt
	}
	known, to := h.told[i.ID], max(0, end.Sub(i.LaunchedAt))
	known.listed = now
	over := interrupted || i.State == cloud.Gone
	if known.whole || !over && to-known.to < tellEvery {
		h.told[i.ID] = known
		return nil
	}
	from := min(known.to, to) // where the clock went back
	h.told[i.ID] = told{to: to, whole: over, listed: now}
	// A long life is told in parts that get longer, as the hazard falls ever more slowly.
	var events []hazard.Event
	for key := keyOf(offeringOf(c, i)); ; {
		part := hazard.Event{Key: key, Kind: hazard.Held, From: from, To: min(to, max(2*from, from+tellEvery))}
		part.At = i.LaunchedAt.Add(part.To)
		if part.To == to {
			part.Kind = kind
			return append(events, part)
		}
		events = append(events, part)
		from = part.To
	}
}

// refused takes up that an offering had no capacity.
func (h *hazards) refused(o cloud.Offering, now time.Time) error {
	if o.Kind == cloud.OnDemand {
		return nil
	}
	book, err := h.book.Observe(hazard.Event{At: now, Key: keyOf(o), Kind: hazard.Refused})
	if err == nil {
		h.book = book
	}
	return err
}

// available takes up what the provider says: once for each time that nothing can be had any more.
func (h *hazards) available(o cloud.Offering, available bool, now time.Time) error {
	was := h.full[o.Name]
	h.full[o.Name] = !available
	if was || available {
		return nil
	}
	return h.refused(o, now)
}
