package main

import "math"

// Adam's constants (Kingma and Ba, 2015).
const (
	learningRate = 2e-4
	beta1        = 0.9
	beta2        = 0.999
	epsilon      = 1e-8
)

const (
	batch  = 32   // examples per step
	jitter = 0.15 // standard deviation of the noise added to each input, drawn anew each step
)

// state is everything that training depends on. Two runs with equal states go on equally, bit for bit, on one machine:
// all arithmetic is sequential and in a fixed order.
type state struct {
	hidden  int
	step    int64
	rng     rng
	order   order
	weights []float32 // hidden×inputs, hidden, classes×hidden, classes
	m, v    []float32 // Adam's first and second moment
}

// parameters is the number of weights of a network with so many hidden units.
func parameters(hidden int) int { return hidden*inputs + hidden + classes*hidden + classes }

// hiddenFor is the number of hidden units at which a checkpoint has about so many bytes: three float32 per weight.
func hiddenFor(checkpointBytes int64) int {
	return max(16, int(checkpointBytes/12-classes)/(inputs+1+classes))
}

func newState(seed uint64, hidden int) *state {
	s := &state{hidden: hidden, rng: rng{state: seed}}
	n := parameters(hidden)
	s.weights, s.m, s.v = make([]float32, n), make([]float32, n), make([]float32, n)
	first, second := math.Sqrt(2.0/inputs), math.Sqrt(2.0/float64(hidden)) // He et al., 2015
	w := s.split(s.weights)
	for i := range w.w1 {
		w.w1[i] = float32(first * s.rng.normal())
	}
	for i := range w.w2 {
		w.w2[i] = float32(second * s.rng.normal())
	}
	s.order = newOrder(&s.rng)
	return s
}

// layers are views of one flat slice of parameters.
type layers struct{ w1, b1, w2, b2 []float32 }

func (s *state) split(p []float32) layers {
	a := s.hidden * inputs
	b := a + s.hidden
	c := b + classes*s.hidden
	return layers{w1: p[:a], b1: p[a:b], w2: p[b:c], b2: p[c:]}
}

// trainer is a state with the buffers of a step.
type trainer struct {
	*state
	data dataset
	grad []float32
	h    []float32 // activations of the hidden layer
	dh   []float32
	x    [inputs]float32
}

func newTrainer(s *state, d dataset) *trainer {
	return &trainer{
		state: s, data: d, grad: make([]float32, len(s.weights)),
		h: make([]float32, s.hidden), dh: make([]float32, s.hidden),
	}
}

// train does one step on one minibatch and returns its mean cross-entropy in nats.
func (t *trainer) train() float64 {
	clear(t.grad)
	loss := 0.0
	for range batch {
		loss += t.example(t.order.next(&t.rng))
	}
	t.step++
	t.adam()
	return loss / batch
}

// example adds the gradient of example i and returns its loss.
func (t *trainer) example(i int) float64 {
	w, g := t.split(t.weights), t.split(t.grad)
	for j := range t.x {
		t.x[j] = t.data.x[i*inputs+j] + jitter*float32(t.rng.normal())
	}
	for k := range t.h {
		row := w.w1[k*inputs : (k+1)*inputs]
		sum := w.b1[k]
		for j, v := range row {
			sum += v * t.x[j]
		}
		t.h[k] = max(0, sum)
		t.dh[k] = 0
	}
	var p [classes]float64
	top := math.Inf(-1)
	for c := range p {
		row := w.w2[c*t.hidden : (c+1)*t.hidden]
		sum := w.b2[c]
		for k, v := range row {
			sum += v * t.h[k]
		}
		p[c] = float64(sum)
		top = max(top, p[c])
	}
	total := 0.0
	for c := range p {
		p[c] = math.Exp(p[c] - top)
		total += p[c]
	}
	label := int(t.data.y[i])
	for c := range p {
		d := p[c] / total
		if c == label {
			d--
		}
		df := float32(d / batch)
		g.b2[c] += df
		row, grow := w.w2[c*t.hidden:(c+1)*t.hidden], g.w2[c*t.hidden:(c+1)*t.hidden]
		for k, v := range t.h {
			grow[k] += df * v
			t.dh[k] += df * row[k]
		}
	}
	for k, d := range t.dh {
		if t.h[k] <= 0 { // the gradient of max(0, x) where it is flat
			continue
		}
		g.b1[k] += d
		row := g.w1[k*inputs : (k+1)*inputs]
		for j := range row {
			row[j] += d * t.x[j]
		}
	}
	return -math.Log(max(p[label]/total, 1e-30))
}

// adam applies the gradient.
func (t *trainer) adam() {
	c1 := float32(1 - math.Pow(beta1, float64(t.step)))
	c2 := float32(1 - math.Pow(beta2, float64(t.step)))
	for i, g := range t.grad {
		t.m[i] = beta1*t.m[i] + (1-beta1)*g
		t.v[i] = beta2*t.v[i] + (1-beta2)*g*g
		t.weights[i] -= learningRate * (t.m[i] / c1) / (float32(math.Sqrt(float64(t.v[i]/c2))) + epsilon)
	}
}
