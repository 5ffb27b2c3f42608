package storetest_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-spotter/checkpointer/store"
	"nomad-spotter/checkpointer/store/storetest"
)

var errBroken = errors.New("broken")

func read(s store.Store, key string) (string, error) {
	r, err := s.Get(context.Background(), key)
	if err != nil {
		return "", err
	}
	b, err := io.ReadAll(r)
	return string(b), errors.Join(err, r.Close())
}

func TestFaulty(t *testing.T) {
	for _, c := range []struct {
		name           string
		fault          storetest.Fault
		putErr, getErr error
		stored, read   string // stored: what the inner store has after the put
	}{
		{name: "no fault", fault: storetest.Fault{Op: storetest.Delete, Err: errBroken}, stored: "content", read: "content"},
		{name: "other key", fault: storetest.Fault{Key: "b", Err: errBroken}, stored: "content", read: "content"},
		{name: "put before", fault: storetest.Fault{Op: storetest.Put, Err: errBroken}, putErr: errBroken, getErr: store.ErrNotFound},
		{name: "put after", fault: storetest.Fault{Op: storetest.Put, Kind: storetest.After, Err: errBroken}, putErr: errBroken, stored: "content", read: "content"},
		{name: "put cut in silence", fault: storetest.Fault{Op: storetest.Put, Kind: storetest.Truncate, At: 3}, stored: "con", read: "con"},
		{name: "put cut", fault: storetest.Fault{Op: storetest.Put, Kind: storetest.Truncate, At: 3, Err: errBroken}, putErr: errBroken, getErr: store.ErrNotFound},
		{name: "put flipped", fault: storetest.Fault{Op: storetest.Put, Kind: storetest.Flip, At: 1}, stored: "cnntent", read: "cnntent"},
		{name: "get before", fault: storetest.Fault{Op: storetest.Get, Err: errBroken}, getErr: errBroken, stored: "content"},
		{name: "second call", fault: storetest.Fault{N: 2, Err: errBroken}, getErr: errBroken, stored: "content"},
		{name: "third call", fault: storetest.Fault{N: 3, Err: errBroken}, stored: "content", read: "content"},
		{name: "get cut in silence", fault: storetest.Fault{Op: storetest.Get, Kind: storetest.Truncate, At: 3}, stored: "content", read: "con"},
		{name: "get cut", fault: storetest.Fault{Op: storetest.Get, Kind: storetest.Truncate, At: 3, Err: errBroken}, getErr: errBroken, stored: "content", read: "con"},
		{name: "get flipped", fault: storetest.Fault{Op: storetest.Get, Kind: storetest.Flip, At: 6}, stored: "content", read: "contenu"},
		{name: "slow", fault: storetest.Fault{Kind: storetest.Slow, Delay: time.Millisecond}, stored: "content", read: "content"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var inner storetest.Memory
			f := storetest.NewFaulty(&inner, c.fault)
			_, err := f.Put(t.Context(), "a", strings.NewReader("content"))
			must.ErrorIs(t, err, c.putErr)
			got, err := read(f, "a")
			must.ErrorIs(t, err, c.getErr)
			must.EqOp(t, c.read, got)
			stored, _ := read(&inner, "a")
			must.EqOp(t, c.stored, stored)
			must.Eq(t, []storetest.Call{{Op: storetest.Put, Key: "a"}, {Op: storetest.Get, Key: "a"}}, f.Calls())
			f.Set()
			must.SliceEmpty(t, f.Calls())
		})
	}
}

// A fault before each call of a probe in turn, and after it, is reported.
func TestFaulty_everyCall(t *testing.T) {
	for _, kind := range []storetest.Kind{storetest.Before, storetest.After} {
		for n := 1; ; n++ {
			f := storetest.NewFaulty(&storetest.Memory{}, storetest.Fault{N: n, Kind: kind, Err: errBroken})
			err := store.Probe(t.Context(), f)
			if len(f.Calls()) < n {
				must.NoError(t, err)
				must.Greater(t, 6, n)
				break
			}
			must.ErrorIs(t, err, errBroken, must.Sprintf("call %d of %v", n, f.Calls()))
		}
	}
}

func TestFaulty_slowEndsWithContext(t *testing.T) {
	f := storetest.NewFaulty(&storetest.Memory{}, storetest.Fault{Kind: storetest.Slow, Delay: time.Hour})
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	must.ErrorIs(t, f.Delete(ctx, "a"), context.DeadlineExceeded)
}

// replacing is a store without conditional creation.
type replacing struct{ storetest.Memory }

func (r *replacing) Put(ctx context.Context, key string, body io.Reader) (int64, error) {
	if err := r.Delete(ctx, key); err != nil {
		return 0, err
	}
	return r.Memory.Put(ctx, key, body)
}

func TestProbe_notConditional(t *testing.T) {
	must.ErrorIs(t, store.Probe(t.Context(), &replacing{}), store.ErrNotConditional)
	// What does not work at all is not called unconditional.
	f := storetest.NewFaulty(&replacing{}, storetest.Fault{Op: storetest.Get, Kind: storetest.Flip})
	err := store.Probe(t.Context(), f)
	must.ErrorContains(t, err, "other content than written")
	must.False(t, errors.Is(err, store.ErrNotConditional))
}
