package market

import (
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"time"
)

// Capacity is a spot market as it is since 2017: prices hardly move, and what makes instances come and go is capacity.
// Each zone is up and down in turns, for times with Weibull distributions. Its region and the world are in good or tight
// spells; in tight ones up-times run out faster and down-times slower, in good ones the other way round, so that zones of
// a region move together and regions a little.
type Capacity struct {
	Zones    []ZoneCapacity
	Regional float64       // logarithm of the factor by which a spell of the region speeds and slows times; 0: none
	World    float64       // the same for spells of the world
	Spell    time.Duration // mean length of a spell
}

// ZoneCapacity is one offering. The statistics are those that a recording of it would have, about: spells of the region
// make long times longer and short ones shorter.
type ZoneCapacity struct {
	Key       Key           // zones of one provider and region share their spells
	UpMean    time.Duration // mean up-time
	UpShape   float64       // Weibull shape of the up-times; below 1, the longer up the safer
	DownMean  time.Duration
	DownShape float64
	Price     float64       // $/h that the price stays near
	PriceMove time.Duration // mean time between changes of the price; 0: it never moves
	PriceStep float64       // mean size of a change, as a share of the price
}

// Validate reports every value outside its range, with its field path.
func (c Capacity) Validate() error {
	var f faults
	positive := func(path string, v float64) {
		if !(v > 0) || math.IsInf(v, 1) {
			f.add("%s: %v must be a number above 0", path, v)
		}
	}
	if len(c.Zones) == 0 {
		f.add("zones: none; give at least one")
	}
	between := func(path string, v, low, high float64, hint string) {
		if !(v >= low && v <= high) {
			f.add("%s: %v is outside %v to %v%s", path, v, low, high, hint)
		}
	}
	between("regional", c.Regional, 0, 5, "")
	between("world", c.World, 0, 5, "")
	if c.Regional > 0 || c.World > 0 {
		positive("spell", c.Spell.Hours())
	}
	for i, z := range c.Zones {
		at := fmt.Sprintf("zones[%d]", i)
		positive(at+".up_mean", z.UpMean.Hours())
		positive(at+".down_mean", z.DownMean.Hours())
		positive(at+".price", z.Price)
		between(at+".up_shape", z.UpShape, 0.2, 20, "; recorded zones have 0.5 to 0.9")
		between(at+".down_shape", z.DownShape, 0.2, 20, "; recorded zones have 0.7")
		if z.PriceMove < 0 || !(z.PriceStep >= 0 && z.PriceStep < 1) {
			f.add("%s: a price that moves every %v by %v; both are at least 0, and a step is less than 1",
				at, z.PriceMove, z.PriceStep)
		}
	}
	return f.err("capacity")
}

// NineZones is a market with the statistics of the recordings of nine V100 zones in three regions of AWS in February 2023:
// their mean up- and down-times and shapes; correlations of about .4 between zones of a region and .14 between regions.
// Prices are near 0.3 of on-demand, and every second one moves: every 7 h by 0.4 %, as those of p2 and p3 instances did
// in the winter of 2019. On-demand costs 3.06 $/h.
func NineZones() Capacity {
	c := Capacity{Regional: 1.1, World: 0.85, Spell: 14 * time.Hour}
	for i, z := range []struct {
		zone     string
		up, down float64 // mean hours
		shape    float64
	}{
		{"us-east-1a", .68, 5.40, .91},
		{"us-east-1c", 1.03, 2.09, .81},
		{"us-east-1d", 1.19, 2.36, .80},
		{"us-east-1f", 1.67, 2.34, .74},
		{"us-east-2a", 6.26, 2.54, .62},
		{"us-east-2b", 3.24, 2.17, .69},
		{"us-west-2a", 5.03, .98, .57},
		{"us-west-2b", 7.75, 1.38, .53},
		{"us-west-2c", 4.51, .96, .58},
	} {
		zone := ZoneCapacity{
			Key:    Key{Provider: "aws", Region: RegionOf(z.zone), Zone: z.zone, Type: "p3.2xlarge"},
			UpMean: time.Duration(z.up * float64(time.Hour)), UpShape: z.shape,
			DownMean: time.Duration(z.down * float64(time.Hour)), DownShape: 0.70,
			Price: 0.918,
		}
		if i%2 == 1 {
			zone.PriceMove, zone.PriceStep = 7*time.Hour, 0.0037
		}
		c.Zones = append(c.Zones, zone)
	}
	return c
}

// spell is the weather of a region or of the world.
type spell struct {
	tight bool
	ends  float64 // hours
}

// settled returns the mean up- and down-time that a zone needs in neither good nor tight times so that, over all weather,
// it is up for its share of time and changes as often as it should. It takes weather to last long beside the times, in
// which case the share of time up and the frequency of changes follow it at once.
func (c Capacity) settled(z ZoneCapacity) (up, down time.Duration) {
	u, d := z.UpMean.Hours(), z.DownMean.Hours()
	weather := []float64{c.World + c.Regional, c.World - c.Regional, c.Regional - c.World, -c.World - c.Regional}
	mean := func(f func(x float64) float64) float64 {
		sum := 0.0
		for _, x := range weather {
			sum += f(x)
		}
		return sum / float64(len(weather))
	}
	low, high := -20.0, 20.0 // bias of the weather
	for range 60 {
		bias := (low + high) / 2
		if mean(func(x float64) float64 { return 1 / (1 + d/u*math.Exp(2*(x+bias))) }) > u/(u+d) {
			low = bias
		} else {
			high = bias
		}
	}
	u, d = u*math.Exp(-low), d*math.Exp(low)
	slower := z.UpMean.Hours() + z.DownMean.Hours()
	slower *= mean(func(x float64) float64 { return 1 / (u*math.Exp(-x) + d*math.Exp(x)) })
	return time.Duration(u * slower * float64(time.Hour)), time.Duration(d * slower * float64(time.Hour))
}

// sign is 1 in tight spells, -1 in good ones.
func (s spell) sign() float64 {
	if s.tight {
		return 1
	}
	return -1
}

// zone is the state of one offering.
type zone struct {
	ZoneCapacity
	random *rand.Rand // of its own, so that a further zone changes no other
	region int
	up     bool
	price  float64
	flips  float64 // hours
	moves  float64 // hours
	told   bool
}

// capacity is a running market.
type capacity struct {
	Capacity
	length float64 // hours
	now    float64 // hours
	zones  []zone
	spells []spell // the world's, then one for each region
	random *rand.Rand
}

// NewCapacity returns a market of a length of time, offering i that of c.Zones[i]. The same seed gives the same market.
func NewCapacity(seed uint64, length time.Duration, c Capacity) (Feed, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	m := &capacity{Capacity: c, length: length.Hours(), random: rand.New(rand.NewPCG(seed, math.MaxUint64))}
	m.spells = append(m.spells, m.spell())
	regions := map[Key]int{}
	for i, z := range c.Zones {
		region := Key{Provider: z.Key.Provider, Region: z.Key.Region}
		if _, known := regions[region]; !known {
			regions[region] = len(m.spells)
			m.spells = append(m.spells, m.spell())
		}
		m.zones = append(m.zones, zone{
			ZoneCapacity: z, random: rand.New(rand.NewPCG(seed, uint64(i))), region: regions[region], price: z.Price,
			moves: math.Inf(1),
		})
		s := &m.zones[i]
		s.UpMean, s.DownMean = c.settled(z)
		s.up = s.random.Float64()*(z.UpMean+z.DownMean).Hours() < z.UpMean.Hours()
		s.flips = m.lasts(s) * s.random.Float64() // it has been so for a while
		if z.PriceMove > 0 {
			s.moves = z.PriceMove.Hours() * s.random.ExpFloat64()
		}
	}
	return m, nil
}

func (m *capacity) spell() spell {
	s := spell{tight: m.random.Float64() < 0.5, ends: math.Inf(1)}
	if m.Regional > 0 || m.World > 0 {
		s.ends = m.Spell.Hours() * m.random.ExpFloat64()
	}
	return s
}

// speed is how fast the present up- or down-time of a zone runs out.
func (m *capacity) speed(z *zone) float64 {
	x := m.World*m.spells[0].sign() + m.Regional*m.spells[z.region].sign()
	if z.up {
		return math.Exp(x)
	}
	return math.Exp(-x)
}

// lasts draws for how long a zone that has just changed stays as it is if the weather does.
func (m *capacity) lasts(z *zone) float64 {
	mean, shape := z.UpMean.Hours(), z.UpShape
	if !z.up {
		mean, shape = z.DownMean.Hours(), z.DownShape
	}
	return mean / math.Gamma(1+1/shape) * math.Pow(z.random.ExpFloat64(), 1/shape) / m.speed(z)
}

// Next returns the earliest change of all zones.
func (m *capacity) Next() (Change, error) {
	for i := range m.zones {
		if z := &m.zones[i]; !z.told {
			z.told = true
			return m.change(i), nil
		}
	}
	for {
		first, at, kind := -1, m.length, isEnd
		for i := range m.spells {
			if m.spells[i].ends < at {
				first, at, kind = i, m.spells[i].ends, isSpell
			}
		}
		for i := range m.zones {
			if m.zones[i].flips < at {
				first, at, kind = i, m.zones[i].flips, isFlip
			}
			if m.zones[i].moves < at {
				first, at, kind = i, m.zones[i].moves, isMove
			}
		}
		m.now = at
		switch kind {
		case isEnd:
			return Change{}, io.EOF
		case isSpell:
			m.turn(first)
		case isFlip:
			z := &m.zones[first]
			z.up = !z.up
			z.flips = m.now + m.lasts(z)
			return m.change(first), nil
		case isMove:
			if m.zones[first].move(m.now) {
				return m.change(first), nil
			}
		}
	}
}

const (
	isEnd = iota
	isSpell
	isFlip
	isMove
)

func (m *capacity) change(i int) Change {
	z := m.zones[i]
	return Change{At: time.Duration(m.now * float64(time.Hour)), Offering: i, Up: z.up, Price: z.price}
}

// turn ends a spell; what is left of the times of its zones is stretched to the new speed.
func (m *capacity) turn(i int) {
	left := make([]float64, len(m.zones))
	for j := range m.zones {
		left[j] = (m.zones[j].flips - m.now) * m.speed(&m.zones[j])
	}
	s := &m.spells[i]
	s.tight = !s.tight
	s.ends = m.now + m.Spell.Hours()*m.random.ExpFloat64()
	for j := range m.zones {
		m.zones[j].flips = m.now + left[j]/m.speed(&m.zones[j])
	}
}

// move changes the price by a random step that leads a little towards where it stays near; false when rounding to
// AWS's resolution leaves it as it was.
func (z *zone) move(now float64) bool {
	z.moves = now + z.PriceMove.Hours()*z.random.ExpFloat64()
	const pull = 0.02 // of the way back at a change: a year's prices stay within some 10 %
	step := z.PriceStep * z.random.ExpFloat64()
	if z.random.Float64() < 0.5 {
		step = -step
	}
	price := math.Exp(math.Log(z.price)*(1-pull) + math.Log(z.Price)*pull + step)
	price = max(math.Round(price/resolution)*resolution, resolution)
	changed := price != z.price
	z.price = price
	return changed
}

// Collect reads a market to its end.
func Collect(f Feed) ([]Change, error) {
	var all []Change
	for {
		c, err := f.Next()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
}
