package cluster

import (
	"testing"
	"time"

	"github.com/shoenig/test/must"
)

func TestParseLine(t *testing.T) {
	l := parseLine("a", "2026-01-31T12:00:00.250Z step 120 loss 0.4213")
	must.Eq(t, Line{
		Alloc: "a", At: time.Date(2026, 1, 31, 12, 0, 0, 250e6, time.UTC), Text: "step 120 loss 0.4213", Step: 120, Loss: 0.4213,
	}, l)
	must.Eq(t, Line{Alloc: "a", Text: "step 120 loss 0.4213"}, parseLine("a", "step 120 loss 0.4213"))
	must.Zero(t, parseLine("a", "2026-01-31T12:00:00.250Z checkpoint 120").Step)
}

// A restart in place is a run of its own; so is one in another allocation, resumed or not.
func TestRuns(t *testing.T) {
	j := &Job{}
	for _, s := range []struct{ alloc, line string }{
		{"a", "2026-01-31T12:00:01.000Z step 1 loss 2.0"},
		{"a", "2026-01-31T12:00:02.000Z step 2 loss 1.9"},
		{"a", "2026-01-31T12:00:03.000Z resumed at step 1"},
		{"a", "2026-01-31T12:00:04.000Z step 2 loss 1.9"},
		{"b", "2026-01-31T12:00:06.000Z step 3 loss 1.8"},
		{"b", "2026-01-31T12:00:07.000Z final sha256 abc"},
		{"a", "2026-01-31T12:00:04.500Z stopped after step 2"}, // read late
		{"b", "2026-01-31T12:00:05.000Z resumed at step 2"},
	} {
		j.lines = append(j.lines, parseLine(s.alloc, s.line))
	}
	runs := j.Runs()
	must.Len(t, 3, runs)
	for i, want := range []struct {
		alloc                string
		resumed, first, last int64
		final                string
	}{{"a", 0, 1, 2, ""}, {"a", 1, 2, 2, ""}, {"b", 2, 3, 3, "abc"}} {
		r := runs[i]
		must.Eq(t, want.alloc, r.Alloc)
		must.Eq(t, want.resumed, r.Resumed)
		must.Eq(t, want.first, r.First.Step)
		must.Eq(t, want.last, r.Last.Step)
		must.Eq(t, want.final, r.Final)
	}
	must.Eq(t, "abc", j.Final())
	must.Eq(t, 3, j.Last().Step)
}

func TestHCL(t *testing.T) {
	must.Eq(t, `"west"`, HCL("west"))
	must.Eq(t, `["--out", "$${NOMAD_ALLOC_DIR}/data/\"m\""]`, HCL("--out", `${NOMAD_ALLOC_DIR}/data/"m"`))
}
