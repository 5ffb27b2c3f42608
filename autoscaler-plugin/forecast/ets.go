package forecast

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/optimize"
)

// Smoothing is exponential smoothing with additive errors (Hyndman, Koehler, Ord and Snyder 2008): a level, and where they
// are fitted a damped trend and an additive season.
type Smoothing struct {
	Alpha, Beta, Gamma float64 // smoothing of the level, the trend and the season
	Phi                float64 // damping of the trend; 1: none
	Season             int     // steps; 0: no season
	Sigma2             float64 // variance of the errors
	LogLikelihood      float64
	AICc               float64

	level, trend float64
	seasonal     []float64 // effects, that of the next step first
	form         form
}

// form says which parts a model has.
type form struct{ trend, damped, season bool }

func (f form) String() string {
	s := "ETS(A,N,"
	switch {
	case f.damped:
		s = "ETS(A,Ad,"
	case f.trend:
		s = "ETS(A,A,"
	}
	if f.season {
		return s + "A)"
	}
	return s + "N)"
}

// String names the parts of the model as R does, such as ETS(A,Ad,N).
func (s *Smoothing) String() string { return s.form.String() }

// FitSmoothing fits the forms that the series is long enough for by their likelihood and returns the one with the least
// AICc. Season is in steps; below 2 there is none.
func FitSmoothing(y []float64, season int) (*Smoothing, error) {
	var best *Smoothing
	forms := []form{{}, {trend: true}, {trend: true, damped: true}}
	if season > 1 && len(y) >= 3*season {
		forms = append(forms, form{season: true}, form{trend: true, damped: true, season: true})
	}
	for _, f := range forms {
		if s := fitForm(y, f, season); s != nil && (best == nil || s.AICc < best.AICc) {
			best = s
		}
	}
	if best == nil {
		return nil, fmt.Errorf("fit exponential smoothing: %d values that do not move or are too few; forecast the last one", len(y))
	}
	return best, nil
}

func fitForm(y []float64, f form, season int) *Smoothing {
	n := len(y)
	k := 3.0 // alpha, level, variance
	x := []float64{0}
	if f.trend {
		x = append(x, -2)
		k += 2
	}
	if f.damped {
		x = append(x, 2)
		k++
	}
	if f.season {
		x = append(x, -2)
		k += 1 + float64(season)
	}
	if float64(n) < k+3 {
		return nil
	}
	at := func(x []float64) *Smoothing {
		s := &Smoothing{Phi: 1, form: f}
		s.Alpha = logistic(x[0])
		x = x[1:]
		if f.trend {
			s.Beta = s.Alpha * logistic(x[0])
			x = x[1:]
		}
		if f.damped {
			s.Phi = .8 + .18*logistic(x[0])
			x = x[1:]
		}
		if f.season {
			s.Gamma = (1 - s.Alpha) * logistic(x[0])
			s.Season = season
		}
		s.begin(y)
		sum := 0.0
		for _, v := range y {
			e := s.step(v)
			sum += e * e
		}
		s.Sigma2 = sum / float64(n)
		return s
	}
	objective := func(x []float64) float64 {
		if v := math.Log(at(x).Sigma2 + 1e-300); !math.IsNaN(v) {
			return v
		}
		return math.MaxFloat64 / 4
	}
	settings := &optimize.Settings{FuncEvaluations: 400, Converger: &optimize.FunctionConverge{Absolute: 1e-8, Iterations: 40}}
	// An end by the number of evaluations still has the best point.
	r, _ := optimize.Minimize(optimize.Problem{Func: objective}, x, settings, &optimize.NelderMead{})
	if r != nil {
		x = r.X
	}
	s := at(x)
	if s.Sigma2 == 0 {
		return nil
	}
	s.LogLikelihood = -.5 * float64(n) * (math.Log(2*math.Pi*s.Sigma2) + 1)
	s.AICc = -2*s.LogLikelihood + 2*k + 2*k*(k+1)/(float64(n)-k-1)
	return s
}

func logistic(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

// begin sets the first state from the first values: the mean of a season, or the first value; the trend from there on.
func (s *Smoothing) begin(y []float64) {
	s.level = y[0]
	if s.form.season {
		s.seasonal = make([]float64, s.Season)
		s.level = 0
		for _, v := range y[:s.Season] {
			s.level += v / float64(s.Season)
		}
		for i, v := range y[:s.Season] {
			s.seasonal[i] = v - s.level
		}
	}
	if s.form.trend {
		m := min(len(y)-1, max(4, s.Season))
		s.trend = (y[m] - y[0]) / float64(m)
	}
}

// step takes a value up and returns its error.
func (s *Smoothing) step(y float64) float64 {
	slope := s.Phi * s.trend
	e := y - s.level - slope
	if s.form.season {
		e -= s.seasonal[0]
		next := s.seasonal[0] + s.Gamma*e
		copy(s.seasonal, s.seasonal[1:])
		s.seasonal[len(s.seasonal)-1] = next
	}
	s.level += slope + s.Alpha*e
	s.trend = slope + s.Beta*e
	return e
}

// Update takes up the next value of the series, with the parameters as they are.
func (s *Smoothing) Update(y float64) { s.step(y) }

// Ahead returns the means and standard deviations of the next h values.
func (s *Smoothing) Ahead(h int) (mean, sd []float64) {
	mean, sd = make([]float64, h), make([]float64, h)
	damp, damping, sum := 0.0, 1.0, 1.0
	for j := range h {
		damping *= s.Phi
		damp += damping
		mean[j] = s.level + damp*s.trend
		if s.form.season {
			mean[j] += s.seasonal[j%s.Season]
		}
		sd[j] = math.Sqrt(s.Sigma2 * sum)
		c := s.Alpha + s.Beta*damp
		if s.form.season && (j+1)%s.Season == 0 {
			c += s.Gamma
		}
		sum += c * c
	}
	return mean, sd
}
