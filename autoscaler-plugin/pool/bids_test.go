package pool

import (
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-spotter/autoscaler-plugin/bid"
	"nomad-spotter/autoscaler-plugin/cloud"
)

func bidConfig() Config {
	c := hazardConfig()
	c.Bid = BidConfig{Strategy: bid.Fraction{Fraction: 0.5, Fallback: bid.Eager}, Priority: bid.Middle} // 1.50 $/h
	return c
}

// watch lets a pool see west's prices, one an hour up to noon, and returns its view at noon.
func watch(t *testing.T, c Config, instances []cloud.Instance, hourly ...float64) View {
	t.Helper()
	m, err := newMemory(c)
	must.NoError(t, err)
	var v View
	for i, price := range hourly {
		now := noon.Add(-time.Duration(len(hourly)-1-i) * time.Hour)
		offers := []cloud.Offer{{Offering: "west", Available: true, PriceUSDPerHour: price}, {Offering: "east", Available: true}, {Offering: "od", Available: true}}
		nodes := map[string]NomadNode{}
		for _, i := range instances {
			nodes[i.ID] = NomadNode{ID: i.ID, Up: true, Eligible: true}
		}
		v, err = m.view(c, len(instances), instances, offers, nomadView{known: true, nodes: nodes}, now)
		must.NoError(t, err)
	}
	return v
}

func series(hours int, price func(hour int) float64) []float64 {
	var out []float64
	for h := range hours {
		out = append(out, price(h))
	}
	return out
}

// A maximum is asked for where the market moves, and none where it would change nothing.
func TestAsk(t *testing.T) {
	still := func(int) float64 { return 0.8 }
	spikes := func(hour int) float64 { // two hours a day at 2 $/h, and calm at the end
		if hour%24 > 21 {
			return 2
		}
		return 0.8
	}
	c := bidConfig()
	choice := func(c Config, prices []float64) Choice { return watch(t, c, nil, prices...).Choices[0] }
	spiky := choice(c, series(24*5+10, spikes))
	must.Eq(t, 1.5, spiky.Bid)
	must.StrContains(t, spiky.BidReason, "bid 0.50 of on-demand")
	must.Greater(t, 0, spiky.Outbid)
	must.Less(t, 0.2, spiky.Outbid)
	must.Eq(t, 0.8, spiky.PriceUSDPerHour)
	calm := choice(c, series(24*5, still))
	must.Eq(t, 3, calm.Bid)
	must.StrContains(t, calm.BidReason, "a bid changes nothing here")

	dear := choice(c, append(series(24*5, spikes), 2))
	must.Eq(t, 0, dear.Bid)
	must.StrContains(t, dear.Unwanted, "is not bid for")
	must.True(t, dear.UpSince.IsZero())
	actions := Decide(c, View{Now: noon, Desired: 2, NomadKnown: true, Nodes: []Node{node(od, 1)}, Choices: []Choice{dear, free(od)}}).Actions
	must.Eq(t, []string{"launch od"}, brief(actions))
	must.StrContains(t, actions[0].Reason, "west is not bid for")

	c.Bid = BidConfig{}
	must.Eq(t, 3, choice(c, series(24*5, spikes)).Bid)
	must.Eq(t, "", choice(c, series(24*5, spikes)).BidReason)
	v := watch(t, bidConfig(), nil, 0.8)
	must.Eq(t, 3, v.Choices[1].Bid, must.Sprint("no price is known of east"))
	must.Eq(t, 0, v.Choices[2].Bid, must.Sprint("on-demand has no maximum"))
	actions = Decide(c, View{Now: noon, Desired: 2, NomadKnown: true, Nodes: []Node{node(od, 1)}, Choices: v.Choices[:1]}).Actions
	must.Eq(t, 3, actions[0].Bid)
}

// When the price is likely to pass an instance's maximum within the hour, its replacement is launched before it does.
func TestAsk_migratesBefore(t *testing.T) {
	c := bidConfig()
	c.OnDemandBase = 0
	instance := cloud.Instance{
		ID: "west-1", Provider: "local", Offering: "west", Kind: cloud.Spot, Region: west.Region, Zone: west.Zone, PriceUSDPerHour: 0.8,
		MaxPriceUSDPerHour: 1.2, State: cloud.Running, LaunchedAt: noon.Add(-100 * time.Hour),
	}
	for last, want := range map[float64][]string{1.14: nil, 1.15: {"launch east"}} {
		rising := series(25, func(hour int) float64 { return last * math.Pow(1.05, float64(hour-24)) }) // 5 % an hour
		v := watch(t, c, []cloud.Instance{instance}, rising...)
		must.InDelta(t, last, v.Nodes[0].PriceUSDPerHour, 1e-9)
		actions := Decide(c, v).Actions
		if want == nil {
			must.SliceEmpty(t, actions)
			continue
		}
		must.Eq(t, want, brief(actions))
		must.StrContains(t, actions[0].Reason, "its price passes its maximum within the hour with a probability of 100 %")
	}
}

func TestOnDemandPrice(t *testing.T) {
	a := offering("a", "east", cloud.OnDemand, 3)
	b, s := a, offering("s", "east", cloud.Spot, 5)
	a.Type, b.Type, b.PriceUSDPerHour = "v100", "k80", 1
	c := Config{Offerings: []cloud.Offering{a, b, s}}
	must.Eq(t, 3, onDemandPrice(c, "v100"))
	must.Eq(t, 1, onDemandPrice(c, "k80"))
	must.Eq(t, 1, onDemandPrice(c, "t4"))
	must.Eq(t, 5, onDemandPrice(Config{Offerings: []cloud.Offering{s}}, "v100"))
}

func TestParse_bid(t *testing.T) {
	parse := func(block string) (Config, error) {
		pools, err := Parse([]byte(mixPool(block, "", "")), "pool.hcl", openers)
		if err != nil {
			return Config{}, err
		}
		return pools[0].Config, nil
	}
	c, err := parse(`bid { fraction = 0.7 }`)
	must.NoError(t, err)
	must.Eq(t, BidConfig{Strategy: bid.Fraction{Fraction: 0.7, Fallback: bid.Eager}, Priority: bid.Middle}, c.Bid)
	c, err = parse("")
	must.NoError(t, err)
	must.Nil(t, c.Bid.Strategy)
	broken := filepath.Join(t.TempDir(), "bids.json")
	must.NoError(t, os.WriteFile(broken, []byte("{}"), 0o600))
	for block, want := range map[string]string{
		`bid {}`:                                          "bid: give exactly one of policy",
		`bid { fraction = 0 }`:                            "bid.fraction: 0 is not above 0",
		`bid { policy = "bids.json" }`:                    `bid.policy: "bids.json" is relative`,
		`bid { policy = "/no/such" }`:                     "bid.policy: open /no/such",
		`bid { policy = "` + broken + `" }`:               "bid.policy: parse bid policy: version: missing",
		"bid {\n fraction = 1\n priority = \"urgent\"\n}": `bid.priority: "urgent" is none of low, middle, high`,
	} {
		_, err := parse(block)
		must.ErrorContains(t, err, want)
	}
}
