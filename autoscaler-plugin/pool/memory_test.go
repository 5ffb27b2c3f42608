package pool

import (
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-spotter/autoscaler-plugin/cloud"
)

func TestMemory_backoff(t *testing.T) {
	c := testConfig()
	m, err := newMemory(testConfig())
	must.NoError(t, err)
	must.True(t, m.retryAt(c, "west").IsZero())
	at := noon
	for _, want := range []int{3, 6, 12, 24, 30, 30} {
		for range 10 { // ten launches that were refused together
			m.fail(c, "west", at)
		}
		must.Eq(t, time.Duration(want)*time.Minute, m.retryAt(c, "west").Sub(at))
		at = m.retryAt(c, "west")
	}

	// A pause is never longer than the longest, also if the clock goes back.
	choices, err := m.choices(c, nil, at)
	must.NoError(t, err)
	must.SliceEmpty(t, choices)
	c.Offerings = []cloud.Offering{west}
	for now, want := range map[time.Time]time.Time{at.Add(-30 * time.Minute): at, at.Add(-30*time.Minute - 1): {}} {
		choices, err := m.choices(c, nil, now)
		must.NoError(t, err)
		must.Eq(t, want, choices[0].RetryAt)
	}
}

func TestMemory_interruptions(t *testing.T) {
	c := testConfig()
	c.Offerings = []cloud.Offering{west, east, od}
	instances := []cloud.Instance{
		{ID: "1", Offering: "west", State: cloud.Noticed, NoticedAt: noon.Add(-time.Minute)},
		{ID: "2", Offering: "east", State: cloud.Gone, EndedAt: noon.Add(-time.Minute), Terminated: true},
		{ID: "3", Offering: "od", State: cloud.Gone, NoticedAt: noon.Add(-40 * time.Minute), EndedAt: noon.Add(-38 * time.Minute)},
	}
	m, err := newMemory(testConfig())
	must.NoError(t, err)
	for range 2 { // each counts once
		m.interruptions(c, instances, noon)
	}
	must.Eq(t, noon.Add(2*time.Minute), m.retryAt(c, "west"))
	must.True(t, m.retryAt(c, "east").IsZero(), must.Sprint("an instance that the pool ended is no interruption"))
	must.True(t, m.retryAt(c, "od").IsZero(), must.Sprint("an old interruption counts"))

	choices, err := m.choices(c, []cloud.Offer{{Offering: "west", Available: true}, {Offering: "east", Available: false}}, noon)
	must.NoError(t, err)
	must.True(t, choices[0].UpSince.IsZero())
	must.False(t, choices[1].Available)
	must.True(t, choices[2].Available, must.Sprint("an offering that the provider does not speak of may be had"))
	must.Eq(t, noon, choices[2].UpSince)

	// An instance launched after the failure that comes up clears the offering.
	nomad := nomadView{known: true, nodes: map[string]NomadNode{"4": {Up: true, Eligible: true}}}
	m.join(testConfig(), []cloud.Instance{{ID: "4", Offering: "west", State: cloud.Running, LaunchedAt: noon}}, nomad, noon)
	must.True(t, m.retryAt(c, "west").IsZero())
}

func TestMemory_join(t *testing.T) {
	m, err := newMemory(testConfig())
	must.NoError(t, err)
	i := cloud.Instance{ID: "1", Offering: "west", State: cloud.Running, LaunchedAt: noon.Add(-time.Hour)}
	up := nomadView{known: true, nodes: map[string]NomadNode{"1": {Up: true, Eligible: true}}}
	down := nomadView{known: true, nodes: map[string]NomadNode{"1": {}}}
	join := func(v nomadView, at time.Time) Node { return m.join(testConfig(), []cloud.Instance{i}, v, at)[0] }

	must.Eq(t, i.LaunchedAt, join(nomadView{known: true}, noon).DownSince)
	must.True(t, join(up, noon).Up)
	must.False(t, join(nomadView{}, noon.Add(time.Minute)).Up)
	must.Eq(t, noon.Add(2*time.Minute), join(down, noon.Add(2*time.Minute)).DownSince, must.Sprint("Nomad's silence counted as down time"))
	must.Eq(t, noon.Add(2*time.Minute), join(down, noon.Add(3*time.Minute)).DownSince)
	must.True(t, join(nomadView{off: true, known: true}, noon).ready())
	must.SliceEmpty(t, m.join(testConfig(), []cloud.Instance{{ID: "1", State: cloud.Gone}}, up, noon))
	must.MapEmpty(t, m.nodes)
}

// A provider that lists an instance before it knows its launch, or not at all any more, spoils nothing, and memory is
// given back.
func TestMemory_unlisted(t *testing.T) {
	c := hazardConfig()
	m, err := newMemory(c)
	must.NoError(t, err)
	pending := cloud.Instance{ID: "1", Provider: "local", Offering: "west", Kind: cloud.Spot, Region: west.Region, Zone: west.Zone, State: cloud.Running}
	lost := spotLife(2, west, 2*time.Hour, time.Hour, true)
	see := func(now time.Time, instances ...cloud.Instance) {
		_, err := m.view(c, 1, instances, nil, nomadView{known: true}, now)
		must.NoError(t, err)
	}
	see(noon, pending, lost)
	must.Eq(t, 1, m.hazards.book.Records[0].Interruptions)
	must.Less(t, 2, m.hazards.book.Records[0].Expected)
	must.MapLen(t, 1, m.hazards.told)
	see(noon.Add(20*time.Hour), lost)
	see(noon.Add(40 * time.Hour))
	see(noon.Add(41*time.Hour), lost)
	must.Eq(t, 1, m.hazards.book.Records[0].Interruptions, must.Sprint("listed again, told again"))
	see(noon.Add(70 * time.Hour))
	must.MapEmpty(t, m.hazards.told)
	must.MapEmpty(t, m.counted)
}
