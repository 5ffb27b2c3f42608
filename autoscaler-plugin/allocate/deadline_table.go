package allocate

import "math"

// impossible is the price of each tick of work that cannot be done before the deadline, in prices of on-demand. It only
// has to be so large that no saving outweighs it.
const impossible = 300

// table is the expected cost to the end of a job for every number of ticks to the deadline, state of a zone, mode of the
// job and ticks of work that are left:
//
//	V(t, s, r) = min over what to run on of price + E[V(t-1, s', r - progress)]
//
// It is the exact solution of the Markov decision process in which spot comes and goes by Ends, on a grid of whole ticks,
// between which the rest of a changeover is interpolated. A changeover to on-demand is counted as work, as on-demand
// stays; one to spot is counted by the ticks since it began, since spot that is taken away takes the rest of it along.
type table struct {
	Grid
	work     int     // ticks of work and changeover, at most
	change   float64 // changeover in ticks
	starts   int     // ticks of spot until it works at full rate, at least 1
	onDemand float64 // price of a tick
	zone     Zone
	gap      Ends
	fallback *table // what goes on in another zone when this one is lost; may be the table itself
	value    [][]float32
	next     [][]float32
}

// Modes of a job in a table: waiting, on-demand, then spot by the ticks since its start.
const (
	modeWaiting = iota
	modeOnDemand
	modeSpot // + ticks run - 1, at most starts-1
)

func (g *table) modes() int             { return modeSpot + g.starts }
func (g *table) up(class, mode int) int { return class*g.modes() + mode }
func (g *table) down(class, mode int) int {
	return Classes*g.modes() + class*modeSpot + mode
}
func (g *table) states() int { return Classes * (g.modes() + modeSpot) }

// progress is the work of the next tick of spot that has run for so many ticks.
func (g *table) progress(run int) float64 { return 1 - min(1, max(0, g.change-float64(run))) }

// shape is a table of the right size that holds nothing yet.
func shape(grid Grid) *table {
	g := &table{Grid: grid, change: float64(grid.Changeover) / float64(grid.Tick)}
	g.starts = max(1, int(math.Ceil(g.change-1e-9)))
	g.work = grid.Work + int(math.Ceil(g.change)) + 1
	return g
}

func newTable(grid Grid) *table {
	g := shape(grid)
	g.value = make([][]float32, grid.Ticks+1)
	for t := range g.value {
		g.value[t] = make([]float32, g.states()*(g.work+1))
	}
	g.next = make([][]float32, g.modes())
	for m := range g.next {
		g.next[m] = make([]float32, g.work+1)
	}
	return g
}

// solve fills the table, whose fallback must have been solved before, unless it is the table itself.
func (g *table) solve(m Market, zone Zone, fallback *table) {
	g.onDemand, g.gap, g.zone, g.fallback = m.OnDemand, m.Gap, zone, fallback
	for s := range g.states() {
		row := g.row(0, s)
		for r := range row {
			row[r] = float32(impossible * g.onDemand * float64(r))
		}
	}
	for t := 1; t <= g.Ticks; t++ {
		for class := range Classes {
			for mode, next := range g.next {
				g.expectUp(t, class, mode, next)
			}
			for mode := range g.modes() {
				g.choose(t, true, mode, g.row(t, g.up(class, mode)))
			}
			for mode := range modeSpot {
				g.expectDown(t, class, mode, g.next[mode])
			}
			for mode := range modeSpot {
				g.choose(t, false, mode, g.row(t, g.down(class, mode)))
			}
		}
	}
}

func (g *table) row(t, state int) []float32 {
	width := g.work + 1
	return g.value[t][state*width : (state+1)*width]
}

// reach is how much work can matter with t ticks left; what is beyond costs as much more for each tick.
func (g *table) reach(t int) int { return min(g.work, t+2) }

// needed is how much work is asked for in the tick after: a changeover may be added to what is left.
func (g *table) needed(t int) int { return min(g.work, g.reach(t)+g.starts+1) }

// branch is one thing that may become of the market by the next tick, with its chance.
type branch struct {
	chance float64
	row    []float32
}

// branchesUp are what may become, with t ticks left afterwards, of a zone that is up: it is lost, with another one up or
// not, or stays.
func (g *table) branchesUp(t, class, mode int) [4]branch {
	left := mode
	if mode >= modeSpot {
		left = modeWaiting
	}
	end := g.zone.Ends[class]
	older := (1 - end) * onward(class)
	return [4]branch{
		{end * g.zone.Elsewhere, g.fallback.row(t, g.fallback.up(0, left))},
		{end * (1 - g.zone.Elsewhere), g.fallback.row(t, g.fallback.down(0, left))},
		{1 - end - older, g.row(t, g.up(class, mode))},
		{older, g.row(t, g.up(min(class+1, Classes-1), mode))},
	}
}

func (g *table) branchesDown(t, class, mode int) [4]branch {
	end := g.gap[class]
	older := (1 - end) * onward(class)
	return [4]branch{
		{end, g.row(t, g.up(0, mode))},
		{0, g.row(t, g.up(0, mode))},
		{1 - end - older, g.row(t, g.down(class, mode))},
		{older, g.row(t, g.down(min(class+1, Classes-1), mode))},
	}
}

func (g *table) expectUp(t, class, mode int, out []float32) {
	mix(out[:g.needed(t)+1], g.branchesUp(t-1, class, mode))
}

func (g *table) expectDown(t, class, mode int, out []float32) {
	mix(out[:g.needed(t)+1], g.branchesDown(t-1, class, mode))
}

// mix is the mean over what may become of the market.
func mix(out []float32, b [4]branch) {
	w, x, y, z := float32(b[0].chance), float32(b[1].chance), float32(b[2].chance), float32(b[3].chance)
	p, q, r, s := b[0].row[:len(out)], b[1].row[:len(out)], b[2].row[:len(out)], b[3].row[:len(out)]
	for i := range out {
		out[i] = w*p[i] + x*q[i] + y*r[i] + z*s[i]
	}
}

// choose takes the least of what can be run on, for every amount of work.
func (g *table) choose(t int, up bool, mode int, out []float32) {
	reach := g.reach(t)
	out[0] = 0
	shift := -1.0 // on-demand is always there
	if mode != modeOnDemand {
		shift = g.change - 1
	}
	k, f := split(shift)
	for r := 1; r <= reach; r++ {
		out[r] = float32(g.onDemand) + g.at(g.next[modeOnDemand], r+k, f)
	}
	latest := float64(t) - shift - 1 // it comes too late for more work than that
	for r := max(1, int(math.Floor(latest))+1); r <= reach; r++ {
		out[r] += float32(impossible * g.onDemand * (float64(r) - latest))
	}
	// Waiting must leave time for a changeover to on-demand, and so must spot, which may be taken away at once.
	spare := float64(t-1) - g.change + 1e-9
	for r := 1; r <= min(reach, int(math.Floor(spare))); r++ {
		out[r] = min(out[r], g.next[modeWaiting][r])
	}
	if up {
		run := max(0, mode-modeSpot+1)
		done := g.progress(run)
		k, f := split(-done)
		next := g.next[modeSpot+min(run, g.starts-1)]
		for r := 1; r <= min(reach, int(math.Floor(spare+done))); r++ {
			out[r] = min(out[r], float32(g.zone.Price)+g.at(next, r+k, f))
		}
	}
	for r := reach + 1; r <= g.work; r++ {
		out[r] = out[r-1] + float32(impossible*g.onDemand)
	}
}

// split parts a number into its floor and the rest.
func split(x float64) (int, float32) {
	whole := math.Floor(x)
	return int(whole), float32(x - whole)
}

// at interpolates between in[i] and in[i+1]; in is 0 below its begin and goes on evenly after its end.
func (g *table) at(in []float32, i int, f float32) float32 {
	switch last := len(in) - 1; {
	case i == -1:
		return f * in[0]
	case i < 0:
		return 0
	case i >= last:
		return in[last] + float32(impossible*g.onDemand)*(float32(i-last)+f)
	}
	return in[i] + f*(in[i+1]-in[i])
}

// costs are the expected costs of what can be run on in the next tick, +Inf where it cannot be.
type costs struct{ waiting, spot, onDemand float64 }

// costs of a job with t ticks to its deadline and r ticks of work left, in a zone that is up or down for so many ticks.
func (g *table) costs(t int, up bool, age, mode int, r float64) costs {
	class := ageClass(age)
	after := func(to int, r float64) float64 {
		branches := g.branchesDown
		if up {
			branches = g.branchesUp
		}
		k, f := split(r)
		mean := 0.0
		for _, b := range branches(t-1, class, to) {
			mean += b.chance * float64(g.at(b.row, k, f))
		}
		return mean
	}
	c := costs{math.Inf(1), math.Inf(1), math.Inf(1)}
	left := r
	if mode != modeOnDemand {
		left += g.change
	}
	c.onDemand = g.onDemand + after(modeOnDemand, left-1) + impossible*g.onDemand*max(0, left-float64(t))
	spare := float64(t-1) - g.change + 1e-9
	if r <= spare {
		c.waiting = after(modeWaiting, r)
	}
	if run := max(0, mode-modeSpot+1); up && r-g.progress(run) <= spare {
		c.spot = g.zone.Price + after(modeSpot+min(run, g.starts-1), r-g.progress(run))
	}
	return c
}
