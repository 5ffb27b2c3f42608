package agent

import (
	"testing"

	"github.com/shoenig/test/must"

	"nomad-spotter/checkpointer/discovery"
)

func TestTargets(t *testing.T) {
	list := []discovery.Store{
		{URL: "a", Region: "north"},
		{URL: "b", Region: "north"},
		{URL: "c", Region: "south"},
		{URL: "d", Region: "south"},
		{URL: "e"},
		{URL: "f", Region: "east"},
	}
	is := func(urls ...string) func(string) bool {
		return func(u string) bool {
			for _, x := range urls {
				if x == u {
					return true
				}
			}
			return false
		}
	}
	for _, c := range []struct {
		name       string
		home       string
		n          int
		has, unfit func(string) bool
		want       []string
	}{
		{"none wanted", "a", 0, is(), is(), nil},
		{"another region than home's", "a", 1, is(), is(), []string{"c"}},
		{"one of each, a store of no known region counts as one", "a", 5, is(), is(), []string{"c", "e", "f"}},
		{"home has no known region", "e", 9, is(), is(), []string{"a", "c", "f"}},
		{"home is not in the list", "x", 2, is(), is(), []string{"a", "c"}},
		{"where one is already", "a", 2, is("f", "d"), is(), []string{"d", "f"}},
		{"one that can never be", "a", 2, is(), is("c"), []string{"d", "e"}},
		{"a replica in home's region does not count", "a", 1, is("b"), is(), []string{"c"}},
	} {
		var got []string
		for _, s := range targets(list, c.home, c.n, c.has, c.unfit) {
			got = append(got, s.URL)
		}
		must.Eq(t, c.want, got, must.Sprint(c.name))
	}
}
