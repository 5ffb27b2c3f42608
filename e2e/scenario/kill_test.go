//go:build e2e

package scenario

import (
	"regexp"
	"strconv"
	"testing"

	"github.com/shoenig/test/must"

	"nomad-spotter/e2e/cluster"
)

// The node vanishes without a notice: training goes on from the last checkpoint that was durable, and ends with the
// same model.
func TestKilled(t *testing.T) {
	s := begin(t, 2)
	jobs := s.pair()
	// Every 30th step is a checkpoint; the kill comes some way behind the third.
	for _, j := range jobs {
		j.trains(100)
		s.eventually(durableLimit, j.ID+": a durable checkpoint of step 90", func() bool { return j.durable() >= 90 })
	}
	durable := []int64{jobs[0].durable(), jobs[1].durable()}
	must.NoError(t, shared.Reclaim(s.ctx, jobs[0].host().ID, 0))
	for i, j := range jobs {
		before, after := j.moved(1)
		must.GreaterEq(t, durable[i], after.Resumed, must.Sprint("what was durable is not lost"))
		must.LessEq(t, before.Last.Step, after.Resumed)
		must.Eq(t, after.Resumed+1, after.First.Step)
		j.identical(2)
	}
}

var durableEvent = regexp.MustCompile(`^Checkpoint (\d+) durable`)

// durable returns the newest step that a task event reports durable.
func (j *job) durable() (step int64) {
	events, err := j.Events(j.s.ctx)
	must.NoError(j.s, err)
	for _, e := range events {
		step = max(step, durableStep(e))
	}
	return step
}

func durableStep(e cluster.Event) int64 {
	m := durableEvent.FindStringSubmatch(e.Message)
	if m == nil {
		return 0
	}
	n, _ := strconv.ParseInt(m[1], 10, 64) // digits, by the expression
	return n
}
