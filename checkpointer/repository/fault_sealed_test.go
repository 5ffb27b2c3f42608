package repository_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/shoenig/test/must"

	"nomad-spotter/checkpointer/repository"
	"nomad-spotter/checkpointer/store"
	"nomad-spotter/checkpointer/store/sealed"
	"nomad-spotter/checkpointer/store/storetest"
)

// sealedKey is the key of the encrypted repositories here.
func sealedKey(t *testing.T) sealed.Key {
	t.Helper()
	k, err := sealed.ParseKey(bytes.Repeat([]byte{1, 0, 3, 0xff}, 8))
	must.NoError(t, err)
	return k
}

// unseal opens an encrypted store, as a process does that knows nothing of it yet.
func unseal(t *testing.T, m *storetest.Memory) store.Store {
	t.Helper()
	k := sealedKey(t)
	s, err := sealed.Open(t.Context(), m, &k)
	must.NoError(t, err)
	return s
}

// sealedChain is an encrypted repository with three snapshots of lineage l, each coded against the one before.
func sealedChain(t *testing.T) *storetest.Memory {
	t.Helper()
	m := &storetest.Memory{}
	s, err := sealed.Create(t.Context(), m, sealedKey(t))
	must.NoError(t, err)
	r, err := repository.Open(t.Context(), s, true)
	must.NoError(t, err)
	w := claim(t, r, "l")
	for step := range int64(3) {
		publish(t, w, step, small(step))
	}
	return m
}

// sealedHarms are what happens to sealed objects.
func sealedHarms(n int, other []byte) map[string]func(b []byte) []byte {
	out := map[string]func(b []byte) []byte{
		"another object":       func([]byte) []byte { return other },
		"a byte more":          func(b []byte) []byte { return append(b, 0) },
		"nothing":              func([]byte) []byte { return nil },
		"too short for a seal": func(b []byte) []byte { return b[:30] },
		"cut":                  func(b []byte) []byte { return b[:len(b)-1] },
	}
	for _, i := range []int{0, 20, 50, n / 2, n - 1} {
		out[fmt.Sprintf("bit flip at %d of %d", i, n)] = func(b []byte) []byte { b[i] ^= 4; return b }
	}
	return out
}

// What an encrypted store finds damaged is damage of the snapshots that need it: verify names it, and the newest that is
// whole is restored.
func TestDamageSealed(t *testing.T) {
	from := sealedChain(t)
	for _, kind := range []string{"@packs", "@snapshots"} {
		list, err := from.List(t.Context(), "lineages/l/"+kind+"/")
		must.NoError(t, err)
		for i, o := range list {
			affected := needing(t, unseal(t, from), o.Key)
			must.SliceNotEmpty(t, affected)
			for name, do := range sealedHarms(int(o.Size), object(t, from, list[(i+1)%len(list)].Key)) {
				m := cloneOf(t, from)
				must.True(t, m.Damage(o.Key, do))
				suffers(t, unseal(t, m), o.Key, name, affected)
			}
		}
	}
}

// A damaged pack is no base, and not taken for one that an earlier try left.
func TestDamageSealed_save(t *testing.T) {
	m := sealedChain(t)
	list, err := m.List(t.Context(), "lineages/l/@packs/")
	must.NoError(t, err)
	for _, o := range list {
		must.True(t, m.Damage(o.Key, func(b []byte) []byte { b[len(b)-1] ^= 1; return b }))
	}
	r, err := repository.Open(t.Context(), unseal(t, m), false)
	must.NoError(t, err)
	w := claim(t, r, "l")
	publish(t, w, 3, small(3))
	got, damaged, err := r.Newest(t.Context(), "l", into(t.TempDir()))
	must.NoError(t, err)
	must.EqOp(t, 3, got.Step)
	must.SliceEmpty(t, damaged)
}

// The records of a lineage are not needed to restore it. What needs them says that they are damaged, and which.
func TestDamageSealed_records(t *testing.T) {
	from := sealedChain(t)
	flip := func(b []byte) []byte { b[len(b)/2] ^= 1; return b }
	for _, kind := range []string{"@epochs", "@authority"} {
		m := cloneOf(t, from)
		list, err := m.List(t.Context(), "lineages/l/"+kind+"/")
		must.NoError(t, err)
		must.SliceLen(t, 1, list)
		key := list[0].Key
		must.True(t, m.Damage(key, flip))
		r, err := repository.Open(t.Context(), unseal(t, m), false)
		must.NoError(t, err)
		got, damaged, err := r.Newest(t.Context(), "l", into(t.TempDir()))
		must.NoError(t, err)
		must.EqOp(t, 2, got.Step)
		must.SliceEmpty(t, damaged)

		to, err := repository.Open(t.Context(), &storetest.Memory{}, true)
		must.NoError(t, err)
		snapshots, err := r.Snapshots(t.Context(), "l")
		must.NoError(t, err)
		_, err = repository.Copy(t.Context(), r, to, snapshots[0], repository.CopyOptions{})
		var d *repository.DamageError
		must.ErrorAs(t, err, &d)
		must.EqOp(t, key, d.Object)

		if kind == "@authority" {
			_, err = r.Claim(t.Context(), "l", "test", noon)
			must.ErrorIs(t, err, store.ErrDamaged)
			must.ErrorContains(t, err, key)
		}
	}
	must.True(t, from.Damage("spotter-repository.json", flip))
	_, err := repository.Open(t.Context(), unseal(t, from), false)
	must.ErrorIs(t, err, store.ErrDamaged)
	must.True(t, strings.Contains(err.Error(), "spotter-repository.json"))
}
