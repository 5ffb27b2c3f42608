package allocate

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/shoenig/test/must"
	"pgregory.net/rapid"
)

func drawCandidate(t *rapid.T, name string) Candidate {
	region := rapid.SampledFrom([]string{"west", "east", "north"}).Draw(t, "region")
	c := Candidate{Offer: Offer{
		Offering: name, Region: region, Zone: region + rapid.SampledFrom([]string{"-a", "-b"}).Draw(t, "zone"),
		Type: rapid.SampledFrom([]string{"v100", "v100", "k80"}).Draw(t, "type"), OnDemand: rapid.IntRange(0, 3).Draw(t, "kind") == 0,
	}}
	if c.OnDemand {
		c.PriceUSDPerHour = rapid.SampledFrom([]float64{2, 3}).Draw(t, "price")
	} else {
		c.PriceUSDPerHour = rapid.SampledFrom([]float64{0, 0.8, 0.9, 1.2, 3}).Draw(t, "price")
		c.HazardPerHour = rapid.SampledFrom([]float64{0, 0.03, 0.44, 2, 20}).Draw(t, "hazard")
		c.Outbid = rapid.SampledFrom([]float64{0, 0, 0, 0.2, 0.6}).Draw(t, "outbid")
	}
	if rapid.IntRange(0, 4).Draw(t, "unusable") == 0 {
		c.Unusable = "is sold out"
	}
	if rapid.Bool().Draw(t, "limited") {
		c.MaxNodes = rapid.IntRange(1, 4).Draw(t, "most")
	}
	return c
}

// drawPool makes any pool in any market.
func drawPool(t *rapid.T) (Request, []Candidate) {
	share := rapid.SampledFrom([]float64{0, 0, 0.2, 0.5, 1})
	r := Request{
		Nodes: rapid.IntRange(0, 7).Draw(t, "nodes"),
		Limits: Limits{
			OnDemandBase: rapid.IntRange(0, 3).Draw(t, "base"), OnDemandShare: share.Draw(t, "on-demand share"),
			RegionShare: share.Draw(t, "region share"), ZoneShare: share.Draw(t, "zone share"), OfferingShare: share.Draw(t, "offering share"),
			BudgetUSDPerHour: rapid.SampledFrom([]float64{0, 0, 1, 4, 9}).Draw(t, "budget"),
		},
		Costs: testCosts(),
	}
	var candidates []Candidate
	for i := range rapid.IntRange(0, 5).Draw(t, "offerings") {
		candidates = append(candidates, drawCandidate(t, fmt.Sprintf("o%d", i)))
	}
	for i := range rapid.IntRange(0, 6).Draw(t, "held") {
		c := drawCandidate(t, fmt.Sprintf("gone%d", i)) // an offering that left the pool file
		if len(candidates) > 0 && rapid.IntRange(0, 4).Draw(t, "listed") > 0 {
			c = rapid.SampledFrom(candidates).Draw(t, "of")
		}
		n := held(c, i)
		n.Age = time.Duration(rapid.IntRange(0, 3).Draw(t, "age")) * time.Hour
		n.HazardPerHour = rapid.SampledFrom([]float64{0, 0.03, 0.44, 2}).Draw(t, "hazard at its age")
		r.Held = append(r.Held, n)
	}
	return r, candidates
}

// usage is what a pool uses of its limits.
func usage(nodes []Offer) (spent float64, by map[string]int, onDemand int) {
	by = map[string]int{}
	for _, n := range nodes {
		spent += n.PriceUSDPerHour
		by["nodes "+n.Offering]++
		if n.OnDemand {
			onDemand++
			continue
		}
		by["region "+n.Region]++
		by["zone "+n.Region+n.Zone]++
		by["offering "+n.Offering]++
	}
	return spent, by, onDemand
}

func offersOf(nodes []Node) []Offer {
	var out []Offer
	for _, n := range nodes {
		out = append(out, n.Offer)
	}
	return out
}

// within fails where after exceeds a limit that before did not, or exceeds it more. So much of the budget is given back by
// nodes that go.
func within(t *rapid.T, r Request, candidates []Candidate, before, after []Offer, back float64) {
	wasSpent, was, _ := usage(before)
	spent, is, _ := usage(after)
	if r.BudgetUSDPerHour > 0 {
		must.LessEq(t, max(r.BudgetUSDPerHour, wasSpent)+1e-9, spent-back, must.Sprint("budget"))
	}
	most := func(share float64) int {
		if share == 0 {
			return math.MaxInt
		}
		return max(1, int(share*float64(r.Nodes)+1e-9))
	}
	for _, c := range candidates {
		if c.MaxNodes > 0 {
			must.LessEq(t, max(c.MaxNodes, was["nodes "+c.Offering]), is["nodes "+c.Offering], must.Sprint("max_nodes"))
		}
		shares := map[string]float64{
			"region " + c.Region: r.RegionShare, "zone " + c.Region + c.Zone: r.ZoneShare, "offering " + c.Offering: r.OfferingShare,
		}
		for key, share := range shares {
			must.LessEq(t, max(most(share), was[key]), is[key], must.Sprint(key))
		}
	}
}

func find(candidates []Candidate, name string) Candidate {
	return candidates[slices.IndexFunc(candidates, func(c Candidate) bool { return c.Offering == name })]
}

func bought(t *rapid.T, candidates []Candidate, p Plan) []Offer {
	var out []Offer
	for _, k := range p.Picks {
		c := find(candidates, k.Offering)
		must.Eq(t, "", c.Unusable, must.Sprint("buys what cannot be had"))
		must.True(t, c.OnDemand || c.Outbid < 0.5, must.Sprint("buys what is about to be outbid"))
		out = append(out, c.Offer)
	}
	return out
}

func shuffle(r Request, candidates []Candidate, seed uint64) (Request, []Candidate) {
	rng := rand.New(rand.NewPCG(seed, 0))
	r.Held, candidates = slices.Clone(r.Held), slices.Clone(candidates)
	rng.Shuffle(len(r.Held), func(i, j int) { r.Held[i], r.Held[j] = r.Held[j], r.Held[i] })
	rng.Shuffle(len(candidates), func(i, j int) { candidates[i], candidates[j] = candidates[j], candidates[i] })
	return r, candidates
}

// replaced is the most that the spot nodes can cost which are too many once the picked nodes are there.
func replaced(r Request, p Plan) (usdPerHour float64) {
	var spot []float64
	for _, n := range r.Held {
		if !n.OnDemand {
			spot = append(spot, n.PriceUSDPerHour)
		}
	}
	slices.Sort(spot)
	base := 0
	for _, k := range p.Picks {
		if k.Base {
			base++
		}
	}
	for _, price := range spot[len(spot)-min(len(spot), base, max(0, len(r.Held)+len(p.Picks)-r.Nodes)):] {
		usdPerHour += price
	}
	return usdPerHour
}

// Whatever the pool and the market: limits hold, what can be had is had, nothing depends on order, and inputs stay.
func TestMix_promises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, candidates := drawPool(t)
		wasHeld, wasCandidates := slices.Clone(r.Held), slices.Clone(candidates)
		p := Mix(r, candidates)
		must.Eq(t, wasHeld, r.Held)
		must.Eq(t, wasCandidates, candidates)
		other, shuffled := shuffle(r, candidates, rapid.Uint64().Draw(t, "seed"))
		must.Eq(t, p, Mix(other, shuffled), must.Sprint("order matters"))

		before := offersOf(r.Held)
		after := append(slices.Clone(before), bought(t, candidates, p)...)
		within(t, r, candidates, before, after, replaced(r, p))
		_, _, had := usage(before)
		_, _, has := usage(after)
		bases := 0
		for _, k := range p.Picks {
			must.NotEq(t, "", k.Reason)
			if k.Base {
				bases++
			}
		}
		must.LessEq(t, max(0, r.OnDemand()-had), bases)
		must.Eq(t, max(r.Nodes, len(before)+bases), len(after)+p.Missing, must.Sprint("count"))
		if slices.ContainsFunc(candidates, func(c Candidate) bool {
			return c.OnDemand && c.Unusable == "" && c.MaxNodes == 0
		}) && r.BudgetUSDPerHour == 0 {
			must.GreaterEq(t, r.OnDemand(), has, must.Sprint("leaves the base short"))
			must.Eq(t, 0, p.Missing)
		}
		if p.Missing > 0 { // then one more of anything breaks a limit
			r.Held = nil
			for i, n := range after {
				r.Held = append(r.Held, Node{ID: fmt.Sprint(i), Offer: n})
			}
			must.SliceEmpty(t, Mix(r, candidates).Picks, must.Sprint("leaves nodes missing that could be had"))
		}
	})
}

// A dearer offering is never bought more.
func TestMix_monotone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, candidates := drawPool(t)
		r.BudgetUSDPerHour = 0 // a budget may turn to what is cheap and risky, or leave money for what was too dear
		if len(candidates) == 0 {
			return
		}
		count := func(p Plan, name string) (n int) {
			for _, k := range p.Picks {
				if k.Offering == name {
					n++
				}
			}
			return n
		}
		i := rapid.IntRange(0, len(candidates)-1).Draw(t, "which")
		dearer := slices.Clone(candidates)
		dearer[i].PriceUSDPerHour += rapid.SampledFrom([]float64{0.01, 0.1, 1, 10}).Draw(t, "by")
		was, is := Mix(r, candidates), Mix(r, dearer)
		must.LessEq(t, count(was, candidates[i].Offering), count(is, candidates[i].Offering))
		riskier := slices.Clone(candidates)
		riskier[i].HazardPerHour += rapid.SampledFrom([]float64{0.01, 0.1, 1, 10}).Draw(t, "risk")
		if r.Nodes == len(r.Held)+1 { // for one node; several lean on each other
			must.LessEq(t, count(was, candidates[i].Offering), count(Mix(r, riskier), candidates[i].Offering))
		}
	})
}

// Moves keep to the limits with both nodes there, to the budget without the old one, pay, and come to an end.
func TestRelocate_promises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, candidates := drawPool(t)
		r.Nodes = len(r.Held) // a pool at rest
		may := func(n Node) bool { return n.Age > 0 }
		most := rapid.IntRange(1, 3).Draw(t, "most")
		moves := Relocate(r, candidates, most, may)
		other, shuffled := shuffle(r, candidates, rapid.Uint64().Draw(t, "seed"))
		must.Eq(t, moves, Relocate(other, shuffled, most, may), must.Sprint("order matters"))
		must.LessEq(t, most, len(moves))
		for _, m := range moves {
			must.True(t, may(m.From))
		}
		for round := 0; ; round++ {
			moves := Relocate(r, candidates, 1, may)
			if len(moves) == 0 {
				break
			}
			must.Less(t, 50, round, must.Sprint("moves without end"))
			m := moves[0]
			to := find(candidates, m.To)
			must.Eq(t, "", to.Unusable)
			next := Node{ID: fmt.Sprintf("new%02d", round), Offer: to.Offer, Age: time.Second}
			within(t, r, candidates, offersOf(r.Held), append(offersOf(r.Held), to.Offer), m.From.PriceUSDPerHour)
			// The node that was to be replaced goes when the replacement is there, or one that costs more or must go, which
			// could not be replaced itself or was the last on-demand node. The replacement never does.
			r.Held = append(slices.Clone(r.Held), next)
			gone, ok := Worst(r, func(n Node) bool { return n.ID == next.ID || may(n) })
			must.True(t, ok)
			must.NotEq(t, next.ID, gone.ID, must.Sprint(m.Reason))
			if gone.Outbid < 0.5 && !strings.Contains(gone.Reason, "max_share") {
				from, _ := Worst(r, func(n Node) bool { return n.ID == m.From.ID })
				must.GreaterEq(t, from.EffectiveUSDPerHour, gone.EffectiveUSDPerHour)
			}
			r.Held = slices.DeleteFunc(r.Held, func(n Node) bool { return n.ID == gone.ID })
		}
	})
}

// total is what a pool costs per hour by the model: prices, interruptions, and losses that come together.
func total(r Request, nodes []Offer) float64 {
	w, sum := newCrowd(), 0.0
	for _, n := range nodes {
		sum += w.effective(r.Costs, n, r.Nodes)
		w.add(r.Costs, n, 1)
	}
	return sum
}

// One node at a time is close to the best of all mixes, found by trying everything: over 2,000 drawn pools of up to 6 nodes
// 0.1 % above it on average, the worst 8.5 %.
func TestMix_nearOptimal(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	worst, sum := 1.0, 0.0
	const pools = 2000
	for range pools {
		var candidates []Candidate
		for i := range 4 {
			region := fmt.Sprint(rng.IntN(2))
			zone := region + fmt.Sprint(rng.IntN(2))
			candidates = append(candidates, spot(fmt.Sprintf("o%d", i), region, zone, 0.6+rng.Float64(), rng.ExpFloat64()*0.5))
		}
		candidates = append(candidates, onDemand("od", 3))
		r := Request{Nodes: 1 + rng.IntN(6), Costs: testCosts()}
		var nodes []Offer
		for _, k := range Mix(r, candidates).Picks {
			nodes = append(nodes, find(candidates, k.Offering).Offer)
		}
		best := math.Inf(1)
		var try func(from int, nodes []Offer)
		try = func(from int, nodes []Offer) {
			if len(nodes) == r.Nodes {
				best = min(best, total(r, nodes))
				return
			}
			for i := from; i < len(candidates); i++ {
				try(i, append(nodes[:len(nodes):len(nodes)], candidates[i].Offer))
			}
		}
		try(0, nil)
		got := total(r, nodes)
		must.GreaterEq(t, best-1e-9, got)
		worst = max(worst, got/best)
		sum += got / best
	}
	t.Logf("of the optimum: mean %.4f, worst %.4f", sum/pools, worst)
	must.Less(t, 1.01, sum/pools)
	must.Less(t, 1.10, worst)
}
