package market

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/shoenig/test/must"
)

const (
	changesCSV = `timestamp,zone,instance_type,price_usd_per_hour
2026-01-02T03:04:05.000Z,us-west-2a,p3.2xlarge,0.918
2026-01-02T04:04:05Z,us-west-2b,p3.2xlarge,1
2026-01-03T03:04:05+00:00,us-west-2a,p3.2xlarge,0.92
`
	historyJSON = `{"SpotPriceHistory":[
{"AvailabilityZone":"us-west-2a","InstanceType":"p3.2xlarge","ProductDescription":"Linux/UNIX",
"SpotPrice":"0.920000","Timestamp":"2026-01-03T03:04:05+00:00"},
{"AvailabilityZone":"us-west-2b","InstanceType":"p3.2xlarge","ProductDescription":"Linux/UNIX",
"SpotPrice":"1.000000","Timestamp":"2026-01-02T04:04:05+00:00"},
{"AvailabilityZone":"us-west-2b","InstanceType":"p3.2xlarge","ProductDescription":"Windows",
"SpotPrice":"9.000000","Timestamp":"2026-01-02T04:04:05+00:00"}],"NextToken":"x"}
{"SpotPriceHistory":[
{"AvailabilityZone":"us-west-2a","InstanceType":"p3.2xlarge","ProductDescription":"Linux/UNIX",
"SpotPrice":"0.918000","Timestamp":"2026-01-02T03:04:05+00:00"}]}`
	historyCSV = `ProductDescription,Timestamp,SpotPrice,InstanceType,AvailabilityZone
Linux/UNIX,2026-01-03T03:04:05Z,0.92,p3.2xlarge,us-west-2a
Linux/UNIX,2026-01-02T04:04:05Z,1,p3.2xlarge,us-west-2b
SUSE Linux,2026-01-02T04:04:05Z,7,p3.2xlarge,us-west-2b
Linux/UNIX,2026-01-02T03:04:05Z,0.918,p3.2xlarge,us-west-2a
`
	datesCSV = `date,region,machine_type,ondemand_usd_per_hour,spot_usd_per_hour
2026-01-01,us-west4,a2-highgpu-1g,3.67,1.10
2026-01-01,us-west4,g2-standard-4,0.7,0.21
2026-01-08,us-west4,g2-standard-4,0.7,0.21
2026-01-08,us-west4,g2-standard-4,0.7,0.21
2026-01-15,us-west4,a2-highgpu-1g,3.67,1.44
2026-01-15,us-west4,g2-standard-4,0.7,0.22
`
)

// One market, written in three ways and packed, reads as the same series.
func TestReadPrices_aws(t *testing.T) {
	at := func(day, hour int) time.Time { return time.Date(2026, 1, day, hour, 4, 5, 0, time.UTC) }
	end := at(3, 3).Add(time.Second)
	key := Key{Provider: "aws", Region: "us-west-2", Zone: "us-west-2a", Type: "p3.2xlarge"}
	other := key
	other.Zone = "us-west-2b"
	want := []Series{
		{Key: key, Points: []Point{{at(2, 3), 0.918}, {at(3, 3), 0.92}}, End: end},
		{Key: other, Points: []Point{{at(2, 4), 1}}, End: end},
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = z.Write([]byte(changesCSV))
	must.NoError(t, z.Close())
	for name, c := range map[string]struct {
		in      string
		skipped int
	}{"changes": {changesCSV, 0}, "json": {historyJSON, 1}, "csv": {historyCSV, 1}, "gzip": {packed.String(), 0}} {
		prices, err := ReadPrices(strings.NewReader(c.in))
		must.NoError(t, err, must.Sprint(name))
		must.Eq(t, Prices{Spot: want, Skipped: c.skipped}, prices, must.Sprint(name))
	}
}

// Snapshots have on-demand prices; where an offering is absent from one, there is a gap.
func TestReadPrices_snapshots(t *testing.T) {
	prices, err := ReadPrices(strings.NewReader(datesCSV))
	must.NoError(t, err)
	must.Eq(t, 1, prices.Repeated)
	must.Len(t, 2, prices.Spot)
	must.Len(t, 2, prices.OnDemand)
	day := func(n int) time.Time { return time.Date(2026, 1, n, 12, 0, 0, 0, time.UTC) }
	a2, demand := prices.Spot[0], prices.OnDemand[0]
	for n, want := range map[int]float64{1: 1.10, 7: 1.10, 15: 1.44} {
		got, ok := a2.At(day(n))
		must.True(t, ok)
		must.Eq(t, want, got)
		got, _ = demand.At(day(n))
		must.Eq(t, 3.67, got)
	}
	for _, n := range []int{8, 14, 16} {
		_, ok := a2.At(day(n))
		must.False(t, ok, must.Sprint(n))
	}
}

func TestReadPrices_faults(t *testing.T) {
	const head = "timestamp,zone,instance_type,price_usd_per_hour\n"
	cases := map[string]struct {
		in   string
		want []string
	}{
		"nothing":   {"", []string{"empty"}},
		"header":    {"a,b\n1,2\n", []string{`header "a,b"`, "known are"}},
		"no rows":   {head, []string{"no rows"}},
		"other os":  {strings.ReplaceAll(historyCSV, "Linux/UNIX", "Windows"), []string{"no prices for Linux, and 4"}},
		"not pages": {`{"a":1}`, []string{"SpotPriceHistory: missing"}},
		"cut json":  {historyJSON[:200], []string{"byte ", "unexpected EOF"}},
		"unit": {
			head + "2026-01-02T03:04:05Z,us-west-2a,p3.2xlarge,0\n2026-01-03T03:04:05Z,us-west-2a,p3.2xlarge,1e308\n",
			[]string{"line 2: price 0 is not above 0; give $/h", "line 3: price 1e+308 is above 1e+06; give $/h"},
		},
		"all together": {
			head + "2026-01-02T03:04:05Z,us-west-2a,p3.2xlarge,-1\n" +
				"yesterday,us-west-2a,p3.2xlarge,1\n" +
				"2026-01-02T03:04:05Z,us-west-2a,p3.2xlarge,NaN\n" +
				"2026-01-02T03:04:05Z,,,1\n" +
				"2026-01-02T03:04:05Z,us-west-2a,p3.2xlarge\n" +
				"2026-01-03T03:04:05Z,us-west-2b,p3.2xlarge,1\n" +
				"2026-01-03T03:04:05Z,us-west-2b,p3.2xlarge,2\n" +
				"2026-01-04T03:04:05Z,us-west-2b,p3.2xlarge,2\n" +
				"2026-01-02T03:04:05Z,us-west-2b,p3.2xlarge,2\n",
			[]string{
				"line 2: price -1", `line 3: time "yesterday"`, `line 4: price "NaN"`, "line 5: no zone",
				"line 5: no instance type",
				"line 6: 3 columns, the header has 4",
				"line 8: 2026-01-03T03:04:05Z of us-west-2b/p3.2xlarge has price 2, and 1 at line 7",
				"line 10: 2026-01-02T03:04:05Z of us-west-2b/p3.2xlarge is out of order",
			},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := ReadPrices(strings.NewReader(c.in))
			must.Error(t, err)
			for _, want := range c.want {
				must.StrContains(t, err.Error(), want)
			}
		})
	}
	_, err := ReadPrices(strings.NewReader(head + strings.Repeat("x,,,\n", 1000)))
	must.StrContains(t, err.Error(), "and 3980 more faults")
}

// A compressed file that is cut off or damaged is told as that, and not by what its rows look like.
func TestReadPrices_damaged(t *testing.T) {
	var file bytes.Buffer
	z := gzip.NewWriter(&file)
	_, err := io.WriteString(z, "timestamp,zone,instance_type,price_usd_per_hour\n")
	must.NoError(t, err)
	random := rand.New(rand.NewPCG(1, 1))
	for i := range 2000 {
		at := time.Unix(int64(i)*3600, 0).UTC().Format(time.RFC3339)
		_, err = fmt.Fprintf(z, "%s,us-west-2a,p3.2xlarge,%v\n", at, 1+random.Float64())
		must.NoError(t, err)
	}
	must.NoError(t, z.Close())
	whole := file.Bytes()
	_, err = ReadPrices(bytes.NewReader(whole))
	must.NoError(t, err)
	flipped := bytes.Clone(whole)
	for i := len(flipped) / 2; i < len(flipped)/2+20; i++ {
		flipped[i] ^= 0xff
	}
	checksum := bytes.Clone(whole)
	checksum[len(checksum)-8] ^= 0xff
	for name, data := range map[string][]byte{
		"cut": whole[:len(whole)/2], "header only": whole[:4], "flipped": flipped, "checksum": checksum,
	} {
		_, err := ReadPrices(bytes.NewReader(data))
		must.ErrorContains(t, err, "the file is cut off or damaged; get it again", must.Sprint(name))
		must.Eq(t, 1, len(strings.Split(err.Error(), "\n")), must.Sprint(name, err))
	}
}

// print writes prices as ReadPrices reads them; gaps are rows that are left out.
func (p Prices) print(w io.Writer) {
	if len(p.OnDemand) == 0 {
		_, _ = fmt.Fprintln(w, "timestamp,zone,instance_type,price_usd_per_hour")
	} else {
		_, _ = fmt.Fprintln(w, "date,region,machine_type,ondemand_usd_per_hour,spot_usd_per_hour")
	}
	quote := func(s string) string { return `"` + strings.ReplaceAll(s, `"`, `""`) + `"` }
	for i, s := range p.Spot {
		for j, point := range s.Points {
			switch {
			case math.IsNaN(point.Value):
			case len(p.OnDemand) == 0:
				_, _ = fmt.Fprintf(w, "%s,%s,%s,%v\n", point.At.Format(time.RFC3339Nano), quote(s.Key.Zone), quote(s.Key.Type),
					point.Value)
			default:
				_, _ = fmt.Fprintf(w, "%s,%s,%s,%v,%v\n", point.At.Format(time.DateOnly), quote(s.Key.Region), quote(s.Key.Type),
					p.OnDemand[i].Points[j].Value, point.Value)
			}
		}
	}
}

func FuzzReadPrices(f *testing.F) {
	for _, seed := range []string{changesCSV, historyJSON, historyCSV, datesCSV, "", "{}", "timestamp,zone\n1,2"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		prices, err := ReadPrices(bytes.NewReader(data))
		if err != nil {
			return
		}
		for _, s := range append(prices.Spot, prices.OnDemand...) {
			must.NoError(t, s.Validate())
		}
		if bytes.ContainsRune(data, '\r') { // encoding/csv reads \r\n in a quoted cell as \n
			return
		}
		var printed bytes.Buffer
		prices.print(&printed)
		again, err := ReadPrices(&printed)
		must.NoError(t, err, must.Sprint(printed.String()))
		prices.Repeated, prices.Skipped = 0, 0
		must.Eq(t, fmt.Sprint(prices), fmt.Sprint(again)) // NaN is not equal to itself, printed it is
	})
}

func TestReadPrices_recorded(t *testing.T) {
	dir := os.Getenv("SPOTTER_DATA")
	if dir == "" {
		t.Skip("SPOTTER_DATA is not set: no recorded prices to read")
	}
	for name, want := range map[string]struct{ series, points, onDemand, repeated int }{
		"aws-2019-12-to-2020-02-15.csv.gz": {98, 9618, 0, 0},
		"gcp-2023-05-to-2025-06-30.csv.gz": {880, 102215, 880, 7053},
	} {
		file, err := os.Open(filepath.Join(dir, "prices", name))
		must.NoError(t, err)
		prices, err := ReadPrices(file)
		must.NoError(t, err)
		must.NoError(t, file.Close())
		points := prices.Repeated
		for _, s := range prices.Spot {
			must.NoError(t, s.Validate())
			for _, p := range s.Points {
				if !math.IsNaN(p.Value) {
					points++
				}
			}
		}
		must.Eq(t, want.series, len(prices.Spot))
		must.Eq(t, want.points, points)
		must.Eq(t, want.onDemand, len(prices.OnDemand))
		must.Eq(t, want.repeated, prices.Repeated)
	}
}
