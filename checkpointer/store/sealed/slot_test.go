package sealed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"filippo.io/age"
	"github.com/shoenig/test/must"

	"nomad-spotter/checkpointer/store"
	"nomad-spotter/checkpointer/store/storetest"
)

// repo returns a store below an encrypted repository with one object, and a key to it.
func repo(t *testing.T) (*storetest.Memory, Key) {
	t.Helper()
	m, k := &storetest.Memory{}, user(t, 1)
	s, err := Create(t.Context(), m, k)
	must.NoError(t, err)
	put(t, s, "a", []byte("content"))
	return m, k
}

// opens tells whether a key opens the repository, and reads the object with it.
func opens(t *testing.T, m store.Store, k Key) bool {
	t.Helper()
	s, err := Open(t.Context(), m, &k)
	if errors.Is(err, ErrWrongKey) {
		return false
	}
	must.NoError(t, err)
	got, err := get(s, "a")
	must.NoError(t, err)
	must.EqOp(t, "content", string(got))
	return true
}

func TestSlots(t *testing.T) {
	m, k1 := repo(t)
	k2, pass := user(t, 2), words(t, "correct horse")
	must.False(t, opens(t, m, k2))
	_, err := AddSlot(t.Context(), m, k2, pass, "")
	must.ErrorIs(t, err, ErrWrongKey)

	s2, err := AddSlot(t.Context(), m, k1, k2, "the laptop")
	must.NoError(t, err)
	s3, err := AddSlot(t.Context(), m, k2, pass, "in the safe")
	must.NoError(t, err)
	for _, k := range []Key{k1, k2, pass} {
		must.True(t, opens(t, m, k))
		_, err = AddSlot(t.Context(), m, k1, k, "again")
		must.ErrorIs(t, err, ErrSlotExists)
	}
	slots, err := Slots(t.Context(), m)
	must.NoError(t, err)
	must.Len(t, 3, slots)
	must.SliceContains(t, slots, Slot{ID: s2.ID, Kind: Random, Comment: "the laptop"})
	must.SliceContains(t, slots, Slot{ID: s3.ID, Kind: Passphrase, Comment: "in the safe"})
	_, err = Open(t.Context(), m, &Key{secret: "x", kind: Random})
	must.ErrorContains(t, err, s2.ID+` (random, "the laptop")`)

	must.ErrorIs(t, RemoveSlot(t.Context(), m, k2, s2.ID), ErrOwnSlot)
	must.ErrorIs(t, RemoveSlot(t.Context(), m, user(t, 3), s2.ID), ErrWrongKey)
	for _, id := range []string{"", "0123456789abcdef", "../a", "removed/00000001", strings.ToUpper(s2.ID) + "x"} {
		must.ErrorIs(t, RemoveSlot(t.Context(), m, k1, id), ErrNoSlot)
	}
	must.NoError(t, RemoveSlot(t.Context(), m, k1, s2.ID))
	must.NoError(t, RemoveSlot(t.Context(), m, k1, s2.ID)) // as after an interruption
	must.False(t, opens(t, m, k2))
	must.NoError(t, RemoveSlot(t.Context(), m, k1, s3.ID))
	slots, err = Slots(t.Context(), m)
	must.NoError(t, err)
	must.Len(t, 1, slots)
	must.ErrorIs(t, RemoveSlot(t.Context(), m, k1, slots[0].ID), ErrOwnSlot)
	must.True(t, opens(t, m, k1))

	for _, comment := range []string{"two\nlines", "\x1b[31m", "\xff", strings.Repeat("x", maxComment+1)} {
		_, err = AddSlot(t.Context(), m, k1, k2, comment)
		must.ErrorContains(t, err, "comment")
	}
}

// The age program opens a slot without this package.
func TestSlotIsAge(t *testing.T) {
	m, _ := repo(t)
	pass := words(t, "correct horse")
	slot, err := AddSlot(t.Context(), m, user(t, 1), pass, "")
	must.NoError(t, err)
	b, err := get(m, "keys/"+slot.ID)
	must.NoError(t, err)
	var fields struct{ Wrapped []byte }
	must.NoError(t, json.Unmarshal(b, &fields))
	id, err := age.NewScryptIdentity("correct horse")
	must.NoError(t, err)
	r, err := age.Decrypt(strings.NewReader(string(fields.Wrapped)), id)
	must.NoError(t, err)
	repository, err := io.ReadAll(r)
	must.NoError(t, err)
	must.Len(t, repositoryKeySize, repository)
}

// No change of a slot's object opens another repository, and none spoils the other slots.
func TestSlotTampering(t *testing.T) {
	m, k1 := repo(t)
	k2 := user(t, 2)
	slot, err := AddSlot(t.Context(), m, k1, k2, "x")
	must.NoError(t, err)
	key := "keys/" + slot.ID
	whole, err := get(m, key)
	must.NoError(t, err)
	for i := 0; i < len(whole); i += 3 {
		must.True(t, m.Damage(key, func([]byte) []byte {
			b := []byte(string(whole))
			b[i] ^= 1
			return b
		}))
		_ = opens(t, m, k2) // reads the right content if it does open
		must.True(t, opens(t, m, k1))
	}
	for _, b := range [][]byte{nil, whole[:len(whole)/2], []byte("{}"), append(whole[:len(whole):len(whole)], make([]byte, 2*maxSlot)...)} {
		must.True(t, m.Damage(key, func([]byte) []byte { return b }))
		must.False(t, opens(t, m, k2))
		must.True(t, opens(t, m, k1))
	}
	for i := range maxSlots {
		put(t, m, fmt.Sprintf("keys/%016x", i), nil)
	}
	_, err = Open(t.Context(), m, &k1)
	must.ErrorContains(t, err, "more than 256 objects")
}

// A slot of another repository, put in place by somebody who knows a public key or owns another repository of the user's,
// does not decide what is sealed with.
func TestForeignSlot(t *testing.T) {
	m, k := repo(t)
	other, err := Create(t.Context(), &storetest.Memory{}, k)
	must.NoError(t, err)
	must.NotNil(t, other)
	theirs := make([]byte, repositoryKeySize)
	h, err := readHead(t.Context(), m)
	must.NoError(t, err)
	slots, err := Slots(t.Context(), m)
	must.NoError(t, err)
	must.NoError(t, m.Delete(t.Context(), "keys/"+slots[0].ID))
	_, _, err = putSlot(t.Context(), m, h.Repository, theirs, k, "")
	must.NoError(t, err)
	must.False(t, opens(t, m, k))
}

// Of two that remove each other's slot at once at most one succeeds: a slot is left, and it opens.
func TestRemoveEachOther(t *testing.T) {
	for range 30 {
		m, k1 := repo(t)
		k2 := user(t, 2)
		s2, err := AddSlot(t.Context(), m, k1, k2, "")
		must.NoError(t, err)
		slots, err := Slots(t.Context(), m)
		must.NoError(t, err)
		s1 := slots[0].ID
		if s1 == s2.ID {
			s1 = slots[1].ID
		}
		var wg sync.WaitGroup
		var err1, err2 error
		wg.Go(func() { err1 = RemoveSlot(t.Context(), m, k1, s2.ID) })
		wg.Go(func() { err2 = RemoveSlot(t.Context(), m, k2, s1) })
		wg.Wait()
		must.True(t, (err1 == nil) != (err2 == nil), must.Sprintf("%v, %v", err1, err2))
		must.EqOp(t, err1 == nil, opens(t, m, k1))
		must.EqOp(t, err2 == nil, opens(t, m, k2))
	}
}

// hooked does something right before the first Put.
type hooked struct {
	store.Store
	before func()
}

func (h *hooked) Put(ctx context.Context, key string, r io.Reader) (int64, error) {
	if f := h.before; f != nil {
		h.before = nil
		f()
	}
	return h.Store.Put(ctx, key, r)
}

// A removal that another one overtakes counts that one, too.
func TestRemoveOvertaken(t *testing.T) {
	m, k1 := repo(t)
	k2, k3 := user(t, 2), user(t, 3)
	slots, err := Slots(t.Context(), m)
	must.NoError(t, err)
	s1 := slots[0].ID
	s2, err := AddSlot(t.Context(), m, k1, k2, "")
	must.NoError(t, err)
	s3, err := AddSlot(t.Context(), m, k1, k3, "")
	must.NoError(t, err)
	must.NoError(t, RemoveSlot(t.Context(), &hooked{m, func() {
		must.NoError(t, RemoveSlot(t.Context(), m, k2, s3.ID))
	}}, k1, s3.ID)) // the same slot
	err = RemoveSlot(t.Context(), &hooked{m, func() {
		must.NoError(t, RemoveSlot(t.Context(), m, k2, s1))
	}}, k1, s2.ID)
	must.ErrorIs(t, err, ErrOwnSlot)
	must.True(t, opens(t, m, k2))
	must.False(t, opens(t, m, k1))

	put(t, m, "keys/removed/00000003", []byte(`{"slot":"removed/00000001"}`))
	must.ErrorIs(t, RemoveSlot(t.Context(), m, k2, "removed/00000001"), ErrNoSlot)
	_, err = m.Stat(t.Context(), "keys/removed/00000001")
	must.NoError(t, err)
	must.True(t, m.Damage("keys/removed/00000002", func([]byte) []byte { return nil }))
	must.ErrorContains(t, RemoveSlot(t.Context(), m, k2, s2.ID), "decode keys/removed/00000002")
}

// Every call fails once, before or after it took effect; whatever is left, each key that had a slot either opens or was
// being removed, and the removal can be repeated.
func TestSlotTrouble(t *testing.T) {
	boom := errors.New("boom")
	for _, kind := range []storetest.Kind{storetest.Before, storetest.After} {
		for n := 1; ; n++ {
			m, k1 := repo(t)
			k2, k3 := user(t, 2), user(t, 3)
			s2, err := AddSlot(t.Context(), m, k1, k2, "")
			must.NoError(t, err)
			faulty := storetest.NewFaulty(m, storetest.Fault{N: n, Kind: kind, Err: boom})
			_, added := AddSlot(t.Context(), faulty, k1, k3, "")
			removed := RemoveSlot(t.Context(), faulty, k1, s2.ID)
			must.True(t, opens(t, m, k1))
			if added == nil {
				must.True(t, opens(t, m, k3))
			} else {
				must.ErrorIs(t, added, boom)
			}
			if removed == nil {
				must.False(t, opens(t, m, k2))
			} else {
				must.ErrorIs(t, removed, boom)
			}
			must.NoError(t, RemoveSlot(t.Context(), m, k1, s2.ID))
			must.False(t, opens(t, m, k2))
			if added == nil && removed == nil {
				must.Greater(t, 8, n)
				break
			}
		}
	}
}

func FuzzParseRecord(f *testing.F) {
	m := &storetest.Memory{}
	_, err := Create(f.Context(), m, user(f, 1))
	must.NoError(f, err)
	list, err := m.List(f.Context(), "keys/")
	must.NoError(f, err)
	b, err := get(m, list[0].Key)
	must.NoError(f, err)
	f.Add(b)
	f.Add([]byte(`{"slot":1,"kind":"random","wrapped":"YWdl"}`))
	k := user(f, 1)
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := parseRecord(b)
		if err != nil {
			return
		}
		out, err := json.Marshal(r)
		must.NoError(t, err)
		again, err := parseRecord(out)
		must.NoError(t, err)
		must.Eq(t, r.Kind, again.Kind)
		must.Eq(t, r.Comment, again.Comment)
		_, _ = k.unwrap(r.Wrapped)
	})
}
