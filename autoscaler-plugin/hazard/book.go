package hazard

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"nomad-spotter/autoscaler-plugin/market"
)

// Params say how a book learns. Where Defaults has its numbers from is told there.
type Params struct {
	Base          Weibull       `json:"base"`           // up-times of an offering with level 1 in quiet times
	RegionWeight  float64       `json:"region_weight"`  // interruptions that count as much as what is known before of a region
	TypeWeight    float64       `json:"type_weight"`    // as much as the region, for a type in it
	ZoneWeight    float64       `json:"zone_weight"`    // as much as the type in its region, for one zone
	ZoneTrouble   float64       `json:"zone_trouble"`   // by how much trouble in the zone raises the hazard; 1 doubles it
	RegionTrouble float64       `json:"region_trouble"` // the same for trouble in all other zones of the region, for the type
	Memory        time.Duration `json:"memory_ns"`      // after which a refusal or reclaim counts 1/e
}

// Validate reports every parameter outside its range.
func (p Params) Validate() error {
	faults := []error{p.Base.Validate()}
	for _, v := range []struct {
		name  string
		value float64
		low   float64
	}{
		{"region_weight", p.RegionWeight, 1e-3},
		{"type_weight", p.TypeWeight, 1e-3},
		{"zone_weight", p.ZoneWeight, 1e-3},
		{"zone_trouble", p.ZoneTrouble, 0},
		{"region_trouble", p.RegionTrouble, 0},
	} {
		if !(v.value >= v.low && v.value <= 1e6) {
			faults = append(faults, fmt.Errorf("%s: %v is outside %v to 1e6", v.name, v.value, v.low))
		}
	}
	if p.Memory <= 0 {
		faults = append(faults, fmt.Errorf("memory: %v must be above 0", p.Memory))
	}
	if err := errors.Join(faults...); err != nil {
		return fmt.Errorf("hazard parameters: %w", err)
	}
	return nil
}

// Book is what is known of the hazard of offerings. The hazard of one is
//
//	level * (1 + ZoneTrouble*z + RegionTrouble*r) * Base.Rate(age)
//
// level is what the provider publishes (SetPrior), corrected by own history: interruptions against those that Base
// expected for the ages at which instances were held, shrunk in steps from the region to the type in the region to the
// zone. Each step is the mean of a gamma distribution updated by Poisson counts: (weight*before + interruptions) / (weight
// + expected), so that few interruptions move it little. z is 1-exp(-n), n being the refusals and reclaims in the zone,
// each fading with Memory; r is the mean of the same over the other zones of the region.
//
// A Book is a value: methods that change it return a new one. It is kept as JSON.
type Book struct {
	Params  Params   `json:"params"`
	Records []Record `json:"records,omitempty"` // ordered by key
}

// Record is what is known of one offering.
type Record struct {
	Key           market.Key `json:"key"`
	Prior         float64    `json:"prior"`         // level by the provider's data; 1: as Base
	Interruptions float64    `json:"interruptions"` // seen
	Expected      float64    `json:"expected"`      // interruptions that Prior and Base made one expect meanwhile
	Trouble       float64    `json:"trouble"`       // refusals and reclaims, faded to At
	At            time.Time  `json:"at,omitzero"`
}

// NewBook is a book that knows nothing but its parameters.
func NewBook(p Params) (Book, error) { return Book{Params: p}, p.Validate() }

// Validate reports every fault of a book, as after reading one: parameters, unordered or doubled records, numbers that are
// none or below 0.
func (b Book) Validate() error {
	faults := []error{b.Params.Validate()}
	for i, r := range b.Records {
		if i > 0 && b.Records[i-1].Key.Compare(r.Key) >= 0 {
			faults = append(faults, fmt.Errorf("records[%d]: %s is not after %s; order them by key, each once",
				i, r.Key, b.Records[i-1].Key))
		}
		if !(r.Prior > 0) || math.IsInf(r.Prior, 1) {
			faults = append(faults, fmt.Errorf("records[%d].prior: %v must be a number above 0", i, r.Prior))
		}
		for _, v := range []float64{r.Interruptions, r.Expected, r.Trouble} {
			if !(v >= 0) || math.IsInf(v, 1) {
				faults = append(faults, fmt.Errorf(
					"records[%d]: interruptions %v, expected %v and trouble %v must be numbers from 0", i, r.Interruptions, r.Expected, r.Trouble))
				break
			}
		}
	}
	if err := errors.Join(faults...); err != nil {
		return fmt.Errorf("hazard book: %w", err)
	}
	return nil
}

// Kind is what happened to an offering.
type Kind int

// Kinds of events.
const (
	Held      Kind = iota // an instance was up, from age From to age To
	Reclaimed             // the same, and at age To it was interrupted
	Refused               // a request for an instance failed for want of capacity
)

// Event is something that happened to an offering. Every hour that an instance lives must be told once: by one event at
// its end, or by several on the way, each from where the last one ended. Ages are not needed for refusals. An instance
// that the pool itself ends was Held.
type Event struct {
	At       time.Time // when it happened; for Held, the end of the time held
	Key      market.Key
	Kind     Kind
	From, To time.Duration // ages
}

// Observe returns the book with an event added. Events need not be ordered by time, but trouble older than what is
// known of the offering counts as if it were as young. The error names what is wrong with the event; the book then is as
// before.
func (b Book) Observe(e Event) (Book, error) {
	var faults []error
	if e.Key == (market.Key{}) {
		faults = append(faults, errors.New("key: empty; name the offering"))
	}
	if e.At.IsZero() {
		faults = append(faults, errors.New("at: no time"))
	}
	if e.Kind < Held || e.Kind > Refused {
		faults = append(faults, fmt.Errorf("kind: %d is unknown", e.Kind))
	}
	if e.From < 0 || e.To < e.From {
		faults = append(faults, fmt.Errorf("ages: %v to %v; they must rise from 0", e.From, e.To))
	}
	if len(faults) > 0 {
		return b, fmt.Errorf("observe: %w", errors.Join(faults...))
	}
	b, i := b.with(e.Key)
	r := &b.Records[i]
	if e.Kind != Refused {
		cumulative := b.Params.Base.Cumulative(e.To) - b.Params.Base.Cumulative(e.From)
		r.Expected += r.Prior * b.heat(i, e.At) * cumulative
	}
	if e.Kind == Reclaimed {
		r.Interruptions++
	}
	if e.Kind != Held {
		r.Trouble = r.trouble(e.At, b.Params.Memory) + 1
		if e.At.After(r.At) {
			r.At = e.At
		}
	}
	return b, nil
}

// Rate is the hazard of an instance of an offering at an age, in interruptions per hour.
func (b Book) Rate(key market.Key, age time.Duration, now time.Time) float64 {
	level, heat := b.state(key, now)
	return level * heat * b.Params.Base.Rate(age)
}

// Survival is the probability that an instance of an offering at an age stays up for a further time. The trouble of
// today fades meanwhile; it is taken as it will be half-way, if nothing more happens.
func (b Book) Survival(key market.Key, age, further time.Duration, now time.Time) float64 {
	age, further = max(age, 0), max(further, 0)
	level, _ := b.state(key, now)
	const steps = 4 // of equal length; the hazard of the base is integrated exactly within each
	sum := 0.0
	for i := range steps {
		from, to := age+further*time.Duration(i)/steps, age+further*time.Duration(i+1)/steps
		_, heat := b.state(key, now.Add(further*time.Duration(2*i+1)/(2*steps)))
		sum += heat * (b.Params.Base.Cumulative(to) - b.Params.Base.Cumulative(from))
	}
	return math.Exp(-level * sum)
}

// Level is how many times as often as by Base an offering's instances are interrupted in quiet times.
func (b Book) Level(key market.Key) float64 {
	level, _ := b.state(key, time.Time{})
	return level
}

// Weibull is the distribution of up-times of an offering in quiet times: the hazard of Base times Level.
func (b Book) Weibull(key market.Key) Weibull {
	w := b.Params.Base
	return Weibull{Shape: w.Shape, Scale: nanoseconds(float64(w.Scale) * math.Pow(b.Level(key), -1/w.Shape))}
}

// state is the level of an offering, and the factor of its present trouble.
func (b Book) state(key market.Key, now time.Time) (level, heat float64) {
	prior := 1.0
	var region, kind, zone Record // sums
	for _, r := range b.Records {
		if r.Key.Provider != key.Provider || r.Key.Region != key.Region {
			continue
		}
		region.add(r)
		if r.Key.Type != key.Type {
			continue
		}
		kind.add(r)
		if r.Key == key {
			zone.add(r)
			prior = r.Prior
		}
	}
	ratio := (b.Params.RegionWeight + region.Interruptions) / (b.Params.RegionWeight + region.Expected)
	ratio = (b.Params.TypeWeight*ratio + kind.Interruptions) / (b.Params.TypeWeight + kind.Expected)
	ratio = (b.Params.ZoneWeight*ratio + zone.Interruptions) / (b.Params.ZoneWeight + zone.Expected)
	i, found := b.find(key)
	if !found {
		i = -1
	}
	return prior * ratio, b.heatOf(i, key, now)
}

func (r *Record) add(other Record) {
	r.Interruptions += other.Interruptions
	r.Expected += other.Expected
}

func (b Book) heat(i int, now time.Time) float64 { return b.heatOf(i, b.Records[i].Key, now) }

// heatOf is the factor of the trouble around an offering, which is record i if it has one.
func (b Book) heatOf(i int, key market.Key, now time.Time) float64 {
	var zone, others, n float64
	for j, r := range b.Records {
		if r.Key.Provider != key.Provider || r.Key.Region != key.Region || r.Key.Type != key.Type {
			continue
		}
		trouble := -math.Expm1(-r.trouble(now, b.Params.Memory))
		if i == j {
			zone = trouble
			continue
		}
		others += trouble
		n++
	}
	if n > 0 {
		others /= n
	}
	return 1 + b.Params.ZoneTrouble*zone + b.Params.RegionTrouble*others
}

// trouble is what is left of it at a time.
func (r Record) trouble(now time.Time, memory time.Duration) float64 {
	if r.Trouble == 0 || !now.After(r.At) {
		return r.Trouble
	}
	return r.Trouble * math.Exp(-float64(now.Sub(r.At))/float64(memory))
}

func (b Book) find(key market.Key) (int, bool) {
	return slices.BinarySearchFunc(b.Records, key, func(r Record, key market.Key) int { return r.Key.Compare(key) })
}

// with returns a copy of the book that has a record of the offering, and where.
func (b Book) with(key market.Key) (Book, int) {
	i, found := b.find(key)
	b.Records = slices.Clone(b.Records)
	if !found {
		b.Records = slices.Insert(b.Records, i, Record{Key: key, Prior: 1})
	}
	return b, i
}
