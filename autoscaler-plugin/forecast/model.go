package forecast

import (
	"math"

	"gonum.org/v1/gonum/stat/distuv"
)

// The models, in the order of their simplicity: of equal records the first is chosen.
const (
	persistence = iota
	rhythm
	rhythmMomentum
	updates
	updatesMomentum
	arima
	smoothing
	models
)

// Models are the names of the models.
var Models = [models]string{
	"persistence", "rhythm", "rhythm with momentum", "updates", "updates with momentum", "ARIMA", "exponential smoothing",
}

// Prior weights, in windows that do not overlap. Results hardly depend on them: halving or doubling any of them moves the
// losses by less than a hundredth.
const (
	movePrior   = 5  // of all series' share of moves in a cell, against the series' own
	sizePrior   = 10 // of all series' sizes, against the series' own
	datePrior   = 2  // dates: of the share over all ages, against the share at one age since an update
	habitPrior  = 3  // expected moves: of a series moving as often as others do at an update
	choicePrior = 20 // of a model's record on all series, against its record on the series
)

// updateShare is the share of series that must move between two looks for an update of the whole list.
const updateShare = .05

// count is a number of windows and in how many of them the price moved.
type count struct{ moved, all float64 }

func (c *count) add(moved bool, weight float64) {
	c.all += weight
	if moved {
		c.moved += weight
	}
}

// share is the share of moves, a prior share counted in with a weight.
func (c count) share(prior, weight float64) float64 {
	return (c.moved + weight*prior) / (c.all + weight)
}

type cells [activities][ageCells]count

// steps are what the step models learn of one horizon from all series.
type steps struct {
	byAge    cells
	byUpdate cells // in dates: each window weighs one by the number of series
	byClass  [activities]count
	sizes    [2]summary // by dormancy: ln(outcome/price) in typical sizes, of windows with a move
	residues [2]summary // the same along the last move, less what the regression expects
	momentum [2]regression
}

// ownSteps are what they learn from one series.
type ownSteps struct {
	byAge           cells
	byUpdate        count // all: moves expected
	sizes, residues [2]empirical
}

// outlook is what the step models expect of one window.
type outlook struct {
	situation
	byAge, byUpdate float64 // chance of a move
	update          float64 // the same for a series like the others
	mean            float64 // expected size of a move in typical sizes, along the last one
}

// expect computes an outlook.
func (a *steps) expect(own *ownSteps, s situation) outlook {
	o := outlook{situation: s}
	o.byAge = own.byAge[s.activity][s.age].share(a.byAge[s.activity][s.age].share(.1, movePrior), movePrior)
	o.update = a.byUpdate[s.activity][s.update].share(a.byClass[s.activity].share(.1, 1), datePrior)
	o.byUpdate = min(.99, o.update*(own.byUpdate.moved+habitPrior)/(own.byUpdate.all+habitPrior))
	o.mean = a.momentum[s.dormant].predict(&s.x)
	return o
}

// distribution is that of one step model, of the price from base on. Overlap is how many windows share a moment.
func (a *steps) distribution(own *ownSteps, o *outlook, model int, base, overlap float64) distribution {
	chance := o.byAge
	if model == updates || model == updatesMomentum {
		chance = o.byUpdate
	}
	mine, all, shift, scale := own.sizes[o.dormant], a.sizes[o.dormant].points, 0.0, o.scale
	if model == rhythmMomentum || model == updatesMomentum {
		mine, all = own.residues[o.dormant], a.residues[o.dormant].points
		scale *= o.sign
		shift = o.mean * scale
	}
	return hurdle(chance, base, mine, all, shift, scale, overlap)
}

// hurdle is a price that stays with probability 1 - chance and else moves by exp(shift + scale·u), u drawn from the own
// sizes and those of all series.
func hurdle(chance, base float64, own, all []float64, shift, scale, overlap float64) distribution {
	if len(own)+len(all) == 0 {
		return distribution{{base, 1}}
	}
	n := float64(len(own)) / overlap
	w := n / (n + sizePrior)
	if len(all) == 0 {
		w = 1
	}
	d := merge(make(distribution, 0, len(own)+len(all)+1), own, all, chance*w, chance*(1-w), shift, scale)
	at := 0
	for at < len(d) && d[at].value < 0 {
		at++
	}
	d = append(d, mass{})
	copy(d[at+1:], d[at:])
	d[at] = mass{0, 1 - chance}
	for j := range d {
		d[j].value = base * math.Exp(d[j].value)
	}
	return d
}

// learn takes up the outcome of a window.
func (a *steps) learn(own *ownSteps, o *outlook, base, outcome, overlap, alive float64) {
	moved := outcome != base
	w := 1 / overlap
	own.byAge[o.activity][o.age].add(moved, w)
	a.byAge[o.activity][o.age].add(moved, w)
	a.byUpdate[o.activity][o.situation.update].add(moved, w/alive)
	a.byClass[o.activity].add(moved, w/alive)
	own.byUpdate.all += w * o.update
	if !moved {
		return
	}
	own.byUpdate.moved += w
	const farthest = 40 // typical sizes
	y := max(-farthest, min(farthest, math.Log(outcome/base)/o.scale))
	along := o.sign * y
	own.sizes[o.dormant].add(y)
	a.sizes[o.dormant].add(y)
	own.residues[o.dormant].add(along - o.mean)
	a.residues[o.dormant].add(along - o.mean)
	a.momentum[o.dormant].add(&o.x, max(-3*clipped, min(3*clipped, along)), w)
}

// gauss are standard normal quantiles at equal steps of probability.
var gauss = func() (z [99]float64) {
	for i := range z {
		z[i] = distuv.UnitNormal.Quantile((float64(i) + .5) / float64(len(z)))
	}
	return z
}()

// lognormal is a price whose logarithm is Gaussian.
func lognormal(mean, sd float64) distribution {
	d := make(distribution, len(gauss))
	for i, z := range gauss {
		d[i] = mass{math.Exp(mean + sd*z), 1 / float64(len(gauss))}
	}
	return d
}
