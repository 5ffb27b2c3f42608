package detect

import (
	"testing"
	"time"

	"github.com/shoenig/test/must"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func one(e Entry) []Entry { return []Entry{e} }

// One unit either side of each settle time.
func TestSettle(t *testing.T) {
	for _, c := range []struct {
		name   string
		entry  Entry
		settle time.Duration
	}{
		{"file", Entry{Name: "a", Signature: "1"}, Settle},
		{"renamed file", Entry{Name: "a", Signature: "1", Renamed: true}, Settle},
		{"no leases", Entry{Name: "a", Signature: "1", NoLease: true}, SettleLong},
		{"renamed directory", Entry{Name: "a", Signature: "1", Dir: true, Renamed: true}, Settle},
		{"directory filled in place", Entry{Name: "a", Signature: "1", Dir: true}, SettleLong},
		{"renamed directory without leases", Entry{Name: "a", Signature: "1", Dir: true, Renamed: true, NoLease: true}, SettleLong},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := New("", nil)
			must.SliceEmpty(t, d.Finished(start, one(c.entry)))
			must.SliceEmpty(t, d.Finished(start.Add(c.settle-1), one(c.entry)))
			must.Eq(t, one(c.entry), d.Finished(start.Add(c.settle), one(c.entry)))
			must.Eq(t, one(c.entry), d.Finished(start.Add(c.settle+1), one(c.entry))) // until it is handled
			d.Handled("a", "1")
			must.SliceEmpty(t, d.Finished(start.Add(time.Hour), one(c.entry)))
		})
	}
}

// Every change begins the wait anew, and a handled name that changes is a new checkpoint.
func TestChanges(t *testing.T) {
	d := New("", nil)
	a := func(signature string) []Entry { return one(Entry{Name: "a", Signature: signature}) }
	must.SliceEmpty(t, d.Finished(start, a("1")))
	must.SliceEmpty(t, d.Finished(start.Add(Settle), a("2")))
	must.SliceEmpty(t, d.Finished(start.Add(2*Settle-1), a("2")))
	must.Len(t, 1, d.Finished(start.Add(2*Settle), a("2")))
	d.Handled("a", "2")
	now := start.Add(time.Hour)
	must.SliceEmpty(t, d.Finished(now, a("3")))
	must.Len(t, 1, d.Finished(now.Add(Settle), a("3")))
	// Gone and back: forgotten in between.
	must.SliceEmpty(t, d.Finished(now, nil))
	must.MapEmpty(t, d.Done())
	must.SliceEmpty(t, d.Finished(now.Add(time.Hour), a("3")))
	must.Len(t, 1, d.Finished(now.Add(time.Hour+Settle), a("3")))
}

func TestBusy(t *testing.T) {
	d := New("", nil)
	busy := one(Entry{Name: "a", Signature: "1", Busy: true})
	must.SliceEmpty(t, d.Finished(start, busy))
	must.SliceEmpty(t, d.Finished(start.Add(time.Hour), busy)) // a writer may pause for as long as it likes
	// Closed, by its writer or by the writer's end: the latter is known before the next look.
	idle := one(Entry{Name: "a", Signature: "1"})
	must.SliceEmpty(t, d.Finished(start.Add(time.Hour+1), idle))
	must.Len(t, 1, d.Finished(start.Add(time.Hour+2), idle))
}

func TestPartial(t *testing.T) {
	d := New("", nil)
	e := Entry{Name: "a", Signature: "1", Dir: true, Renamed: true, Partial: true}
	must.SliceEmpty(t, d.Finished(start, one(e)))
	must.SliceEmpty(t, d.Finished(start.Add(time.Hour), one(e)))
	must.SliceEmpty(t, d.Left(one(e), true))
}

// What is cut short is never finished, however long it lies there and however its task ended.
func TestTorn(t *testing.T) {
	d := New("", nil)
	e := Entry{Name: "a.pt", Signature: "1", Renamed: true, Torn: "a.pt: no directory at its end"}
	must.SliceEmpty(t, d.Finished(start, one(e)))
	must.SliceEmpty(t, d.Finished(start.Add(time.Hour), one(e)))
	must.SliceEmpty(t, d.Left(one(e), true))
	whole := Entry{Name: "a.pt", Signature: "2"}
	must.SliceEmpty(t, d.Finished(start.Add(time.Hour), one(whole)))
	must.Len(t, 1, d.Finished(start.Add(time.Hour+Settle), one(whole)))
}

// What is taken when the task has ended, by how it ended and by what was seen of the entry before.
func TestLeft(t *testing.T) {
	e := Entry{Name: "a", Signature: "1"}
	with := func(f func(e *Entry)) Entry {
		c := e
		f(&c)
		return c
	}
	for _, c := range []struct {
		name         string
		before       []Entry // listings of one entry, while the task lived
		left         Entry
		clean, crash bool // taken after a clean end, after any other
	}{
		{"never seen, written in place", nil, e, true, false},
		{"never seen, renamed", nil, with(func(e *Entry) { e.Renamed = true }), true, true},
		{"seen without a writer once", one(e), e, true, false},
		{"seen without a writer twice", []Entry{e, e}, e, true, true},
		{"written to again in between", []Entry{e, with(func(e *Entry) { e.Busy = true }), e}, e, true, false},
		{"seen with a writer only", one(with(func(e *Entry) { e.Busy = true })), e, true, false},
		{"seen, then changed", []Entry{with(func(e *Entry) { e.Signature = "0" }), with(func(e *Entry) { e.Signature = "0" })}, e, true, false},
		{"directory, renamed", nil, with(func(e *Entry) { e.Dir, e.Renamed = true, true }), true, true},
		{"directory, between two files", []Entry{with(func(e *Entry) { e.Dir = true }), with(func(e *Entry) { e.Dir = true })}, with(func(e *Entry) { e.Dir = true }), true, false},
		{"somebody still writes", nil, with(func(e *Entry) { e.Busy, e.Renamed = true, true }), false, false},
		{"temporary name", nil, with(func(e *Entry) { e.Name, e.Renamed = "a.tmp", true }), false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			for clean, want := range map[bool]bool{true: c.clean, false: c.crash} {
				d := New("", nil)
				for i, b := range c.before {
					d.Finished(start.Add(time.Duration(i)), one(b))
				}
				must.EqOp(t, want, len(d.Left(one(c.left), clean)) == 1, must.Sprintf("clean %v", clean))
				d.Handled(c.left.Name, c.left.Signature)
				must.SliceEmpty(t, d.Left(one(c.left), clean))
			}
		})
	}
	must.SliceEmpty(t, New("", map[string]string{"a": "1"}).Left(one(e), true)) // handled before a restart
}

func TestCandidate(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"", "ckpt_1.pt", true},
		{"", "checkpoint-1200", true},
		{"", ".hidden", false},
		{"", ".spotter-checkpoint-request", false},
		{"", ".spotter-restore-0123", false},
		{"", "ckpt_1.tmp", false},
		{"", "ckpt_1.pt.TMP", false},
		{"", "ckpt_1.part", false},
		{"", "ckpt_1.partial", false},
		{"", "ckpt_1.incomplete", false},
		{"", "ckpt_1.lock", false},
		{"", "tmp-checkpoint-1200", false},
		{"", "tmpl", true},
		{"", "a.tmp.pt", true},
		{"ckpt_*.pt", "ckpt_1.pt", true},
		{"ckpt_*.pt", "ckpt_1.txt", false},
		{"ckpt_*", "ckpt_1.tmp", false},
		{"*", ".hidden", false},
		{"ckpt_[0-9]", "ckpt_5", true},
		{"ckpt_[0-9]", "ckpt_x", false},
		{"[", "anything", false},
	} {
		must.EqOp(t, c.want, New(c.pattern, nil).Candidate(c.name), must.Sprintf("%q %q", c.pattern, c.name))
	}
}

func TestStep(t *testing.T) {
	for _, c := range []struct {
		name string
		step int64
		ok   bool
	}{
		{"ckpt_0100.pt", 100, true},
		{"checkpoint-1200", 1200, true},
		{"epoch3-step1200.safetensors", 1200, true},
		{"step_7", 7, true},
		{"7", 7, true},
		{"0", 0, true},
		{"model-1.5", 5, true}, // an extension of digits belongs to the name
		{"ckpt_12.ckpt2", 12, true},
		{"model.pt2", 0, false},
		{"model", 0, false},
		{"", 0, false},
		{"ckpt_9223372036854775807", 9223372036854775807, true},
		{"ckpt_9223372036854775808", 0, false},
	} {
		step, ok := Step(c.name)
		must.EqOp(t, c.ok, ok, must.Sprint(c.name))
		if ok {
			must.EqOp(t, c.step, step, must.Sprint(c.name))
		}
	}
}

// A step is never negative, and a name that ends with one gives it back.
func FuzzStep(f *testing.F) {
	for _, s := range []string{"ckpt_0100.pt", "a.1", "-1", "٣", "x99999999999999999999", "..", "1.2.3"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		step, ok := Step(name)
		if !ok {
			return
		}
		must.NonNegative(t, step)
		last, ok := Step(name + "-12.pt")
		must.True(t, ok)
		must.EqOp(t, 12, last)
	})
}
