package forecast

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/shoenig/test/must"
)

func TestSmoothingFindsItsForm(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	walk, line, season := make([]float64, 200), make([]float64, 200), make([]float64, 120)
	for i := range walk {
		walk[i] = r.NormFloat64()
		if i > 0 {
			walk[i] += walk[i-1]
		}
		line[i] = 3 + .5*float64(i) + r.NormFloat64()
	}
	for i := range season {
		season[i] = 10 + 5*math.Sin(2*math.Pi*float64(i)/12) + .3*r.NormFloat64()
	}

	s, err := FitSmoothing(walk, 0)
	must.NoError(t, err)
	near(t, "alpha of a random walk", s.Alpha, 1, .2, 0)

	s, err = FitSmoothing(line, 0)
	must.NoError(t, err)
	mean, sd := s.Ahead(20)
	near(t, "a line goes on", mean[19], 3+.5*219, 0, 3)
	must.Greater(t, sd[0], sd[19])

	s, err = FitSmoothing(season, 12)
	must.NoError(t, err)
	must.StrContains(t, s.String(), "A)")
	mean, _ = s.Ahead(12)
	for j, v := range mean {
		near(t, "a season repeats", v, 10+5*math.Sin(2*math.Pi*float64(120+j)/12), 0, .8)
	}
}

// Simple smoothing with a fixed weight, by hand: levels 1, 1.5, 2.25 of the series 1, 2, 3 at alpha ½.
func TestSmoothingSteps(t *testing.T) {
	s := &Smoothing{Alpha: .5, Phi: 1, Sigma2: 4}
	s.begin([]float64{1, 2, 3})
	for i, want := range []float64{1, 1.5, 2.25} {
		s.Update(float64(i + 1))
		mean, _ := s.Ahead(1)
		near(t, "level", mean[0], want, 0, 1e-12)
	}
	_, sd := s.Ahead(3) // variance 4 (1 + j/4)
	near(t, "deviation", sd[2], math.Sqrt(4*1.5), 0, 1e-12)
}

func TestSmoothingRefusesFlat(t *testing.T) {
	_, err := FitSmoothing(make([]float64, 30), 0)
	must.ErrorContains(t, err, "do not move")
}
