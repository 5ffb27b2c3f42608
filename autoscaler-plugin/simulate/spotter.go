package simulate

import (
	"fmt"
	"math"
	"time"

	"nomad-spotter/autoscaler-plugin/allocate"
	"nomad-spotter/autoscaler-plugin/cost"
	"nomad-spotter/autoscaler-plugin/hazard"
	"nomad-spotter/autoscaler-plugin/market"
	"nomad-spotter/checkpointer/cadence"
)

// HighPriority is the priority from which on a job runs on demand only, where there is on-demand.
const HighPriority = 2

// Spotter is the default policy: it decides for the jobs of a run as pool and checkpointer do in production. allocate picks
// offerings and moves, hazard learns from the run's own reclaims, cadence makes checkpoints. It never waits longer than
// on-demand can make up for. One value serves one run at a time; what it learns in one is not known in the next.
type Spotter struct {
	Book    hazard.Book   // what is known of hazards at the start
	Outage  time.Duration // how long an offering that took an instance back has none, on average
	Horizon time.Duration // how long an instance is expected to be needed
	Storage cost.Prices   // price checkpoints; zero: only time counts
	Spread  bool          // the jobs are one pool: each takes into account where the others are

	book    hazard.Book
	version int // of what picks depend on
	picks   map[pickKey]pick
	rhythms map[rhythmKey]*Rhythm
	clean   map[*Spec]allocate.Costs
	plans   map[planKey]*deadlinePlan

	lost, elsewhere float64 // how often an offering in use was lost, and another one was up then
}

// NewSpotter returns the policy with what is known without any history.
func NewSpotter() *Spotter {
	return &Spotter{Book: hazard.Book{Params: hazard.Defaults()}, Outage: 2 * time.Hour, Horizon: 4 * time.Hour}
}

// Install makes the policy that of a simulation.
func (p *Spotter) Install(c *Config) {
	p.book, p.version = p.Book, 0
	p.picks, p.clean, p.plans = map[pickKey]pick{}, map[*Spec]allocate.Costs{}, map[planKey]*deadlinePlan{}
	p.lost, p.elsewhere = 0, 0
	if p.rhythms == nil {
		p.rhythms = map[rhythmKey]*Rhythm{} // they hold for every run
	}
	c.Place = func(Job, *Market) Placer { return &spotter{p: p} }
	c.Cadence = func(s *Spec, offering int) *Rhythm { return p.rhythm(s, c.Offerings, offering) }
	c.Observe = p.observe
}

// epoch is the time that a simulation's time 0 stands for; a book knows times of day.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// observe learns from a change of the market: a pool sees an offering go by its own instances, of which the oldest tells
// most. Ages count from when the offering came up: recorded up-times are those of offerings, and an instance that was
// launched late in one has the hazard of its rest.
func (p *Spotter) observe(m *Market, c market.Change) {
	p.version++
	oldest := m.oldest(c.Offering)
	if c.Up || oldest == 0 || m.Offerings[c.Offering].Kind != cost.Spot {
		return
	}
	p.lost++
	for i, o := range m.Offerings {
		if i != c.Offering && o.Kind == cost.Spot && m.Up(i) {
			p.elsewhere++
			break
		}
	}
	book, err := p.book.Observe(hazard.Event{
		At: epoch.Add(m.Now), Key: m.Offerings[c.Offering].Key, Kind: hazard.Reclaimed,
		From: max(m.upFor(c.Offering)-oldest, 0), To: m.upFor(c.Offering),
	})
	if err == nil {
		p.book = book
	}
}

// rhythmKey is what a checkpoint schedule depends on. Levels of hazard are in steps, since a schedule takes long to compute
// and the waste is flat around its best interval.
type rhythmKey struct {
	step       int
	changeover time.Duration
	checkpoint Checkpoint
	price      int
}

// hazardStep is the factor between two levels of hazard that share a schedule. The interval goes with its root.
const hazardStep = 1.5

func (p *Spotter) rhythm(s *Spec, offerings []Offering, i int) *Rhythm {
	o := offerings[i]
	if o.Kind != cost.Spot {
		return nil
	}
	step := int(math.Round(math.Log(p.book.Level(o.Key)) / math.Log(hazardStep)))
	key := rhythmKey{step: step, changeover: s.Changeover, checkpoint: s.Checkpoint}
	if p.Storage.Writes > 0 && o.Price > 0 {
		key.price = int(math.Round(math.Log(o.Price*float64(s.ranks())) / math.Log(hazardStep)))
	}
	if r, ok := p.rhythms[key]; ok {
		return r
	}
	base := p.Book.Params.Base
	level := math.Pow(hazardStep, float64(step))
	schedule, err := cadence.New(p.Terms(s, o), func(age time.Duration) float64 { return level * base.Rate(age) })
	var r *Rhythm
	if err == nil {
		r = &Rhythm{Interval: func(age time.Duration) time.Duration {
			d, worth := schedule.Interval(age)
			if !worth {
				return 0
			}
			return d
		}}
	}
	p.rhythms[key] = r
	return r
}

// Terms are what checkpoints of a job cost on an offering, for cadence.
func (p *Spotter) Terms(s *Spec, o Offering) cadence.Terms {
	k := s.Checkpoint
	t := cadence.Terms{
		Stall: max(k.Stall, time.Millisecond), Lag: k.Lag(), Least: k.Lag(), Restart: s.Changeover,
		NoticeSuccess: min(k.Notice, 0.99), Final: k.Stall,
	}
	// Keep-last-n makes what is kept the same whatever the interval: only requests are paid for each checkpoint.
	if put := p.Storage.Writes / 1000; put > 0 && o.Price > 0 {
		t.StorageUSD, t.SpotUSDPerHour, t.ReworkUSDPerHour = put, o.Price*float64(s.ranks()), o.Price*float64(s.ranks())
	}
	return t
}

// pickKey is a question to the allocator. Answers hold as long as the market and the book stay as they are.
type pickKey struct {
	spec *Spec
	at   int
	age  int // of the instance, doubling
}

type pick struct {
	version  int
	offering int
	reason   string
}

// spotter decides for one job.
type spotter struct {
	p      *Spotter
	forced bool
	late   map[int]bool // replicas that on-demand would not bring to the deadline any more; nil: none ever was
}

// Place implements Placer.
func (d *spotter) Place(s *State, m *Market) Placement {
	onDemand := s.Offering != Nowhere && m.Offerings[s.Offering].Kind != cost.Spot
	if onDemand && d.forced {
		return Placement{Offering: s.Offering}
	}
	if s.Job.Priority >= HighPriority {
		if o := m.Cheapest(cost.OnDemand, s); o != Nowhere {
			d.forced = true
			return Placement{Offering: o, Reason: "high priority: always on demand"}
		}
	}
	if o := m.dearSpot(s); o != Nowhere {
		return Placement{Offering: o, Watch: true, Reason: "no spot costs less than on-demand"}
	}
	slack, review := s.Slack(m, 0)
	if s.Job.Replicas > 1 && d.standAside(s, slack < 0) {
		return Placement{
			Offering: keepSpot(s, m), Watch: true,
			Reason: "the deadline is out of reach for this replica; it keeps out of the way of one that can meet it",
		}
	}
	if s.Offering == Nowhere && review > 0 {
		// Spot that would be left before it works is not worth a start.
		slack -= s.Job.Changeover
		review -= s.Job.Changeover
	}
	if slack <= 0 {
		if o := m.Cheapest(cost.OnDemand, s); o != Nowhere {
			d.forced = true
			return Placement{Offering: o, Reason: "on-demand takes all the time that is left to the deadline"}
		}
	}
	if plan := d.p.plan(s, m); plan != nil {
		return d.byDeadline(plan, s, m, slack, review)
	}
	if s.Offering != Nowhere {
		return d.stay(s, m, review)
	}
	best := d.p.best(s, m)
	return Placement{Offering: best.offering, Watch: true, Review: review, Reason: best.reason}
}

// dearSpot is on-demand for a replica that waits or is on demand, where no spot costs less, so that there is nothing to wait
// for; else Nowhere.
func (m *Market) dearSpot(s *State) int {
	to := s.Offering
	if to == Nowhere {
		to = m.Cheapest(cost.OnDemand, s)
	}
	if to == Nowhere || m.Offerings[to].Kind != cost.OnDemand {
		return Nowhere
	}
	for i, o := range m.Offerings {
		if o.Kind == cost.Spot && m.Price(i)/m.speed(i) < m.Price(to)/m.speed(to) {
			return Nowhere
		}
	}
	return to
}

// standAside notes whether a replica is too late for on-demand, and reports whether another one of the job is not: that one
// must find its place on demand free when it needs it.
func (d *spotter) standAside(s *State, late bool) bool {
	if late && d.late == nil {
		d.late = map[int]bool{}
	}
	if late {
		d.late[s.Replica] = true
	} else {
		delete(d.late, s.Replica)
	}
	return late && len(d.late) < s.Job.Replicas
}

// keepSpot is the spot that a replica runs on; Nowhere if it does not.
func keepSpot(s *State, m *Market) int {
	if s.Offering != Nowhere && m.Offerings[s.Offering].Kind == cost.Spot {
		return s.Offering
	}
	return Nowhere
}

// stay leaves a replica where it runs, unless a move pays.
func (d *spotter) stay(s *State, m *Market, review time.Duration) Placement {
	p := Placement{Offering: s.Offering, Review: review, Watch: true}
	if to, ok := d.p.better(s, m); ok {
		p.Offering, p.Reason = to.offering, to.reason
	}
	return p
}

// costs are what interruptions of a job cost.
func (p *Spotter) costs(s *State, m *Market) allocate.Costs {
	if c, ok := p.clean[s.Job.Spec]; ok {
		return c
	}
	k := s.Job.Checkpoint
	c := allocate.Costs{
		Changeover: s.Job.Changeover, Outage: p.Outage, Horizon: min(p.Horizon, s.Job.Work+s.Job.Changeover),
	}
	spot, onDemand := math.Inf(1), math.Inf(1)
	for i, o := range m.Offerings {
		switch o.Kind {
		case cost.Spot:
			if o.Price < spot {
				spot = o.Price
				t := m.schedule(s.Job.Spec, i)
				risk, _ := t.risk(t.start)
				c.LostWork = time.Duration((1 - k.Notice) * float64(min(risk, s.Job.Work)) / 2)
			}
		case cost.OnDemand:
			onDemand = min(onDemand, o.Price)
		case cost.Reserved:
		}
	}
	if !math.IsInf(onDemand, 1) && !math.IsInf(spot, 1) {
		c.PremiumUSDPerHour = max(0, onDemand-spot)
	}
	if s.Job.Deadline > 0 && !math.IsInf(onDemand, 1) {
		c.RecoveryUSDPerHour = onDemand
	}
	p.clean[s.Job.Spec] = c
	return c
}

// offer is what an instance of an offering costs and risks.
func (p *Spotter) offer(m *Market, i int, horizon time.Duration) allocate.Offer {
	o := m.Offerings[i]
	t := allocate.Offer{
		Offering: o.Name, Region: o.Key.Region, Zone: o.Key.Zone, Type: o.Key.Type, OnDemand: o.Kind != cost.Spot,
		PriceUSDPerHour: m.Price(i) / m.speed(i),
	}
	if o.Kind == cost.Reserved {
		t.PriceUSDPerHour = 0
	}
	if !t.OnDemand {
		w, age := p.book.Weibull(o.Key), m.upFor(i)
		t.HazardPerHour = (w.Cumulative(age+horizon) - w.Cumulative(age)) / horizon.Hours()
	}
	return t
}

// best is where a waiting replica is to start, or Nowhere while it is better to wait.
func (p *Spotter) best(s *State, m *Market) pick {
	key := pickKey{spec: s.Job.Spec, at: Nowhere}
	plain := !p.Spread && len(s.Others) == 0 && !m.limited
	if k, ok := p.picks[key]; ok && plain && k.version == p.version {
		return k
	}
	request, candidates := p.request(s, m)
	plan := allocate.Mix(request, candidates)
	result := pick{version: p.version, offering: Nowhere, reason: "nothing can be had"}
	for _, c := range plan.Picks {
		i := m.index(c.Offering)
		if m.Offerings[i].Kind == cost.OnDemand && m.Cheapest(cost.Spot, s) == Nowhere && m.has(cost.Spot) {
			result.reason = "no spot is up, and there is time to wait"
			break
		}
		result.offering, result.reason = i, c.Reason
	}
	if plain {
		p.picks[key] = result
	}
	return result
}

// request is the pool of a job as the allocator sees it, short of the node that is asked for.
func (p *Spotter) request(s *State, m *Market) (allocate.Request, []allocate.Candidate) {
	r := allocate.Request{Nodes: 1, Costs: p.costs(s, m)}
	if p.Spread {
		for i := range m.Offerings {
			for _, o := range m.states[i].runs {
				r.Held = append(r.Held, allocate.Node{ID: fmt.Sprintf("%08d", o.serial), Offer: p.offer(m, i, r.Horizon), Age: o.age(m.Now)})
			}
		}
		r.Nodes += len(r.Held)
	}
	var candidates []allocate.Candidate
	for i := range m.Offerings {
		c := allocate.Candidate{Offer: p.offer(m, i, r.Horizon)}
		if !m.Usable(i, s) {
			c.Unusable = "cannot be had"
		}
		candidates = append(candidates, c)
	}
	return r, candidates
}

// better is a move that pays, of a replica that runs. Only a market that is cheaper by more than a tenth is worth asking.
func (p *Spotter) better(s *State, m *Market) (pick, bool) {
	const worth = 0.9
	to := m.Cheapest(cost.Spot, s)
	if p.Spread || to == Nowhere || m.Price(to)/m.speed(to) > worth*m.Price(s.Offering)/m.speed(s.Offering) {
		return pick{}, false
	}
	age := m.Now - s.Since
	key := pickKey{spec: s.Job.Spec, at: s.Offering, age: math.Ilogb(max(age.Minutes(), 1))}
	plain := len(s.Others) == 0 && !m.limited
	if k, ok := p.picks[key]; ok && plain && k.version == p.version {
		return k, k.offering != Nowhere
	}
	r := allocate.Request{
		Nodes: 1, Costs: p.costs(s, m),
		Held: []allocate.Node{{ID: "it", Offer: p.offer(m, s.Offering, p.Horizon), Age: age}},
	}
	_, candidates := p.request(s, m)
	result := pick{version: p.version, offering: Nowhere}
	for _, move := range allocate.Relocate(r, candidates, 1, func(allocate.Node) bool { return true }) {
		result.offering, result.reason = m.index(move.To), move.Reason
	}
	if plain {
		p.picks[key] = result
	}
	return result, result.offering != Nowhere
}
