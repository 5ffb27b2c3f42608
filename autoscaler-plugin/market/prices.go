package market

import (
	"bufio"
	"cmp"
	"compress/flate"
	"compress/gzip"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Prices is what a file of prices holds, a series for each offering, ordered by key.
type Prices struct {
	Spot     []Series // $/h of one instance
	OnDemand []Series // $/h of one instance; empty where the file has none
	Repeated int      // rows left out because they repeat another
	Skipped  int      // rows left out because they are not for Linux
}

// linux are the products of DescribeSpotPriceHistory that training runs on; prices of other systems are skipped.
var linux = []string{"", "Linux/UNIX", "Linux/UNIX (Amazon VPC)"}

// sameRelative is how far two prices of one moment may differ to count as the same, as a share: sums of the same list
// prices are rounded differently.
const sameRelative = 1e-9

// mostPrice is far above what any instance costs, so that a price beyond it is in another unit.
const mostPrice = 1e6 // $/h

// damaged is the next step where a compressed file does not end as it should.
const damaged = "the file is cut off or damaged; get it again"

// row is one price of a file.
type row struct {
	where    string
	at       time.Time
	price    float64
	onDemand float64 // NaN: not given
}

// table collects the rows of a file by offering.
type table struct {
	faults faults
	rows   map[Key][]row
	prices Prices
	dates  bool // rows are snapshots of a day, of everything on offer, with on-demand prices
}

// ReadPrices reads a file of prices, with or without gzip; what it is it sees by its first bytes:
//   - the JSON of AWS DescribeSpotPriceHistory, one or several pages after another:
//     {"SpotPriceHistory":[{"AvailabilityZone":…,"InstanceType":…,"ProductDescription":…,"SpotPrice":"0.918","Timestamp":…}]};
//   - the same as CSV, with those names as the header, in any order;
//   - CSV with the header timestamp,zone,instance_type,price_usd_per_hour: price changes on AWS;
//   - CSV with the header date,region,machine_type,ondemand_usd_per_hour,spot_usd_per_hour: daily snapshots of the list
//     prices of GCP. A series that is absent from a snapshot has a gap there.
//
// Each offering's rows must be ordered by time, oldest or newest first. Rows that repeat another are left out and counted;
// every other fault is reported with its line or index: prices that are not a number, not above 0 or beyond what
// instances cost, stamps that cannot be
// read, unordered, or doubled with different prices, offerings without a name. Every row stays a point, also where the
// price did not change. The record ends with its last stamp, which counts as a second long, or a day for snapshots.
func ReadPrices(r io.Reader) (Prices, error) {
	const what = "read prices"
	b := bufio.NewReader(r)
	magic, _ := b.Peek(2)
	compressed := len(magic) == 2 && magic[0] == 0x1f && magic[1] == 0x8b
	if compressed {
		z, err := gzip.NewReader(b)
		if err != nil {
			return Prices{}, fmt.Errorf("%s: gzip: %w; %s", what, err, damaged)
		}
		b = bufio.NewReader(z)
	}
	t := &table{rows: map[Key][]row{}}
	first, err := b.Peek(1)
	switch {
	case errors.Is(err, io.EOF):
		return Prices{}, fmt.Errorf("%s: empty; give a header and rows, or the JSON of DescribeSpotPriceHistory", what)
	case err != nil:
		return Prices{}, fmt.Errorf("%s: %w", what, err)
	case strings.ContainsAny(string(first), "{[ \n\t\r"):
		err = t.readJSON(b)
	default:
		err = t.readCSV(b)
	}
	var corrupt flate.CorruptInputError
	if compressed && (errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, gzip.ErrChecksum) || errors.As(err, &corrupt)) {
		return Prices{}, fmt.Errorf("%s: gzip: %w; %s", what, err, damaged) // the rows may be faulty for that alone
	}
	if err != nil {
		return Prices{}, errors.Join(fmt.Errorf("%s: %w", what, err), t.faults.err(what))
	}
	t.series()
	if len(t.prices.Spot) == 0 && len(t.faults.told) == 0 {
		t.faults.add("no prices for Linux, and %d for other systems; ask AWS for --product-descriptions Linux/UNIX",
			t.prices.Skipped)
	}
	if err := t.faults.err(what); err != nil {
		return Prices{}, err
	}
	return t.prices, nil
}

// history is a page of DescribeSpotPriceHistory.
type history struct {
	AvailabilityZone, InstanceType, ProductDescription, SpotPrice, Timestamp string
}

func (t *table) readJSON(r io.Reader) error {
	dec := json.NewDecoder(r)
	pages := 0
	for {
		var page struct{ SpotPriceHistory *[]history }
		err := dec.Decode(&page)
		if errors.Is(err, io.EOF) && pages > 0 {
			return nil
		}
		if err != nil {
			return fmt.Errorf("byte %d: %w; give the whole answer of DescribeSpotPriceHistory", dec.InputOffset(), err)
		}
		if page.SpotPriceHistory == nil {
			t.faults.add("SpotPriceHistory: missing; give the JSON that `aws ec2 describe-spot-price-history` prints")
		} else {
			for i, h := range *page.SpotPriceHistory {
				t.addHistory(fmt.Sprintf("page %d: SpotPriceHistory[%d]", pages+1, i), h)
			}
		}
		pages++
	}
}

func (t *table) addHistory(where string, h history) {
	if !slices.Contains(linux, h.ProductDescription) {
		t.prices.Skipped++
		return
	}
	t.add(where, awsKey(h.AvailabilityZone, h.InstanceType), h.Timestamp, time.RFC3339, h.SpotPrice, "")
}

func (t *table) readCSV(r io.Reader) error {
	in := csv.NewReader(r)
	in.ReuseRecord = true
	in.TrimLeadingSpace = true
	header, err := in.Read()
	if err != nil {
		return err
	}
	column := map[string]int{}
	for i, name := range header {
		column[strings.TrimPrefix(strings.TrimSpace(name), "\ufeff")] = i
	}
	has := func(names ...string) bool {
		return !slices.ContainsFunc(names, func(name string) bool { _, ok := column[name]; return !ok })
	}
	var add func(where string, cell func(name string) string)
	switch {
	case has("AvailabilityZone", "InstanceType", "SpotPrice", "Timestamp"):
		add = func(where string, cell func(string) string) {
			t.addHistory(where, history{
				AvailabilityZone: cell("AvailabilityZone"), InstanceType: cell("InstanceType"),
				ProductDescription: cell("ProductDescription"), SpotPrice: cell("SpotPrice"), Timestamp: cell("Timestamp"),
			})
		}
	case has("timestamp", "zone", "instance_type", "price_usd_per_hour"):
		add = func(where string, cell func(string) string) {
			key := awsKey(cell("zone"), cell("instance_type"))
			t.add(where, key, cell("timestamp"), time.RFC3339, cell("price_usd_per_hour"), "")
		}
	case has("date", "region", "machine_type", "ondemand_usd_per_hour", "spot_usd_per_hour"):
		t.dates = true
		add = func(where string, cell func(string) string) {
			key := Key{Provider: "gcp", Region: cell("region"), Type: cell("machine_type")}
			t.add(where, key, cell("date"), time.DateOnly, cell("spot_usd_per_hour"), cell("ondemand_usd_per_hour"))
		}
	default:
		return fmt.Errorf("line 1: header %q is of no known kind; known are %q, %q and %q", strings.Join(header, ","),
			"timestamp,zone,instance_type,price_usd_per_hour",
			"date,region,machine_type,ondemand_usd_per_hour,spot_usd_per_hour",
			"AvailabilityZone,InstanceType,ProductDescription,SpotPrice,Timestamp")
	}
	rows := 0
	for {
		record, err := in.Read()
		if errors.Is(err, io.EOF) {
			if rows == 0 {
				t.faults.add("no rows after the header")
			}
			return nil
		}
		if err != nil && !errors.Is(err, csv.ErrFieldCount) {
			return err
		}
		rows++
		line, _ := in.FieldPos(0)
		if err != nil {
			t.faults.add("line %d: %d columns, the header has %d", line, len(record), len(header))
			continue
		}
		add(fmt.Sprintf("line %d", line), func(name string) string {
			i, ok := column[name]
			if !ok {
				return ""
			}
			return strings.Clone(strings.TrimSpace(record[i]))
		})
	}
}

func awsKey(zone, instance string) Key {
	return Key{Provider: "aws", Region: RegionOf(zone), Zone: zone, Type: instance}
}

// add takes a row up, or notes what is wrong with it.
func (t *table) add(where string, key Key, stamp, layout, price, onDemand string) {
	before := len(t.faults.told) + t.faults.more
	if key.Zone == "" && key.Region == "" {
		t.faults.add("%s: no zone; every row must name its offering", where)
	}
	if key.Type == "" {
		t.faults.add("%s: no instance type; every row must name its offering", where)
	}
	at, err := time.Parse(layout, stamp)
	if err != nil {
		t.faults.add("%s: time %q cannot be read; write it like %s", where, stamp, layout)
	}
	r := row{where: where, at: at.UTC(), price: t.price(where, price), onDemand: math.NaN()}
	if t.dates {
		r.onDemand = t.price(where, onDemand)
	}
	if len(t.faults.told)+t.faults.more == before {
		t.rows[key] = append(t.rows[key], r)
	}
}

func (t *table) price(where, s string) float64 {
	v, err := strconv.ParseFloat(s, 64)
	switch {
	case err != nil || math.IsNaN(v) || math.IsInf(v, 0):
		t.faults.add("%s: price %q is no number; leave the row out where the price is not known", where, s)
	case v <= 0:
		t.faults.add("%s: price %v is not above 0; give $/h of one instance, or leave the row out", where, v)
	case v > mostPrice:
		t.faults.add("%s: price %v is above %v; give $/h of one instance", where, v, float64(mostPrice))
	}
	return v
}

// series orders the rows of each offering and makes series of them.
func (t *table) series() {
	var end time.Time
	snapshots := map[time.Time]bool{}
	for _, rows := range t.rows {
		for _, r := range rows {
			snapshots[r.at] = true
			if r.at.After(end) {
				end = r.at
			}
		}
	}
	var dates []time.Time
	last := time.Second
	if t.dates {
		last = 24 * time.Hour
		for at := range snapshots {
			dates = append(dates, at)
		}
		slices.SortFunc(dates, time.Time.Compare)
	}
	end = end.Add(last)
	keys := make([]Key, 0, len(t.rows))
	for key := range t.rows {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, Key.Compare)
	for _, key := range keys {
		rows := t.order(key, t.rows[key])
		spot := points(key, rows, dates, end, func(r row) float64 { return r.price })
		t.prices.Spot = append(t.prices.Spot, spot)
		if t.dates {
			onDemand := points(key, rows, dates, end, func(r row) float64 { return r.onDemand })
			t.prices.OnDemand = append(t.prices.OnDemand, onDemand)
		}
	}
}

// order returns the rows oldest first, without repetitions.
func (t *table) order(key Key, rows []row) []row {
	later, earlier := 0, 0
	for i := 1; i < len(rows); i++ {
		switch rows[i].at.Compare(rows[i-1].at) {
		case 1:
			later++
		case -1:
			earlier++
		}
	}
	if earlier > later { // newest first, as AWS answers
		slices.Reverse(rows)
	}
	ordered := rows[:0:0]
	for _, r := range rows {
		if len(ordered) == 0 {
			ordered = append(ordered, r)
			continue
		}
		switch before := ordered[len(ordered)-1]; {
		case r.at.Before(before.at):
			t.faults.add("%s: %s of %s is out of order beside %s (%s); sort the file by time",
				r.where, r.at.Format(time.RFC3339), key, before.at.Format(time.RFC3339), before.where)
		case r.at.After(before.at):
			ordered = append(ordered, r)
		case same(r.price, before.price) && same(r.onDemand, before.onDemand):
			t.prices.Repeated++
		default:
			t.faults.add("%s: %s of %s has price %v, and %v at %s; leave one of them",
				r.where, r.at.Format(time.RFC3339), key, r.price, before.price, before.where)
		}
	}
	return ordered
}

func same(a, b float64) bool {
	return math.Abs(a-b) <= sameRelative*math.Abs(b) || math.IsNaN(a) && math.IsNaN(b)
}

// points makes a series; it has a gap at each of the dates of snapshots from its first on at which it has no row.
func points(key Key, rows []row, dates []time.Time, end time.Time, value func(row) float64) Series {
	s := Series{Key: key, End: end}
	next := 0
	for _, r := range rows {
		for ; next < len(dates) && !dates[next].After(r.at); next++ {
			if dates[next].Before(r.at) && len(s.Points) > 0 {
				s.Points = append(s.Points, Point{At: dates[next], Value: math.NaN()})
			}
		}
		s.Points = append(s.Points, Point{At: r.at, Value: value(r)})
	}
	if next < len(dates) {
		s.Points = append(s.Points, Point{At: dates[next], Value: math.NaN()})
	}
	return s
}

// Compare orders keys by provider, region, zone and type.
func (k Key) Compare(other Key) int {
	return cmp.Or(cmp.Compare(k.Provider, other.Provider), cmp.Compare(k.Region, other.Region),
		cmp.Compare(k.Zone, other.Zone), cmp.Compare(k.Type, other.Type))
}
