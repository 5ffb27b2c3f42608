package repository_test

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/shoenig/test/must"

	"nomad-spotter/checkpointer/repository"
	"nomad-spotter/checkpointer/store"
	"nomad-spotter/checkpointer/store/storetest"
)

// hooked is a store that stops at one of its calls: after the listing of that number of a kind, and before the first
// creation of an object whose key has a text in it.
type hooked struct {
	store.Store
	kind   string
	number int
	listed func()

	text string
	puts func()
}

func (h *hooked) List(ctx context.Context, prefix string) ([]store.Entry, error) {
	out, err := h.Store.List(ctx, prefix)
	if h.listed != nil && strings.HasSuffix(prefix, h.kind+"/") {
		if h.number--; h.number == 0 {
			h.listed()
		}
	}
	return out, err
}

func (h *hooked) Put(ctx context.Context, key string, r io.Reader) (int64, error) {
	if f := h.puts; f != nil && strings.Contains(key, h.text) {
		h.puts = nil
		f()
	}
	return h.Store.Put(ctx, key, r)
}

// Those who drop the mark of a collection that is at work, against what they are told, find here that it stops.

// collectMeeting collects, and does something once the collection has listed the snapshots whose packs it keeps.
func collectMeeting(t *testing.T, mem store.Store, meet func()) error {
	t.Helper()
	met := false
	r, err := repository.Open(t.Context(), &hooked{Store: mem, kind: "@snapshots", number: 2, listed: func() { met = true; meet() }}, false)
	must.NoError(t, err)
	_, err = r.Collect(t.Context(), "l", repository.Retention{Last: 1}, repository.CollectOptions{})
	must.True(t, met)
	return err
}

// intact fails the test unless all snapshots are.
func intact(t *testing.T, mem store.Store) {
	t.Helper()
	rep, err := openMemory(t, mem).Verify(t.Context(), "", true, nil)
	must.NoError(t, err)
	must.SliceEmpty(t, rep.Damaged)
}

// A collection does not go on with the removal that another announced after its own look at the saves: what relied on that
// snapshot has been published in between.
func TestCollect_removalAnnouncedLater(t *testing.T) {
	mem := prepared(t)
	must.ErrorContains(t, collectMeeting(t, mem, func() {
		publish(t, claim(t, openMemory(t, mem), "l"), 5, small(5))
		must.NoError(t, openMemory(t, mem).DropDead(t.Context(), "l"))
		dies := storetest.NewFaulty(mem, storetest.Fault{Op: storetest.Delete, Key: "lineages/l/@removed/", Kind: storetest.Before, Err: errDead})
		r, err := repository.Open(t.Context(), dies, false)
		must.NoError(t, err)
		_, err = r.Collect(t.Context(), "l", repository.Retention{Last: 1}, repository.CollectOptions{})
		must.ErrorIs(t, err, errDead)
	}), "its mark was dropped")
	intact(t, mem)
}

// The intent of a save counts, for a collection that has seen it, although the epoch has ended in between: the save was
// published before.
func TestCollect_epochEndsLater(t *testing.T) {
	mem := prepared(t)
	must.NoError(t, collectMeeting(t, mem, func() {
		publish(t, openMemory(t, mem).Resume("l", 1), 4, small(4)) // with the pack that the first try left
		claim(t, openMemory(t, mem), "l")
	}))
	intact(t, mem)
}

// A snapshot that only a save needs is removed by another collection once that save is published. What it needed is then
// not known any more, and what the new snapshot needs never was.
func TestCollect_anotherRemovesWhatIsBusy(t *testing.T) {
	mem := prepared(t)
	list, err := mem.List(t.Context(), "lineages/l/@packs/")
	must.NoError(t, err)
	must.StrContains(t, list[3].Key, "00000001-000000000003")
	must.True(t, mem.Damage(list[3].Key, func(b []byte) []byte { b[len(b)-1] ^= 1; return b })) // no base: the save takes the one before
	begun, collected, saved := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		r, err := repository.Open(t.Context(), &hooked{Store: mem, text: "/@packs/00000001-000000000005-", puts: func() {
			close(begun)
			<-collected
		}}, false)
		if err == nil {
			_, err = r.Resume("l", 1).Publish(t.Context(), 5, small(5), noon)
		}
		saved <- err
	}()
	<-begun
	err = collectMeeting(t, mem, func() {
		close(collected)
		must.NoError(t, <-saved)
		must.NoError(t, openMemory(t, mem).DropDead(t.Context(), "l"))
		_, err := openMemory(t, mem).Collect(t.Context(), "l", repository.Retention{Last: 1}, repository.CollectOptions{})
		must.NoError(t, err)
	})
	must.ErrorIs(t, err, repository.ErrCollecting)
	must.ErrorContains(t, err, "00000001-000000000002")
	intact(t, mem)
	g, err := openMemory(t, mem).Collect(t.Context(), "l", repository.Retention{Last: 1}, repository.CollectOptions{})
	must.NoError(t, err)
	must.MapContainsKey(t, g.Kept, "00000001-000000000005")
	intact(t, mem)
}
