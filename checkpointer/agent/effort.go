package agent

import (
	"fmt"
	"time"

	"nomad-spotter/checkpointer/delta"
)

// This file is pure: what to spend on a checkpoint, from what earlier ones took.

// Rate is what one effort takes.
type Rate struct {
	Code  float64 `json:"code"`  // raw bytes per second read, coded and hashed with all CPUs that the agent may use
	Ratio float64 `json:"ratio"` // bytes stored per raw byte
}

// Rates are what publications took on this node so far. The zero value knows nothing.
type Rates struct {
	Link    float64                `json:"link,omitempty"` // bytes per second into the store; 0: not known
	Efforts map[delta.Effort]*Rate `json:"efforts,omitempty"`
}

// Sample is one publication that was measured.
type Sample struct {
	Effort      delta.Effort
	Raw, Stored int64         // bytes
	Code        time.Duration // that reading and coding took
	Sent        int64         // bytes of large objects that were sent to the store
	Sending     time.Duration // during which at least one of them was on its way
}

// assumed is what is taken for granted of an effort before it was used: what the first checkpoint of a training takes, full
// state in fp32, and the speed of differences on one core, about a third below what was measured on the servers of 2021.
var assumed = [...]Rate{
	delta.Auto:  {Code: 500e6, Ratio: 0.84},
	delta.Fast:  {Code: 800e6, Ratio: 0.87},
	delta.Small: {Code: 400e6, Ratio: 0.837},
	delta.None:  {Code: 1200e6, Ratio: 1},
}

const (
	assumedLink = 30e6 // bytes per second; a quarter of a gigabit
	// turns is what a publication takes however small it is: listings, claims, the manifest.
	turns = 500 * time.Millisecond
	// tail is how many bytes are still to be sent once all is coded, at most: a pack.
	tail = 32 << 20
	// caution is the part of the time left that a plan may fill. The rest is for what cannot be foreseen: a store that
	// slows down, a node that is busy.
	caution = 2.0 / 3
	// forever is the longest prediction.
	forever = 365 * 24 * time.Hour
	// minSample is how many bytes a publication must have for its speed to say anything.
	minSample = 1 << 20
	// keeping is the link at most, in bytes per second, that bytes are weighed by when there is no hurry: however fast they
	// are sent, they are kept, copied and read again.
	keeping = 25e6
)

// ParseEffort reads the name of an effort, as in a configuration. fixed is false for auto: the effort is chosen.
func ParseEffort(name string) (e delta.Effort, fixed bool, err error) {
	switch name {
	case "", "auto":
		return delta.Auto, false, nil
	case "fast":
		return delta.Fast, true, nil
	case "small":
		return delta.Small, true, nil
	case "none":
		return delta.None, true, nil
	}
	return 0, false, fmt.Errorf("%q is unknown: use auto, fast, small or none", name)
}

// effortName is what ParseEffort reads.
func effortName(e delta.Effort) string {
	return [...]string{delta.Auto: "auto", delta.Fast: "fast", delta.Small: "small", delta.None: "none"}[e]
}

// Learn returns the rates after one more publication; those it is called on stay as they are. Bad news counts at once,
// good news by half.
func (r Rates) Learn(s Sample) Rates {
	out := Rates{Link: r.Link, Efforts: map[delta.Effort]*Rate{}}
	for e, v := range r.Efforts {
		out.Efforts[e] = v
	}
	if s.Sent >= minSample && s.Sending > 0 {
		now := float64(s.Sent) / s.Sending.Seconds()
		out.Link = min(now, (now+r.link())/2)
	}
	if s.Raw >= minSample && s.Code > 0 && int(s.Effort) < len(assumed) {
		old := r.Of(s.Effort)
		code, ratio := float64(s.Raw)/s.Code.Seconds(), float64(s.Stored)/float64(s.Raw)
		out.Efforts[s.Effort] = &Rate{Code: min(code, (code+old.Code)/2), Ratio: max(ratio, (ratio+old.Ratio)/2)}
	}
	return out
}

// Of is what an effort takes: as measured, or, before it was used, as assumed and corrected by how the efforts that were
// used differ from what is assumed of them. Storing as it is says nothing of how well others code, and is taken to store
// everything until it was measured.
func (r Rates) Of(e delta.Effort) Rate {
	if known := r.Efforts[e]; known != nil {
		return *known
	}
	var code, ratio, n, coding float64
	for i, a := range assumed { // in order, as sums of floating point depend on it
		known := r.Efforts[delta.Effort(i)]
		if known == nil {
			continue
		}
		code += known.Code / a.Code
		n++
		if delta.Effort(i) != delta.None {
			ratio += known.Ratio / a.Ratio
			coding++
		}
	}
	out := assumed[e]
	if n > 0 {
		out.Code *= code / n
	}
	if coding > 0 && e != delta.None {
		out.Ratio = min(out.Ratio*ratio/coding, 1)
	}
	return out
}

// link is the speed into the store, in bytes per second.
func (r Rates) link() float64 {
	if r.Link > 0 {
		return r.Link
	}
	return assumedLink
}

// Work is a checkpoint on its way.
type Work struct {
	Effort    delta.Effort
	Raw, Done int64 // bytes, and how many of them are coded
	Sent      int64 // bytes that are in the store
}

// Predict says how long it takes to finish: coding and sending go on at once, but for the last pack.
func (r Rates) Predict(w Work) time.Duration {
	rate := r.Of(w.Effort)
	code := float64(w.Raw-w.Done) / max(rate.Code, 1)
	bytes := max(float64(w.Raw)*rate.Ratio-float64(w.Sent), 0)
	send := bytes / r.link()
	last := min(bytes, tail) / r.link()
	return turns + time.Duration(min(max(code+last, send), forever.Seconds())*float64(time.Second))
}

// inTime tells whether something that takes d is planned with enough caution to be over when left is.
func inTime(d, left time.Duration) bool { return float64(d) <= float64(left)*caution }

// Weigh chooses an effort when there is no hurry: the one for which the time of coding and the time of sending, together,
// are the least. Storing everything as it is, is no choice here.
func (r Rates) Weigh() delta.Effort {
	best, least := delta.Auto, r.cost(delta.Auto)
	for _, e := range []delta.Effort{delta.Fast, delta.Small} {
		if c := r.cost(e); c < least {
			best, least = e, c
		}
	}
	return best
}

// cost is in seconds per raw byte.
func (r Rates) cost(e delta.Effort) float64 {
	v := r.Of(e)
	return 1/v.Code + v.Ratio/min(r.link(), keeping)
}

// Choose chooses the effort for raw bytes that must be in the store when left is over: the usual one if it is in time; else,
// of those that are in time, the one that stores the least; if none is, the quickest.
func (r Rates) Choose(usual delta.Effort, raw int64, left time.Duration) delta.Effort {
	if inTime(r.Predict(Work{Effort: usual, Raw: raw}), left) {
		return usual
	}
	best, found := usual, false
	for _, e := range []delta.Effort{delta.Small, delta.Auto, delta.Fast, delta.None} {
		d := r.Predict(Work{Effort: e, Raw: raw})
		ok := inTime(d, left)
		switch {
		case ok && !found:
			best, found = e, true
		case ok && r.Of(e).Ratio < r.Of(best).Ratio:
			best = e
		case !found && d < r.Predict(Work{Effort: best, Raw: raw}):
			best = e
		}
	}
	return best
}

// Abandon tells whether the checkpoint that is on its way should be given up for a newer one of raw bytes, as left is all the
// time that there is: only when both are not in time and the newer one alone is, or neither.
func (r Rates) Abandon(w Work, usual delta.Effort, raw int64, left time.Duration) bool {
	rest := r.Predict(w)
	after := left - time.Duration(float64(rest)/caution) // of the time left, if the older one is finished first
	quickest := func(left time.Duration) time.Duration {
		return r.Predict(Work{Effort: r.Choose(usual, raw, left), Raw: raw})
	}
	switch {
	case inTime(quickest(after), after):
		return false
	case inTime(quickest(left), left):
		return true
	}
	return !inTime(rest, left)
}
