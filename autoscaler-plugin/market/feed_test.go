package market

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/shoenig/test/must"
)

func hours(n float64) time.Duration { return time.Duration(n * float64(time.Hour)) }

// told prints changes shortly: hour, offering, + or -, price.
func told(t *testing.T, f Feed) string {
	t.Helper()
	changes, err := Collect(f)
	must.NoError(t, err)
	words := make([]string, len(changes))
	for i, c := range changes {
		sign := "-"
		if c.Up {
			sign = "+"
		}
		words[i] = fmt.Sprintf("%g:%d%s%g", c.At.Hours(), c.Offering, sign, c.Price)
	}
	return strings.Join(words, " ")
}

func ticks(s string) Trace {
	t := Trace{Tick: time.Hour}
	for _, c := range s {
		t.Up = append(t.Up, c == '1')
	}
	return t
}

var day = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func steps(values ...float64) Series {
	var s Series
	for i, v := range values {
		s.Points = append(s.Points, Point{At: day.Add(hours(float64(i))), Value: v})
	}
	return s
}

func TestFeeds(t *testing.T) {
	nan := math.NaN()
	ending := steps(1, 2)
	ending.End = day.Add(hours(2))
	cut := steps(1, 2, 3)
	cut.End = day.Add(hours(2))
	cases := map[string]struct {
		feed Feed
		want string
	}{
		"trace":        {ticks("1100101").Feed(2), "0:0+2 2:0-2 4:0+2 5:0-2 6:0+2"},
		"empty":        {Trace{}.Feed(2), ""},
		"prices":       {steps(1, 1, 2, nan, nan, 2).Feed(day), "0:0+1 2:0+2 3:0-NaN 5:0+2"},
		"from later":   {steps(1, 1, 2, 3).Feed(day.Add(hours(1.5))), "0:0+1 0.5:0+2 1.5:0+3"},
		"from earlier": {steps(1, 2).Feed(day.Add(-hours(3))), "0:0-NaN 3:0+1 4:0+2"},
		"ending":       {ending.Feed(day), "0:0+1 1:0+2 2:0-NaN"},
		"past the end": {cut.Feed(day), "0:0+1 1:0+2 2:0-NaN"},
		"after all":    {ending.Feed(day.Add(hours(9))), "0:0-NaN"},
		"until":        {Until(ticks("101010").Feed(1), hours(3)), "0:0+1 1:0-1 2:0+1"},
		"merge": {
			Merge(ticks("101").Feed(1), ticks("01").Feed(2), ticks("0").Feed(3), Trace{}.Feed(9), ticks("0011").Feed(4)),
			"0:0+1 0:1-2 0:2-3 0:4-4 1:0-1 1:1+2 2:0+1 2:4+4",
		},
		"merge none": {Merge(), ""},
		"priced": {
			Priced(
				Merge(ticks("1101").Feed(nan), ticks("1").Feed(nan)),
				Merge(steps(5, 5, 6, 7).Feed(day), steps(nan, 1).Feed(day))),
			"0:0+5 0:1-NaN 1:1+1 2:0-5 2:0-6 3:0+6 3:0+7",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) { must.Eq(t, c.want, told(t, c.feed)) })
	}
}

func TestMerge_error(t *testing.T) {
	broken := func() (Feed, error) {
		r, err := OpenTrace(strings.NewReader(`{"metadata":{"gap_seconds":3600},"data":[1,0,7,8]}`), PolarityAsk)
		if err != nil {
			return nil, err
		}
		return r.Feed(1), nil
	}
	f, err := broken()
	must.NoError(t, err)
	_, err = Collect(Merge(ticks("1").Feed(1), f))
	for _, want := range []string{"offering 1", "data[2]: 7", "data[3]: 8"} {
		must.ErrorContains(t, err, want)
	}
}

func TestSeries_Resample(t *testing.T) {
	s := steps(1, math.NaN(), 3)
	s.End = day.Add(hours(3))
	start, step := day.Add(-hours(0.5)), 30*time.Minute
	for i, v := range s.Resample(start, step, 10) {
		want, ok := s.At(start.Add(time.Duration(i) * step))
		if !ok {
			must.True(t, math.IsNaN(v), must.Sprint(i))
			continue
		}
		must.Eq(t, want, v, must.Sprint(i))
	}
	must.Eq(t, 3, s.Resample(day.Add(hours(2.5)), time.Hour, 1)[0])
	must.SliceEmpty(t, s.Resample(day, time.Hour, 0))
}

func TestSeries_Validate(t *testing.T) {
	must.NoError(t, steps(0, math.NaN(), 3).Validate())
	s := steps(-1, math.Inf(1), 1, 1)
	s.Points[2].At = day.Add(hours(1))
	s.Points[3].At = day
	s.End = day.Add(-hours(1))
	err := s.Validate()
	for _, want := range []string{
		"points[0]: -1", "points[1]: +Inf", "points[2]: 2026-01-01T01:00:00Z is there twice", "points[3]", "end:",
	} {
		must.ErrorContains(t, err, want)
	}
}

func TestRegionOf(t *testing.T) {
	for zone, want := range map[string]string{
		"us-west-2a": "us-west-2", "us-gov-west-1b": "us-gov-west-1", "ap-southeast-12c": "ap-southeast-12",
		"us-west-2-lax-1a": "us-west-2", "us-central1-a": "us-central1", "europe-west12-b": "europe-west12",
		"cn-hangzhou-h": "cn-hangzhou", "ap-guangzhou-3": "ap-guangzhou", "here": "here", "": "",
	} {
		must.Eq(t, want, RegionOf(zone))
	}
}

func TestMatch(t *testing.T) {
	a, err := TraceKey("aws", "us-west-2a_v100_1.json")
	must.NoError(t, err)
	must.Eq(t, Key{Provider: "aws", Region: "us-west-2", Zone: "us-west-2a", Type: "v100_1"}, a)
	b, err := TraceKey("aws", "us-east-1c_v100_1.json")
	must.NoError(t, err)
	found, err := Match([]Key{{Zone: "us-east-1c"}, {Region: "us-west-2", Type: "v100_1"}}, []Key{a, b})
	must.NoError(t, err)
	must.Eq(t, []int{1, 0}, found)
	_, err = Match([]Key{{Zone: "us-east-1d", Type: "v100_1"}, {Zone: "us-east-1c"}, {Zone: "eu-west-1a"}}, []Key{a, b})
	for _, want := range []string{"us-east-1d/v100_1", "eu-west-1a/", "recordings of us-west-2a/v100_1, us-east-1c/v100_1"} {
		must.ErrorContains(t, err, want)
	}
	_, err = Match([]Key{{Region: "us-east-1", Zone: "us-east-1c", Type: "p3.2xlarge"}}, []Key{a, b})
	must.ErrorContains(t, err, "us-east-1c/p3.2xlarge (us-east-1) has no recording")
	must.ErrorContains(t, err, "there are recordings of us-east-1c/v100_1; add")
	_, err = TraceKey("aws", "slices.json")
	must.ErrorContains(t, err, "ZONE_TYPE.json")
	var ask *PolarityError
	must.False(t, errors.As(err, &ask))
}

func FuzzTraceKey(f *testing.F) {
	f.Add("us-west-2a_v100_1.json")
	f.Add("slices.json")
	f.Fuzz(func(t *testing.T, name string) {
		key, err := TraceKey("aws", name)
		if err != nil {
			return
		}
		again, err := TraceKey("aws", key.Zone+"_"+key.Type+".json")
		must.NoError(t, err)
		must.Eq(t, key, again)
		must.True(t, strings.HasPrefix(key.Zone, key.Region))
	})
}
