package allocate

import (
	"fmt"
	"math"
	"time"
)

// Places where a job can be, beside spot in a zone, which is the zone's index.
const (
	Waiting  = -2
	OnDemand = -1
)

// Grid is what all jobs of a Deadlines have in common, and how finely they are looked at.
type Grid struct {
	Tick       time.Duration // of the plan; decisions may come more often
	Changeover time.Duration // from a start or a move until work goes on
	Ticks      int           // the longest time to a deadline that is looked at
	Work       int           // the most work that is left, in ticks
}

// Cells is how many figures a plan on the grid holds for each zone. One takes 4 bytes, and some 12 ns in each Solve.
func (g Grid) Cells() float64 {
	t := shape(g)
	return float64(g.Ticks+1) * float64(t.states()) * float64(t.work+1)
}

// Market is how spot comes and goes, and what it costs.
type Market struct {
	OnDemand float64 // price of on-demand, in any unit per time
	Gap      Ends    // chance that spot comes back in some zone, by how long there has been none
	Zones    []Zone
}

// Zone is one place where spot can be had.
type Zone struct {
	Price     float64 // in the unit of OnDemand
	Ends      Ends    // chance that spot is taken away, by how long it has been there
	Elsewhere float64 // chance that it is up in another zone at that moment
}

// Deadlines decides for jobs with deadlines whether they run on spot, on demand or wait, and in which zone, so that the
// expected cost is least and every deadline that on-demand can meet is met, whatever spot does: it never lets a job come
// to where a changeover to on-demand and the rest of its work do not fit before the deadline.
//
// It holds a solved Markov decision process for each zone. Solve may be called again when the market has changed.
type Deadlines struct {
	Grid
	tables []*table
	home   int // the zone that is counted on when another one is lost
}

// NewDeadlines makes an empty one; Solve must be called before Choose.
func NewDeadlines(grid Grid) *Deadlines { return &Deadlines{Grid: grid} }

// Solve finds what is best in a market. It takes some 0.1 s for a zone at 500 ticks and 300 of work.
func (d *Deadlines) Solve(m Market) {
	for len(d.tables) < len(m.Zones) {
		d.tables = append(d.tables, newTable(d.Grid))
	}
	d.tables = d.tables[:len(m.Zones)]
	least := math.Inf(1)
	for z, t := range d.tables {
		t.solve(m, m.Zones[z], t)
		if v := float64(t.row(d.Ticks, t.up(0, modeWaiting))[d.Work]); v < least {
			d.home, least = z, v
		}
	}
	for z, t := range d.tables {
		if z != d.home {
			t.solve(m, m.Zones[z], d.tables[d.home])
		}
	}
}

// Job is a job with a deadline at a moment.
type Job struct {
	Left     time.Duration // to the deadline
	Work     time.Duration // left, without the changeover that is under way
	Overhead time.Duration // rest of that changeover
	On       int           // zone, OnDemand or Waiting; Waiting too if spot was just taken away
}

// Choice is what a job is to run on, and what each way is expected to cost to the end of the job, in price times tick;
// +Inf where it would endanger the deadline, or there is no spot.
type Choice struct {
	On       int
	Wait     float64
	Spot     float64 // in the best zone
	OnDemand float64
}

// Reason says in words why.
func (c Choice) Reason() string {
	figure := func(x float64) string {
		if math.IsInf(x, 1) {
			return "not possible"
		}
		return fmt.Sprintf("%.4g", x)
	}
	all := fmt.Sprintf("expected cost to the end: spot %s, on-demand %s, waiting %s", figure(c.Spot), figure(c.OnDemand), figure(c.Wait))
	switch {
	case c.On >= 0:
		return "spot; " + all
	case c.On == Waiting:
		return "wait for spot; " + all
	case math.IsInf(c.Wait, 1):
		return "on-demand, or the deadline would be missed; " + all
	}
	return "on-demand; " + all
}

// Choose decides by the present of the market.
func (d *Deadlines) Choose(j Job, v View) Choice {
	t := min(int(j.Left/d.Tick), d.Ticks)
	if t < 1 {
		return Choice{On: OnDemand, Wait: math.Inf(1), Spot: math.Inf(1)}
	}
	r := float64(j.Work) / float64(d.Tick)
	mode := modeWaiting
	if j.On == OnDemand {
		mode = modeOnDemand
		r += float64(j.Overhead) / float64(d.Tick)
	}
	var best costs
	on := Waiting
	for z := range v.Up {
		if !v.Up[z] || j.On >= 0 && j.On != z { // a run on spot goes on where it is
			continue
		}
		m := mode
		if j.On == z {
			m = modeSpot + d.tables[z].ran(j.Overhead) - 1
		}
		if c := d.tables[z].costs(t, true, v.Age[z], m, r); on == Waiting || c.spot < best.spot {
			on, best = z, c
		}
	}
	if on == Waiting {
		best = d.tables[d.home].costs(t, false, v.Gap, mode, r)
	}
	switch {
	case on >= 0 && best.spot <= min(best.waiting, best.onDemand):
	case best.onDemand < best.waiting:
		on = OnDemand
	default:
		on = Waiting
	}
	return Choice{On: on, Wait: best.waiting, Spot: best.spot, OnDemand: best.onDemand}
}

// ran is how many ticks spot has run, as far as the changeover shows it, from 1.
func (g *table) ran(overhead time.Duration) int {
	if overhead <= 0 {
		return g.starts
	}
	return min(max(1, int(math.Round(g.change-float64(overhead)/float64(g.Tick)))), g.starts)
}
