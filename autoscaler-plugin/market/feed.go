package market

import (
	"errors"
	"fmt"
	"io"
	"math"
	"time"
)

// Change is one event of a market: from At on, one of its offerings is up or not, at a price.
type Change struct {
	At       time.Duration // since the start of the market
	Offering int           // index into the offerings that the market is made of
	Up       bool          // instances can be had and are left alone
	Price    float64       // $/h of one instance; NaN: not known
}

// Feed hands out the changes of a market in the order of their times, one by one, so that a market of any length needs
// little memory. At time 0 there is one for each offering. After the last it returns io.EOF.
type Feed interface {
	Next() (Change, error)
}

// Feed hands out the trace as the only offering of a market, at a price in $/h; NaN: not known. After its end the trace
// stands still.
func (t Trace) Feed(price float64) Feed {
	position := 0
	return feedFunc(func() (Change, error) {
		for ; position < len(t.Up); position++ {
			if position == 0 || t.Up[position] != t.Up[position-1] {
				c := Change{At: time.Duration(position) * t.Tick, Up: t.Up[position], Price: price}
				position++
				return c, nil
			}
		}
		return Change{}, io.EOF
	})
}

// Feed hands out the trace as the only offering of a market, at a price in $/h, as it is read. Its errors are those of
// Next.
func (t *TraceReader) Feed(price float64) Feed {
	first, last := true, false
	return feedFunc(func() (Change, error) {
		for {
			at := t.Position()
			up, err := t.Next()
			if err != nil {
				return Change{}, err
			}
			if first || up != last {
				first, last = false, up
				return Change{At: at, Up: up, Price: price}, nil
			}
		}
	})
}

// Feed hands out a series of prices as the only offering of a market that begins at start. It is up where its price is
// known, and down before its first point, in gaps and from its end on: nobody buys at a price that is not known. Points
// that change nothing are left out.
func (s Series) Feed(start time.Time) Feed {
	next := 0
	for next < len(s.Points) && !s.Points[next].At.After(start) {
		next++
	}
	change := func(at time.Time, value float64) Change {
		return Change{At: at.Sub(start), Up: !math.IsNaN(value), Price: value}
	}
	first := Change{Price: math.NaN()}
	if price, known := s.At(start); known {
		first = Change{Up: true, Price: price}
	}
	begun, ended := false, s.End.IsZero() || !s.End.After(start)
	last := first
	return feedFunc(func() (Change, error) {
		if !begun {
			begun = true
			return first, nil
		}
		for {
			var c Change
			switch {
			case next < len(s.Points) && (s.End.IsZero() || s.Points[next].At.Before(s.End)):
				c = change(s.Points[next].At, s.Points[next].Value)
				next++
			case !ended:
				ended = true
				c = change(s.End, math.NaN())
			default:
				return Change{}, io.EOF
			}
			if c.Up != last.Up || c.Up && c.Price != last.Price {
				last = c
				return c, nil
			}
		}
	})
}

// Merge makes one market of several with an offering each: offering i of the merged market is that of feeds[i]. At one
// time the changes come in the order of the offerings.
func Merge(feeds ...Feed) Feed {
	heads := make([]Change, 0, len(feeds)) // a heap of the next change of each feed, the first in time on top
	before := func(i, j int) bool {
		return heads[i].At < heads[j].At || heads[i].At == heads[j].At && heads[i].Offering < heads[j].Offering
	}
	down := func(i int) {
		for {
			least := i
			for child := 2*i + 1; child <= 2*i+2 && child < len(heads); child++ {
				if before(child, least) {
					least = child
				}
			}
			if least == i {
				return
			}
			heads[i], heads[least] = heads[least], heads[i]
			i = least
		}
	}
	begun := false
	return feedFunc(func() (Change, error) {
		if !begun {
			begun = true
			for i, f := range feeds {
				c, err := f.Next()
				if errors.Is(err, io.EOF) {
					continue
				}
				if err != nil {
					return Change{}, fmt.Errorf("offering %d: %w", i, err)
				}
				c.Offering = i
				heads = append(heads, c)
			}
			for i := len(heads)/2 - 1; i >= 0; i-- {
				down(i)
			}
		}
		if len(heads) == 0 {
			return Change{}, io.EOF
		}
		top := heads[0]
		c, err := feeds[top.Offering].Next()
		switch {
		case errors.Is(err, io.EOF):
			heads[0] = heads[len(heads)-1]
			heads = heads[:len(heads)-1]
		case err != nil:
			return Change{}, fmt.Errorf("offering %d: %w", top.Offering, err)
		default:
			c.Offering = top.Offering
			heads[0] = c
		}
		down(0)
		return top, nil
	})
}

// Priced takes whether offerings are up from one market and their prices from another with the same offerings. An
// offering without a known price is down.
func Priced(availability, prices Feed) Feed {
	type state struct {
		up    bool
		price float64
	}
	var states []state
	sources := [2]Feed{availability, prices}
	var heads [2]*Change
	var pending []Change // changes at time 0, which wait until both markets have told theirs
	begun := false
	fill := func(i int) error {
		if sources[i] == nil || heads[i] != nil {
			return nil
		}
		c, err := sources[i].Next()
		if errors.Is(err, io.EOF) {
			sources[i] = nil
			return nil
		}
		if err != nil {
			return err
		}
		heads[i] = &c
		return nil
	}
	// step applies the next change of either market; false means that it changed nothing.
	step := func() (Change, bool, error) {
		for i := range sources {
			if err := fill(i); err != nil {
				return Change{}, false, err
			}
		}
		i := 0
		if heads[0] == nil || heads[1] != nil && heads[1].At < heads[0].At {
			i = 1
		}
		if heads[i] == nil {
			return Change{}, false, io.EOF
		}
		c := *heads[i]
		heads[i] = nil
		for c.Offering >= len(states) {
			states = append(states, state{price: math.NaN()})
		}
		s := &states[c.Offering]
		was := *s
		if i == 0 {
			s.up = c.Up
		} else {
			s.price = c.Price
		}
		known := !math.IsNaN(s.price)
		changed := s.up != was.up || known != !math.IsNaN(was.price) || known && s.price != was.price
		return Change{At: c.At, Offering: c.Offering, Up: s.up && known, Price: s.price}, changed, nil
	}
	return feedFunc(func() (Change, error) {
		if !begun {
			begun = true
			for {
				for i := range sources {
					if err := fill(i); err != nil {
						return Change{}, err
					}
				}
				if (heads[0] == nil || heads[0].At > 0) && (heads[1] == nil || heads[1].At > 0) {
					break
				}
				if _, _, err := step(); err != nil {
					return Change{}, err
				}
			}
			for i, s := range states {
				pending = append(pending, Change{Offering: i, Up: s.up && !math.IsNaN(s.price), Price: s.price})
			}
		}
		if len(pending) > 0 {
			c := pending[0]
			pending = pending[1:]
			return c, nil
		}
		for {
			if c, changed, err := step(); err != nil || changed {
				return c, err
			}
		}
	})
}

// Until ends a market at a time: changes from then on are left out.
func Until(f Feed, end time.Duration) Feed {
	done := false
	return feedFunc(func() (Change, error) {
		if done {
			return Change{}, io.EOF
		}
		c, err := f.Next()
		if err == nil && c.At >= end {
			done = true
			return Change{}, io.EOF
		}
		return c, err
	})
}

// feedFunc is a feed that is a function.
type feedFunc func() (Change, error)

// Next calls the function.
func (f feedFunc) Next() (Change, error) { return f() }
