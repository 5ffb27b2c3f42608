package repository_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/shoenig/test/must"

	"nomad-spotter/checkpointer/repository"
	"nomad-spotter/checkpointer/store"
	"nomad-spotter/checkpointer/store/storetest"
)

// errDead is what every call of a dead actor returns.
var errDead = errors.New("the process is dead")

// verdict says what becomes of an actor whose turn it is.
type verdict int

const (
	goOn      verdict = iota
	dieBefore         // it dies before its call has an effect
	dieAfter          // it dies after that
)

// turns is a store before which several actors wait, call by call, until they are told to go on.
type turns struct {
	inner   store.Store
	mu      sync.Mutex
	waiting []*turn
}

type turn struct {
	actor  int
	op     storetest.Op
	key    string
	decide chan verdict
}

// seat is the store as one actor sees it.
type seat struct {
	*turns
	actor int
	dead  bool // guarded by turns.mu
}

var _ store.Store = (*seat)(nil)

// wait returns once it is this call's turn. The call is to be made unless err is not nil; after it, its actor may be dead.
func (s *seat) wait(op storetest.Op, key string) (after error, err error) {
	s.mu.Lock()
	if s.dead {
		s.mu.Unlock()
		return nil, errDead
	}
	t := &turn{s.actor, op, key, make(chan verdict)}
	s.waiting = append(s.waiting, t)
	s.mu.Unlock()
	v := <-t.decide
	if v == goOn {
		return nil, nil
	}
	s.mu.Lock()
	s.dead = true
	s.mu.Unlock()
	if v == dieBefore {
		return nil, errDead
	}
	return errDead, nil
}

func (s *seat) URL() string { return s.inner.URL() }

func (s *seat) Put(ctx context.Context, key string, r io.Reader) (int64, error) {
	after, err := s.wait(storetest.Put, key)
	if err != nil {
		return 0, err
	}
	n, err := s.inner.Put(ctx, key, r)
	return n, cmp.Or(after, err)
}

func (s *seat) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	after, err := s.wait(storetest.Get, key)
	if err != nil {
		return nil, err
	}
	rc, err := s.inner.Get(ctx, key)
	return rc, cmp.Or(after, err)
}

func (s *seat) GetRange(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	after, err := s.wait(storetest.GetRange, key)
	if err != nil {
		return nil, err
	}
	rc, err := s.inner.GetRange(ctx, key, off, n)
	return rc, cmp.Or(after, err)
}

func (s *seat) Stat(ctx context.Context, key string) (int64, error) {
	after, err := s.wait(storetest.Stat, key)
	if err != nil {
		return 0, err
	}
	n, err := s.inner.Stat(ctx, key)
	return n, cmp.Or(after, err)
}

func (s *seat) List(ctx context.Context, prefix string) ([]store.Entry, error) {
	after, err := s.wait(storetest.List, prefix)
	if err != nil {
		return nil, err
	}
	list, err := s.inner.List(ctx, prefix)
	return list, cmp.Or(after, err)
}

func (s *seat) Delete(ctx context.Context, key string) error {
	after, err := s.wait(storetest.Delete, key)
	if err != nil {
		return err
	}
	return cmp.Or(after, s.inner.Delete(ctx, key))
}

// choice picks who goes on among the actors that wait, and what becomes of them. n counts the turns from 0.
type choice func(n int, waiting []int) (actor int, v verdict)

// act lets actors loose on a store, one call at a time, and returns what happened in which order. It returns when all have
// ended. The same choices give the same history.
func act(t *testing.T, inner store.Store, choose choice, actors ...func(ctx context.Context, s store.Store)) (trace []string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ts := &turns{inner: inner}
		for i, a := range actors {
			go a(t.Context(), &seat{turns: ts, actor: i})
		}
		for n := 0; ; n++ {
			synctest.Wait()
			ts.mu.Lock()
			if len(ts.waiting) == 0 {
				ts.mu.Unlock()
				return
			}
			slices.SortStableFunc(ts.waiting, func(a, b *turn) int {
				return cmp.Or(cmp.Compare(a.actor, b.actor), cmp.Compare(a.op, b.op), cmp.Compare(a.key, b.key))
			})
			var ids []int
			for _, w := range ts.waiting {
				ids = append(ids, w.actor)
			}
			actor, v := choose(n, slices.Compact(ids))
			i := slices.IndexFunc(ts.waiting, func(w *turn) bool { return w.actor == actor })
			next := ts.waiting[i]
			ts.waiting = slices.Delete(ts.waiting, i, i+1)
			ts.mu.Unlock()
			trace = append(trace, fmt.Sprintf("%d %s %s%s", actor, next.op, next.key, []string{"", " DIES BEFORE", " DIES AFTER"}[v]))
			next.decide <- v
		}
	})
	return trace
}

// spells lets the actors go on in turn, for as many calls as lengths says, and the last one named by them to the end. An
// actor that has ended is skipped.
func spells(first int, lengths ...int) choice {
	at, actor, done := 0, first, 0
	return func(_ int, waiting []int) (int, verdict) {
		for at < len(lengths) && (done >= lengths[at] || !slices.Contains(waiting, actor)) {
			at, actor, done = at+1, 1-actor, 0
		}
		if !slices.Contains(waiting, actor) {
			actor = waiting[0]
		}
		done++
		return actor, goOn
	}
}

// warm makes what the packages share, outside of any bubble.
func warm(t *testing.T) {
	t.Helper()
	s := &storetest.Memory{}
	r, err := repository.Open(t.Context(), s, true)
	must.NoError(t, err)
	w := claim(t, r, "l")
	for step := range int64(2) {
		publish(t, w, step, small(step))
	}
	_, err = r.Verify(t.Context(), "", true, nil)
	must.NoError(t, err)
}

// cloneOf returns a store with the objects of another.
func cloneOf(t *testing.T, from store.Store) *storetest.Memory {
	t.Helper()
	out := &storetest.Memory{}
	list, err := from.List(t.Context(), "")
	must.NoError(t, err)
	for _, e := range list {
		rc, err := from.Get(t.Context(), e.Key)
		must.NoError(t, err)
		_, err = out.Put(t.Context(), e.Key, rc)
		must.NoError(t, err)
	}
	return out
}

// small is the checkpoint of a step: weights that move a little, one that does not, and text.
func small(step int64) memory {
	v := make([]float32, 300)
	for i := range v {
		v[i] = float32(i+1) + 1e-5*float32(step)
	}
	return memory{fmt.Sprintf("c%d", step), map[string]string{
		"model.safetensors": safetensors(map[string][]float32{"a.weight": v, "b.weight": v[:7]}),
		"note":              fmt.Sprintf("step %d", step),
	}}
}

// object is the content of an object.
func object(t *testing.T, s store.Store, key string) []byte {
	t.Helper()
	rc, err := s.Get(t.Context(), key)
	must.NoError(t, err)
	b, err := io.ReadAll(rc)
	must.NoError(t, err)
	must.NoError(t, rc.Close())
	return b
}
