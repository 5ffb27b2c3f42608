package object

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// First and longest wait between two attempts, as parts of the time-out: 0.1 s and 5 s with the default of 30 s. Each wait
// is drawn between half the step and the step, and the step doubles: eight attempts spread over 6 to 12 seconds.
const (
	firstPart = 300
	longPart  = 6
)

// slowest is the slowest upload that is waited for, in bytes per second; one that is slower runs into its time-out.
const slowest = 128 << 10

// errSilent ends what waits for a store that says nothing.
var errSilent = errors.New("the store does not answer in time")

// wait returns how long to wait after the attempt of that number, counted from 1; share is between 0 and 1.
func wait(timeout time.Duration, attempt int, share float64) time.Duration {
	step := timeout / longPart
	if attempt < 10 {
		step = min(step, timeout/firstPart<<(attempt-1))
	}
	return step/2 + time.Duration(share*float64(step/2))
}

// pause waits after a failed attempt, or returns the context's error if that comes first.
func (s *Store) pause(ctx context.Context, attempt int) error {
	t := time.NewTimer(wait(s.timeout, attempt, rand.Float64()))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// retry calls op until it does not fail with something that may pass, at most as often as configured. op gets a context
// that ends after limit. An error after the last attempt says how many there were.
func (s *Store) retry(ctx context.Context, limit time.Duration, op func(ctx context.Context) error) error {
	for attempt := 1; ; attempt++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := s.once(ctx, limit, op)
		if err == nil || ctx.Err() != nil || s.kindOf(err) != transient {
			return errors.Join(err, ctx.Err())
		}
		if attempt >= s.attempts {
			return fmt.Errorf("after %d attempts: %w", attempt, err)
		}
		if err := s.pause(ctx, attempt); err != nil {
			return err
		}
	}
}

// once calls op with a context that ends after limit. The end of that context, but not of its parent, is errSilent.
func (s *Store) once(ctx context.Context, limit time.Duration, op func(ctx context.Context) error) error {
	limited, cancel := context.WithTimeoutCause(ctx, limit, errSilent)
	defer cancel()
	err := op(limited)
	if err != nil && ctx.Err() == nil && errors.Is(context.Cause(limited), errSilent) {
		return fmt.Errorf("%w (%v): %v", errSilent, limit, err) //nolint:errorlint // the context's error would read as the caller's
	}
	return err
}
