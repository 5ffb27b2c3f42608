package pool

import (
	"fmt"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-spotter/autoscaler-plugin/allocate"
	"nomad-spotter/autoscaler-plugin/cloud"
)

var noon = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

func testConfig() Config {
	return Config{
		Name: "training", Limits: allocate.Limits{OnDemandBase: 1}, Migrate: true,
		Costs: allocate.Costs{
			Changeover: 6 * time.Minute, LostWork: 3 * time.Minute, RecoveryUSDPerHour: 3,
			Outage: 2 * time.Hour, PremiumUSDPerHour: 2.2, Horizon: 4 * time.Hour,
		},
		BootTimeout: 10 * time.Minute, DrainDeadline: time.Hour,
		Backoff: 3 * time.Minute, BackoffMax: 30 * time.Minute, ReturnAfter: 10 * time.Minute,
	}
}

// Interruptions per hour to expect of spot instances, over four hours from their age on.
const (
	newHazard  = 0.44
	hourHazard = 0.32
)

func riskOf(o cloud.Offering, hazard float64) Risk {
	if o.Kind == cloud.OnDemand {
		return Risk{}
	}
	return Risk{HazardPerHour: hazard}
}

func offering(name, region string, kind cloud.Kind, price float64) cloud.Offering {
	return cloud.Offering{Name: name, Provider: "local", Region: region, Zone: region + "-a", Kind: kind, PriceUSDPerHour: price}
}

var (
	west = offering("west", "west", cloud.Spot, 0.8)
	east = offering("east", "east", cloud.Spot, 0.9)
	od   = offering("od", "east", cloud.OnDemand, 3)
)

// free is a choice that has been usable for an hour.
func free(o cloud.Offering) Choice {
	return Choice{Offering: o, Risk: riskOf(o, newHazard), Available: true, UpSince: noon.Add(-time.Hour)}
}

func soldOut(o cloud.Offering) Choice { return Choice{Offering: o, Risk: riskOf(o, newHazard)} }

func choice(o cloud.Offering, change func(*Choice)) Choice {
	c := free(o)
	change(&c)
	return c
}

// node is a ready node of an offering, launched an hour and n seconds ago.
func node(o cloud.Offering, n int, change ...func(*Node)) Node {
	out := Node{
		Instance: cloud.Instance{
			ID: fmt.Sprintf("%s-%d", o.Name, n), Provider: o.Provider, Offering: o.Name, Kind: o.Kind, Region: o.Region, Zone: o.Zone,
			PriceUSDPerHour: o.PriceUSDPerHour, State: cloud.Running, LaunchedAt: noon.Add(-time.Hour - time.Duration(n)*time.Second),
		},
		Risk: riskOf(o, hourHazard), Joined: true, Up: true, Eligible: true,
	}
	for _, c := range change {
		c(&out)
	}
	return out
}

func noticed(n *Node) { n.State = cloud.Noticed }

func booting(n *Node) { n.Joined, n.Up, n.Eligible, n.DownSince = false, false, false, n.LaunchedAt }

func downFor(d time.Duration) func(*Node) {
	return func(n *Node) { n.Up, n.DownSince = false, noon.Add(-d) }
}

func young(n *Node) {
	n.LaunchedAt = noon.Add(-time.Minute)
	n.DownSince = n.LaunchedAt
	n.Risk = riskOf(cloud.Offering{Kind: n.Kind}, newHazard)
}

func draining(work int, age time.Duration) func(*Node) {
	return func(n *Node) { n.Draining, n.Eligible, n.Work, n.DrainSince = true, false, work, noon.Add(-age) }
}

// risky is a node whose region has begun to lose others: 0.80 + 2*0.45 = 1.70.
func risky(n *Node) { n.HazardPerHour = 2 }

func outbid(n *Node) { n.Outbid = 0.5 }

func maybeOutbid(n *Node) { n.Outbid = 0.3 }

func many(o cloud.Offering, count int, change ...func(*Node)) []Node {
	var nodes []Node
	for i := range count {
		nodes = append(nodes, node(o, i, change...))
	}
	return nodes
}

func cordoned(n *Node) { n.Eligible = false }

// brief writes actions as "verb what".
func brief(actions []Action) []string {
	out := make([]string, 0, len(actions))
	for _, a := range actions {
		what := a.Instance
		if what == "" {
			what = a.Offering
		}
		out = append(out, string(a.Verb)+" "+what)
	}
	return out
}

func TestDecide(t *testing.T) {
	all := []Choice{free(west), free(east), free(od)}
	losing := []Choice{choice(west, func(c *Choice) { c.HazardPerHour = 3 }), free(east), free(od)}
	noSpot := []Choice{soldOut(west), soldOut(east), free(od)}
	cases := map[string]struct {
		desired int
		nodes   []Node
		choices []Choice
		change  func(*Config, *View)
		want    []string
	}{
		"nothing wanted":                     {0, nil, all, nil, nil},
		"base first":                         {1, nil, all, nil, []string{"launch od"}},
		"base is at most desired":            {0, []Node{node(od, 1)}, all, nil, []string{"drain od-1"}},
		"cheapest spot, then another region": {3, nil, all, nil, []string{"launch od", "launch west", "launch east"}},
		// With e = 0.44/1.88 = 0.234 outages an hour of the new node and 0.32/1.64 = 0.195 of the old one, west's second node
		// counts as 0.80 + 0.44*0.45 + 2*4.4*0.80*sqrt(0.234*0.195)/3 = 1.499. In the other region the last term is 0.088, so
		// that it may cost up to 1.499 - 0.198 - 0.088 = 1.214.
		"region just cheap enough": {
			3,
			[]Node{node(od, 1), node(west, 1)},
			[]Choice{free(west), free(offering("east", "east", cloud.Spot, 1.21)), free(od)},
			nil,
			[]string{"launch east"},
		},
		"region just too dear": {
			3,
			[]Node{node(od, 1), node(west, 1)},
			[]Choice{free(west), free(offering("east", "east", cloud.Spot, 1.22)), free(od)},
			nil,
			[]string{"launch west"},
		},
		// 2.80 + 0.44*0.45 = 2.998.
		"spot just worth its risk": {
			2,
			[]Node{node(od, 1)},
			[]Choice{free(offering("west", "west", cloud.Spot, 2.80)), free(od)},
			nil,
			[]string{"launch west"},
		},
		"spot not worth its risk": {
			2,
			[]Node{node(od, 1)},
			[]Choice{free(offering("west", "west", cloud.Spot, 2.81)), free(od)},
			nil,
			[]string{"launch od"},
		},
		"spot taken back all the time": {
			2,
			[]Node{node(od, 1)},
			[]Choice{choice(west,
				func(c *Choice) { c.HazardPerHour = 5 }), free(od)},
			nil,
			[]string{"launch od"},
		},
		"about to be outbid": {
			2,
			[]Node{node(od, 1)},
			[]Choice{choice(west,
				func(c *Choice) { c.Outbid = 0.5 }), free(east), free(od)},
			nil,
			[]string{"launch east"},
		},
		"share above the base": {
			4, nil, all,
			func(c *Config, _ *View) { c.OnDemandShare = 0.5 },
			[]string{"launch od", "launch od", "launch od", "launch west"},
		},
		"max_nodes": {
			3,
			[]Node{node(od, 1), node(west, 1)},
			[]Choice{choice(west,
				func(c *Choice) { c.MaxNodes = 1 }), free(od)},
			nil,
			[]string{"launch od"},
		},
		"budget": {
			3,
			[]Node{node(od, 1), node(west, 1)},
			all,
			func(c *Config, _ *View) { c.BudgetUSDPerHour = 4.6 },
			[]string{"launch west"},
		},
		"no spot, fallback": {3, []Node{node(od, 1), node(west, 1)}, noSpot, nil, []string{"launch od"}},
		"no on-demand, spot for the base": {
			2, nil, []Choice{free(west), free(east), soldOut(od)}, nil, []string{"launch west", "launch east"},
		},
		"nothing to be had": {2, nil, []Choice{soldOut(west), soldOut(od)}, nil, nil},
		"one short":         {2, []Node{node(od, 1)}, all, nil, []string{"launch west"}},
		"just right":        {2, []Node{node(od, 1), node(west, 1)}, all, nil, nil},
		"one too many": {
			2, []Node{node(od, 1), node(west, 1), node(east, 1)}, all, nil, []string{"drain east-1"},
		},
		"booting nodes count":         {2, []Node{node(od, 1), node(west, 1, booting, young)}, all, nil, nil},
		"noticed is replaced at once": {2, []Node{node(od, 1), node(west, 1, noticed)}, all, nil, []string{"launch west"}},
		"noticed is not ended early":  {1, []Node{node(od, 1), node(west, 1, noticed)}, all, nil, nil},
		"noticed base":                {2, []Node{node(od, 1, noticed), node(west, 1)}, all, nil, []string{"launch od"}},
		"back-off until now": {
			2,
			[]Node{node(od, 1)},
			[]Choice{choice(west,
				func(c *Choice) { c.RetryAt = noon }), free(od)},
			nil,
			[]string{"launch west"},
		},
		"back-off a moment more": {
			2,
			[]Node{node(od, 1)},
			[]Choice{choice(west,
				func(c *Choice) { c.RetryAt = noon.Add(1) }), free(od)},
			nil,
			[]string{"launch od"},
		},

		"boot timeout not reached": {2, []Node{node(od, 1), node(west, 1, booting, downFor(10*time.Minute-1))}, all, nil, nil},
		"boot timeout reached": {
			2, []Node{node(od, 1), node(west, 1, booting, downFor(10*time.Minute))}, all, nil, []string{"launch west", "give-up west-1"},
		},
		"down node given up": {
			2, []Node{node(od, 1), node(west, 1, downFor(10*time.Minute))}, all, nil, []string{"launch west", "give-up west-1"},
		},

		"booting goes before ready": {
			2, []Node{node(od, 1), node(west, 1, booting, young), node(east, 1)}, all, nil, []string{"terminate west-1"},
		},
		"never below desired ready": {
			2, []Node{node(od, 1), node(west, 1, cordoned), node(east, 1, cordoned)}, all, nil, []string{"drain east-1"},
		},
		"closed by an operator goes first": {
			3,
			[]Node{node(od, 1), node(west, 1), node(west, 2, cordoned), node(east, 1)},
			all, nil,
			[]string{"drain west-2"},
		},
		"fallback waits for its successor": {2, []Node{node(od, 1), node(od, 2), node(west, 1, booting, young)}, all, nil, nil},
		"fallback goes after it": {
			2, []Node{node(od, 1), node(od, 2), node(west, 1)}, all, nil, []string{"drain od-1"},
		},
		"base is kept": {1, []Node{node(od, 1), node(west, 1)}, all, nil, []string{"drain west-1"}},

		"drained": {
			1, []Node{node(od, 1), node(west, 1, draining(0, time.Minute))}, all, nil, []string{"terminate west-1"},
		},
		"work left": {1, []Node{node(od, 1), node(west, 1, draining(1, time.Hour-1))}, all, nil, nil},
		"work left too long": {
			1, []Node{node(od, 1), node(west, 1, draining(1, time.Hour))}, all, nil, []string{"stop-work west-1"},
		},
		"drain taken back": {
			2, []Node{node(od, 1), node(west, 1, draining(1, time.Minute))}, all, nil, []string{"undrain west-1"},
		},
		"drain of base taken back": {
			1, []Node{node(od, 1, draining(1, time.Minute)), node(west, 1)}, all, nil, []string{"undrain od-1"},
		},
		"noticed drain is not": {
			2, []Node{node(od, 1), node(west, 1, draining(1, time.Minute), noticed)}, all, nil, []string{"launch west"},
		},
		"down drain is not": {
			2, []Node{node(od, 1), node(west, 1, draining(1, time.Minute), downFor(time.Minute))}, all, nil, []string{"launch west"},
		},
		"down drain ends": {
			1, []Node{node(od, 1), node(west, 1, draining(1, time.Minute), downFor(10*time.Minute))}, all, nil, []string{"terminate west-1"},
		},

		"return to spot": {2, []Node{node(od, 1), node(od, 2)}, all, nil, []string{"launch west"}},
		"return: exactly long enough": {
			2,
			[]Node{node(od, 1), node(od, 2)},
			[]Choice{choice(west,
				func(c *Choice) { c.UpSince = noon.Add(-10 * time.Minute) }), free(od)},
			nil,
			[]string{"launch west"},
		},
		"return: a moment too early": {
			2,
			[]Node{node(od, 1), node(od, 2)},
			[]Choice{choice(west,
				func(c *Choice) { c.UpSince = noon.Add(-10*time.Minute + 1) }), free(od)},
			nil, nil,
		},
		"return: spot as dear": {
			2, []Node{node(od, 1), node(od, 2)}, []Choice{free(offering("west", "west", cloud.Spot, 3)), free(od)}, nil, nil,
		},
		// 2.708 of 3
		"return: saves too little": {
			2, []Node{node(od, 1), node(od, 2)}, []Choice{free(offering("west", "west", cloud.Spot, 2.51)), free(od)}, nil, nil,
		},
		"return: saves a tenth": {
			2,
			[]Node{node(od, 1), node(od, 2)},
			[]Choice{free(offering("west", "west", cloud.Spot, 2.50)), free(od)},
			nil,
			[]string{"launch west"},
		},
		"return: one at a time":     {3, []Node{node(od, 1), node(od, 2), node(od, 3)}, all, nil, []string{"launch west"}},
		"return: not while booting": {2, []Node{node(od, 1), node(od, 2, booting, young)}, all, nil, nil},
		"return: not while draining": {
			2, []Node{node(od, 1), node(od, 2), node(east, 1, draining(1, time.Minute))}, all, nil, nil,
		},

		"risk: moved before it is taken": {2, []Node{node(od, 1), node(west, 1, risky)}, losing, nil, []string{"launch east"}},
		"risk: not when told not to": {
			2, []Node{node(od, 1), node(west, 1, risky)}, losing, func(c *Config, _ *View) { c.Migrate = false }, nil,
		},
		"risk: waits for its successor": {
			2, []Node{node(od, 1), node(west, 1, risky), node(east, 1, booting, young)}, losing, nil, nil,
		},
		"risk: goes after it": {
			2, []Node{node(od, 1), node(west, 1, risky), node(east, 1, young)}, losing, nil, []string{"drain west-1"},
		},
		"outbid: moved before": {2, []Node{node(od, 1), node(west, 1, outbid)}, all, nil, []string{"launch west"}},
		"outbid: moved while another drains": {
			2, []Node{node(od, 1), node(west, 1, outbid), node(east, 1, draining(1, time.Minute))}, all, nil, []string{"launch west"},
		},
		"outbid: waits for its successor": {
			2, []Node{node(od, 1), node(west, 1, outbid), node(east, 1, booting, young)}, all, nil, nil,
		},
		// The forecast has become better; what was launched for it is not ended before it works.
		"outbid: maybe, waits for its successor": {
			2, []Node{node(od, 1), node(west, 1, maybeOutbid), node(od, 2, booting, young)}, noSpot, nil, nil,
		},
		"outbid: maybe, its successor is too much after all": {
			2, []Node{node(od, 1), node(west, 1, maybeOutbid), node(od, 2)}, noSpot, nil, []string{"drain od-1"},
		},
		"outbid: maybe, more is too much than moves": {
			2,
			[]Node{node(od, 1), node(west, 1, maybeOutbid), node(od, 2, booting, young), node(od, 3, booting, young)},
			noSpot, nil,
			[]string{"terminate od-2"},
		},
		"outbid: hardly, no successor": {
			2,
			[]Node{node(od, 1), node(west, 1, func(n *Node) { n.Outbid = 0.29 }), node(od, 2, booting, young)},
			noSpot, nil,
			[]string{"terminate od-2"},
		},
		"budget: the base comes back in the place of spot": {
			2,
			[]Node{node(west, 1), node(east, 1)},
			all,
			func(c *Config, _ *View) { c.BudgetUSDPerHour = 3.8 },
			[]string{"launch od"},
		},
		"budget: a fallback that has used it up goes back to spot": {
			2,
			[]Node{node(od, 1), node(od, 2)},
			all,
			func(c *Config, _ *View) { c.BudgetUSDPerHour = 6 },
			[]string{"launch west"},
		},
		"outbid: to on-demand": {2, []Node{node(od, 1), node(west, 1, outbid)}, noSpot, nil, []string{"launch od"}},
		"over its share": {
			3,
			[]Node{node(od, 1), node(west, 1), node(west, 2)},
			all,
			func(c *Config, _ *View) { c.ZoneShare = 0.34 },
			[]string{"launch east"},
		},
		"a tenth of the pool at once": {
			20, many(west, 20, risky), losing,
			func(c *Config, _ *View) { c.OnDemandBase = 0 },
			[]string{"launch east", "launch east"},
		},

		"Nomad unknown: launches only": {
			3,
			[]Node{node(od, 1), node(west, 1, downFor(time.Hour))},
			all,
			func(_ *Config, v *View) { v.NomadKnown = false },
			[]string{"launch east"},
		},
		"Nomad unknown: no drain": {0, []Node{node(od, 1)}, all, func(_ *Config, v *View) { v.NomadKnown = false }, nil},
		"without base":            {1, nil, all, func(c *Config, _ *View) { c.OnDemandBase = 0 }, []string{"launch west"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			config := testConfig()
			view := View{Now: noon, Desired: c.desired, NomadKnown: true, Nodes: c.nodes, Choices: c.choices}
			if c.change != nil {
				c.change(&config, &view)
			}
			actions := Decide(config, view).Actions
			got := brief(actions)
			if len(c.want) == 0 {
				must.SliceEmpty(t, got)
			} else {
				must.Eq(t, c.want, got)
			}
			for _, a := range actions {
				must.NotEq(t, "", a.Reason)
			}
		})
	}
}

func TestDecide_reasons(t *testing.T) {
	view := View{Now: noon, Desired: 2, NomadKnown: true, Nodes: []Node{node(od, 1)}, Choices: []Choice{
		soldOut(west), {Offering: east, Available: true, RetryAt: noon.Add(90 * time.Second)}, free(od),
	}}
	actions := Decide(testConfig(), view).Actions
	must.Len(t, 1, actions)
	must.Eq(t, "1 of 2 nodes are there; no spot can be had: east is left alone for 1m30s, west is not available", actions[0].Reason)
}
