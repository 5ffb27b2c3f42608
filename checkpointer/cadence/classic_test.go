package cadence_test

import (
	"math"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-spotter/checkpointer/cadence"
)

// Published by the formulas of Young 1974 and Daly 2006, and the minimum of the expected run time for interruptions at random.
func TestClassic_published(t *testing.T) {
	for _, c := range []struct{ stall, mtbf, young, daly, exact float64 }{
		{30, 11592, 834, 814, 814},
		{120, 3600, 930, 851, 851},
		{600, 3600, 2078, 1698, 1699},
		{7200, 3600, 7200, 3600, 3411}, // C = 2M, where SCR's branch begins
		{20000, 3600, 12000, 3600, 3594.8},
	} {
		stall, mtbf := seconds(c.stall), seconds(c.mtbf)
		must.InDelta(t, c.young, cadence.Young(stall, mtbf).Seconds(), 0.6)
		must.InDelta(t, c.daly, cadence.Daly(stall, mtbf).Seconds(), 0.6)
		must.InDelta(t, c.exact, cadence.Exact(stall, mtbf).Seconds(), 0.6)
	}
}

// The exact interval is where the expected time per second of work, M(e^((τ+C)/M)-1)/τ, is least.
func TestExact_isTheMinimum(t *testing.T) {
	for _, x := range []float64{1e-9, 1e-6, 1e-3, 0.02, 0.3, 1, 3, 10, 30} { // C/M
		const m = 1e4
		tau := cadence.Exact(seconds(x*m), seconds(m)).Seconds() / m
		slowdown := func(y float64) float64 { return math.Expm1(y+x) / y }
		for _, f := range []float64{0.9, 0.98, 1.02, 1.1} {
			must.Less(t, slowdown(tau*f), slowdown(tau), must.Sprintf("C/M %v, τ/M %v, factor %v", x, tau, f))
		}
	}
}

func TestEquivalent(t *testing.T) {
	terms := cadence.Terms{Stall: 30 * time.Second, NoticeSuccess: 0.5, StorageUSD: 0.01, SpotUSDPerHour: 1, ReworkUSDPerHour: 3}
	// τ = √(2M(C+k/c_s)/(1−p)·c_s/c_r), with k/c_s = 36 s
	must.InDelta(t, math.Sqrt(2*11592*66/0.5/3), cadence.Young(terms.Equivalent(), seconds(11592)).Seconds(), 1e-3)
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
