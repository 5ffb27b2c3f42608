package main

// Shape of the task: points of a mixture of Gaussians, several modes to a class, so that a linear model does badly and
// a small network learns it within a few hundred steps.
const (
	inputs   = 32
	classes  = 10
	modes    = 3    // Gaussians per class
	examples = 4096 // size of the training set
)

// dataset is the training set. It follows from its seed alone, so that it need not be in a checkpoint.
type dataset struct {
	x []float32 // examples × inputs
	y []uint8   // class of each example
}

func newDataset(seed uint64) dataset {
	r := &rng{state: seed}
	centres := make([]float64, classes*modes*inputs)
	for i := range centres {
		centres[i] = 0.6 * r.normal()
	}
	d := dataset{x: make([]float32, examples*inputs), y: make([]uint8, examples)}
	for i := range examples {
		mode := int(r.uint64() % (classes * modes))
		d.y[i] = uint8(mode % classes)
		for j := range inputs {
			d.x[i*inputs+j] = float32(centres[mode*inputs+j] + r.normal())
		}
	}
	return d
}

// order walks the training set in an order that is shuffled anew for each epoch. It is part of a checkpoint.
type order struct {
	perm  []uint32
	pos   uint32 // next example of perm
	epoch uint32
}

func newOrder(r *rng) order {
	o := order{perm: make([]uint32, examples)}
	for i := range o.perm {
		o.perm[i] = uint32(i)
	}
	r.shuffle(o.perm)
	return o
}

// next returns the index of the next example.
func (o *order) next(r *rng) int {
	if int(o.pos) == len(o.perm) {
		o.pos = 0
		o.epoch++
		r.shuffle(o.perm)
	}
	i := o.perm[o.pos]
	o.pos++
	return int(i)
}
