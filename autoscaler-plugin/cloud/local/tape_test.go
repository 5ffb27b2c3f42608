package local

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-spotter/autoscaler-plugin/cloud"
)

func TestReadTape(t *testing.T) {
	tp, err := readTape([]byte(`{"metadata":{"gap_seconds":60},"data":[1,1,0,1],"prices":[0.5,2.5,0.5,0.7]}`))
	must.NoError(t, err)
	for at, want := range map[time.Duration]float64{-time.Minute: 0.5, 0: 0.5, 59 * time.Second: 0.5, time.Minute: 2.5, 3 * time.Minute: 0.7, time.Hour: 0.7} {
		price, ok := tp.price(at)
		must.True(t, ok)
		must.Eq(t, want, price, must.Sprint(at))
	}
	must.Eq(t, []bool{true, true, false, true}, tp.below(0).Up)
	must.Eq(t, []bool{true, true, false, true}, tp.below(2.5).Up)
	must.Eq(t, []bool{true, false, false, true}, tp.below(2.4).Up)
	must.Eq(t, []bool{false, false, false, false}, tp.below(0.4).Up)

	tp, err = readTape([]byte(`{"metadata":{"gap_seconds":60},"data":[1,0]}`))
	must.NoError(t, err)
	_, ok := tp.price(0)
	must.False(t, ok)
	must.Eq(t, []bool{true, false}, tp.below(0.01).Up, must.Sprint("a maximum without prices takes nothing away"))

	sorted, err := json.Marshal(map[string]any{"metadata": map[string]any{"gap_seconds": 60}, "data": []int{1, 0}, "prices": []float64{1, 2}})
	must.NoError(t, err)
	tp, err = readTape(sorted)
	must.NoError(t, err, must.Sprint("a file whose writer sorts its fields"))
	must.Eq(t, []bool{true, false}, tp.Up)

	for text, want := range map[string]string{
		`{"metadata":{"gap_seconds":60},"data":[1,0],"prices":[1]}`:    "prices: 1 of them for 2 ticks",
		`{"metadata":{"gap_seconds":60},"data":[1,0],"prices":[1,-2]}`: "prices[1]: -2 is negative",
		`{"metadata":{"gap_seconds":60},"data":[1,0],"prices":"x"}`:    "prices",
		`{"data":[1,0]}`: "gap_seconds",
	} {
		_, err := readTape([]byte(text))
		must.ErrorContains(t, err, want)
	}
}

// An instance whose maximum price the market passes gets its notice; one without stays, and a launch below the market
// is refused.
func TestMaximumPrice(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	// The price rises after 2 s of wall clock.
	body := fmt.Sprintf("state_dir = %q\nnotice = \"10m\"\ntime_scale = 30\n%s", t.TempDir(), script(marker(t)))
	p := newProvider(t, body, fmt.Sprintf("trace = %q", writeTrace(t, `[1,1],"prices":[0.5,2.5]`)))
	_, err := p.Launch(ctx, cloud.Launch{ID: "west-0", Offering: "west", MaxPriceUSDPerHour: 0.4})
	must.ErrorIs(t, err, cloud.ErrUnavailable)
	must.ErrorContains(t, err, "costs 0.5 $/h, the maximum is 0.4")
	bidden, err := p.Launch(ctx, cloud.Launch{ID: "west-1", Offering: "west", MaxPriceUSDPerHour: 1})
	must.NoError(t, err)
	must.Eq(t, 0.5, bidden.PriceUSDPerHour)
	must.Eq(t, 1, bidden.MaxPriceUSDPerHour)
	_, err = p.Launch(ctx, cloud.Launch{ID: "west-2", Offering: "west"})
	must.NoError(t, err)
	waitFor(t, "notice", 6*time.Second, func() bool { return find(t, p, "west-1").State == cloud.Noticed })
	must.StrContains(t, find(t, p, "west-1").Reason, `offering "west" costs 2.5 $/h`)
	must.StrContains(t, find(t, p, "west-1").Reason, "the maximum is 1")
	must.Eq(t, cloud.Running, find(t, p, "west-2").State)
	offers, err := p.Offers(ctx)
	must.NoError(t, err)
	must.Eq(t, []cloud.Offer{{Offering: "od", Available: true}, {Offering: "west", Available: true, PriceUSDPerHour: 2.5}}, offers)
}

// What is read has one price per tick or none, and a higher maximum never takes an instance back sooner.
func FuzzReadTape(f *testing.F) {
	f.Add([]byte(`{"metadata":{"gap_seconds":60},"data":[1,1,0,1],"prices":[0.5,2.5,0.5,0.7]}`), 1.0)
	f.Add([]byte(`{"metadata":{"gap_seconds":60},"data":[1]}`), 0.0)
	f.Add([]byte(`{"metadata":{"gap_seconds":60},"data":[1],"prices":[1e400]}`), 2.0)
	f.Fuzz(func(t *testing.T, data []byte, maximum float64) {
		tp, err := readTape(data)
		if err != nil || maximum < 0 {
			return
		}
		if n := len(tp.prices); n != 0 && n != len(tp.Up) {
			t.Fatalf("%d prices for %d ticks", n, len(tp.Up))
		}
		low, high := tp.below(max(maximum, 1e-9)), tp.below(2*max(maximum, 1e-9))
		for i, up := range tp.Up {
			if low.Up[i] && !high.Up[i] || high.Up[i] && !up {
				t.Fatalf("tick %d: below %v: %v, below twice that: %v, at all: %v", i, maximum, low.Up[i], high.Up[i], up)
			}
		}
		price, ok := tp.price(tp.Length())
		if ok && price != tp.prices[len(tp.prices)-1] {
			t.Fatalf("price %v after the end", price)
		}
	})
}
