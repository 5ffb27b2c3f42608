package market

import (
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/shoenig/test/must"
)

func TestOpenTrace(t *testing.T) {
	const file = `{"generator":"mine","metadata":{"note":{"a":[1]},"gap_seconds":0.5},"data":[0,1,1],"prices":[[1],2,3]}`
	r, err := OpenTrace(strings.NewReader(file), PolarityInverted)
	must.NoError(t, err)
	must.Eq(t, 500*time.Millisecond, r.Tick())
	for _, want := range []bool{true, false, false} {
		up, err := r.Next()
		must.NoError(t, err)
		must.Eq(t, want, up)
	}
	for range 2 {
		_, err = r.Next()
		must.ErrorIs(t, err, io.EOF)
	}
	must.Eq(t, 1500*time.Millisecond, r.Position())
}

// All faults of a file are told, and the ticks before the first are handed out.
func TestOpenTrace_faults(t *testing.T) {
	cases := map[string]struct {
		in   string
		want []string
	}{
		"gaps and counts": {
			`{"metadata":{"gap_seconds":1},"data":[1,null,16,-1,"x",0]}`,
			[]string{"data[1]: null is a gap", "data[2]: 16 is neither", "data[3]: -1", `data[4]: "x" is neither`},
		},
		"nan": {
			`{"metadata":{"gap_seconds":1},"data":[1,NaN,0]}`,
			[]string{"data[1]: byte", "NaN and empty values are gaps"},
		},
		"cut":        {`{"metadata":{"gap_seconds":1},"data":[1,1`, []string{"unexpected EOF: the file is empty or cut off; get it again"}},
		"empty":      {``, []string{"the file is empty or cut off"}},
		"null":       {`null`, []string{"null where { is expected"}},
		"two traces": {`{"metadata":{"gap_seconds":1},"data":[1]}{}`, []string{"something follows"}},
		"lists":      {`{"metadata":{"gap_seconds":1},"data":[[1,0],[1,1]]}`, []string{"give one trace a file"}},
		"data twice": {`{"metadata":{"gap_seconds":1},"data":[1],"data":[0]}`, []string{"data: given twice"}},
		"available": {
			`{"metadata":{"gap_seconds":-1,"available":2},"data":[1,3]}`,
			[]string{"gap_seconds: -1", "available: 2", "data[1]: 3"},
		},
		"no ticks":      {`{"metadata":{"gap_seconds":1},"data":[]}`, []string{"data: empty"}},
		"not an object": {`[1,0]`, []string{"must be JSON like"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := ParseTrace([]byte(c.in))
			must.Error(t, err)
			for _, want := range c.want {
				must.StrContains(t, err.Error(), want)
			}
		})
	}
	_, err := OpenTrace(strings.NewReader(`{"data":[1],"metadata":{"gap_seconds":1}}`), PolarityAsk)
	must.ErrorContains(t, err, "gap_seconds: missing before data")
	must.ErrorContains(t, err, "metadata: must stand before data")
	_, err = ParseTrace([]byte(`{"metadata":{"gap_seconds":1},"data":[1` + strings.Repeat(",2", 100) + `]}`))
	must.StrContains(t, err.Error(), "and 80 more faults")
	_, err = ParseTrace([]byte(`{"metadata":{"gap_seconds":1},"data":[1` + strings.Repeat(",1", maxTicks) + `]}`))
	must.StrContains(t, err.Error(), "more than 65536 ticks")
}

// A whole file may have its fields in any order; what is wrong with it is told all the same.
func TestReadTrace_order(t *testing.T) {
	trace, err := ParseTrace([]byte(`{"data":[1,0],"note":{"a":"\u0001"},"metadata":{"gap_seconds":60}}`))
	must.NoError(t, err)
	must.Eq(t, Trace{Tick: time.Minute, Up: []bool{true, false}}, trace)
	for in, want := range map[string]string{
		`{"data":[1,5],"metadata":{"gap_seconds":-1}}`:                        "gap_seconds: -1",
		`{"data":[1,5],"metadata":{"gap_seconds":1}}`:                         "data[1]: 5 is neither",
		`{"data":[1],"metadata":{"gap_seconds":1},"data":[0]}`:                "data: given twice",
		`{"data":[1],"metadata":{"gap_seconds":1}}{}`:                         "something follows",
		`{"data":[1],"metadata":{"gap_seconds":600,"start_time":3},"note":1}`: "looks inverted",
	} {
		_, err := ParseTrace([]byte(in))
		must.ErrorContains(t, err, want, must.Sprint(in))
	}
}

// The packaged slices of the Can't-Be-Late simulator are upside down; what is in them is asked about, unless the user or
// the file says it.
func TestOpenTrace_polarity(t *testing.T) {
	const packaged = `{"generator":"random_start_time",
		"metadata":{"gap_seconds":600,"start_time":3,"end_time":7},"data":[1,0,1,1]}`
	_, err := ParseTrace([]byte(packaged))
	var ask *PolarityError
	must.True(t, errors.As(err, &ask))
	must.Eq(t, 0.75, ask.Ones)
	for _, want := range []string{"looks inverted", "75.0 %", "--polarity available=0", "--polarity available=1"} {
		must.StrContains(t, err.Error(), want)
	}
	for _, c := range []struct {
		file     string
		polarity string
		want     bool // of the first tick
	}{
		{packaged, "available=0", false},
		{packaged, "available=1", true},
		{strings.Replace(packaged, `"start_time"`, `"available":0,"start_time"`, 1), "", false},
		{strings.Replace(packaged, `"start_time"`, `"available":1,"start_time"`, 1), "", true},
		{strings.Replace(packaged, `"start_time"`, `"available":1,"start_time"`, 1), "available=0", false},
	} {
		p, err := ParsePolarity(c.polarity)
		must.NoError(t, err)
		must.Eq(t, c.polarity, p.String())
		trace, err := ReadTrace(strings.NewReader(c.file), p)
		must.NoError(t, err)
		must.Eq(t, c.want, trace.Up[0])
	}
	_, err = ParsePolarity("inverted")
	must.ErrorContains(t, err, `"inverted"`)
}

// endless is a trace of a number of ticks that is never in memory as a whole.
type endless struct {
	head  string
	ticks int
}

func (e *endless) Read(p []byte) (int, error) {
	if e.head != "" {
		n := copy(p, e.head)
		e.head = e.head[n:]
		return n, nil
	}
	if e.ticks == 0 {
		return 0, io.EOF
	}
	n := min(len(p)/4, e.ticks)
	for i := range n {
		copy(p[4*i:], "1,0,")
	}
	if e.ticks -= n; e.ticks == 0 {
		copy(p[4*n-4:], "1,0]")
		e.head = "}"
		e.ticks = -1
	}
	return 4 * n, nil
}

// Reading ten times as many ticks leaves no more memory in use: what is read is let go.
func TestOpenTrace_memory(t *testing.T) {
	used := func(ticks int) float64 {
		source := &endless{head: `{"metadata":{"gap_seconds":1},"data":[`, ticks: ticks / 2}
		r, err := OpenTrace(source, PolarityAsk)
		must.NoError(t, err)
		for range ticks {
			_, err := r.Next()
			must.NoError(t, err)
		}
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		runtime.KeepAlive(r)
		return float64(m.HeapAlloc)
	}
	used(10)
	small, large := used(20_000), used(200_000)
	must.Less(t, small+64<<10, large)
}

// Every recorded zone inverted alone is found against the others of its region and type; none is suspected as recorded.
func TestCheckPolarity_recorded(t *testing.T) {
	dir := os.Getenv("SPOTTER_DATA")
	if dir == "" {
		t.Skip("SPOTTER_DATA is not set: no recorded traces to invert")
	}
	files, err := filepath.Glob(filepath.Join(dir, "availability/aws-2023-02/us-*.json"))
	must.NoError(t, err)
	must.Len(t, 9, files)
	var names []string
	var keys []Key
	var traces []Trace
	for _, file := range files {
		data, err := os.ReadFile(file)
		must.NoError(t, err)
		trace, err := ParseTrace(data)
		must.NoError(t, err)
		key, err := TraceKey("aws", filepath.Base(file))
		must.NoError(t, err)
		names, keys, traces = append(names, filepath.Base(file)), append(keys, key), append(traces, trace)
	}
	must.NoError(t, CheckPolarity(names, keys, traces))
	for i, trace := range traces {
		traces[i] = trace.Inverted()
		err := CheckPolarity(names, keys, traces)
		must.ErrorContains(t, err, names[i])
		var ask *PolarityError
		must.True(t, errors.As(err, &ask))
		for j, name := range names {
			if keys[j].Region != keys[i].Region {
				must.StrNotContains(t, err.Error(), name)
			}
		}
		traces[i] = trace
		part := Trace{Tick: trace.Tick, Up: trace.Inverted().Up[2000:5000]}
		must.True(t, part.InvertedPart(trace), must.Sprint(names[i]))
		must.False(t, part.Inverted().InvertedPart(trace), must.Sprint(names[i]))
	}
}

// The check needs no recordings: generated zones of a region are found as well, and a lone one never suspected.
func TestCheckPolarity(t *testing.T) {
	c := NineZones()
	f, err := NewCapacity(5, 45*24*time.Hour, c)
	must.NoError(t, err)
	traces := sampled(t, f, 9, 10*time.Minute, 45*24*time.Hour)
	names, keys := make([]string, 9), make([]Key, 9)
	for i, z := range c.Zones {
		names[i], keys[i] = z.Key.Zone, z.Key
	}
	must.NoError(t, CheckPolarity(names, keys, traces))
	traces[7] = traces[7].Inverted()
	must.ErrorContains(t, CheckPolarity(names, keys, traces), "us-west-2b: looks inverted")
	must.NoError(t, CheckPolarity(names[7:8], keys[7:8], traces[7:8]))
}

func FuzzOpenTrace(f *testing.F) {
	f.Add(`{"metadata":{"gap_seconds":195,"available":0},"data":[1,0,1],"prices":[1]}`, 1)
	f.Add(`{"metadata":{"gap_seconds":1},"data":[1,null,{"a":[]}]}`, 0)
	f.Add(`{"metadata":[],"data":{}}`, 2)
	f.Add(`{"data`, 9)
	f.Fuzz(func(t *testing.T, data string, polarity int) {
		whole, wholeErr := ReadTrace(strings.NewReader(data), Polarity(polarity))
		r, err := OpenTrace(strings.NewReader(data), Polarity(polarity))
		if err != nil {
			must.Eq(t, wholeErr.Error(), err.Error())
			return
		}
		feed := r.Feed(1)
		var changes []Change
		for err == nil {
			var c Change
			if c, err = feed.Next(); err == nil {
				changes = append(changes, c)
			}
		}
		if wholeErr != nil {
			return
		}
		must.ErrorIs(t, err, io.EOF)
		again, err := Collect(whole.Feed(1))
		must.NoError(t, err)
		must.Eq(t, again, changes)
		for _, c := range changes {
			must.Eq(t, whole.At(c.At), c.Up)
		}
		must.True(t, math.Abs(whole.UpShare()-0.5) <= 0.5)
	})
}
