package sealed

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/shoenig/test/must"

	"nomad-spotter/checkpointer/store"
	"nomad-spotter/checkpointer/store/storetest"
)

// user makes a user's key of 32 bytes that are all c, quick to try.
func user(t testing.TB, c byte) Key {
	t.Helper()
	k, err := ParseKey(bytes.Repeat([]byte{c % 8}, rawKeySize))
	must.NoError(t, err)
	must.EqOp(t, Random, k.kind)
	k.work = 1
	return k
}

// words makes a passphrase that is quick to try.
func words(t testing.TB, s string) Key {
	t.Helper()
	k, err := ParseKey([]byte(s))
	must.NoError(t, err)
	k.work = 2
	return k
}

// plainSizes lets Put return the plain size, which the contract asks for and this store gives up for the sake of
// accounting.
type plainSizes struct{ store.Store }

func (p plainSizes) Put(ctx context.Context, key string, r io.Reader) (int64, error) {
	if _, err := p.Store.Put(ctx, key, r); err != nil {
		return 0, err
	}
	return p.Stat(ctx, key)
}

func TestContract(t *testing.T) {
	for name, below := range map[string]func(t *testing.T) store.Store{
		"in memory": func(*testing.T) store.Store { return &storetest.Memory{} },
		"in files": func(t *testing.T) store.Store {
			s, err := store.OpenFile(t.TempDir(), store.OS{}, true)
			must.NoError(t, err)
			return s
		},
	} {
		t.Run(name, func(t *testing.T) {
			storetest.Contract(t, func(t *testing.T) store.Store {
				s, err := Create(t.Context(), below(t), user(t, 1))
				must.NoError(t, err)
				return plainSizes{s}
			})
		})
	}
}

func TestOpen(t *testing.T) {
	m := &storetest.Memory{}
	k := user(t, 1)
	plain, err := Open(t.Context(), m, nil)
	must.NoError(t, err)
	must.True(t, plain == store.Store(m))
	_, err = Open(t.Context(), m, &k)
	must.ErrorIs(t, err, ErrNotEncrypted)

	s, err := Create(t.Context(), m, k)
	must.NoError(t, err)
	put(t, s, "a/b", []byte("secret content"))
	below, err := get(m, "a/b")
	must.NoError(t, err)
	must.StrNotContains(t, string(below), "secret")

	_, err = Open(t.Context(), m, nil)
	must.ErrorIs(t, err, ErrKeyNeeded)
	must.StrContains(t, err.Error(), "this repository is encrypted: give --key-file or SPOTTER_KEY")
	slots, err := Slots(t.Context(), m)
	must.NoError(t, err)
	must.Len(t, 1, slots)
	wrong, other := user(t, 2), words(t, "correct horse")
	for _, bad := range []*Key{&wrong, &other, {}} {
		_, err = Open(t.Context(), m, bad)
		must.ErrorIs(t, err, ErrWrongKey)
		must.StrContains(t, err.Error(), slots[0].ID+" (random)")
		_, err = Create(t.Context(), m, *bad)
		must.ErrorIs(t, err, ErrWrongKey)
	}
	for _, open := range []func() (store.Store, error){
		func() (store.Store, error) { return Open(t.Context(), m, &k) },
		func() (store.Store, error) { return Create(t.Context(), m, k) },
	} {
		s, err = open()
		must.NoError(t, err)
		got, err := get(s, "a/b")
		must.NoError(t, err)
		must.EqOp(t, "secret content", string(got))
		must.EqOp(t, "memory:", s.URL())
	}
}

// A plain repository is never mixed with an encrypted one.
func TestPlainRepository(t *testing.T) {
	m := &storetest.Memory{}
	k := user(t, 1)
	put(t, m, plainKey, []byte(`{"format":1}`))
	for _, open := range []func() (store.Store, error){
		func() (store.Store, error) { return Open(t.Context(), m, &k) },
		func() (store.Store, error) { return Create(t.Context(), m, k) },
	} {
		_, err := open()
		must.ErrorIs(t, err, ErrNotEncrypted)
	}
	_, err := Slots(t.Context(), m)
	must.ErrorIs(t, err, ErrNotEncrypted)
	list, err := m.List(t.Context(), "")
	must.NoError(t, err)
	must.Len(t, 1, list)

	// A program without a key that began between the two looks.
	late := &storetest.Memory{}
	s, err := Create(t.Context(), late, k)
	must.NoError(t, err)
	put(t, late, plainKey, []byte(`{"format":1}`))
	_, err = s.Put(t.Context(), plainKey, strings.NewReader(`{"format":1}`))
	must.ErrorIs(t, err, store.ErrExists)
	_, err = get(s, plainKey)
	must.ErrorIs(t, err, ErrDamaged)
}

func TestHidden(t *testing.T) {
	m := &storetest.Memory{}
	s, err := Create(t.Context(), m, user(t, 1))
	must.NoError(t, err)
	below, err := m.List(t.Context(), "")
	must.NoError(t, err)
	must.Len(t, 2, below)
	for _, prefix := range []string{"", "keys/"} {
		list, err := s.List(t.Context(), prefix)
		must.NoError(t, err)
		must.SliceEmpty(t, list)
	}
	for _, key := range []string{headKey, "keys", "keys/x", below[0].Key, below[1].Key} {
		_, err := s.Put(t.Context(), key, strings.NewReader("x"))
		must.ErrorContains(t, err, "reserved")
		must.ErrorContains(t, s.Delete(t.Context(), key), "reserved")
		_, err = s.Stat(t.Context(), key)
		must.ErrorIs(t, err, store.ErrNotFound)
		_, err = s.Get(t.Context(), key)
		must.ErrorIs(t, err, store.ErrNotFound)
		_, err = s.GetRange(t.Context(), key, 0, 1)
		must.ErrorIs(t, err, store.ErrNotFound)
	}
	put(t, s, "keys2", nil)
	put(t, s, "x/keys/y", nil)
	after, err := m.List(t.Context(), "")
	must.NoError(t, err)
	must.Len(t, 4, after)
}

// What all Puts return is by how much the store grew since it was empty.
func TestAccounting(t *testing.T) {
	m := &storetest.Memory{}
	var sum int64
	for i := range 3 {
		s, err := Create(t.Context(), m, user(t, 1))
		must.NoError(t, err)
		if i == 0 {
			_, err = s.Put(t.Context(), "tmp/x", strings.NewReader("refused"))
			must.Error(t, err)
		}
		sum += put(t, s, strings.Repeat("x", i+1), random(1000*i))
		sum += put(t, s, "y/"+strings.Repeat("x", i+1), random(first+i))
	}
	list, err := m.List(t.Context(), "")
	must.NoError(t, err)
	must.Len(t, 8, list)
	for _, e := range list {
		sum -= e.Size
	}
	must.Zero(t, sum)
}

func TestHeads(t *testing.T) {
	k := user(t, 1)
	for name, c := range map[string]struct {
		content, err string
		damaged      bool
	}{
		"not JSON":          {"x", "decode", true},
		"empty":             {"", "decode", true},
		"a later version":   {`{"encryption":2}`, "encryption 2, this program knows 1: use a newer one", false},
		"no version":        {`{}`, "it has no version", true},
		"another key":       {`{"encryption":1,"repository":"00"}`, "there is none of the key that spotter-encryption.json names", true},
		"too long":          {`{"encryption":1,"x":"` + strings.Repeat("x", maxHead) + `"}`, "decode", true},
		"of the wrong type": {`{"encryption":"1"}`, "decode", true},
	} {
		t.Run(name, func(t *testing.T) {
			m := &storetest.Memory{}
			_, err := Create(t.Context(), m, k)
			must.NoError(t, err)
			must.True(t, m.Damage(headKey, func([]byte) []byte { return []byte(c.content) }))
			_, err = Open(t.Context(), m, &k)
			must.ErrorContains(t, err, c.err)
			must.EqOp(t, c.damaged, errors.Is(err, store.ErrDamaged))
			_, err = Create(t.Context(), m, k)
			must.ErrorContains(t, err, c.err)
			_, err = Open(t.Context(), m, nil)
			must.Error(t, err)
		})
	}
}

// Where the store fails, nobody knows yet whether the repository is encrypted, and the error does not say so.
func TestOpen_StoreFails(t *testing.T) {
	k := user(t, 1)
	denied := errors.New("access is denied")
	for _, key := range []*Key{nil, &k} {
		m := storetest.NewFaulty(&storetest.Memory{})
		m.Set(storetest.Fault{Kind: storetest.Before, Err: denied})
		_, err := Open(t.Context(), m, key)
		must.ErrorIs(t, err, denied)
		must.StrHasPrefix(t, "open repository: ", err.Error())
	}
}

// An encrypted repository without its head is damaged: neither a plain one, nor a place for a new one.
func TestHeadless(t *testing.T) {
	m := &storetest.Memory{}
	k := user(t, 1)
	s, err := Create(t.Context(), m, k)
	must.NoError(t, err)
	put(t, s, plainKey, []byte(`{"format":1}`))
	put(t, s, "lineages/l/@epochs/00000001", nil)
	was, err := get(m, headKey)
	must.NoError(t, err)
	must.NoError(t, m.Delete(t.Context(), headKey))
	before, err := m.List(t.Context(), "")
	must.NoError(t, err)
	refused := func(with func() (store.Store, error), what string) {
		_, err := with()
		must.ErrorIs(t, err, store.ErrDamaged, must.Sprint(what))
		must.ErrorContains(t, err, headKey)
		after, err := m.List(t.Context(), "")
		must.NoError(t, err)
		must.Eq(t, before, after)
	}
	create := func() (store.Store, error) { return Create(t.Context(), m, k) }
	refused(func() (store.Store, error) { return Open(t.Context(), m, &k) }, "opened")
	refused(func() (store.Store, error) { return Open(t.Context(), m, nil) }, "opened without a key")
	refused(create, "created")

	// The error says how to make it again.
	_, err = create()
	_, rest, found := strings.Cut(err.Error(), "one of ")
	must.True(t, found)
	put(t, m, headKey, []byte(`{"encryption":1,"repository":"`+rest+`"}`))
	again, err := get(m, headKey)
	must.NoError(t, err)
	must.EqOp(t, string(was), string(again))
	_, err = Open(t.Context(), m, &k)
	must.NoError(t, err)

	// Both heads are gone.
	must.NoError(t, m.Delete(t.Context(), headKey))
	must.NoError(t, m.Delete(t.Context(), plainKey))
	before, err = m.List(t.Context(), "")
	must.NoError(t, err)
	refused(create, "created without both")
}

// Creators that begin at once agree on one key; those with another user key are told so.
func TestCreators(t *testing.T) {
	for round := range 10 {
		m := &storetest.Memory{}
		var wg sync.WaitGroup
		errs := make([]error, 8)
		for i := range errs {
			wg.Go(func() {
				k := user(t, byte(round%2*(i%2)+1)) // in odd rounds, two user keys
				s, err := Create(t.Context(), m, k)
				if err == nil {
					_, err = s.Put(t.Context(), "k/"+string(rune('a'+i)), strings.NewReader("content"))
				}
				errs[i] = err
			})
		}
		wg.Wait()
		slots, err := Slots(t.Context(), m)
		must.NoError(t, err)
		must.Len(t, 1, slots)
		below, err := m.List(t.Context(), "keys/")
		must.NoError(t, err)
		must.Len(t, 1, below)
		won := 0
		for i, err := range errs {
			if err != nil {
				must.ErrorIs(t, err, ErrWrongKey)
				continue
			}
			won++
			k := user(t, byte(round%2*(i%2)+1))
			s, err := Open(t.Context(), m, &k)
			must.NoError(t, err)
			got, err := get(s, "k/"+string(rune('a'+i)))
			must.NoError(t, err)
			must.EqOp(t, "content", string(got))
		}
		must.True(t, won == 8 || round%2 == 1 && won == 4, must.Sprintf("%d creators succeeded", won))
	}
}

// Power is lost before every effect of a creation and its first Put; whatever reached the disk, it can be repeated, and
// what was put before stays readable.
func TestCrash(t *testing.T) {
	k := user(t, 1)
	work := func(sim *storetest.Sim) error {
		f, err := store.OpenFile("/store", sim, true)
		if err != nil {
			return err
		}
		s, err := Create(context.Background(), f, k)
		if err != nil {
			return err
		}
		_, err = s.Put(context.Background(), "a", strings.NewReader("content"))
		if errors.Is(err, store.ErrExists) {
			err = nil
		}
		return err
	}
	sim := storetest.New()
	sim.CrashAt(0)
	must.NoError(t, work(sim))
	effects := sim.Effects()
	must.Greater(t, 15, effects)
	for keep := range 4 {
		for n := 1; n <= effects; n++ {
			sim := storetest.New()
			sim.CrashAt(n)
			must.ErrorIs(t, work(sim), storetest.ErrCrash)
			calls := 0
			sim.Reboot(func() bool { // none, all, each second
				calls++
				return keep == 1 || keep > 1 && calls%2 == keep-2
			})
			must.NoError(t, work(sim), must.Sprintf("crash before effect %d", n))
			f, err := store.OpenFile("/store", sim, false)
			must.NoError(t, err)
			s, err := Open(t.Context(), f, &k)
			must.NoError(t, err)
			got, err := get(s, "a")
			must.NoError(t, err)
			must.EqOp(t, "content", string(got))
			slots, err := Slots(t.Context(), f)
			must.NoError(t, err)
			must.Len(t, 1, slots)
		}
	}
}

// Every call to the store fails once, Puts also after they took effect: Create says so, and can be repeated.
func TestStoreTrouble(t *testing.T) {
	k, boom := user(t, 1), errors.New("boom")
	for _, c := range []struct {
		fault storetest.Fault
		calls int
	}{
		{storetest.Fault{Kind: storetest.Before}, 8},
		{storetest.Fault{Kind: storetest.After, Op: storetest.Put}, 2},
	} {
		for n := 1; ; n++ {
			m := &storetest.Memory{}
			c.fault.N, c.fault.Err = n, boom
			_, err := Create(t.Context(), storetest.NewFaulty(m, c.fault), k)
			if err == nil {
				must.EqOp(t, c.calls, n-1)
				break
			}
			must.ErrorIs(t, err, boom)
			must.False(t, errors.Is(err, ErrWrongKey))
			s, err := Create(t.Context(), m, k)
			must.NoError(t, err)
			put(t, s, "a", nil)
		}
	}
	// A slot that cannot be read for now is not a wrong key.
	m := &storetest.Memory{}
	_, err := Create(t.Context(), m, k)
	must.NoError(t, err)
	_, err = Open(t.Context(), storetest.NewFaulty(m, storetest.Fault{Key: "keys/", Err: boom}), &k)
	must.ErrorIs(t, err, boom)
	must.False(t, errors.Is(err, ErrWrongKey))
}
