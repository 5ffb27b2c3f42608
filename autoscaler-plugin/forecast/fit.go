package forecast

import (
	"errors"
	"fmt"
	"math"

	"gonum.org/v1/gonum/diff/fd"
	"gonum.org/v1/gonum/optimize"
	"gonum.org/v1/gonum/stat"
)

// ARIMA is a fitted model, at the end of the series it was fitted to; Update moves it on.
type ARIMA struct {
	Order Order
	Parameters
	LogLikelihood float64 // exact, Gaussian, of the differenced series
	AICc          float64 // Akaike's criterion, corrected for small samples (Hurvich and Tsai 1989)

	state *arma
	tail  []float64 // the last values of the series, newest last, as many as integration needs
	w     int       // observations of the differenced series
}

// maxEvaluations bounds the evaluations of the likelihood in one fit, and so its time.
const maxEvaluations = 4000

// FitARIMA estimates a model of a regular series without gaps: first by the conditional sum of squares, from there by the
// exact likelihood, which a Kalman filter computes (Harvey 1993), with the variance concentrated out. It fails on series
// that are too short for the order or do not move.
func FitARIMA(y []float64, o Order) (*ARIMA, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	for i, v := range y {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, fmt.Errorf("fit %v: value %d is %v; fill or cut the gap first", o, i, v)
		}
	}
	w := o.difference(y)
	k := o.free() + 1
	if len(w) < k+2 {
		return nil, fmt.Errorf("fit %v: %d values after differencing, need %d; take a lower order or a longer series", o, len(w), k+2)
	}
	mean, sd := stat.MeanStdDev(w, nil)
	if sd == 0 || !o.Mean && stat.Moment(2, w, nil)+mean*mean == 0 {
		return nil, fmt.Errorf("fit %v: the differenced series does not move; its last value is the forecast", o)
	}
	start := make([]float64, o.free())
	unit := sd // the mean is optimised in units of the deviation, so that all parameters are of one size
	if o.Mean {
		start[len(start)-1] = mean / unit
	}
	at := func(x []float64) Parameters {
		p := o.parameters(x)
		p.Mean *= unit
		return p
	}
	css := func(x []float64) float64 { return o.conditional(w, at(x)) }
	exact := func(x []float64) float64 { ll, _, _ := o.likelihood(w, at(x)); return -ll / float64(len(w)) }
	best := start
	if len(start) > 0 {
		if fromCSS := minimize(css, start, 1e-6); exact(fromCSS) < exact(start) {
			best = fromCSS
		}
		best = minimize(exact, best, 1e-10)
	}
	m := &ARIMA{Order: o, Parameters: at(best)}
	m.LogLikelihood, m.Sigma2, m.state = o.likelihood(w, m.Parameters)
	if math.IsNaN(m.LogLikelihood) || math.IsInf(m.LogLikelihood, 0) {
		return nil, errors.New("fit " + o.String() + ": the likelihood has no maximum here; take a lower order")
	}
	n, kk := float64(len(w)), float64(k)
	m.AICc = -2*m.LogLikelihood + 2*kk + 2*kk*(kk+1)/(n-kk-1)
	m.w = len(w)
	need := len(o.integration())
	m.tail = append([]float64(nil), y[len(y)-need:]...)
	return m, nil
}

// minimize goes downhill by BFGS with numerical derivatives until steps gain less than a tolerance, and returns the best
// point it saw.
func minimize(f func([]float64) float64, start []float64, tolerance float64) []float64 {
	guarded := func(x []float64) float64 {
		if v := f(x); !math.IsNaN(v) {
			return v
		}
		return math.MaxFloat64 / 4
	}
	problem := optimize.Problem{
		Func: guarded,
		Grad: func(grad, x []float64) { fd.Gradient(grad, guarded, x, &fd.Settings{Formula: fd.Central, Step: 1e-5}) },
	}
	settings := &optimize.Settings{GradientThreshold: 1e-6, MajorIterations: 200, FuncEvaluations: maxEvaluations}
	settings.Converger = &optimize.FunctionConverge{Absolute: tolerance, Iterations: 3}
	// A line search that finds no step ends with an error and the best point so far, which is what is wanted.
	r, _ := optimize.Minimize(problem, append([]float64(nil), start...), settings, &optimize.BFGS{})
	if r == nil || guarded(r.X) > guarded(start) {
		return start
	}
	return r.X
}

// conditional is the logarithm of the mean square of the residuals, given the first values and residuals of 0.
func (o Order) conditional(w []float64, p Parameters) float64 {
	ar := expand(p.AR, p.SeasonalAR, o.Season, -1)
	ma := expand(p.MA, p.SeasonalMA, o.Season, 1)
	e := make([]float64, len(w))
	sum := 0.0
	for t := len(ar); t < len(w); t++ {
		v := w[t] - p.Mean
		for i, c := range ar {
			v -= c * (w[t-1-i] - p.Mean)
		}
		for i := range min(len(ma), t) {
			v -= ma[i] * e[t-1-i]
		}
		e[t] = v
		sum += v * v
	}
	return math.Log(sum / float64(max(1, len(w)-len(ar))))
}

// likelihood is the exact one at its best variance, with that variance and the filter after the last value.
func (o Order) likelihood(w []float64, p Parameters) (loglik, sigma2 float64, m *arma) {
	m = newARMA(expand(p.AR, p.SeasonalAR, o.Season, -1), expand(p.MA, p.SeasonalMA, o.Season, 1))
	sum, logs := 0.0, 0.0
	last, lastLog := 1.0, 0.0 // the variance stays the same once the filter is steady
	for _, v := range w {
		e, f := m.step(v - p.Mean)
		if f != last {
			last, lastLog = f, math.Log(f)
		}
		sum += e * e / f
		logs += lastLog
	}
	n := float64(len(w))
	sigma2 = sum / n
	return -.5 * (n*(math.Log(2*math.Pi*sigma2)+1) + logs), sigma2, m
}

// Update takes up the next value of the series, with the parameters as they are.
func (m *ARIMA) Update(y float64) {
	w := y
	c := m.Order.integration()
	for i, v := range c {
		w -= v * m.tail[len(m.tail)-1-i]
	}
	m.state.step(w - m.Mean)
	if len(m.tail) > 0 {
		m.tail = append(m.tail[1:], y)
	}
}

// Ahead returns the means and standard deviations of the next h values, of Gaussian innovations and known parameters.
func (m *ARIMA) Ahead(h int) (mean, sd []float64) {
	c := m.Order.integration()
	y := append([]float64(nil), m.tail...)
	w := m.state.ahead(h)
	for k := range h {
		v := w[k] + m.Mean
		for i, u := range c {
			v += u * y[len(y)-1-i]
		}
		y = append(y, v)
	}
	mean = y[len(y)-h:]
	// ψ weights of the whole model: those of the ARMA part, integrated.
	psi := make([]float64, h)
	sd = make([]float64, h)
	ar, ma := m.state.phi, m.state.r
	plain := make([]float64, h)
	sum := 0.0
	for j := range h {
		if j < len(ma) {
			plain[j] = ma[j]
		}
		for i := range min(j, len(ar)) {
			plain[j] += ar[i] * plain[j-1-i]
		}
		psi[j] = plain[j]
		for i := range min(j, len(c)) {
			psi[j] += c[i] * psi[j-1-i]
		}
		sum += psi[j] * psi[j]
		sd[j] = math.Sqrt(m.Sigma2 * sum)
	}
	return mean, sd
}
