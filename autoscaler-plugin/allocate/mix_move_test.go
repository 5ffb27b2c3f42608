package allocate

import (
	"strings"
	"testing"
	"time"

	"github.com/shoenig/test/must"
)

func TestWorst(t *testing.T) {
	west, east := spot("west", "west", "west-a", 0.80, 0.44), spot("east", "east", "east-a", 0.90, 0.44)
	od := onDemand("od", 3)
	young := func(n *Node) { n.Age = time.Minute }
	cases := map[string]struct {
		nodes  int
		held   []Node
		change func(*Request)
		want   string
	}{
		"the fallback":         {1, []Node{held(west, 1), held(od, 1)}, nil, "od-1"},
		"not the base":         {1, []Node{held(west, 1), held(od, 1)}, func(r *Request) { r.OnDemandBase = 1 }, "west-1"},
		"not the share":        {2, []Node{held(west, 1), held(od, 1)}, func(r *Request) { r.OnDemandShare = 0.5 }, "west-1"},
		"the dearer":           {1, []Node{held(west, 1), held(east, 1)}, nil, "east-1"},
		"the crowd":            {2, []Node{held(west, 1), held(west, 2), held(east, 1)}, nil, "west-1"},
		"the risky":            {1, []Node{held(west, 1, func(n *Node) { n.HazardPerHour = 2 }), held(east, 1)}, nil, "west-1"},
		"spot above on-demand": {1, []Node{held(west, 1, func(n *Node) { n.HazardPerHour = 6 }), held(od, 1)}, nil, "west-1"},
		"outbid before dearer": {1, []Node{held(west, 1, func(n *Node) { n.Outbid = 0.5 }), held(od, 1)}, nil, "west-1"},
		"not likely outbid":    {1, []Node{held(west, 1, func(n *Node) { n.Outbid = 0.49 }), held(od, 1)}, nil, "od-1"},
		"share before dearer": {
			3, []Node{held(west, 1), held(west, 2), held(od, 1), held(od, 2)}, func(r *Request) { r.ZoneShare = 0.5 }, "west-1",
		},
		"of equals the young":   {1, []Node{held(west, 1), held(west, 2, young)}, nil, "west-2"},
		"of equals the first":   {1, []Node{held(west, 2), held(west, 1)}, nil, "west-1"},
		"nothing but the base":  {0, []Node{}, nil, ""},
		"base of what there is": {1, []Node{held(od, 1)}, func(r *Request) { r.OnDemandBase = 3 }, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			r := Request{Nodes: c.nodes, Held: c.held, Costs: testCosts()}
			if c.change != nil {
				c.change(&r)
			}
			e, ok := Worst(r, func(Node) bool { return true })
			must.Eq(t, c.want != "", ok)
			must.Eq(t, c.want, e.ID)
			must.Eq(t, ok, e.Reason != "")
			_, ok = Worst(r, func(Node) bool { return false })
			must.False(t, ok)
		})
	}
}

func TestExit_Saves(t *testing.T) {
	for _, c := range []struct {
		now, next Exit
		want      bool
	}{
		{Exit{EffectiveUSDPerHour: 1}, Exit{EffectiveUSDPerHour: 0.951}, false},
		{Exit{EffectiveUSDPerHour: 1}, Exit{EffectiveUSDPerHour: 0.949}, true},
		{Exit{EffectiveUSDPerHour: 1, urgency: overShare}, Exit{EffectiveUSDPerHour: 3}, true},
		{Exit{EffectiveUSDPerHour: 1, urgency: outbid}, Exit{EffectiveUSDPerHour: 1, urgency: outbid}, false},
	} {
		must.Eq(t, c.want, c.now.Saves(c.next))
	}
}

func TestRelocate(t *testing.T) {
	west, east := spot("west", "west", "west-a", 0.80, 0.44), spot("east", "east", "east-a", 0.90, 0.44)
	od := onDemand("od", 3)
	old := func(n *Node) { n.HazardPerHour = 0.05 } // a day old
	hazard := func(h float64) func(*Node) { return func(n *Node) { n.HazardPerHour = h } }
	outbid := func(n *Node) { n.Outbid = 0.6 }
	cases := map[string]struct {
		held   []Node
		offers []Candidate
		change func(*Request)
		want   string
	}{
		"back to spot":      {[]Node{held(od, 1)}, []Candidate{west, od}, nil, "od-1>west"},
		"not the base":      {[]Node{held(od, 1)}, []Candidate{west, od}, func(r *Request) { r.OnDemandBase = 1 }, ""},
		"spot is not there": {[]Node{held(od, 1)}, []Candidate{unusable(west, "is sold out"), od}, nil, ""},
		"old stays":         {[]Node{held(west, 1, old)}, []Candidate{west, od}, nil, ""},
		"equal stays":       {[]Node{held(west, 1)}, []Candidate{west, east, od}, nil, ""},
		"two of three": {
			[]Node{held(od, 1), held(od, 2), held(od, 3)}, []Candidate{west, east, od}, nil, "od-1>west od-2>east",
		},
		"keeps its share": {
			[]Node{held(od, 1), held(od, 2)}, []Candidate{west, od}, func(r *Request) { r.OnDemandShare = 0.5 }, "od-1>west",
		},
		"share of the target": {
			[]Node{held(od, 1), held(od, 2)}, []Candidate{west, od}, func(r *Request) { r.ZoneShare = 0.5 }, "od-1>west",
		},
		"max_nodes of target": {[]Node{held(od, 1), held(west, 1)}, []Candidate{atMost(1, west), od}, nil, ""},
		"both in the budget": {
			[]Node{held(od, 1)}, []Candidate{west, od}, func(r *Request) { r.BudgetUSDPerHour = 3.8 }, "od-1>west",
		},
		// Both are there for a while; a budget that on-demand has used up must not keep the pool from what costs less.
		"not both in it": {
			[]Node{held(od, 1)}, []Candidate{west, od}, func(r *Request) { r.BudgetUSDPerHour = 3 }, "od-1>west",
		},
		"over the budget without the old": {
			[]Node{held(west, 1, outbid)}, []Candidate{unusable(west, "-"), od}, func(r *Request) { r.BudgetUSDPerHour = 2.9 }, "",
		},
		"outbid":            {[]Node{held(west, 1, outbid)}, []Candidate{west, od}, nil, "west-1>west"},
		"outbid everywhere": {[]Node{held(west, 1, outbid)}, []Candidate{bidden(west, 0.5), od}, nil, "west-1>od"},
		"no move to where it would be moved soon": {
			[]Node{held(od, 1)}, []Candidate{bidden(west, 0.3), od}, nil, "",
		},
		"a move to where it may stay": {[]Node{held(od, 1)}, []Candidate{bidden(west, 0.29), od}, nil, "od-1>west"},
		"outbid without escape": {
			[]Node{held(west, 1, outbid), held(od, 1)}, []Candidate{bidden(west, 0.6), atMost(1, od)}, nil, "",
		},
		"outbid, then others": {
			[]Node{held(west, 1, outbid), held(od, 1)}, []Candidate{bidden(west, 0.6), atMost(1, east)}, nil, "west-1>east",
		},
		"over its share": {
			[]Node{held(west, 1), held(west, 2)}, []Candidate{west, od}, func(r *Request) { r.ZoneShare = 0.5 }, "west-1>od",
		},

		// To east: 0.90 + 0.44*0.45 = 1.098 $/h, changeover 0.1 h * (0.90+3) = 0.39 $ in 2 h = 0.195 $/h. Staying must cost
		// more than 1.293, which is 0.80 + h*0.45 at h = 1.0956; a tenth of that is saved.
		"region loses others, just not": {
			[]Node{held(west, 1, hazard(1.09))},
			[]Candidate{unusable(west, "-"), east, od},
			func(r *Request) { r.Horizon = 2 * time.Hour },
			"",
		},
		"region loses others": {
			[]Node{held(west, 1, hazard(1.10))},
			[]Candidate{unusable(west, "-"), east, od},
			func(r *Request) { r.Horizon = 2 * time.Hour },
			"west-1>east",
		},
		// With a changeover that costs nothing a tenth must be saved: 1.098/0.9 = 1.220 at h = 0.9333.
		"a tenth, just not": {
			[]Node{held(west, 1, hazard(0.93))},
			[]Candidate{unusable(west, "-"), east, od},
			func(r *Request) { r.LostWork, r.Changeover = 9*time.Minute, 0 },
			"",
		},
		"a tenth": {
			[]Node{held(west, 1, hazard(0.94))},
			[]Candidate{unusable(west, "-"), east, od},
			func(r *Request) { r.LostWork, r.Changeover = 9*time.Minute, 0 },
			"west-1>east",
		},
		"hopeless spot": {[]Node{held(west, 1, hazard(9))}, []Candidate{unusable(west, "-"), od}, nil, "west-1>od"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			r := Request{Nodes: len(c.held), Held: c.held, Costs: testCosts()}
			if c.change != nil {
				c.change(&r)
			}
			var got []string
			for _, m := range Relocate(r, c.offers, 2, func(Node) bool { return true }) {
				got = append(got, m.From.ID+">"+m.To)
				must.NotEq(t, "", m.Reason)
			}
			must.Eq(t, c.want, strings.Join(got, " "))
		})
	}
	r := Request{Nodes: 1, Held: []Node{held(od, 1)}, Costs: testCosts()}
	must.SliceEmpty(t, Relocate(r, []Candidate{west, od}, 2, func(Node) bool { return false }))
	must.SliceEmpty(t, Relocate(r, []Candidate{west, od}, 0, func(Node) bool { return true }))
	must.Eq(t, "od-1 costs 3 $/h on demand; west costs 0.8 $/h, which counts as 0.998 with 0.44 interruptions an hour of 0.45 $: "+
		"a move saves 8.01 $ in 4h0m0s and costs 0.38", Relocate(r, []Candidate{west, od}, 1, func(Node) bool { return true })[0].Reason)
}
