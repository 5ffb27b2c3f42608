package hazard

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/shoenig/test/must"
)

func near(t *testing.T, want, got, tolerance float64, name string) {
	t.Helper()
	if !(math.Abs(want-got) <= tolerance) {
		t.Fatalf("%s: want %v, got %v", name, want, got)
	}
}

// A shape of 1 is the exponential distribution: the rate and the time left do not depend on the age.
func TestWeibull_exponential(t *testing.T) {
	w := Weibull{Shape: 1, Scale: 2 * time.Hour}
	for _, age := range []time.Duration{-time.Hour, 0, time.Minute, time.Hour, 1000 * time.Hour} {
		near(t, 0.5, w.Rate(age), 1e-12, "rate")
		near(t, math.Exp(-0.5), w.SurvivalFrom(age, time.Hour), 1e-9, "survival")
		near(t, 2, w.MeanResidual(age).Hours(), 1e-6, "mean residual")
		near(t, 2*math.Ln2, w.QuantileFrom(age, 0.5).Hours(), 1e-6, "median")
	}
	must.Eq(t, 2*time.Hour, w.Mean())
}

// Each function agrees with the definition of it by another, over shapes and ages.
func TestWeibull_consistent(t *testing.T) {
	for _, k := range []float64{0.4, 0.617, 1, 1.7, 3} {
		w := Weibull{Shape: k, Scale: 94 * time.Minute}
		must.NoError(t, w.Validate())
		for _, age := range []time.Duration{MinAge, time.Hour, 7 * time.Hour, 60 * time.Hour} {
			h := time.Second
			slope := (w.Cumulative(age+h) - w.Cumulative(age-h)) / (2 * h.Hours())
			near(t, 1, w.Rate(age)/slope, 1e-3, "rate is the slope of the cumulative hazard")
			near(t, w.Survival(age+time.Hour), w.Survival(age)*w.SurvivalFrom(age, time.Hour), 1e-9, "survival")
			for _, p := range []float64{0, 0.05, 0.5, 0.99} {
				q := w.QuantileFrom(age, p)
				near(t, 1-p, w.SurvivalFrom(age, q), 1e-6, "quantile")
			}
			// The mean time left is the integral of the survival, here by the trapezium rule in steps of equal probability.
			sum, last, lastP := 0.0, 0.0, 1.0
			for i := 1; i <= 20000; i++ {
				p := float64(i) / 20001
				q := w.QuantileFrom(age, p).Hours()
				sum += (q - last) * (lastP + 1 - p) / 2
				last, lastP = q, 1-p
			}
			near(t, 1, sum/w.MeanResidual(age).Hours(), 5e-3, "mean residual")
		}
		near(t, w.Mean().Hours(), w.MeanResidual(0).Hours(), 1e-6, "mean")
		must.Eq(t, w.Rate(MinAge), w.Rate(0))
	}
}

func TestWeibull_Validate(t *testing.T) {
	for _, w := range []Weibull{
		{}, {Shape: 1}, {Shape: -1, Scale: 1}, {Shape: math.NaN(), Scale: 1}, {Shape: math.Inf(1), Scale: 1},
	} {
		must.Error(t, w.Validate(), must.Sprint(w))
	}
}

// The shock absorbers of Meeker and Escobar, Statistical Methods for Reliability Data (1998), table C.2 and example 8.1
// (from O'Connor 1985): 38 of them, 11 failed. The estimates given there are mu = 10.23 and sigma = .3164, that is a scale
// of e^mu = 27,719 km and a shape of 1/sigma = 3.16.
func TestFitWeibull_published(t *testing.T) {
	failed := []int{6700, 9120, 12200, 13150, 14300, 17520, 20100, 20900, 22700, 26510, 27490}
	running := []int{
		6950, 7820, 8790, 9660, 9820, 11310, 11690, 11850, 11880, 12140, 12870, 13330, 13470, 14040,
		17540, 17890, 18450, 18960, 18980, 19410, 20100, 20150, 20320, 23490, 27410, 27890, 28100,
	}
	var l []Lifetime
	for _, km := range failed {
		l = append(l, Lifetime{Duration: time.Duration(km) * time.Second})
	}
	for _, km := range running {
		l = append(l, Lifetime{Duration: time.Duration(km) * time.Second, Censored: true})
	}
	w, err := FitWeibull(l)
	must.NoError(t, err)
	near(t, 0.3164, 1/w.Shape, 5e-5, "sigma")
	near(t, 10.23, math.Log(w.Scale.Seconds()), 5e-3, "mu")
}

// Drawn up-times give their distribution back, also when most are censored; a weight counts like repetition.
func TestFitWeibull_recovers(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	truth := Weibull{Shape: 0.617, Scale: 5681 * time.Second}
	var whole, censored, twice, weighted []Lifetime
	for range 20000 {
		d := truth.Quantile(rng.Float64())
		whole = append(whole, Lifetime{Duration: max(d, 1)})
		cut := time.Duration(rng.Float64() * float64(3*time.Hour))
		censored = append(censored, Lifetime{Duration: max(min(d, cut), 1), Censored: cut < d})
	}
	for _, l := range whole[:50] {
		twice = append(twice, l, l)
		weighted = append(weighted, Lifetime{Duration: l.Duration, Weight: 2})
	}
	for _, l := range [][]Lifetime{whole, censored} {
		w, err := FitWeibull(l)
		must.NoError(t, err)
		near(t, truth.Shape, w.Shape, 0.012, "shape")
		near(t, 1, float64(w.Scale)/float64(truth.Scale), 0.04, "scale")
	}
	a, err := FitWeibull(twice)
	must.NoError(t, err)
	b, err := FitWeibull(weighted)
	must.NoError(t, err)
	near(t, a.Shape, b.Shape, 1e-9, "shape")
	near(t, 1, float64(a.Scale)/float64(b.Scale), 1e-9, "scale")
}

func TestFitWeibull_faults(t *testing.T) {
	few := [][]Lifetime{
		nil,
		{{Duration: time.Hour}},
		{{Duration: time.Hour}, {Duration: time.Hour}},
		{{Duration: time.Hour}, {Duration: time.Minute, Censored: true}},
		{{Duration: time.Hour, Censored: true}, {Duration: 2 * time.Hour, Censored: true}},
	}
	for _, l := range few {
		_, err := FitWeibull(l)
		must.True(t, errors.Is(err, ErrTooFew), must.Sprint(l, err))
	}
	_, err := FitWeibull([]Lifetime{{Duration: time.Hour}, {Duration: -1}, {Duration: time.Hour, Weight: math.NaN()}})
	must.ErrorContains(t, err, "lifetimes[1].Duration")
	must.ErrorContains(t, err, "lifetimes[2].Weight")
}
