package forecast

import (
	"math"
	"time"

	"gonum.org/v1/gonum/mat"
)

// move is one change of a price.
type move struct {
	at   time.Time
	size float64 // difference of the logarithms
}

const (
	recentMoves = 8  // moves that the typical size is taken from
	recentSteps = 48 // steps of the grid that count as the recent past
	ageCells    = 16
	activities  = 4
	features    = 5
	scalePrior  = 2 // moves that the typical size of all series counts as
	clipped     = 4 // typical sizes beyond which a past move counts no more
)

// situation is what the step models know of a series at one moment.
type situation struct {
	age      int               // cell of the time since its last move
	update   int               // cell of the time since many series moved at once
	activity int               // class of the number of its recent moves
	dormant  int               // 1: it has stood still for more than twice the usual time between moves
	scale    float64           // typical size of its moves
	sign     float64           // direction of its last move
	x        [features]float64 // 1, its last three moves and the mean of the last eight, in typical sizes along sign
}

// ageCell counts whole steps up to 11, then doubles.
func ageCell(age, step time.Duration) int {
	n := int(age / step)
	for cell := 12; n >= 12; cell++ {
		if n < 24<<(cell-12) || cell == ageCells-1 {
			return cell
		}
	}
	return n
}

// habits are what all series have in common.
type habits struct {
	moves, size  float64 // number of moves and sum of their sizes
	pauses, long float64 // number of times between moves and sum of their logarithms, in ns
}

func (h *habits) scale() float64 {
	if h.moves == 0 {
		return .01
	}
	return h.size / h.moves
}

func (h *habits) pause(step time.Duration) time.Duration {
	if h.pauses == 0 {
		return 12 * step
	}
	return time.Duration(math.Exp(h.long / h.pauses))
}

// look describes a series by its moves up to now. It began at first; many series moved at once at update.
func look(moves []move, first, update, now time.Time, step time.Duration, all *habits) situation {
	s := situation{sign: 1, update: ageCell(now.Sub(update), step)}
	n := len(moves)
	last := first
	if n > 0 {
		last = moves[n-1].at
	}
	s.age = ageCell(now.Sub(last), step)
	recent := 0
	for i := n - 1; i >= 0 && now.Sub(moves[i].at) < recentSteps*step; i-- {
		recent++
	}
	switch {
	case recent == 0:
	case recent <= 2:
		s.activity = 1
	case recent <= 5:
		s.activity = 2
	default:
		s.activity = 3
	}
	if n == 0 || now.Sub(last) > 2*all.pause(step) {
		s.dormant = 1
	}
	sum, count := scalePrior*all.scale(), float64(scalePrior)
	for _, m := range moves[max(0, n-recentMoves):] {
		sum += math.Abs(m.size)
		count++
	}
	s.scale = sum / count
	if n > 0 && moves[n-1].size < 0 {
		s.sign = -1
	}
	s.x[0] = 1
	for j := range min(recentMoves, n) {
		v := max(-clipped, min(clipped, s.sign*moves[n-1-j].size/s.scale))
		s.x[4] += v / recentMoves
		if j < 3 {
			s.x[j+1] = v
		}
	}
	return s
}

// ridge keeps the coefficients of a young regression near 0, as that many windows without momentum would.
const ridge = 5

// regression is least squares on a growing sample, solved anew each time the sample has grown by a tenth.
type regression struct {
	xx       [features][features]float64
	xy, beta [features]float64
	n, fresh float64
}

func (r *regression) add(x *[features]float64, y, weight float64) {
	for i := range x {
		for j := range x {
			r.xx[i][j] += weight * x[i] * x[j]
		}
		r.xy[i] += weight * x[i] * y
	}
	r.n += weight
	if r.n < 1.1*r.fresh+1 {
		return
	}
	r.fresh = r.n
	a := mat.NewSymDense(features, nil)
	for i := range features {
		for j := i; j < features; j++ {
			a.SetSym(i, j, r.xx[i][j])
		}
		a.SetSym(i, i, r.xx[i][i]+ridge)
	}
	var chol mat.Cholesky
	var b mat.VecDense
	if !chol.Factorize(a) || chol.SolveVecTo(&b, mat.NewVecDense(features, r.xy[:])) != nil {
		return
	}
	for i := range features {
		r.beta[i] = b.AtVec(i)
	}
}

func (r *regression) predict(x *[features]float64) float64 {
	s := 0.0
	for i, v := range x {
		s += r.beta[i] * v
	}
	return s
}
