package pool

import (
	"fmt"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-spotter/autoscaler-plugin/cloud"
)

func hazardConfig() Config {
	c := testConfig()
	c.Offerings = []cloud.Offering{west, east, od}
	return c
}

func newTestHazards(t *testing.T, c Config) *hazards {
	t.Helper()
	h, err := newHazards(c)
	must.NoError(t, err)
	return h
}

// spotLife is an instance that was launched some time before noon and lived for so long.
func spotLife(id int, o cloud.Offering, before, lived time.Duration, interrupted bool) cloud.Instance {
	i := cloud.Instance{
		ID: fmt.Sprint(id), Provider: o.Provider, Offering: o.Name, Kind: o.Kind, Region: o.Region, Zone: o.Zone,
		State: cloud.Gone, LaunchedAt: noon.Add(-before), EndedAt: noon.Add(lived - before), Terminated: true,
	}
	if interrupted {
		i.Terminated, i.NoticedAt = false, i.EndedAt
	}
	return i
}

func TestHazards_prior(t *testing.T) {
	c := hazardConfig()
	h := newTestHazards(t, c)
	must.Eq(t, 0, h.mean(od, 0, noon))
	fresh := h.mean(west, 0, noon)
	must.Between(t, 0.3, fresh, 0.6, must.Sprint("of recorded V100 zones, over the first four hours"))
	must.Less(t, fresh, h.mean(west, time.Hour, noon), must.Sprint("the hazard falls with age"))
	must.Greater(t, 0, h.mean(west, 1000*time.Hour, noon))

	// A provider that says that instances live ten times as long makes the pool expect fewer interruptions.
	c.Offerings[1].MeanLifetime = 10 * h.book.Params.Base.Mean()
	h = newTestHazards(t, c)
	must.Eq(t, fresh, h.mean(west, 0, noon))
	must.Less(t, fresh/3, h.mean(east, 0, noon))
	must.InDelta(t, 1, float64(h.book.Weibull(keyOf(east)).Mean())/float64(c.Offerings[1].MeanLifetime), 1e-6)
}

// Interruptions raise the hazard of their offering, and a little that of others; long lives lower it. Each is told once,
// and a pool that starts again learns the same from the records.
func TestHazards_learn(t *testing.T) {
	c := hazardConfig()
	var lives []cloud.Instance
	for n := range 40 {
		lives = append(lives, spotLife(n, west, time.Duration(30+n)*time.Hour, 10*time.Minute, true))
		lives = append(lives, spotLife(100+n, east, 100*time.Hour, 70*time.Hour, false))
		lives = append(lives, spotLife(200+n, od, 100*time.Hour, 10*time.Minute, true))
	}
	h := newTestHazards(t, c)
	before := h.mean(west, 0, noon)
	must.NoError(t, h.lives(c, lives, noon))
	must.Greater(t, 2*before, h.mean(west, 0, noon))
	must.Less(t, before/2, h.mean(east, 0, noon))
	must.Len(t, 2, h.book.Records, must.Sprint("on-demand is in the book"))
	known := h.book
	must.NoError(t, h.lives(c, lives, noon))
	must.Eq(t, known, h.book, must.Sprint("told twice"))

	again := newTestHazards(t, c)
	must.NoError(t, again.lives(c, lives, noon.Add(time.Minute)))
	must.Eq(t, known, again.book)
}

// A life is told while it lasts and at its end, in all once, whenever the loop looks.
func TestHazards_parts(t *testing.T) {
	c := hazardConfig()
	whole, parts := newTestHazards(t, c), newTestHazards(t, c)
	must.NoError(t, whole.lives(c, []cloud.Instance{spotLife(1, west, 3*time.Hour, 2*time.Hour, true)}, noon))
	living := spotLife(1, west, 3*time.Hour, 2*time.Hour, true)
	living.State, living.NoticedAt, living.EndedAt = cloud.Running, time.Time{}, time.Time{}
	for at := -3 * time.Hour; at < -time.Hour; at += 7 * time.Minute {
		must.NoError(t, parts.lives(c, []cloud.Instance{living}, noon.Add(at)))
	}
	must.NoError(t, parts.lives(c, []cloud.Instance{spotLife(1, west, 3*time.Hour, 2*time.Hour, true)}, noon))
	must.Eq(t, 1, parts.book.Records[0].Interruptions)
	must.InDelta(t, whole.book.Records[0].Expected, parts.book.Records[0].Expected, 1e-9)

	// A clock that went back makes no hours, and an end is told all the same.
	living.ID, living.LaunchedAt = "2", noon.Add(-time.Hour)
	must.NoError(t, parts.lives(c, []cloud.Instance{living}, noon))
	expected := parts.book.Records[0].Expected
	must.NoError(t, parts.lives(c, []cloud.Instance{living}, noon.Add(-2*time.Hour)))
	living.State, living.NoticedAt = cloud.Noticed, noon.Add(-30*time.Minute)
	must.NoError(t, parts.lives(c, []cloud.Instance{living}, noon))
	must.Eq(t, 2, parts.book.Records[0].Interruptions)
	must.Eq(t, expected, parts.book.Records[0].Expected)
}

// Refusals in the region raise the hazard of its other zones, and fade.
func TestHazards_refused(t *testing.T) {
	c := hazardConfig()
	west2 := west
	west2.Name, west2.Zone = "west2", "west-b"
	c.Offerings = append(c.Offerings, west2)
	h := newTestHazards(t, c)
	before := h.mean(west2, time.Hour, noon)
	must.NoError(t, h.refused(west, noon))
	must.NoError(t, h.refused(od, noon))
	raised := h.mean(west2, time.Hour, noon)
	must.Greater(t, before, raised)
	must.Less(t, raised, h.mean(west2, time.Hour, noon.Add(3*time.Hour)))
	must.Eq(t, before, h.mean(east, time.Hour, noon))

	// What the provider says counts when it begins.
	for _, available := range []bool{true, false, false, false, true} {
		must.NoError(t, h.available(east, available, noon))
	}
	must.Eq(t, 1, h.book.Records[0].Trouble)
}
