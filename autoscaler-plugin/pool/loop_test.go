package pool

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/shoenig/test/must"

	"nomad-spotter/autoscaler-plugin/cloud"
)

// memoryCloud is a provider whose instances exist as records only. Its faults are set by the tests.
type memoryCloud struct {
	mu        sync.Mutex
	offers    map[string]cloud.Offering
	instances []cloud.Instance
	soldOut   map[string]bool // offerings without capacity, which the market does not show
	listing   func() error
	launching func() // runs at the start of a launch
}

func newMemoryCloud(offers ...cloud.Offering) *memoryCloud {
	m := &memoryCloud{offers: map[string]cloud.Offering{}, soldOut: map[string]bool{}}
	for _, o := range offers {
		m.offers[o.Name] = o
	}
	return m
}

func (m *memoryCloud) Launch(_ context.Context, req cloud.Launch) (cloud.Instance, error) {
	if m.launching != nil {
		m.launching()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.soldOut[req.Offering] {
		return cloud.Instance{}, fmt.Errorf("launch: %w", cloud.ErrUnavailable)
	}
	o := m.offers[req.Offering]
	i := cloud.Instance{
		ID: req.ID, Provider: "local", Offering: o.Name, Kind: o.Kind, Region: o.Region, Zone: o.Zone, PriceUSDPerHour: o.PriceUSDPerHour,
		MaxPriceUSDPerHour: req.MaxPriceUSDPerHour, State: cloud.Running, LaunchedAt: time.Now(),
	}
	m.instances = append(m.instances, i)
	return i, nil
}

func (m *memoryCloud) List(context.Context) ([]cloud.Instance, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.listing != nil {
		if err := m.listing(); err != nil {
			return nil, err
		}
	}
	return slices.Clone(m.instances), nil
}

func (m *memoryCloud) Terminate(_ context.Context, id, reason string) error {
	return m.change(id, func(i *cloud.Instance) {
		i.State, i.Reason, i.Terminated, i.EndedAt = cloud.Gone, reason, true, time.Now()
	})
}

func (m *memoryCloud) Offers(context.Context) ([]cloud.Offer, error) { return nil, nil }

func (m *memoryCloud) change(id string, f func(*cloud.Instance)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for n := range m.instances {
		if m.instances[n].ID == id {
			f(&m.instances[n])
			return nil
		}
	}
	return cloud.ErrNotFound
}

// live lists the offerings of the instances that are not gone.
func (m *memoryCloud) live() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var names []string
	for _, i := range m.instances {
		if i.State != cloud.Gone {
			names = append(names, i.Offering)
		}
	}
	slices.Sort(names)
	return names
}

// memoryNomad has a ready node for every living instance of a memoryCloud.
type memoryNomad struct {
	cloud *memoryCloud

	mu      sync.Mutex
	work    map[string]int
	drained map[string]time.Time
	purged  []string
	down    error
}

func (n *memoryNomad) list(ctx context.Context) (map[string]NomadNode, error) {
	instances, err := n.cloud.List(ctx)
	n.mu.Lock()
	defer n.mu.Unlock()
	if err != nil || n.down != nil {
		return nil, errors.Join(err, n.down)
	}
	nodes := map[string]NomadNode{}
	for _, i := range instances {
		if slices.Contains(n.purged, i.ID) {
			continue
		}
		since, draining := n.drained[i.ID]
		nodes[i.ID] = NomadNode{ID: i.ID, Up: i.State != cloud.Gone, Eligible: !draining, Draining: draining, DrainSince: since, Work: n.work[i.ID]}
	}
	return nodes, nil
}

func (n *memoryNomad) set(f func()) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	f()
	return nil
}

func (n *memoryNomad) drain(_ context.Context, id, _ string) error {
	return n.set(func() { n.drained[id] = time.Now() })
}

func (n *memoryNomad) undrain(_ context.Context, id string) error {
	return n.set(func() { delete(n.drained, id) })
}

func (n *memoryNomad) stopWork(_ context.Context, id string) error {
	return n.set(func() { n.work[id] = 0 })
}

func (n *memoryNomad) purge(_ context.Context, id string) error {
	return n.set(func() { n.purged = append(n.purged, id) })
}

// testPool is a pool over memory, with its state in a file.
type testPool struct {
	cloud *memoryCloud
	nomad *memoryNomad
	pool  Pool
}

func newTestPool(t *testing.T) *testPool {
	p := &testPool{cloud: newMemoryCloud(west, east, od)}
	p.nomad = &memoryNomad{cloud: p.cloud, work: map[string]int{}, drained: map[string]time.Time{}}
	p.pool = Pool{Config: testConfig(), Providers: map[string]Provider{"local": p.cloud}}
	p.pool.Interval = 10 * time.Millisecond
	p.pool.Offerings = []cloud.Offering{west, east, od}
	p.pool.State.File = filepath.Join(t.TempDir(), "pool.json")
	return p
}

// start runs a loop until the returned function is called, or to the end of the test.
func (p *testPool) start(t *testing.T) (*Loop, func()) {
	t.Helper()
	l, err := NewLoop(p.pool, nil, hclog.NewNullLogger())
	must.NoError(t, err)
	l.nodes = p.nomad
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { l.Run(ctx); close(done) }()
	stop := func() { cancel(); <-done }
	t.Cleanup(stop)
	return l, stop
}

func (p *testPool) waitLive(t *testing.T, want ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	for !slices.Equal(p.cloud.live(), want) {
		if pause(ctx, 5*time.Millisecond) != nil {
			must.Eq(t, want, p.cloud.live())
		}
	}
}

func ready(l *Loop) func() bool { return func() bool { return l.Health().Ready } }

func TestLoop_scale(t *testing.T) {
	p := newTestPool(t)
	l, stop := p.start(t)
	waitUntil(t, "ready", 5*time.Second, ready(l))
	must.Eq(t, 0, l.Health().Desired.Count)
	must.True(t, l.Health().Desired.ChangedAt.IsZero())

	must.NoError(t, l.SetDesired(t.Context(), 3))
	changed := l.Health().Desired.ChangedAt
	must.False(t, changed.IsZero())
	p.waitLive(t, "east", "od", "west")
	p.cloud.mu.Lock()
	for _, i := range p.cloud.instances {
		must.Eq(t, i.Kind == cloud.Spot, i.MaxPriceUSDPerHour == od.PriceUSDPerHour)
	}
	p.cloud.mu.Unlock()
	must.NoError(t, l.SetDesired(t.Context(), 3))
	must.Eq(t, changed, l.Health().Desired.ChangedAt, must.Sprint("an unchanged count is no event"))
	must.ErrorContains(t, l.SetDesired(t.Context(), -1), "-1 nodes are less than none")

	// A restart neither loses nor doubles anything, and is no event.
	stop()
	must.False(t, l.Health().Ready)
	must.ErrorContains(t, l.SetDesired(t.Context(), 1), "not ready")
	l, _ = p.start(t)
	waitUntil(t, "ready", 5*time.Second, ready(l))
	must.True(t, changed.Equal(l.Health().Desired.ChangedAt))
	must.Eq(t, 3, l.Health().Desired.Count)
	p.waitLive(t, "east", "od", "west")
}

// An offering that takes its instances back again and again loses what it still has, before it takes that too: first the
// replacement comes, then the node is drained. All that is known of the offering are the records of the instances.
func TestLoop_movesEarly(t *testing.T) {
	p := newTestPool(t)
	p.pool.ReturnAfter = time.Millisecond
	for n := range 60 {
		launched := time.Now().Add(-time.Duration(100+n) * time.Hour)
		p.cloud.instances = append(p.cloud.instances, cloud.Instance{
			ID: fmt.Sprintf("west-%d", n), Provider: "local", Offering: "west", Kind: cloud.Spot, Region: west.Region, Zone: west.Zone,
			State: cloud.Gone, LaunchedAt: launched, NoticedAt: launched.Add(10 * time.Minute), EndedAt: launched.Add(12 * time.Minute),
		})
	}
	for _, o := range []string{"od", "west"} {
		_, err := p.cloud.Launch(t.Context(), cloud.Launch{ID: o + "-now", Offering: o})
		must.NoError(t, err)
	}
	must.NoError(t, p.nomad.set(func() { p.nomad.work["west-now"] = 1 }))
	l, _ := p.start(t)
	waitUntil(t, "ready", 5*time.Second, ready(l))
	waitUntil(t, "drain", 5*time.Second, func() bool {
		p.nomad.mu.Lock()
		defer p.nomad.mu.Unlock()
		_, drained := p.nomad.drained["west-now"]
		return drained
	})
	p.waitLive(t, "east", "od", "west")
	must.NoError(t, p.nomad.set(func() { p.nomad.work["west-now"] = 0 }))
	p.waitLive(t, "east", "od")
	must.Eq(t, 2, l.Health().Desired.Count)
}

// A fault of a provider ends neither the loop nor the plugin.
func TestLoop_panickingLaunch(t *testing.T) {
	p := newTestPool(t)
	var once sync.Once
	p.cloud.launching = func() { once.Do(func() { panic("broken provider") }) }
	l, _ := p.start(t)
	waitUntil(t, "ready", 5*time.Second, ready(l))
	must.NoError(t, l.SetDesired(t.Context(), 1))
	p.waitLive(t, "west") // the offering that failed is left alone for a while
}

// Where no count was ever saved, the running instances are the count.
func TestLoop_adopts(t *testing.T) {
	p := newTestPool(t)
	for _, o := range []string{"od", "west"} {
		_, err := p.cloud.Launch(t.Context(), cloud.Launch{ID: o + "-1", Offering: o})
		must.NoError(t, err)
	}
	l, _ := p.start(t)
	waitUntil(t, "ready", 5*time.Second, ready(l))
	must.Eq(t, 2, l.Health().Desired.Count)
	must.True(t, l.Health().Desired.ChangedAt.IsZero())
}

// Two processes with one pool: the second waits, and takes over when the first ends.
func TestLoop_lease(t *testing.T) {
	p := newTestPool(t)
	first, stop := p.start(t)
	waitUntil(t, "ready", 5*time.Second, ready(first))
	second, _ := p.start(t)
	must.NoError(t, first.SetDesired(t.Context(), 2))
	must.False(t, second.Health().Ready)
	must.StrContains(t, second.Health().Why, "lease")
	must.ErrorContains(t, second.SetDesired(t.Context(), 9), "lease")
	stop()
	waitUntil(t, "take-over", 5*time.Second, ready(second))
	must.Eq(t, 2, second.Health().Desired.Count)
}

func TestLoop_noticeAndBackoff(t *testing.T) {
	p := newTestPool(t)
	l, _ := p.start(t)
	waitUntil(t, "ready", 5*time.Second, ready(l))
	must.NoError(t, l.SetDesired(t.Context(), 2))
	p.waitLive(t, "od", "west")

	// west takes its instance back: the replacement comes at once, from elsewhere, since west is left alone.
	p.cloud.mu.Lock()
	id := p.cloud.instances[slices.IndexFunc(p.cloud.instances, func(i cloud.Instance) bool { return i.Offering == "west" })].ID
	p.cloud.soldOut["east"] = true
	p.cloud.mu.Unlock()
	must.NoError(t, p.cloud.change(id, func(i *cloud.Instance) { i.State, i.NoticedAt = cloud.Noticed, time.Now() }))
	// east has no capacity either, which only the launch shows: on-demand is next.
	p.waitLive(t, "od", "od", "west")
	must.NoError(t, p.cloud.change(id, func(i *cloud.Instance) { i.State, i.EndedAt = cloud.Gone, time.Now() }))
	p.waitLive(t, "od", "od")
	waitUntil(t, "purge", 5*time.Second, func() bool {
		p.nomad.mu.Lock()
		defer p.nomad.mu.Unlock()
		return slices.Equal(p.nomad.purged, []string{id})
	})
	must.True(t, l.Health().Ready, must.Sprint("an offering without capacity is no fault of the pool"))
}

func TestLoop_drain(t *testing.T) {
	p := newTestPool(t)
	l, _ := p.start(t)
	waitUntil(t, "ready", 5*time.Second, ready(l))
	must.NoError(t, l.SetDesired(t.Context(), 2))
	p.waitLive(t, "od", "west")
	p.cloud.mu.Lock()
	id := p.cloud.instances[1].ID
	if p.cloud.instances[1].Offering == "od" {
		id = p.cloud.instances[0].ID
	}
	p.cloud.mu.Unlock()
	must.NoError(t, p.nomad.set(func() { p.nomad.work[id] = 1 }))
	drained := func(want bool) func() bool {
		return func() bool {
			p.nomad.mu.Lock()
			defer p.nomad.mu.Unlock()
			_, is := p.nomad.drained[id]
			return is == want
		}
	}
	must.NoError(t, l.SetDesired(t.Context(), 1))
	waitUntil(t, "drain", 5*time.Second, drained(true))
	p.waitLive(t, "od", "west")
	must.NoError(t, l.SetDesired(t.Context(), 2))
	waitUntil(t, "the drain to be taken back", 5*time.Second, drained(false))
	must.NoError(t, l.SetDesired(t.Context(), 1))
	waitUntil(t, "drain", 5*time.Second, drained(true))
	must.NoError(t, p.nomad.set(func() { p.nomad.work[id] = 0 }))
	p.waitLive(t, "od")
}

// An offering that has left the pool file keeps its instances, and they can still be ended.
func TestLoop_removedOffering(t *testing.T) {
	p := newTestPool(t)
	l, stop := p.start(t)
	waitUntil(t, "ready", 5*time.Second, ready(l))
	must.NoError(t, l.SetDesired(t.Context(), 2))
	p.waitLive(t, "od", "west")
	stop()
	p.pool.Offerings = []cloud.Offering{east, od}
	l, _ = p.start(t)
	waitUntil(t, "ready", 5*time.Second, ready(l))
	p.waitLive(t, "od", "west")
	must.NoError(t, l.SetDesired(t.Context(), 1))
	p.waitLive(t, "od")
}

// Without Nomad's answer the pool launches, but takes nothing away.
func TestLoop_nomadDown(t *testing.T) {
	p := newTestPool(t)
	l, _ := p.start(t)
	waitUntil(t, "ready", 5*time.Second, ready(l))
	must.NoError(t, p.nomad.set(func() { p.nomad.down = errors.New("connection refused") }))
	must.NoError(t, l.SetDesired(t.Context(), 2))
	p.waitLive(t, "od", "west")
	must.NoError(t, l.SetDesired(t.Context(), 1))
	short, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	<-short.Done()
	p.waitLive(t, "od", "west")
	must.NoError(t, p.nomad.set(func() { p.nomad.down = nil }))
	p.waitLive(t, "od")
}

// A provider that fails, and one that panics, leave the pool waiting, and it comes back by itself.
func TestLoop_faults(t *testing.T) {
	p := newTestPool(t)
	l, _ := p.start(t)
	waitUntil(t, "ready", 5*time.Second, ready(l))
	setListing := func(f func() error) {
		p.cloud.mu.Lock()
		defer p.cloud.mu.Unlock()
		p.cloud.listing = f
	}
	setListing(func() error { return errors.New("throttled") })
	waitUntil(t, "the fault to be seen", 5*time.Second, func() bool { return l.Health().Why == "provider local: throttled" })
	must.True(t, l.Health().Ready, must.Sprint("one failed look is no reason to stop scaling"))
	now := time.Now().Add(2 * time.Minute)
	stale := &Loop{pool: l.pool, now: func() time.Time { return now }, loaded: true, ticked: time.Now(), why: "provider local: throttled"}
	must.False(t, stale.Health().Ready)
	must.StrContains(t, stale.Health().Why, "throttled")

	setListing(func() error { panic("no such thing") })
	waitUntil(t, "the panic to be seen", 5*time.Second, func() bool { return !l.Health().Ready })
	must.StrContains(t, l.Health().Why, "no such thing")
	setListing(nil)
	waitUntil(t, "ready again", 10*time.Second, ready(l))
}

func TestReport(t *testing.T) {
	c := testConfig()
	c.Offerings = []cloud.Offering{west, od, offering("od2", "east", cloud.OnDemand, 2)}
	instances := []cloud.Instance{
		{ID: "1", Offering: "west", Kind: cloud.Spot, PriceUSDPerHour: 0.8, State: cloud.Gone, LaunchedAt: noon.Add(-3 * time.Hour), EndedAt: noon.Add(-time.Hour)},
		{ID: "2", Offering: "od", Kind: cloud.OnDemand, PriceUSDPerHour: 3, State: cloud.Running, LaunchedAt: noon.Add(-time.Hour)},
		{ID: "3", Offering: "west", Kind: cloud.Spot, PriceUSDPerHour: 0.8, State: cloud.Running, LaunchedAt: noon.Add(time.Minute)},
	}
	r := NewReport(c, nil, instances, noon)
	must.Nil(t, r.Desired)
	must.Eq(t, map[string]float64{"spot": 2, "on-demand": 1}, r.NodeHours)
	must.InDelta(t, 2*0.8+3, r.CostUSD, 1e-9)
	must.InDelta(t, 3*3, r.OnDemandCostUSD, 1e-9)
	must.Eq(t, 0, r.Instances[2].Hours, must.Sprint("a clock that went back makes no negative hours"))

	c.Offerings = []cloud.Offering{west, east}
	must.InDelta(t, 3*0.9, NewReport(c, nil, instances, noon).OnDemandCostUSD, 1e-9)
}
