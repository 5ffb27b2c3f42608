package allocate

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/shoenig/test/must"
)

// The costs of the examples: an interruption is (6 min + 3 min) * 3 $/h = 0.45 $; an outage fills a place on demand for
// 2 h * 2.20 $/h = 4.40 $.
func testCosts() Costs {
	return Costs{
		Changeover: 6 * time.Minute, LostWork: 3 * time.Minute, RecoveryUSDPerHour: 3,
		Outage: 2 * time.Hour, PremiumUSDPerHour: 2.2, Horizon: 4 * time.Hour,
	}
}

func spot(name, region, zone string, price, hazard float64) Candidate {
	return Candidate{Offer: Offer{
		Offering: name, Region: region, Zone: zone, Type: "v100", PriceUSDPerHour: price, HazardPerHour: hazard,
	}}
}

func onDemand(name string, price float64) Candidate {
	return Candidate{Offer: Offer{
		Offering: name, Region: "east", Zone: "east-a", Type: "v100", OnDemand: true, PriceUSDPerHour: price,
	}}
}

func unusable(c Candidate, why string) Candidate {
	c.Unusable = why
	return c
}

func atMost(n int, c Candidate) Candidate {
	c.MaxNodes = n
	return c
}

// bidden is a candidate that is outbid within the hour with a probability.
func bidden(c Candidate, p float64) Candidate {
	c.Outbid = p
	return c
}

// held is an hour-old node, number n of an offering.
func held(c Candidate, n int, change ...func(*Node)) Node {
	out := Node{ID: fmt.Sprintf("%s-%d", c.Offering, n), Offer: c.Offer, Age: time.Hour}
	for _, f := range change {
		f(&out)
	}
	return out
}

func near(t *testing.T, want, got float64) {
	t.Helper()
	if math.Abs(want-got) > 5e-4 {
		t.Fatalf("want %v, got %v", want, got)
	}
}

// What one more node costs, as worked out by hand.
func TestEffective(t *testing.T) {
	c := testCosts()
	west := spot("west", "west", "west-a", 0.80, 0.44)
	near(t, 0.45, c.interruption(west.Offer))
	near(t, 0.2340, c.outages(west.Offer)) // 0.44 / (1 + 0.44*2)

	w := newCrowd()
	near(t, 0.998, w.effective(c, west.Offer, 3)) // 0.80 + 0.44*0.45
	near(t, 3, w.effective(c, onDemand("od", 3).Offer, 3))
	w.add(c, west.Offer, 1)
	for _, x := range []struct {
		second      Candidate
		correlation float64
	}{
		{west, 0.80},
		{spot("w2", "west", "west-b", 0.80, 0.44), 0.40},
		{spot("e", "east", "east-a", 0.80, 0.44), 0.14},
		{Candidate{Offer: Offer{Region: "west", Zone: "west-a", Type: "k80", PriceUSDPerHour: 0.80, HazardPerHour: 0.44}}, 0.09},
	} {
		near(t, 0.998+2*4.4*x.correlation*0.2340/3, w.effective(c, x.second.Offer, 3))
	}
	near(t, 3, w.effective(c, onDemand("od", 3).Offer, 3))
	w.add(c, west.Offer, -1)
	near(t, 0.998, w.effective(c, west.Offer, 3))

	// Without a recovery price the node's own counts; what may be outbid with 50 % within the hour risks ln 2 more.
	c.RecoveryUSDPerHour = 0
	near(t, 0.15*0.80, c.interruption(west.Offer))
	west.Outbid = 0.5
	near(t, 0.80+(0.44+math.Ln2)*0.12, w.effective(c, west.Offer, 3))
	west.Outbid = 1
	must.False(t, math.IsInf(w.effective(c, west.Offer, 3), 0))
}

func TestRequest_OnDemand(t *testing.T) {
	for _, c := range []struct {
		nodes, base int
		share       float64
		want        int
	}{
		{10, 2, 0, 2},
		{10, 2, 0.3, 5},
		{10, 2, 0.25, 4},
		{10, 2, 1, 10},
		{1, 2, 0.5, 1},
		{0, 2, 0.5, 0},
		{10, 0, 0.01, 1},
		{10, 0, 0.1, 1},
	} {
		r := Request{Nodes: c.nodes, Limits: Limits{OnDemandBase: c.base, OnDemandShare: c.share}}
		must.Eq(t, c.want, r.OnDemand(), must.Sprint(c))
	}
}

func names(p Plan) string {
	var out []string
	for _, k := range p.Picks {
		name := k.Offering
		if k.Base {
			name += "!"
		}
		out = append(out, name)
	}
	if p.Missing > 0 {
		out = append(out, fmt.Sprintf("-%d", p.Missing))
	}
	return strings.Join(out, " ")
}

func TestMix(t *testing.T) {
	west, west2 := spot("west", "west", "west-a", 0.80, 0.44), spot("west2", "west", "west-b", 0.80, 0.44)
	east, north := spot("east", "east", "east-a", 0.90, 0.44), spot("north", "north", "north-a", 0.80, 0.44)
	od, od2 := onDemand("od", 3), onDemand("od2", 2.9)
	all := []Candidate{west, west2, east, od}
	cases := map[string]struct {
		nodes  int
		held   []Node
		offers []Candidate
		change func(*Request)
		want   string
	}{
		"nothing wanted": {0, nil, all, nil, ""},
		"base first":     {2, nil, all, func(r *Request) { r.OnDemandBase = 1 }, "od! west"},
		"cheapest base":  {1, nil, []Candidate{od, od2}, func(r *Request) { r.OnDemandBase = 1 }, "od2!"},
		// 2 + ceil(0.3*3) = 3 on demand.
		"share above the base": {
			5, nil, all, func(r *Request) { r.OnDemandBase, r.OnDemandShare = 2, 0.3 }, "od! od! od! west east",
		},
		"share is there": {2, []Node{held(od, 1)}, all, func(r *Request) { r.OnDemandShare = 0.5 }, "west"},
		"base beyond the count": {
			1, []Node{held(west, 1)}, all, func(r *Request) { r.OnDemandBase = 1 }, "od!",
		},
		"no on-demand, spot for the base": {
			2, nil, []Candidate{west, unusable(od, "is sold out")}, func(r *Request) { r.OnDemandBase = 1 }, "west west",
		},

		// In a pool of 2 the second costs 0.998 + 0.8*8.8*0.234/2 = 1.822 in west, 1.410 in west2, and
		// 1.098 + 0.14*8.8*0.234/2 = 1.242 in east.
		"second in another region": {2, []Node{held(west, 1)}, all, nil, "east"},
		"just cheap enough": {
			2, []Node{held(west, 1)}, []Candidate{west, spot("east", "east", "east-a", 1.479, 0.44)}, nil, "east",
		},
		"just too dear": {
			2, []Node{held(west, 1)}, []Candidate{west, spot("east", "east", "east-a", 1.481, 0.44)}, nil, "west",
		},
		"equal: other region": {
			2, []Node{held(west, 1, quiet)}, []Candidate{calm(north), calm(west2), calm(west)}, nil, "north",
		},
		"equal: other zone": {2, []Node{held(west, 1, quiet)}, []Candidate{calm(west), calm(west2)}, nil, "west2"},
		"equal: first name": {1, nil, []Candidate{calm(west2), calm(west)}, nil, "west"},
		"equal: on-demand":  {1, nil, []Candidate{spot("a", "east", "east-a", 3, 0), od}, nil, "od"},

		// 0.80 + h*0.45 = 3 at h = 4.889.
		"spot just worth its risk": {1, nil, []Candidate{spot("west", "west", "west-a", 0.8, 4.88), od}, nil, "west"},
		"spot just not worth it":   {1, nil, []Candidate{spot("west", "west", "west-a", 0.8, 4.90), od}, nil, "od"},
		"no spot, fallback":        {2, nil, []Candidate{unusable(west, "is sold out"), od}, nil, "od od"},
		"nothing to be had":        {2, nil, []Candidate{unusable(west, "is sold out")}, nil, "-2"},
		"no candidates":            {2, nil, nil, nil, "-2"},
		"about to be outbid":       {1, nil, []Candidate{bidden(west, 0.5), od}, nil, "od"},
		"perhaps outbid":           {1, nil, []Candidate{bidden(west, 0.49), od}, nil, "west"},
		"no price": {
			1, nil, []Candidate{spot("west", "west", "west-a", math.NaN(), 0), spot("x", "x", "x", 1, math.NaN())}, nil, "-1",
		},

		"max_nodes":          {3, nil, []Candidate{atMost(1, west), od}, nil, "west od od"},
		"max_nodes with one": {2, []Node{held(west, 1)}, []Candidate{atMost(1, west), od}, nil, "od"},
		// floor(0.5*5) = 2 in a region.
		"region share": {
			5, nil, []Candidate{west, west2, od}, func(r *Request) { r.RegionShare = 0.5 }, "west west2 od od od",
		},
		"zone share": {5, nil, []Candidate{west, od}, func(r *Request) { r.ZoneShare = 0.5 }, "west west od od od"},
		"offering share": {
			5, nil, []Candidate{west, od}, func(r *Request) { r.OfferingShare = 0.2 }, "west od od od od",
		},
		"share of one node": {1, nil, []Candidate{west, od}, func(r *Request) { r.ZoneShare = 0.1 }, "west"},
		"share broken by what is": {
			4, []Node{held(west, 1), held(west, 2)}, []Candidate{west, od}, func(r *Request) { r.ZoneShare = 0.25 }, "od od",
		},

		"budget":       {3, nil, []Candidate{od}, func(r *Request) { r.BudgetUSDPerHour = 6 }, "od od -1"},
		"budget spent": {2, []Node{held(od, 1)}, []Candidate{west}, func(r *Request) { r.BudgetUSDPerHour = 3 }, "-1"},
		// Spot took the place of the base while that could not be had, and has used up the budget.
		"budget: the base comes back": {
			2,
			[]Node{held(west, 1), held(west, 2)},
			[]Candidate{west, od},
			func(r *Request) { r.BudgetUSDPerHour, r.OnDemandBase = 3.8, 1 },
			"od!",
		},
		"budget: the base is too dear": {
			2,
			[]Node{held(west, 1), held(west, 2)},
			[]Candidate{west, od},
			func(r *Request) { r.BudgetUSDPerHour, r.OnDemandBase = 3.7, 1 },
			"",
		},
		"budget: each node of the base in another's place": {
			3,
			[]Node{held(west, 1), held(west, 2), held(west, 3)},
			[]Candidate{west, od},
			func(r *Request) { r.BudgetUSDPerHour, r.OnDemandBase = 6.8, 2 },
			"od! od!",
		},
		"budget: cheap enough": {
			2, []Node{held(od, 1)}, []Candidate{west}, func(r *Request) { r.BudgetUSDPerHour = 3.8 }, "west",
		},
		"budget keeps for others": {
			3, nil,
			[]Candidate{spot("calm", "east", "east-a", 1, 0), spot("cheap", "west", "west-a", 0.8, 1)},
			func(r *Request) { r.BudgetUSDPerHour = 2.6 },
			"calm cheap cheap",
		},
		"budget too small": {
			3, nil,
			[]Candidate{spot("calm", "east", "east-a", 1, 0), spot("cheap", "west", "west-a", 0.8, 1)},
			func(r *Request) { r.BudgetUSDPerHour = 2 },
			"calm calm -1",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			r := Request{Nodes: c.nodes, Held: c.held, Costs: testCosts()}
			if c.change != nil {
				c.change(&r)
			}
			p := Mix(r, c.offers)
			must.Eq(t, c.want, names(p))
			for _, k := range p.Picks {
				must.NotEq(t, "", k.Reason)
			}
			must.Eq(t, p.Missing > 0, p.Why != "")
		})
	}
}

// The same neighbour is a smaller share of a larger pool: in one of 20 the second costs 1.080 in west, 1.039 in west2,
// 1.112 in east.
func TestMix_poolSize(t *testing.T) {
	west, west2 := spot("west", "west", "west-a", 0.80, 0.44), spot("west2", "west", "west-b", 0.80, 0.44)
	east := spot("east", "east", "east-a", 0.90, 0.44)
	r := Request{Nodes: 20, Held: []Node{held(west, 1)}, Costs: testCosts()}
	must.Eq(t, "west2", Mix(r, []Candidate{west, west2, east}).Picks[0].Offering)
	must.Eq(t, "west", Mix(r, []Candidate{west, east}).Picks[0].Offering)
}

// calm is a candidate that is never interrupted; quiet a node.
func calm(c Candidate) Candidate {
	c.HazardPerHour = 0
	return c
}

func quiet(n *Node) { n.HazardPerHour = 0 }

func TestMix_reasons(t *testing.T) {
	west := spot("west", "west", "west-a", 0.80, 0.44)
	od := onDemand("od", 3)
	r := Request{Nodes: 2, Costs: testCosts()}
	first := Mix(r, []Candidate{west, od})
	must.Eq(t, "0 of 2 nodes are there; west is the best at 0.8 $/h, which counts as 0.998 with 0.44 interruptions an hour "+
		"of 0.45 $", first.Picks[0].Reason)
	must.Eq(t, "1 of 2 nodes are there; west is the best at 0.8 $/h, which counts as 1.822 with 0.44 interruptions an hour of 0.45 $ "+
		"and 1 spot nodes in west, 1 of them in west-a", first.Picks[1].Reason)

	r.Nodes, r.OnDemandBase = 1, 1
	must.Eq(t, "base: 0 of 1 on-demand nodes are there", Mix(r, []Candidate{od}).Picks[0].Reason)
	r.OnDemandBase = 0
	must.Eq(t, "0 of 1 nodes are there; no spot can be had: west is sold out",
		Mix(r, []Candidate{od, unusable(west, "is sold out")}).Picks[0].Reason)
	must.Eq(t, "0 of 1 nodes are there; no spot can be had: the pool has no such offering", Mix(r, []Candidate{od}).Picks[0].Reason)
	r.Held = []Node{held(west, 1)}
	r.Nodes, r.ZoneShare = 2, 0.5
	must.Eq(t, "1 of 2 nodes are there; no spot can be had: west is kept to 1 of 2 nodes as spot in zone west-a by max_share_per_zone",
		Mix(r, []Candidate{west, od}).Picks[0].Reason)
	r = Request{Nodes: 1, Costs: testCosts()}
	must.Eq(t, "0 of 1 nodes are there; od is the best at 3 $/h on demand, spot is not worth its risk: "+
		"wild costs 0.8 $/h, which counts as 3.5 with 6 interruptions an hour of 0.45 $; od 3",
		Mix(r, []Candidate{od, spot("wild", "x", "x", 0.8, 6)}).Picks[0].Reason)
	r.BudgetUSDPerHour = 2
	must.Eq(t, "0 of 1 nodes are there; nothing can be had: od at 3 $/h exceeds the budget, of which 0 of 2 $/h are spent",
		Mix(r, []Candidate{od}).Why)
}
