package repository

import (
	"strings"
	"testing"

	"github.com/shoenig/test/must"
)

func TestSplitFork(t *testing.T) {
	id := strings.Repeat("0f", 16)
	for _, c := range []struct{ lineage, base, id, escaped string }{
		{"a/b", "a/b", "", "a/b"},
		{"a/@forks/" + id, "a", id, "a/@forks/" + id},
		{"a@b/@forks/" + id, "a@b", id, "a%40b/@forks/" + id},
		{"a/@forks/x", "a/@forks/x", "", "a/%40forks/x"},
		{"a/@forks/" + id + "/b", "a/@forks/" + id + "/b", "", "a/%40forks/" + id + "/b"},
		{"a/@forks/" + id + "/@forks/" + id, "a/@forks/" + id, id, "a/%40forks/" + id + "/@forks/" + id},
		{"/@forks/" + id, "/@forks/" + id, "", "/%40forks/" + id},
	} {
		base, got := splitFork(c.lineage)
		must.EqOp(t, c.base, base)
		must.EqOp(t, c.id, got)
		must.EqOp(t, c.escaped, escape(c.lineage))
	}
}

// Every lineage has keys of its own, which are read back as its own.
func FuzzLineageKeys(f *testing.F) {
	id := strings.Repeat("0f", 16)
	f.Add("a/b", "a/@forks/"+id)
	f.Add("a/@forks/"+id, "a/%40forks/"+id)
	f.Add("a@b", "a%40b")
	f.Fuzz(func(t *testing.T, a, b string) {
		if CheckLineage(a) != nil || CheckLineage(b) != nil {
			return
		}
		ka, kb := lineageKey(a, kindEpochs, "1"), lineageKey(b, kindEpochs, "1")
		must.EqOp(t, a == b, ka == kb)
		got, kind, last, ok := parseKey(ka)
		must.True(t, ok)
		must.EqOp(t, a, got)
		must.EqOp(t, kindEpochs, kind)
		must.EqOp(t, "1", last)
	})
}
