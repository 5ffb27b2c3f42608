package repository_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/shoenig/test/must"

	"nomad-spotter/checkpointer/api"
	"nomad-spotter/checkpointer/repository"
	"nomad-spotter/checkpointer/store"
	"nomad-spotter/checkpointer/store/storetest"
)

// chain is a repository with four snapshots, each coded against the one before.
func chain(t *testing.T) *storetest.Memory {
	t.Helper()
	s := &storetest.Memory{}
	r, err := repository.Open(t.Context(), s, true)
	must.NoError(t, err)
	w := claim(t, r, "l")
	for step := range int64(4) {
		publish(t, w, step, small(step))
	}
	must.EqOp(t, 3, links(t, s))
	return s
}

// harm is one thing that happens to an object; other is another of its kind.
type harm struct {
	name string
	do   func(b, other []byte) []byte
}

// harms are all that happens to an object of n bytes: bits flip and the end is lost at many places, it becomes longer, it
// becomes another one.
func harms(n int) []harm {
	out := []harm{
		{"another object's content", func(_, other []byte) []byte { return other }},
		{"a byte more", func(b, _ []byte) []byte { return append(b, 0) }},
		{"twice", func(b, _ []byte) []byte { return append(b, b...) }},
		{"zeros", func(b, _ []byte) []byte { return make([]byte, len(b)) }},
		{"another's end", func(b, other []byte) []byte {
			k := min(len(b), len(other)) / 2
			return append(b[:len(b)-k], other[len(other)-k:]...)
		}},
	}
	for i := 0; i < n; i += 1 + n/24 {
		out = append(out, harm{fmt.Sprintf("bit flip at %d of %d", i, n), func(b, _ []byte) []byte { b[i] ^= 1 << (i % 8); return b }})
		out = append(out, harm{fmt.Sprintf("cut after %d of %d", i, n), func(b, _ []byte) []byte { return b[:i] }})
	}
	out = append(out, harm{"bit flip at the end", func(b, _ []byte) []byte { b[len(b)-1] ^= 1; return b }})
	return out
}

// needing returns the snapshots that need an object.
func needing(t *testing.T, s store.Store, key string) (out []string) {
	t.Helper()
	r, err := repository.Open(t.Context(), s, false)
	must.NoError(t, err)
	list, err := r.Snapshots(t.Context(), "l")
	must.NoError(t, err)
	for _, sn := range list {
		m, err := r.Manifest(t.Context(), sn)
		must.NoError(t, err)
		if strings.HasSuffix(key, "/@snapshots/"+sn.ID) || slices.ContainsFunc(m.Packs, func(p repository.PackRef) bool { return strings.HasSuffix(key, "/@packs/"+p.Name) }) {
			out = append(out, sn.ID)
		}
	}
	slices.Sort(out)
	return out
}

// suffers fails the test unless damage of an object shows exactly: verify names it, once for every snapshot that needs it,
// a restore yields the right bytes or names it, the others are restored, and the newest that is whole is found.
func suffers(t *testing.T, s store.Store, key, what string, affected []string) {
	t.Helper()
	note := must.Sprintf("%s: %s", key, what)
	r, err := repository.Open(t.Context(), s, false)
	must.NoError(t, err, note)
	for _, all := range []bool{false, true} {
		rep, err := r.Verify(t.Context(), "", all, nil)
		must.NoError(t, err, note)
		var got []string
		for _, d := range rep.Damaged {
			must.EqOp(t, key, d.Object, note)
			got = append(got, d.Snapshot)
		}
		slices.Sort(got)
		must.Eq(t, affected, got, note)
	}
	r, err = repository.Open(t.Context(), s, false)
	must.NoError(t, err, note)
	list, err := r.Snapshots(t.Context(), "l")
	must.NoError(t, err, note)
	newest := ""
	for _, sn := range list {
		got, err := content(t, r, sn)
		var d *repository.DamageError
		if errors.As(err, &d) {
			must.SliceContains(t, affected, sn.ID, note)
			must.Eq(t, api.Damage{Snapshot: sn.ID, Step: sn.Step, Object: key, Reason: d.Reason}, d.Damage, note)
			continue
		}
		must.NoError(t, err, note)
		must.Eq(t, small(sn.Step), got, note)
		if newest == "" {
			newest = sn.ID
		}
	}
	m, damaged, err := r.Newest(t.Context(), "l", into(t.TempDir()))
	if newest == "" {
		must.ErrorIs(t, err, repository.ErrNoSnapshot, note)
		return
	}
	must.NoError(t, err, note)
	must.EqOp(t, newest, m.ID(), note)
	must.EqOp(t, slices.IndexFunc(list, func(sn repository.Snapshot) bool { return sn.ID == newest }), len(damaged), note)
}

// Every object of a chain of snapshots is damaged in every way.
func TestDamageEverywhere(t *testing.T) {
	from := chain(t)
	objects, err := from.List(t.Context(), "lineages/l/")
	must.NoError(t, err)
	tried := 0
	for i, o := range objects {
		kind, _, _ := strings.Cut(strings.TrimPrefix(o.Key, "lineages/l/"), "/")
		if kind != "@packs" && kind != "@snapshots" {
			continue
		}
		other := objects[(i+1)%len(objects)]
		if !strings.Contains(other.Key, kind) {
			other = objects[i-1]
		}
		affected := needing(t, from, o.Key)
		must.SliceNotEmpty(t, affected)
		for _, h := range harms(int(o.Size)) {
			s := cloneOf(t, from)
			before := object(t, s, o.Key)
			must.True(t, s.Damage(o.Key, func(b []byte) []byte { return h.do(b, object(t, from, other.Key)) }))
			if !bytes.Equal(before, object(t, s, o.Key)) {
				suffers(t, s, o.Key, h.name, affected)
				tried++
			}
		}
		s := cloneOf(t, from)
		must.NoError(t, s.Delete(t.Context(), o.Key))
		suffers(t, s, o.Key, "missing", affected)
		if kind == "@packs" {
			continue
		}
		// Whoever deletes the note as well says that the snapshot is to be gone; nothing else suffers.
		must.NoError(t, s.Delete(t.Context(), strings.Replace(o.Key, kind, "@durable", 1)))
		r, err := repository.Open(t.Context(), s, false)
		must.NoError(t, err)
		rep, err := r.Verify(t.Context(), "", true, nil)
		must.NoError(t, err)
		must.EqOp(t, 3, rep.Snapshots)
		must.SliceEmpty(t, rep.Damaged)
	}
	must.Greater(t, 300, tried)
}

// Two packs, or two manifests, that have changed places are both damaged, with all that needs them.
func TestSwapped(t *testing.T) {
	from := chain(t)
	for _, kind := range []string{"@packs", "@snapshots"} {
		list, err := from.List(t.Context(), "lineages/l/"+kind+"/")
		must.NoError(t, err)
		for i := range list {
			for j := range i {
				s := cloneOf(t, from)
				a, b := list[i].Key, list[j].Key
				must.True(t, s.Damage(a, func([]byte) []byte { return object(t, from, b) }))
				must.True(t, s.Damage(b, func([]byte) []byte { return object(t, from, a) }))
				r, err := repository.Open(t.Context(), s, false)
				must.NoError(t, err)
				rep, err := r.Verify(t.Context(), "l", false, nil)
				must.NoError(t, err)
				got := map[string]int{}
				for _, d := range rep.Damaged {
					got[d.Object]++
				}
				must.Eq(t, map[string]int{a: len(needing(t, from, a)), b: len(needing(t, from, b))}, got)
			}
		}
	}
}
