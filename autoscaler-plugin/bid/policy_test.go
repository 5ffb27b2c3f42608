package bid

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/shoenig/test/must"
)

// tiny is a policy with two columns, three rows, and a bid.
func tiny() *Policy {
	p := &Policy{
		Version: Version, Bids: []float64{1},
		Features: Features{
			PriceEdges: []float64{0.5, 1}, WorkHours: []float64{1}, SlackHours: []float64{1, 8},
			InterruptionHours: []float64{0.3}, DelayPrices: []float64{0.1, 3},
		},
	}
	for i, rows := range [][]string{{"aa", "aw", "ow"}, {"oa", "oo", "oo"}, {"aa", "aa", "oo"}, {"oo", "oo", "oo"}} {
		p.Tables = append(p.Tables, Table{
			DelayPrice: p.Features.DelayPrices[i/2], InterruptionHours: 0.3, OnDemand: i%2 == 1, Rows: rows,
		})
	}
	return p
}

func TestPolicy_Choose(t *testing.T) {
	p := tiny()
	bid1 := Action{Verb: Spot, Max: 1}
	for _, c := range []struct {
		price    float64
		slack    time.Duration
		delay    float64
		onDemand bool
		want     Action
	}{
		{0.5, time.Hour, 0.1, false, bid1},
		{0.51, 8*time.Hour - 1, 0.1, false, bid1},
		{0.51, 8 * time.Hour, 0.1, false, Action{Verb: Wait}},
		{1, 8 * time.Hour, 0.1, false, Action{Verb: Wait}},
		{1.01, time.Hour, 0.1, false, Action{Verb: OnDemand}},
		{1.01, 0, 0.1, false, Action{Verb: OnDemand}},
		{0.2, 9 * time.Hour, 0.1, true, bid1},
		{0.2, time.Hour, 0.1, true, Action{Verb: OnDemand}},
		{0.9, 8 * time.Hour, 0.6, false, bid1}, // nearer to 3 by ratio
		{0.9, 8 * time.Hour, 0.5, false, Action{Verb: Wait}},
	} {
		s := Situation{Price: c.price, Slack: c.slack, DelayPrice: c.delay, OnDemand: c.onDemand, Work: time.Hour}
		must.Eq(t, c.want, p.Choose(s), must.Sprintf("%+v", c))
	}
	// A job that is longer than the table has a slack that counts by its share: 16 h of 2 h of work are 8 of 1.
	must.Eq(t, Wait, p.Choose(Situation{Price: 1, Work: 2 * time.Hour, Slack: 16 * time.Hour}).Verb)
	must.Eq(t, bid1, p.Choose(Situation{Price: 1, Work: 2 * time.Hour, Slack: 15 * time.Hour}))
}

func TestParsePolicy(t *testing.T) {
	data, err := json.Marshal(tiny())
	must.NoError(t, err)
	p, err := ParsePolicy(data)
	must.NoError(t, err)
	must.Eq(t, tiny(), p)
}

func TestParsePolicy_faults(t *testing.T) {
	cases := map[string]struct {
		change func(p *Policy)
		want   []string
	}{
		"version":       {func(p *Policy) { p.Version = 2 }, []string{"version: 2 is unknown, this program reads 1"}},
		"no edges":      {func(p *Policy) { p.Features.PriceEdges = nil }, []string{"features.price_edges: missing or empty"}},
		"order":         {func(p *Policy) { p.Features.SlackHours = []float64{8, 1} }, []string{"slack_hours[1]: 1 is not above 8"}},
		"negative":      {func(p *Policy) { p.Bids = []float64{-1} }, []string{"bids[0]: -1 is not above 0"}},
		"too many bids": {func(p *Policy) { p.Bids = make([]float64, 20) }, []string{"bids: 20 values, at most 14"}},
		"both":          {func(p *Policy) { p.Bids, p.Features.WorkHours = nil, nil }, []string{"bids: miss", "work_hours: miss"}},
		"tables":        {func(p *Policy) { p.Tables = p.Tables[1:] }, []string{"tables: there are 3", "need 4"}},
		"table":         {func(p *Policy) { p.Tables[1].OnDemand = false }, []string{"tables[1]: it has", "must be 0.1, 0.3, true"}},
		"rows":          {func(p *Policy) { p.Tables[2].Rows = []string{"aa"} }, []string{"tables[2].rows: there are 1, 3 bins"}},
		"columns":       {func(p *Policy) { p.Tables[2].Rows[0] = "aaa" }, []string{"tables[2].rows[0]: it has 3 letters"}},
		"letter":        {func(p *Policy) { p.Tables[3].Rows[2] = "ob" }, []string{"tables[3].rows[2]: letter 'b'"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			p := tiny()
			c.change(p)
			data, err := json.Marshal(p)
			must.NoError(t, err)
			_, err = ParsePolicy(data)
			must.ErrorContains(t, err, "parse bid policy")
			for _, want := range c.want {
				must.ErrorContains(t, err, want)
			}
		})
	}
	data, err := json.Marshal(tiny())
	must.NoError(t, err)
	for name, in := range map[string]string{
		"no json":    "bid 1",
		"no version": "{}",
		"no number":  strings.Replace(string(data), `"bids":[1]`, `"bids":[NaN]`, 1),
		"a word":     strings.Replace(string(data), `"bids":[1]`, `"bids":["NaN"]`, 1),
		"too large":  strings.Replace(string(data), `"bids":[1]`, `"bids":[1e999]`, 1),
		"null":       strings.Replace(string(data), `"bids":[1]`, `"bids":null`, 1),
	} {
		_, err := ParsePolicy([]byte(in))
		must.ErrorContains(t, err, "parse bid policy", must.Sprint(name))
	}
}

// What is read can be asked anything, and printed and read again.
func FuzzParsePolicy(f *testing.F) {
	data, err := json.Marshal(tiny())
	must.NoError(f, err)
	f.Add(data)
	f.Add([]byte(`{"version":1}`))
	f.Add([]byte(`{"version":2}`))
	f.Add([]byte(strings.Replace(string(data), `"ow"`, `"o"`, 1)))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := ParsePolicy(data)
		if err != nil {
			return
		}
		for _, price := range []float64{0, 0.2, 1, 1e300} {
			for _, d := range []time.Duration{-time.Hour, 0, time.Minute, 9 * time.Hour, 1 << 62} {
				for _, onDemand := range []bool{false, true} {
					p.Choose(Situation{Price: price, Work: d, Slack: d, Changeover: d, DelayPrice: price, OnDemand: onDemand})
				}
			}
		}
		printed, err := json.Marshal(p)
		must.NoError(t, err)
		again, err := ParsePolicy(printed)
		must.NoError(t, err)
		must.Eq(t, p, again)
	})
}
