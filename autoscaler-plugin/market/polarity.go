package market

import (
	"fmt"
	"math"
)

// Polarity says which number of a trace file means that instances can be had. The published files mean 1; the slices that
// the simulator of "Can't Be Late" (NSDI'24) packages from the same recordings mean 0, and nothing in the numbers tells
// which it is: recorded zones are available from 11 to 85 % of the time, and their up- and down-times look alike.
type Polarity int

// Polarities.
const (
	// PolarityAsk takes what metadata.available says, else 1; a file that looks inverted is refused with a *PolarityError.
	PolarityAsk      Polarity = iota
	PolarityOne               // 1 = available
	PolarityInverted          // 0 = available
)

// ParsePolarity reads a polarity as a user gives it: "", "available=1" or "available=0".
func ParsePolarity(s string) (Polarity, error) {
	switch s {
	case "":
		return PolarityAsk, nil
	case "available=1":
		return PolarityOne, nil
	case "available=0":
		return PolarityInverted, nil
	}
	return PolarityAsk, fmt.Errorf("polarity: %q is neither available=1 nor available=0", s)
}

// String is what ParsePolarity reads.
func (p Polarity) String() string {
	switch p {
	case PolarityOne:
		return "available=1"
	case PolarityInverted:
		return "available=0"
	default:
		return ""
	}
}

// PolarityError asks which number means available, because the input looks as if it were not the one assumed.
type PolarityError struct {
	Name   string  // of the trace, where it is one of several
	Ones   float64 // share of the ticks that are 1 (or up, as read)
	Reason string  // why it looks inverted
}

func (e *PolarityError) Error() string {
	name := ""
	if e.Name != "" {
		name = e.Name + ": "
	}
	return fmt.Sprintf("%slooks inverted: %s; %.1f %% of its ticks are 1: say --polarity available=0 if 0 means available, "+
		"--polarity available=1 if 1 does", name, e.Reason, 100*e.Ones)
}

// Inverted is the trace with up and down exchanged.
func (t Trace) Inverted() Trace {
	up := make([]bool, len(t.Up))
	for i := range t.Up {
		up[i] = !t.Up[i]
	}
	return Trace{Tick: t.Tick, Up: up}
}

// UpShare is the share of the ticks that are up, from 0 to 1; NaN for an empty trace.
func (t Trace) UpShare() float64 {
	n := 0
	for _, up := range t.Up {
		if up {
			n++
		}
	}
	return float64(n) / float64(len(t.Up))
}

// Limits of CheckPolarity. Zones of one region correlate by .4 on average on the recordings of 2023-02, zones of different
// regions by .14; so a zone that moves against its region does so because it is read upside down. Fewer changes than
// minFlips say nothing.
const (
	against  = -0.15
	minFlips = 10
)

// CheckPolarity looks for traces that are inverted against the others of their region and type; names are only told. Traces
// of one region must begin at the same time. The error joins a *PolarityError for each trace in doubt. A single trace, a region
// with a single zone and two zones of which either could be wrong are not judged (two are told together), and a set that
// is inverted as a whole is not found: compare it to a trace whose polarity is known, by InvertedPart.
func CheckPolarity(names []string, keys []Key, traces []Trace) error {
	var f faults
	for i, t := range traces {
		if flips(t) < minFlips {
			continue
		}
		sum, n := 0.0, 0
		for j, other := range traces {
			a, b := keys[i], keys[j]
			if i == j || a.Provider != b.Provider || a.Region != b.Region || a.Type != b.Type ||
				t.Tick != other.Tick || flips(other) < minFlips {
				continue
			}
			if r := correlation(t.Up, other.Up); !math.IsNaN(r) {
				sum += r
				n++
			}
		}
		if n > 0 && sum/float64(n) < against {
			f.add("%w", &PolarityError{Name: names[i], Ones: t.UpShare(), Reason: fmt.Sprintf(
				"it moves against the other zones of %s (mean correlation %.2f with %d, where zones of a region have about +0.4)",
				keys[i].Region, sum/float64(n), n)})
		}
	}
	return f.err("check polarity")
}

// minPart is the number of ticks from which a match is no chance any more.
const minPart = 100

// InvertedPart reports whether a trace is, upside down, a part of another whose polarity is known: then it is inverted.
// Both must have the same tick, and the part at least a hundred ticks and a change.
func (t Trace) InvertedPart(of Trace) bool {
	if t.Tick != of.Tick || len(t.Up) < minPart || flips(t) == 0 {
		return false
	}
	for start := 0; start+len(t.Up) <= len(of.Up); start++ {
		i := 0
		for i < len(t.Up) && t.Up[i] != of.Up[start+i] {
			i++
		}
		if i == len(t.Up) {
			return true
		}
	}
	return false
}

func flips(t Trace) int {
	n := 0
	for i := 1; i < len(t.Up); i++ {
		if t.Up[i] != t.Up[i-1] {
			n++
		}
	}
	return n
}

// correlation is Pearson's of two traces over the ticks that both have; NaN where one of them stands still.
func correlation(a, b []bool) float64 {
	n := min(len(a), len(b))
	var na, nb, nab float64
	for i := range n {
		if a[i] {
			na++
		}
		if b[i] {
			nb++
		}
		if a[i] && b[i] {
			nab++
		}
	}
	pa, pb := na/float64(n), nb/float64(n)
	return (nab/float64(n) - pa*pb) / math.Sqrt(pa*(1-pa)*pb*(1-pb))
}
