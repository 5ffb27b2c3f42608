package forecast

import (
	"fmt"
	"math"
)

// Order is the order of a seasonal ARIMA model: (P,D,Q)(SP,SD,SQ) with a season of Season steps (Box and Jenkins).
type Order struct {
	P, D, Q    int
	SP, SD, SQ int
	Season     int  // steps; 0 or 1: no season
	Mean       bool // the differenced series has a mean of its own
}

// String prints an order as R does, such as ARIMA(0,1,1)(0,1,1)[12].
func (o Order) String() string {
	s := fmt.Sprintf("ARIMA(%d,%d,%d)", o.P, o.D, o.Q)
	if o.Season > 1 {
		s += fmt.Sprintf("(%d,%d,%d)[%d]", o.SP, o.SD, o.SQ, o.Season)
	}
	if o.Mean {
		s += " with mean"
	}
	return s
}

// Parameters are the estimates of a model, with the signs of the literature: y = AR·y + e + MA·e.
type Parameters struct {
	AR, MA, SeasonalAR, SeasonalMA []float64
	Mean                           float64 // of the differenced series
	Sigma2                         float64 // variance of the innovations
}

// free is the number of coefficients, the mean among them, without the variance.
func (o Order) free() int {
	n := o.P + o.Q + o.SP + o.SQ
	if o.Mean {
		n++
	}
	return n
}

// check refuses orders that make no model.
func (o Order) check() error {
	if min(o.P, o.D, o.Q, o.SP, o.SD, o.SQ, o.Season) < 0 {
		return fmt.Errorf("order %v: below 0; give numbers of at least 0", o)
	}
	if o.Season <= 1 && o.SP+o.SD+o.SQ > 0 {
		return fmt.Errorf("order %v: seasonal terms with a season of %d steps; give one of at least 2", o, o.Season)
	}
	return nil
}

// parameters reads the coefficients out of a vector without bounds, so that every vector is a stationary and invertible
// model: the values become partial autocorrelations in (-1, 1), those become coefficients (Monahan 1984).
func (o Order) parameters(x []float64) Parameters {
	var p Parameters
	take := func(n int, sign float64) []float64 {
		c := fromPartial(x[:n])
		for i := range c {
			c[i] *= sign
		}
		x = x[n:]
		return c
	}
	p.AR = take(o.P, 1)
	p.MA = take(o.Q, -1)
	p.SeasonalAR = take(o.SP, 1)
	p.SeasonalMA = take(o.SQ, -1)
	if o.Mean {
		p.Mean = x[0]
	}
	return p
}

// fromPartial turns free numbers into the coefficients of a stationary autoregression by the Durbin-Levinson recursion.
func fromPartial(x []float64) []float64 {
	phi := make([]float64, 0, len(x))
	for k, v := range x {
		r := v / math.Sqrt(1+v*v)
		next := make([]float64, k+1)
		for i := range k {
			next[i] = phi[i] - r*phi[k-1-i]
		}
		next[k] = r
		phi = next
	}
	return phi
}

// expand multiplies the plain and the seasonal polynomial 1 - a1 L - … (sign -1) or 1 + b1 L + … (sign 1) and returns
// the coefficients from lag 1 on, with the sign of the input.
func expand(plain, seasonal []float64, season int, sign float64) []float64 {
	a := make([]float64, len(plain)+1)
	a[0] = 1
	for i, v := range plain {
		a[i+1] = sign * v
	}
	out := make([]float64, len(plain)+season*len(seasonal)+1)
	copy(out, a)
	for j, v := range seasonal {
		for i, u := range a {
			out[i+(j+1)*season] += sign * v * u
		}
	}
	out = out[1:]
	for i := range out {
		out[i] *= sign
	}
	return out
}

// difference applies (1-L)^d (1-L^s)^sd.
func (o Order) difference(y []float64) []float64 {
	w := append([]float64(nil), y...)
	lag := func(n int) {
		for i := len(w) - 1; i >= n; i-- {
			w[i] -= w[i-n]
		}
		w = w[min(n, len(w)):]
	}
	for range o.SD {
		lag(o.Season)
	}
	for range o.D {
		lag(1)
	}
	return w
}

// integration returns the coefficients c of y[t] = w[t] + c1 y[t-1] + c2 y[t-2] + …, w being the differenced series.
func (o Order) integration() []float64 {
	c := []float64{1}
	times := func(n int) {
		next := make([]float64, len(c)+n)
		for i, v := range c {
			next[i] += v
			next[i+n] -= v
		}
		c = next
	}
	for range o.SD {
		times(o.Season)
	}
	for range o.D {
		times(1)
	}
	for i := range c {
		c[i] = -c[i]
	}
	return c[1:]
}
