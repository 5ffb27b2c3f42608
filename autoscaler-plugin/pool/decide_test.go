package pool

import (
	"fmt"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-spotter/autoscaler-plugin/cloud"
)

var noon = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

func testConfig() Config {
	return Config{
		Name: "training", OnDemandBase: 1, BootTimeout: 10 * time.Minute, DrainDeadline: time.Hour,
		Backoff: 3 * time.Minute, BackoffMax: 30 * time.Minute, ReturnAfter: 10 * time.Minute,
	}
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
	return Choice{Offering: o, Available: true, UpSince: noon.Add(-time.Hour)}
}

func soldOut(o cloud.Offering) Choice { return Choice{Offering: o} }

// node is a ready node of an offering, launched an hour and n seconds ago.
func node(o cloud.Offering, n int, change ...func(*Node)) Node {
	out := Node{
		Instance: cloud.Instance{
			ID: fmt.Sprintf("%s-%d", o.Name, n), Provider: o.Provider, Offering: o.Name, Kind: o.Kind, Region: o.Region, Zone: o.Zone,
			PriceUSDPerHour: o.PriceUSDPerHour, State: cloud.Running, LaunchedAt: noon.Add(-time.Hour - time.Duration(n)*time.Second),
		},
		Joined: true, Up: true, Eligible: true,
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

func young(n *Node) { n.LaunchedAt = noon.Add(-time.Minute); n.DownSince = n.LaunchedAt }

func draining(work int, age time.Duration) func(*Node) {
	return func(n *Node) { n.Draining, n.Eligible, n.Work, n.DrainSince = true, false, work, noon.Add(-age) }
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
		// 0.80 + 50 % + 25 % = 1.40 in west against 1.39 and 1.41 in the other region.
		"region just cheap enough":        {3, []Node{node(od, 1), node(west, 1)}, []Choice{free(west), free(offering("east", "east", cloud.Spot, 1.39)), free(od)}, nil, []string{"launch east"}},
		"region just too dear":            {3, []Node{node(od, 1), node(west, 1)}, []Choice{free(west), free(offering("east", "east", cloud.Spot, 1.41)), free(od)}, nil, []string{"launch west"}},
		"spot as dear as on-demand":       {2, []Node{node(od, 1)}, []Choice{free(offering("west", "west", cloud.Spot, 3)), free(od)}, nil, []string{"launch west"}},
		"spot dearer than on-demand":      {2, []Node{node(od, 1)}, []Choice{free(offering("west", "west", cloud.Spot, 3.01)), free(od)}, nil, []string{"launch od"}},
		"no spot, fallback":               {3, []Node{node(od, 1), node(west, 1)}, noSpot, nil, []string{"launch od"}},
		"no on-demand, spot for the base": {2, nil, []Choice{free(west), free(east), soldOut(od)}, nil, []string{"launch west", "launch east"}},
		"nothing to be had":               {2, nil, []Choice{soldOut(west), soldOut(od)}, nil, nil},
		"one short":                       {2, []Node{node(od, 1)}, all, nil, []string{"launch west"}},
		"just right":                      {2, []Node{node(od, 1), node(west, 1)}, all, nil, nil},
		"one too many":                    {2, []Node{node(od, 1), node(west, 1), node(east, 1)}, all, nil, []string{"drain east-1"}},
		"booting nodes count":             {2, []Node{node(od, 1), node(west, 1, booting, young)}, all, nil, nil},
		"noticed is replaced at once":     {2, []Node{node(od, 1), node(west, 1, noticed)}, all, nil, []string{"launch west"}},
		"noticed is not ended early":      {1, []Node{node(od, 1), node(west, 1, noticed)}, all, nil, nil},
		"noticed base":                    {2, []Node{node(od, 1, noticed), node(west, 1)}, all, nil, []string{"launch od"}},
		"back-off until now":              {2, []Node{node(od, 1)}, []Choice{{Offering: west, Available: true, RetryAt: noon}, free(od)}, nil, []string{"launch west"}},
		"back-off a moment more":          {2, []Node{node(od, 1)}, []Choice{{Offering: west, Available: true, RetryAt: noon.Add(1)}, free(od)}, nil, []string{"launch od"}},

		"boot timeout not reached": {2, []Node{node(od, 1), node(west, 1, booting, downFor(10*time.Minute-1))}, all, nil, nil},
		"boot timeout reached":     {2, []Node{node(od, 1), node(west, 1, booting, downFor(10*time.Minute))}, all, nil, []string{"launch west", "give-up west-1"}},
		"down node given up":       {2, []Node{node(od, 1), node(west, 1, downFor(10*time.Minute))}, all, nil, []string{"launch west", "give-up west-1"}},

		"booting goes before ready":        {2, []Node{node(od, 1), node(west, 1, booting, young), node(east, 1)}, all, nil, []string{"terminate west-1"}},
		"never below desired ready":        {2, []Node{node(od, 1), node(west, 1, cordoned), node(east, 1, cordoned)}, all, nil, []string{"drain east-1"}},
		"fallback waits for its successor": {2, []Node{node(od, 1), node(od, 2), node(west, 1, booting, young)}, all, nil, nil},
		"fallback goes after it":           {2, []Node{node(od, 1), node(od, 2), node(west, 1)}, all, nil, []string{"drain od-1"}},
		"base is kept":                     {1, []Node{node(od, 1), node(west, 1)}, all, nil, []string{"drain west-1"}},

		"drained":                  {1, []Node{node(od, 1), node(west, 1, draining(0, time.Minute))}, all, nil, []string{"terminate west-1"}},
		"work left":                {1, []Node{node(od, 1), node(west, 1, draining(1, time.Hour-1))}, all, nil, nil},
		"work left too long":       {1, []Node{node(od, 1), node(west, 1, draining(1, time.Hour))}, all, nil, []string{"stop-work west-1"}},
		"drain taken back":         {2, []Node{node(od, 1), node(west, 1, draining(1, time.Minute))}, all, nil, []string{"undrain west-1"}},
		"drain of base taken back": {1, []Node{node(od, 1, draining(1, time.Minute)), node(west, 1)}, all, nil, []string{"undrain od-1"}},
		"noticed drain is not":     {2, []Node{node(od, 1), node(west, 1, draining(1, time.Minute), noticed)}, all, nil, []string{"launch west"}},
		"down drain is not":        {2, []Node{node(od, 1), node(west, 1, draining(1, time.Minute), downFor(time.Minute))}, all, nil, []string{"launch west"}},
		"down drain ends":          {1, []Node{node(od, 1), node(west, 1, draining(1, time.Minute), downFor(10*time.Minute))}, all, nil, []string{"terminate west-1"}},

		"return to spot":              {2, []Node{node(od, 1), node(od, 2)}, all, nil, []string{"launch west"}},
		"return: exactly long enough": {2, []Node{node(od, 1), node(od, 2)}, []Choice{{Offering: west, Available: true, UpSince: noon.Add(-10 * time.Minute)}, free(od)}, nil, []string{"launch west"}},
		"return: a moment too early":  {2, []Node{node(od, 1), node(od, 2)}, []Choice{{Offering: west, Available: true, UpSince: noon.Add(-10*time.Minute + 1)}, free(od)}, nil, nil},
		"return: spot as dear":        {2, []Node{node(od, 1), node(od, 2)}, []Choice{free(offering("west", "west", cloud.Spot, 3)), free(od)}, nil, nil},
		"return: one at a time":       {3, []Node{node(od, 1), node(od, 2), node(od, 3)}, all, nil, []string{"launch west"}},
		"return: not while booting":   {2, []Node{node(od, 1), node(od, 2, booting, young)}, all, nil, nil},
		"return: not while draining":  {2, []Node{node(od, 1), node(od, 2), node(east, 1, draining(1, time.Minute))}, all, nil, nil},

		"Nomad unknown: launches only": {3, []Node{node(od, 1), node(west, 1, downFor(time.Hour))}, all, func(_ *Config, v *View) { v.NomadKnown = false }, []string{"launch east"}},
		"Nomad unknown: no drain":      {0, []Node{node(od, 1)}, all, func(_ *Config, v *View) { v.NomadKnown = false }, nil},
		"without base":                 {1, nil, all, func(c *Config, _ *View) { c.OnDemandBase = 0 }, []string{"launch west"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			config := testConfig()
			view := View{Now: noon, Desired: c.desired, NomadKnown: true, Nodes: c.nodes, Choices: c.choices}
			if c.change != nil {
				c.change(&config, &view)
			}
			actions := Decide(config, view)
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
	actions := Decide(testConfig(), view)
	must.Len(t, 1, actions)
	must.Eq(t, "1 of 2 nodes are there; no spot can be had: east is left alone for 1m30s, west is not available", actions[0].Reason)
}

func TestMemory_backoff(t *testing.T) {
	c := testConfig()
	m := newMemory()
	must.True(t, m.retryAt(c, "west").IsZero())
	for _, want := range []int{3, 6, 12, 24, 30, 30} {
		m.fail("west", noon)
		must.Eq(t, time.Duration(want)*time.Minute, m.retryAt(c, "west").Sub(noon))
	}
}

func TestMemory_interruptions(t *testing.T) {
	c := testConfig()
	c.Offerings = []cloud.Offering{west, east, od}
	instances := []cloud.Instance{
		{ID: "1", Offering: "west", State: cloud.Noticed, NoticedAt: noon.Add(-time.Minute)},
		{ID: "2", Offering: "east", State: cloud.Gone, EndedAt: noon.Add(-time.Minute), Terminated: true},
		{ID: "3", Offering: "od", State: cloud.Gone, NoticedAt: noon.Add(-40 * time.Minute), EndedAt: noon.Add(-38 * time.Minute)},
	}
	m := newMemory()
	for range 2 { // each counts once
		m.interruptions(c, instances, noon)
	}
	must.Eq(t, noon.Add(2*time.Minute), m.retryAt(c, "west"))
	must.True(t, m.retryAt(c, "east").IsZero(), must.Sprint("an instance that the pool ended is no interruption"))
	must.True(t, m.retryAt(c, "od").IsZero(), must.Sprint("an old interruption counts"))

	choices := m.choices(c, []cloud.Offer{{Offering: "west", Available: true}, {Offering: "east", Available: false}}, noon)
	must.True(t, choices[0].UpSince.IsZero())
	must.False(t, choices[1].Available)
	must.True(t, choices[2].Available, must.Sprint("an offering that the provider does not speak of may be had"))
	must.Eq(t, noon, choices[2].UpSince)

	// An instance launched after the failure that comes up clears the offering.
	nomad := nomadView{known: true, nodes: map[string]NomadNode{"4": {Up: true, Eligible: true}}}
	m.join([]cloud.Instance{{ID: "4", Offering: "west", State: cloud.Running, LaunchedAt: noon}}, nomad, noon)
	must.True(t, m.retryAt(c, "west").IsZero())
}

func TestMemory_join(t *testing.T) {
	m := newMemory()
	i := cloud.Instance{ID: "1", Offering: "west", State: cloud.Running, LaunchedAt: noon.Add(-time.Hour)}
	up := nomadView{known: true, nodes: map[string]NomadNode{"1": {Up: true, Eligible: true}}}
	down := nomadView{known: true, nodes: map[string]NomadNode{"1": {}}}
	join := func(v nomadView, at time.Time) Node { return m.join([]cloud.Instance{i}, v, at)[0] }

	must.Eq(t, i.LaunchedAt, join(nomadView{known: true}, noon).DownSince)
	must.True(t, join(up, noon).Up)
	must.False(t, join(nomadView{}, noon.Add(time.Minute)).Up)
	must.Eq(t, noon.Add(2*time.Minute), join(down, noon.Add(2*time.Minute)).DownSince, must.Sprint("Nomad's silence counted as down time"))
	must.Eq(t, noon.Add(2*time.Minute), join(down, noon.Add(3*time.Minute)).DownSince)
	must.True(t, join(nomadView{off: true, known: true}, noon).ready())
	must.SliceEmpty(t, m.join([]cloud.Instance{{ID: "1", State: cloud.Gone}}, up, noon))
	must.MapEmpty(t, m.nodes)
}
