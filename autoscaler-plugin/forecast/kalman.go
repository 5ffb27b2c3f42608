package forecast

import (
	"math"

	"gonum.org/v1/gonum/mat"
)

// arma is an ARMA process of variance 1 in the state-space form of Harvey (1993): the state's first element is the process,
// the transition is a companion matrix with the autoregression in its first column, and the noise enters by 1, MA1, MA2 …
type arma struct {
	phi, r []float64 // of length dim
	a      []float64 // state
	p      []float64 // its covariance, dim × dim by rows
	next   []float64
	steady bool
	f      float64 // variance of the next innovation, once steady
	gain   []float64
}

// steadyTolerance is how little a step changes the innovation variance (in units of the noise) once it counts as settled.
const steadyTolerance = 1e-11

// newARMA starts in the stationary distribution.
func newARMA(ar, ma []float64) *arma {
	dim := max(len(ar), len(ma)+1)
	m := &arma{
		phi: make([]float64, dim), r: make([]float64, dim), a: make([]float64, dim), p: make([]float64, dim*dim),
		next: make([]float64, dim*dim), gain: make([]float64, dim),
	}
	copy(m.phi, ar)
	m.r[0] = 1
	copy(m.r[1:], ma)
	m.stationary()
	return m
}

// stationary sets P to the solution of P = T P T' + R R'. Its first row is made of the autocovariances, which solve the
// Yule-Walker equations of the process (McLeod 1975); the other rows follow from it, because the companion form makes
// Pij = φi φj P00 + φi P0,j+1 + φj Pi+1,0 + Pi+1,j+1 + ri rj.
func (m *arma) stationary() {
	n := len(m.phi)
	psi := make([]float64, n)
	for j := range n {
		psi[j] = m.r[j]
		for i := range j {
			psi[j] += m.phi[i] * psi[j-1-i]
		}
	}
	noise := func(k int) float64 { // covariance of the process with the moving average from lag k on
		s := 0.0
		for j := k; j < n; j++ {
			s += m.r[j] * psi[j-k]
		}
		return s
	}
	yw := mat.NewDense(n+1, n+1, nil)
	right := mat.NewVecDense(n+1, nil)
	for k := range n + 1 {
		yw.Set(k, k, 1)
		for i, v := range m.phi {
			lag := max(k-i-1, i+1-k)
			yw.Set(k, lag, yw.At(k, lag)-v)
		}
		right.SetVec(k, noise(k))
	}
	var gamma mat.VecDense
	if err := gamma.SolveVec(yw, right); err != nil && gamma.Len() == 0 {
		for i := range m.p { // a unit root to the last digit: nothing is known of the level
			m.p[i] = math.NaN()
		}
		return
	}
	m.p[0] = gamma.AtVec(0)
	for j := 1; j < n; j++ {
		s := noise(j)
		for k := j; k < n; k++ {
			s += m.phi[k] * gamma.AtVec(k-j+1)
		}
		m.p[j], m.p[j*n] = s, s
	}
	at := func(i, j int) float64 {
		if i == n || j == n {
			return 0
		}
		return m.p[i*n+j]
	}
	for i := n - 1; i > 0; i-- {
		for j := n - 1; j >= i; j-- {
			s := m.phi[i]*m.phi[j]*m.p[0] + m.phi[i]*at(0, j+1) + m.phi[j]*at(0, i+1) + at(i+1, j+1) + m.r[i]*m.r[j]
			m.p[i*n+j], m.p[j*n+i] = s, s
		}
	}
}

// step takes one observation up and returns the innovation and its variance.
func (m *arma) step(w float64) (innovation, variance float64) {
	n := len(m.phi)
	v := w - m.a[0]
	if !m.steady {
		f := m.p[0]
		for i := range n {
			m.gain[i] = m.phi[i]
			if i+1 < n {
				m.gain[i] += m.p[(i+1)*n] / f
			}
		}
		// P := T P T' + R R' - K K' F, in companion form: (T P T')ij = φi φj P00 + φi P0,j+1 + φj Pi+1,0 + Pi+1,j+1,
		// of which the filter takes out the projection on the first element.
		for i := range n {
			for j := i; j < n; j++ {
				s := m.r[i] * m.r[j]
				if i+1 < n && j+1 < n {
					s += m.p[(i+1)*n+j+1] - m.p[(i+1)*n]*m.p[(j+1)*n]/f
				}
				m.next[i*n+j], m.next[j*n+i] = s, s
			}
		}
		m.steady = math.Abs(m.next[0]-f) < steadyTolerance && settled(m.next, m.p)
		m.p, m.next = m.next, m.p
		m.f = f
	}
	first := m.a[0]
	for i := range n {
		s := m.phi[i] * first
		if i+1 < n {
			s += m.a[i+1]
		}
		m.a[i] = s + m.gain[i]*v
	}
	return v, m.f
}

func settled(a, b []float64) bool {
	for i := range a {
		if math.Abs(a[i]-b[i]) > steadyTolerance {
			return false
		}
	}
	return true
}

// ahead returns the means of the next h values.
func (m *arma) ahead(h int) []float64 {
	a := append([]float64(nil), m.a...)
	out := make([]float64, h)
	for k := range out {
		first := a[0]
		out[k] = first
		for i := range a {
			v := m.phi[i] * first
			if i+1 < len(a) {
				v += a[i+1]
			}
			a[i] = v
		}
	}
	return out
}
