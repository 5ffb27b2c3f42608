package forecast

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/shoenig/test/must"
)

// golden is a reference fit; testdata/arima_golden.py makes the file.
type golden struct {
	Name       string
	Order      [3]int
	Seasonal   [3]int
	Season     int
	Y          []float64
	Loglik     float64
	Mean       *float64
	Sigma2     float64
	AR         []float64
	MA         []float64
	SeasonalAR []float64 `json:"seasonal_ar"`
	SeasonalMA []float64 `json:"seasonal_ma"`
	Forecast   []float64
	ForecastSD []float64 `json:"forecast_sd"`
}

func goldens(t testing.TB) []golden {
	data, err := os.ReadFile("testdata/arima_golden.json")
	must.NoError(t, err)
	var file struct{ Cases []golden }
	must.NoError(t, json.Unmarshal(data, &file))
	must.SliceNotEmpty(t, file.Cases)
	return file.Cases
}

func (g golden) order() Order {
	return Order{
		P: g.Order[0], D: g.Order[1], Q: g.Order[2],
		SP: g.Seasonal[0], SD: g.Seasonal[1], SQ: g.Seasonal[2], Season: g.Season, Mean: g.Mean != nil,
	}
}

// near wants two numbers to be within a share of each other, or within a small absolute distance.
func near(t *testing.T, what string, got, want, share, absolute float64) {
	t.Helper()
	if math.Abs(got-want) > math.Max(share*math.Abs(want), absolute) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func TestFitAgreesWithStatsmodels(t *testing.T) {
	for _, g := range goldens(t) {
		t.Run(g.Name, func(t *testing.T) {
			m, err := FitARIMA(g.Y, g.order())
			must.NoError(t, err)
			near(t, "log-likelihood", m.LogLikelihood, g.Loglik, 0, .1)
			near(t, "sigma2", m.Sigma2, g.Sigma2, .01, 0)
			if g.Mean != nil {
				near(t, "mean", m.Mean, *g.Mean, .01, .002)
			}
			for _, c := range []struct {
				name      string
				got, want []float64
			}{
				{"ar", m.AR, g.AR},
				{"ma", m.MA, g.MA},
				{"seasonal ar", m.SeasonalAR, g.SeasonalAR},
				{"seasonal ma", m.SeasonalMA, g.SeasonalMA},
			} {
				must.Eq(t, len(c.want), len(c.got))
				for i := range c.want {
					near(t, c.name, c.got[i], c.want[i], .01, 0)
				}
			}
			mean, sd := m.Ahead(len(g.Forecast))
			for i := range mean {
				near(t, "forecast", mean[i], g.Forecast[i], .01, .02)
				near(t, "forecast deviation", sd[i], g.ForecastSD[i], .01, .001)
			}
		})
	}
}

func TestFitRefuses(t *testing.T) {
	flat := make([]float64, 50)
	gap := []float64{1, 2, math.NaN(), 4, 5, 6, 7, 8}
	for name, c := range map[string]struct {
		y     []float64
		order Order
		want  string
	}{
		"flat":          {flat, Order{P: 1, Mean: true}, "does not move"},
		"flat walk":     {flat, Order{P: 1, D: 1}, "does not move"},
		"gap":           {gap, Order{P: 1}, "value 2 is NaN"},
		"short":         {[]float64{1, 2, 1}, Order{P: 2, Q: 2}, "need 7"},
		"negative":      {gap[:2], Order{P: -1}, "below 0"},
		"no season":     {gap[:2], Order{SP: 1}, "season of 0 steps"},
		"all by season": {[]float64{1, 2, 1, 2}, Order{SD: 1, Season: 4}, "0 values after differencing"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := FitARIMA(c.y, c.order)
			must.ErrorContains(t, err, c.want)
		})
	}
}

// Every free vector must be a stationary and invertible model: its stationary variance exists and the filter stays finite.
func TestParametersAreAlwaysStationary(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	o := Order{P: 3, Q: 2, SP: 1, SQ: 1, Season: 4}
	w := make([]float64, 60)
	for i := range w {
		w[i] = r.NormFloat64()
	}
	for range 200 {
		x := make([]float64, o.free())
		for i := range x {
			x[i] = 3 * r.NormFloat64()
		}
		ll, s2, _ := o.likelihood(w, o.parameters(x))
		must.False(t, math.IsNaN(ll) || math.IsInf(ll, 0) || s2 <= 0, must.Sprintf("at %v: %v, %v", x, ll, s2))
	}
}

// The filter must give the density that the covariance matrix gives: an MA(1) of three values, by hand.
func TestLikelihoodOfThreeValues(t *testing.T) {
	const theta = .5
	w := []float64{.3, -.2, .7}
	g0, g1 := 1+theta*theta, theta
	det := g0 * (g0*g0 - 2*g1*g1)
	// w' Γ^-1 w by the adjugate of the tridiagonal matrix.
	a, b, c := w[0], w[1], w[2]
	quad := ((a*a+c*c)*(g0*g0-g1*g1) + b*b*g0*g0 - 2*(a*b+b*c)*g0*g1 + 2*a*c*g1*g1) / det
	s2 := quad / 3
	want := -.5 * (3*(math.Log(2*math.Pi*s2)+1) + math.Log(det))
	got, sigma2, _ := Order{Q: 1}.likelihood(w, Parameters{MA: []float64{theta}})
	near(t, "log-likelihood", got, want, 0, 1e-12)
	near(t, "variance", sigma2, s2, 0, 1e-12)
}

// A model that is moved on by Update forecasts as one that was fitted to the longer series with the same parameters.
func TestUpdateMovesTheModelOn(t *testing.T) {
	for _, g := range goldens(t) {
		cut := len(g.Y) - 20
		m, err := FitARIMA(g.Y[:cut], g.order())
		must.NoError(t, err)
		whole := *m
		whole.LogLikelihood, _, whole.state = m.Order.likelihood(m.Order.difference(g.Y), m.Parameters)
		need := len(m.Order.integration())
		whole.tail = g.Y[len(g.Y)-need:]
		for _, y := range g.Y[cut:] {
			m.Update(y)
		}
		got, _ := m.Ahead(5)
		want, _ := whole.Ahead(5)
		for i := range got {
			near(t, g.Name, got[i], want[i], 1e-6, 1e-6)
		}
	}
}

func TestSelectARIMAFindsTheDifferences(t *testing.T) {
	for _, g := range goldens(t) {
		if !slices.Contains([]string{"ar1", "ma1", "ima11", "airline"}, g.Name) {
			continue
		}
		t.Run(g.Name, func(t *testing.T) {
			m, err := SelectARIMA(g.Y, g.Season, Limits{MaxP: 2, MaxQ: 2, MaxSP: 1, MaxSQ: 1, Fits: 8})
			must.NoError(t, err)
			if g.Order[1] == 1 && g.Season == 0 {
				must.Eq(t, 1, m.Order.D)
			}
			if g.Seasonal[1] == 1 {
				must.Eq(t, 1, m.Order.SD)
			}
			truth, err := FitARIMA(g.Y, g.order())
			must.NoError(t, err)
			if m.Order.D == truth.Order.D && m.Order.SD == truth.Order.SD && m.Order.Mean == truth.Order.Mean {
				// The search is a heuristic; it must come within what is called no evidence (Burnham and Anderson 2002).
				must.Less(t, truth.AICc+4, m.AICc)
			}
		})
	}
}

func FuzzFitARIMA(f *testing.F) {
	f.Add([]byte{1, 2, 3, 2, 1, 2, 3, 2, 1, 5, 9, 1, 3}, uint8(1), uint8(0), uint8(1))
	f.Add([]byte{0, 0, 0, 255, 0, 0, 0, 0, 0, 0, 0, 0}, uint8(2), uint8(1), uint8(2))
	f.Fuzz(func(t *testing.T, data []byte, p, d, q uint8) {
		y := make([]float64, min(len(data), 64))
		for i := range y {
			y[i] = float64(data[i])
		}
		m, err := FitARIMA(y, Order{P: int(p % 3), D: int(d % 2), Q: int(q % 3)})
		if err != nil {
			return
		}
		mean, sd := m.Ahead(3)
		for i := range mean {
			if math.IsNaN(mean[i]) || math.IsNaN(sd[i]) || sd[i] < 0 {
				t.Fatalf("forecast %v ± %v of %v by %v", mean, sd, y, m.Order)
			}
		}
	})
}
