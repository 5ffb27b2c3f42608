package pool

import (
	"fmt"
	"math/rand"
	"slices"
	"testing"
	"time"

	"github.com/shoenig/test/must"
	"pgregory.net/rapid"

	"nomad-spotter/autoscaler-plugin/allocate"
	"nomad-spotter/autoscaler-plugin/cloud"
)

// drawView makes any pool in any market.
func drawView(t *rapid.T) (Config, View) {
	c := testConfig()
	c.OnDemandBase = rapid.IntRange(0, 3).Draw(t, "base")
	c.OnDemandShare = rapid.SampledFrom([]float64{0, 0, 0.5}).Draw(t, "share")
	c.ZoneShare = rapid.SampledFrom([]float64{0, 0, 0.5}).Draw(t, "zone share")
	c.BudgetUSDPerHour = rapid.SampledFrom([]float64{0, 0, 0, 7}).Draw(t, "budget")
	c.Migrate = rapid.Bool().Draw(t, "migrate")
	v := View{Now: noon, Desired: rapid.IntRange(0, 6).Draw(t, "desired"), NomadKnown: rapid.Bool().Draw(t, "nomad known")}
	offers := rapid.IntRange(1, 5).Draw(t, "offerings")
	for i := range offers {
		kind := rapid.SampledFrom([]cloud.Kind{cloud.Spot, cloud.OnDemand}).Draw(t, "kind")
		region := rapid.SampledFrom([]string{"west", "east"}).Draw(t, "region")
		price := rapid.SampledFrom([]float64{0, 0.8, 0.9, 3}).Draw(t, "price")
		o := offering(fmt.Sprintf("o%d", i), region, kind, price)
		o.MaxNodes = rapid.SampledFrom([]int{0, 0, 2}).Draw(t, "max nodes")
		choice := Choice{Offering: o, Risk: riskOf(o, rapid.SampledFrom([]float64{newHazard, newHazard, 6}).Draw(t, "hazard"))}
		choice.Available = rapid.Bool().Draw(t, "available")
		choice.RetryAt = noon.Add(time.Duration(rapid.IntRange(-1, 1).Draw(t, "retry")) * time.Minute)
		if choice.usable(noon) {
			choice.UpSince = noon.Add(-time.Duration(rapid.IntRange(0, 20).Draw(t, "up")) * time.Minute)
		}
		v.Choices = append(v.Choices, choice)
	}
	for i := range rapid.IntRange(0, 8).Draw(t, "nodes") {
		o := rapid.SampledFrom(v.Choices).Draw(t, "of")
		n := node(o.Offering, i)
		for _, change := range []func(*Node){noticed, booting, downFor(time.Minute), downFor(time.Hour), risky, outbid, maybeOutbid, draining(0, time.Minute), draining(2, 2*time.Hour), cordoned, young} {
			if rapid.IntRange(0, 5).Draw(t, "change") == 0 {
				change(&n)
			}
		}
		v.Nodes = append(v.Nodes, n)
	}
	return c, v
}

// Whatever the pool and the market look like, one decision keeps these promises.
func TestDecide_promises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, v := drawView(t)
		nodes, choices := slices.Clone(v.Nodes), slices.Clone(v.Choices)
		actions := Decide(c, v).Actions
		must.Eq(t, nodes, v.Nodes, must.Sprint("the view was changed"))
		must.Eq(t, choices, v.Choices, must.Sprint("the view was changed"))

		shuffled := v
		shuffled.Nodes, shuffled.Choices = slices.Clone(v.Nodes), slices.Clone(v.Choices)
		random := rand.New(rand.NewSource(rapid.Int64().Draw(t, "shuffle")))
		random.Shuffle(len(nodes), func(i, j int) { shuffled.Nodes[i], shuffled.Nodes[j] = shuffled.Nodes[j], shuffled.Nodes[i] })
		random.Shuffle(len(choices), func(i, j int) { shuffled.Choices[i], shuffled.Choices[j] = shuffled.Choices[j], shuffled.Choices[i] })
		must.Eq(t, actions, Decide(c, shuffled).Actions, must.Sprint("the order of the view matters"))

		byID, byName := map[string]Node{}, map[string]Choice{}
		for _, n := range v.Nodes {
			byID[n.ID] = n
		}
		for _, o := range v.Choices {
			byName[o.Name] = o
		}
		stays := map[string]bool{}
		readyBefore, before := 0, 0
		for _, n := range v.Nodes {
			stays[n.ID] = n.State == cloud.Running && !n.Draining
			if stays[n.ID] {
				before++
			}
			if stays[n.ID] && n.ready() {
				readyBefore++
			}
		}
		touched := map[string]bool{}
		launched, launchedOnDemand, readyAfter := 0, 0, readyBefore
		for _, a := range actions {
			must.NotEq(t, "", a.Reason)
			if a.Verb == Launch {
				launched++
				must.True(t, byName[a.Offering].usable(noon), must.Sprint("launches what cannot be had"))
				if byName[a.Offering].Kind == cloud.OnDemand {
					launchedOnDemand++
				}
				continue
			}
			must.True(t, v.NomadKnown, must.Sprintf("%s without knowing the nodes", a.Verb))
			must.False(t, touched[a.Instance], must.Sprint("two actions on one instance"))
			touched[a.Instance] = true
			n := byID[a.Instance]
			must.Eq(t, cloud.Running, n.State, must.Sprint("acts on a noticed instance"))
			switch a.Verb {
			case Undrain:
				stays[n.ID] = true
			case Drain:
				stays[n.ID] = false
				if n.ready() {
					readyAfter--
				}
			case Terminate:
				must.True(t, !n.Joined || n.Draining && n.Work == 0 || n.Draining && !n.Up, must.Sprint("ends a node with work"))
				if n.ready() && !n.Draining {
					readyAfter--
				}
				stays[n.ID] = false
			case GiveUp:
				stays[n.ID] = false
			case Launch, StopWork: // neither adds nor takes a node that is there
			}
		}
		staying, onDemand := launched, launchedOnDemand
		for id, s := range stays {
			if s {
				staying++
				if byID[id].Kind == cloud.OnDemand {
					onDemand++
				}
			}
		}
		must.GreaterEq(t, min(v.Desired, readyBefore), readyAfter, must.Sprint("takes away ready nodes that are needed"))
		need := allocate.Request{Nodes: v.Desired, Limits: c.Limits}.OnDemand()
		if slices.ContainsFunc(v.Choices, func(o Choice) bool { return o.usable(noon) && unlimited(c, o) }) {
			must.GreaterEq(t, v.Desired, staying, must.Sprint("leaves nodes missing that could be had"))
		}
		if slices.ContainsFunc(v.Choices, func(o Choice) bool { return o.usable(noon) && o.Kind == cloud.OnDemand && unlimited(c, o) }) {
			must.GreaterEq(t, need, onDemand, must.Sprint("leaves the base short"))
		}
		if launched > 0 {
			// Never more than desired, but for those that are there, a base that is short, and the one that is moved.
			must.LessEq(t, max(v.Desired, before)+need+1, staying)
		}
	})
}

// unlimited tells whether any number of nodes of a choice may be had as far as limits go.
func unlimited(c Config, o Choice) bool {
	return c.BudgetUSDPerHour == 0 && o.MaxNodes == 0 && (o.Kind == cloud.OnDemand || c.ZoneShare == 0)
}

// A pool in a market that stands still comes to rest at the desired count, with its base, and moves no more.
func TestDecide_settles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, v := drawView(t)
		v.NomadKnown = true
		for i := range v.Choices {
			v.Choices[i].RetryAt = time.Time{}
			v.Choices[i].UpSince = time.Time{}
			if v.Choices[i].Available {
				v.Choices[i].UpSince = noon.Add(-time.Hour)
			}
		}
		next := 100
		for range 60 {
			actions := Decide(c, v).Actions
			v.Nodes = play(v, actions, &next)
			v.Now = v.Now.Add(time.Minute)
		}
		must.SliceEmpty(t, brief(Decide(c, v).Actions), must.Sprint("the pool does not come to rest"))
		if slices.ContainsFunc(v.Choices, func(o Choice) bool { return o.Available && unlimited(c, o) }) {
			must.Len(t, v.Desired, v.Nodes)
		}
		if slices.ContainsFunc(v.Choices, func(o Choice) bool { return o.Available && o.Kind == cloud.OnDemand && unlimited(c, o) }) {
			n := 0
			for _, node := range v.Nodes {
				if node.Kind == cloud.OnDemand {
					n++
				}
			}
			must.GreaterEq(t, allocate.Request{Nodes: v.Desired, Limits: c.Limits}.OnDemand(), n)
		}
	})
}

// play is a world in which everything works: launches boot within a minute, drains move their work, notices end, and
// nodes that were down or closed to work by somebody come back.
func play(v View, actions []Action, next *int) []Node {
	var nodes []Node
	verb := map[string]Verb{}
	for _, a := range actions {
		if a.Verb != Launch {
			verb[a.Instance] = a.Verb
			continue
		}
		for _, o := range v.Choices {
			if o.Name == a.Offering {
				*next++
				n := node(o.Offering, *next, booting)
				n.LaunchedAt, n.DownSince = v.Now, v.Now
				nodes = append(nodes, n)
			}
		}
	}
	for _, n := range v.Nodes {
		switch {
		case n.State == cloud.Noticed, verb[n.ID] == Terminate, verb[n.ID] == GiveUp:
			continue
		case verb[n.ID] == Drain:
			n.Draining, n.Eligible, n.Work, n.DrainSince = true, false, 1, v.Now
		case verb[n.ID] == Undrain:
			n.Draining, n.Eligible, n.Work = false, true, 0
		case n.Draining:
			n.Work = 0
		default:
			n.Joined, n.Up, n.Eligible = true, true, true
		}
		nodes = append(nodes, n)
	}
	return nodes
}
