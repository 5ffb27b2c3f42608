package main

import "math"

// rng is a splitmix64 generator (Steele, Lea and Flood, 2014). Its whole state is one word, so a checkpoint holds it,
// which the generators of math/rand do not allow across versions of Go.
type rng struct{ state uint64 }

func (r *rng) uint64() uint64 {
	r.state += 0x9e3779b97f4a7c15
	z := r.state
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb
	return z ^ (z >> 31)
}

// float64 is uniform in [0, 1).
func (r *rng) float64() float64 { return float64(r.uint64()>>11) / (1 << 53) }

// normal is a draw of the standard normal distribution (Box and Muller, one of the pair).
func (r *rng) normal() float64 {
	u := 1 - r.float64() // (0, 1]: its logarithm is finite
	return math.Sqrt(-2*math.Log(u)) * math.Cos(2*math.Pi*r.float64())
}

// shuffle permutes p in place (Fisher and Yates).
func (r *rng) shuffle(p []uint32) {
	for i := len(p) - 1; i > 0; i-- {
		j := int(r.uint64() % uint64(i+1))
		p[i], p[j] = p[j], p[i]
	}
}
