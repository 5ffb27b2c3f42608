package forecast

import "math"

// Fits of ARIMA and smoothing to a series are made anew every refitEvery steps, on the logarithms of its last fitWindow
// values, once it has moved fitMoves times; these bound the time per series.
const (
	refitEvery = 336
	fitWindow  = 240
	fitMoves   = 20
)

// panelLimits bound the search for an order within a panel.
var panelLimits = Limits{MaxP: 2, MaxQ: 2, Fits: 8}

// fits are the models of a regular series that a panel keeps for one of its series.
type fits struct {
	arima     *ARIMA
	smoothing *Smoothing
	fitted    int // time of the grid
}

// observe takes up the price at a time of the grid.
func (f *fits) observe(values []float64, k, moves int) {
	v := math.Log(values[k])
	if math.IsNaN(v) {
		*f = fits{}
		return
	}
	if f.arima != nil {
		f.arima.Update(v)
	}
	if f.smoothing != nil {
		f.smoothing.Update(v)
	}
	if moves < fitMoves || k+1 < fitWindow || f.fitted > 0 && k-f.fitted < refitEvery {
		return
	}
	y := make([]float64, fitWindow)
	for j := range y {
		y[j] = math.Log(values[k+1-fitWindow+j])
		if math.IsNaN(y[j]) {
			return
		}
	}
	f.fitted = k
	// A series that stood still in the window fits no model; persistence and the step models remain.
	f.arima, _ = SelectARIMA(y, 0, panelLimits)
	f.smoothing, _ = FitSmoothing(y, 0)
}

// ahead gives both models' distributions of the price some steps ahead; nil: no model.
func (f *fits) ahead(steps int) (a, s distribution) {
	last := steps - 1
	if f.arima != nil {
		mean, sd := f.arima.Ahead(steps)
		a = lognormal(mean[last], sd[last])
	}
	if f.smoothing != nil {
		mean, sd := f.smoothing.Ahead(steps)
		s = lognormal(mean[last], sd[last])
	}
	return a, s
}
