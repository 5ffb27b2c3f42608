package agent

import (
	"encoding/json"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-spotter/checkpointer/delta"
	"nomad-spotter/checkpointer/stage"
)

const gb = 1e9

// known are rates that are easy to calculate with.
func known(link float64) Rates {
	return Rates{Link: link, Efforts: map[delta.Effort]*Rate{
		delta.Small: {Code: 200e6, Ratio: 0.6},
		delta.Auto:  {Code: 400e6, Ratio: 0.7},
		delta.Fast:  {Code: 1e9, Ratio: 0.8},
		delta.None:  {Code: 4e9, Ratio: 1},
	}}
}

func TestPredict(t *testing.T) {
	last := func(link float64) float64 { return tail / link }
	for _, c := range []struct {
		name string
		r    Rates
		w    Work
		want float64 // seconds
	}{
		{"the link is what takes the time", known(100e6), Work{Effort: delta.Auto, Raw: gb}, 7},
		{"and the processor", known(1e9), Work{Effort: delta.Auto, Raw: gb}, 2.5 + last(1e9)},
		{"half of it coded and sent", known(100e6), Work{Effort: delta.Auto, Raw: gb, Done: gb / 2, Sent: 350e6}, 3.5},
		{"all coded, nothing sent", known(100e6), Work{Effort: delta.None, Raw: gb, Done: gb}, 10},
		{"more sent than was to be expected", known(100e6), Work{Effort: delta.Auto, Raw: gb, Done: gb, Sent: 2 * gb}, 0},
		{"nothing", known(100e6), Work{Effort: delta.Auto}, 0},
		{"nothing known", Rates{}, Work{Effort: delta.None, Raw: gb}, gb / assumedLink},
		{"a link that stands still", known(1e-6), Work{Effort: delta.None, Raw: gb}, forever.Seconds()},
	} {
		got := c.r.Predict(c.w) - turns
		must.InDelta(t, c.want, got.Seconds(), 0.001, must.Sprint(c.name))
	}
}

// One unit either side of each threshold.
func TestChoose(t *testing.T) {
	least := func(r Rates, e delta.Effort) time.Duration { // the time that an effort needs to be chosen, for a gigabyte
		return time.Duration(float64(r.Predict(Work{Effort: e, Raw: gb})) / caution)
	}
	const unit = 10 // nanoseconds: more than what floating point rounds
	slow, quick := known(50e6), known(2e9)
	for _, c := range []struct {
		name  string
		r     Rates
		usual delta.Effort
		left  time.Duration
		want  delta.Effort
	}{
		{"time enough", slow, delta.Auto, time.Hour, delta.Auto},
		{"slow link, just in time", slow, delta.Auto, least(slow, delta.Auto) + unit, delta.Auto},
		{"slow link, just not: the smallest", slow, delta.Auto, least(slow, delta.Auto) - unit, delta.Small},
		{"slow link, the smallest just in time", slow, delta.Auto, least(slow, delta.Small) + unit, delta.Small},
		{"slow link, nothing in time: the quickest", slow, delta.Auto, least(slow, delta.Small) - unit, delta.Small},
		{"quick link, just in time", quick, delta.Auto, least(quick, delta.Auto) + unit, delta.Auto},
		{"quick link, just not: less work", quick, delta.Auto, least(quick, delta.Auto) - unit, delta.Fast},
		{"quick link, fast just in time", quick, delta.Auto, least(quick, delta.Fast) + unit, delta.Fast},
		{"quick link, fast just not: as it is", quick, delta.Auto, least(quick, delta.Fast) - unit, delta.None},
		{"quick link, nothing in time: the quickest", quick, delta.Auto, least(quick, delta.None) - unit, delta.None},
		{"small is usual and not in time", quick, delta.Small, least(quick, delta.Small) - unit, delta.Auto},
		{"no time at all", quick, delta.Auto, 0, delta.None},
		{"too late", quick, delta.Auto, -time.Second, delta.None},
		{"nothing known, a quick decision", Rates{}, delta.Auto, time.Second, delta.Small},
	} {
		must.EqOp(t, c.want, c.r.Choose(c.usual, gb, c.left), must.Sprint(c.name))
	}
}

// Whatever the rates, what is chosen is in time if anything is, and nothing is quicker if nothing is.
func TestChoose_Property(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	efforts := []delta.Effort{delta.Auto, delta.Fast, delta.Small, delta.None}
	for range 20_000 {
		r := Rates{Link: random.Float64() * 1e9, Efforts: map[delta.Effort]*Rate{}}
		for _, e := range efforts {
			if random.IntN(2) == 0 {
				r.Efforts[e] = &Rate{Code: random.Float64() * 2e9, Ratio: random.Float64()}
			}
		}
		raw, left := random.Int64N(1e11), time.Duration(random.Int64N(int64(10*time.Minute)))
		usual := efforts[random.IntN(len(efforts))]
		got := r.Choose(usual, raw, left)
		took := r.Predict(Work{Effort: got, Raw: raw})
		for _, e := range efforts {
			d := r.Predict(Work{Effort: e, Raw: raw})
			if inTime(d, left) {
				must.True(t, inTime(took, left))
				must.True(t, got == usual || r.Of(got).Ratio <= r.Of(e).Ratio, must.Sprintf("%v: %v, not %v of %v in %v, usual %v", r, got, e, raw, left, usual))
			} else if !inTime(took, left) {
				must.LessEq(t, d, took)
			}
		}
	}
}

func TestWeigh(t *testing.T) {
	for _, c := range []struct {
		name string
		r    Rates
		want delta.Effort
	}{
		{"nothing known", Rates{}, delta.Auto},
		{"a quick link", Rates{Link: 2e9}, delta.Auto},
		{"a very slow link", Rates{Link: 1e6}, delta.Small},
		{"a slow processor", Rates{Link: 2e9, Efforts: map[delta.Effort]*Rate{delta.Auto: {Code: 50e6, Ratio: 0.84}}}, delta.Fast},
		{"it saves nothing to try harder", Rates{Link: 1e6, Efforts: map[delta.Effort]*Rate{
			delta.Auto: {Code: 500e6, Ratio: 0.8}, delta.Fast: {Code: 800e6, Ratio: 0.8}, delta.Small: {Code: 400e6, Ratio: 0.8},
		}}, delta.Fast},
		{"a link that never takes everything as it is", Rates{Link: 1e12, Efforts: map[delta.Effort]*Rate{delta.None: {Code: 1.2e9, Ratio: 0.1}, delta.Auto: {Code: 5e8, Ratio: 0.84}}}, delta.Auto},
	} {
		must.EqOp(t, c.want, c.r.Weigh(), must.Sprint(c.name))
	}
}

func TestAbandon(t *testing.T) {
	r := known(100e6)
	// On a link of 100 MB/s: 7.5 s for a gigabyte, 4 s for the half of it that is left; caution asks for half as much again.
	w := Work{Effort: delta.Auto, Raw: gb, Done: gb / 2, Sent: 350e6}
	for _, c := range []struct {
		name string
		left time.Duration
		want bool
	}{
		{"both in time", 30 * time.Second, false},
		{"just both, the newer one with less bytes", 15760 * time.Millisecond, false},
		{"just not both", 15740 * time.Millisecond, true},
		{"the newer one alone", 9760 * time.Millisecond, true},
		{"only the older one: it is better than none", 9740 * time.Millisecond, false},
		{"only the older one, just", 6010 * time.Millisecond, false},
		{"neither", 5990 * time.Millisecond, true},
		{"too late", -time.Second, true},
	} {
		must.EqOp(t, c.want, r.Abandon(w, delta.Auto, gb, c.left), must.Sprint(c.name))
	}
}

func TestLearn(t *testing.T) {
	var r Rates
	a := r.Learn(Sample{Effort: delta.Auto, Raw: gb, Stored: gb / 2, Code: time.Second, Sent: gb / 2, Sending: 10 * time.Second})
	must.Eq(t, Rates{}, r, must.Sprint("what it is called on stays as it is"))
	must.EqOp(t, 40e6, a.Link, must.Sprint("good news by half"))
	must.InDelta(t, 750e6, a.Of(delta.Auto).Code, 1)
	must.InDelta(t, 0.67, a.Of(delta.Auto).Ratio, 1e-9)
	must.InDelta(t, 1.5*800e6, a.Of(delta.Fast).Code, 1, must.Sprint("what differs in one effort is expected of the others"))
	must.InDelta(t, 0.87*0.67/0.84, a.Of(delta.Fast).Ratio, 1e-9)
	must.EqOp(t, 1.0, a.Of(delta.None).Ratio)
	b := a.Learn(Sample{Effort: delta.Auto, Raw: gb, Stored: 9e8, Code: 10 * time.Second, Sent: gb, Sending: 100 * time.Second})
	must.EqOp(t, 10e6, b.Link, must.Sprint("bad news at once"))
	must.Eq(t, Rate{Code: 100e6, Ratio: 0.9}, b.Of(delta.Auto))
	// What is too small, or took no time, says nothing.
	for _, s := range []Sample{
		{Effort: delta.Auto, Raw: minSample - 1, Stored: 5, Code: time.Hour, Sent: minSample - 1, Sending: time.Hour},
		{Effort: delta.Auto, Raw: gb, Stored: gb, Sent: gb},
		{Effort: 200, Raw: gb, Stored: gb, Code: time.Second},
	} {
		must.Eq(t, b, b.Learn(s))
	}
	// It survives in the state file.
	j, err := json.Marshal(b)
	must.NoError(t, err)
	var c Rates
	must.NoError(t, json.Unmarshal(j, &c))
	must.Eq(t, b, c)
}

func TestSeen(t *testing.T) {
	r := known(100e6)
	for _, c := range []struct {
		name string
		in   reading
		want float64
	}{
		{"too early to tell", reading{flying: 32e6, sending: time.Second - 1}, 100e6},
		{"it may all be there now", reading{sent: 100e6, flying: 32e6, sending: time.Second}, 100e6},
		{"slower than it was", reading{flying: 32e6, sending: 4 * time.Second}, 8e6},
		{"it stands still", reading{sending: time.Hour}, 1},
	} {
		must.EqOp(t, c.want, r.seen(c.in).Link, must.Sprint(c.name))
	}
}

func TestParseEffort(t *testing.T) {
	for _, name := range []string{"auto", "fast", "small", "none"} {
		e, fixed, err := ParseEffort(name)
		must.NoError(t, err)
		must.EqOp(t, name, effortName(e))
		must.EqOp(t, name != "auto", fixed)
	}
	e, fixed, err := ParseEffort("")
	must.NoError(t, err)
	must.True(t, e == delta.Auto && !fixed)
	_, _, err = ParseEffort("hard")
	must.ErrorContains(t, err, `"hard" is unknown`)
}

func TestOvertaken(t *testing.T) {
	at := time.Unix(1000, 0)
	r := &request{}
	r.ID, r.At, r.Deadline = 3, at, at.Add(time.Minute)
	queued := func(seconds int, answer uint64) *stage.Staged {
		return &stage.Staged{Meta: stage.Meta{FinishedAt: at.Add(time.Duration(seconds) * time.Second), Request: answer}}
	}
	for _, c := range []struct {
		name  string
		r     *request
		queue []*stage.Staged
		want  []bool
	}{
		{"none", nil, nil, []bool{}},
		{"one", nil, []*stage.Staged{queued(0, 0)}, []bool{false}},
		{"all but the newest", nil, []*stage.Staged{queued(0, 0), queued(1, 0), queued(2, 0)}, []bool{true, true, false}},
		{"an answer stays", nil, []*stage.Staged{queued(0, 0), queued(1, 2), queued(2, 0)}, []bool{true, false, false}},
		{"the first that is awaited stays", r, []*stage.Staged{queued(-1, 0), queued(0, 0), queued(1, 0), queued(2, 0)}, []bool{true, false, true, false}},
		{"the newest is the first that is awaited", r, []*stage.Staged{queued(-2, 0), queued(-1, 0), queued(0, 0)}, []bool{true, true, false}},
		{"an answer is what is awaited", r, []*stage.Staged{queued(1, 3), queued(2, 0), queued(3, 0)}, []bool{false, true, false}},
		{"an answer to an older request is not", r, []*stage.Staged{queued(1, 2), queued(2, 0), queued(3, 0)}, []bool{false, false, false}},
	} {
		must.Eq(t, c.want, overtaken(c.queue, c.r), must.Sprint(c.name))
	}
}
