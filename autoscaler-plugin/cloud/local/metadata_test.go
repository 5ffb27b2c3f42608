package local

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/shoenig/test/must"

	"nomad-spotter/autoscaler-plugin/cloud"
	"nomad-spotter/autoscaler-plugin/market"
)

func TestMetadata_token(t *testing.T) {
	now := time.Date(2026, 12, 1, 3, 30, 0, 0, time.UTC)
	m := &metadata{now: func() time.Time { return now }, snapshot: func() record {
		return record{Instance: cloud.Instance{ID: "west-1", Kind: cloud.Spot, Type: "cpu2", Region: "west", Zone: "west-1a", State: cloud.Running}}
	}, tokens: map[string]time.Time{}}
	server := httptest.NewServer(m)
	defer server.Close()
	tokenURL, idURL := server.URL+"/latest/api/token", server.URL+"/latest/meta-data/instance-id"

	for _, ttl := range []string{"", "0", "21601", "-1", "soon"} {
		header := []string{}
		if ttl != "" {
			header = []string{ttlHeader, ttl}
		}
		res, _ := request1(t, http.MethodPut, tokenURL, "", header...)
		must.Eq(t, http.StatusBadRequest, res.StatusCode, must.Sprintf("ttl %q", ttl))
	}
	res, _ := request1(t, http.MethodPut, tokenURL, "", ttlHeader, "60", "X-Forwarded-For", "10.0.0.1")
	must.Eq(t, http.StatusForbidden, res.StatusCode)
	res, _ = request1(t, http.MethodGet, tokenURL, "")
	must.Eq(t, http.StatusMethodNotAllowed, res.StatusCode)

	for _, ttl := range []int{1, 21600} {
		res, token := request1(t, http.MethodPut, tokenURL, "", ttlHeader, strconv.Itoa(ttl))
		must.Eq(t, http.StatusOK, res.StatusCode)
		must.Eq(t, strconv.Itoa(ttl), res.Header.Get(ttlHeader))
		start := now
		now = start.Add(time.Duration(ttl)*time.Second - 1)
		res, text := request1(t, http.MethodGet, idURL, "", tokenHeader, token)
		must.Eq(t, http.StatusOK, res.StatusCode)
		must.Eq(t, "west-1", text)
		now = start.Add(time.Duration(ttl) * time.Second)
		res, _ = request1(t, http.MethodGet, idURL, "", tokenHeader, token)
		must.Eq(t, http.StatusUnauthorized, res.StatusCode, must.Sprint("an expired token was taken"))
	}
	res, _ = request1(t, http.MethodGet, idURL, "", tokenHeader, "made up")
	must.Eq(t, http.StatusUnauthorized, res.StatusCode)
	res, _ = request1(t, http.MethodGet, idURL, "")
	must.Eq(t, http.StatusOK, res.StatusCode, must.Sprint("version 1 needs no token"))

	for i := range maxTokens + 10 {
		m.keepToken(strconv.Itoa(i), now.Add(time.Hour))
	}
	must.MapLen(t, maxTokens, m.tokens)
}

func TestMetadata_items(t *testing.T) {
	deadline := time.Date(2026, 12, 1, 3, 32, 56, 987654321, time.UTC)
	quiet := record{Instance: cloud.Instance{ID: "west-1", Kind: cloud.Spot, Type: "cpu2", Region: "west", Zone: "west-1a", State: cloud.Running}}
	noticed := quiet
	noticed.State, noticed.Deadline = cloud.Noticed, deadline
	cases := []struct {
		record record
		path   string
		want   string
	}{
		{quiet, "instance-id", "west-1"},
		{quiet, "instance-life-cycle", "spot"},
		{quiet, "instance-type", "cpu2"},
		{quiet, "placement/availability-zone", "west-1a"},
		{quiet, "placement/region", "west"},
		{quiet, "spot/instance-action", ""},
		{quiet, "spot/termination-time", ""},
		{quiet, "events/recommendations/rebalance", ""},
		{noticed, "events/recommendations/rebalance", ""},
		{noticed, "spot/instance-action", `{"action":"terminate","time":"2026-12-01T03:32:56Z"}`},
		{noticed, "spot/termination-time", "2026-12-01T03:32:56Z"},
		{noticed, "nothing", ""},
	}
	for _, c := range cases {
		got, _ := item(c.record, c.path)
		must.Eq(t, c.want, got, must.Sprint(c.path))
	}
}

func TestNextMove(t *testing.T) {
	start := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	trace := market.Trace{Tick: time.Minute, Up: []bool{true, true, false, true}}
	clock := market.Clock{Start: start, Scale: 60} // a tick per second
	cases := map[string]struct {
		clock market.Clock
		trace market.Trace
		at    time.Duration
		taken bool
		wake  time.Duration
	}{
		"no trace":            {clock, market.Trace{}, 0, false, 24 * time.Hour},
		"clock stands":        {market.Clock{}, trace, time.Hour, false, clockPoll},
		"clock stands at 0":   {market.Clock{}, market.Trace{Tick: time.Minute, Up: []bool{false}}, 0, true, 0},
		"two ticks to go":     {clock, trace, 0, false, 2 * time.Second},
		"a moment before":     {clock, trace, 2*time.Second - 1, false, time.Millisecond},
		"taken":               {clock, trace, 2 * time.Second, true, 0},
		"taken until the end": {clock, trace, 3*time.Second - 1, true, 0},
		"never again":         {clock, trace, 3 * time.Second, false, 24 * time.Hour},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			taken, wake := nextMove(c.clock, c.trace, start.Add(c.at))
			must.Eq(t, c.taken, taken)
			must.Eq(t, c.wake, wake)
		})
	}
}

func TestParseStat(t *testing.T) {
	line := "42 (a (b) c) S 7 42 42 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 9 0 123456 1 2 3\n"
	s, err := parseStat(line)
	must.NoError(t, err)
	must.Eq(t, procStat{state: 'S', parent: 7, threads: 9, start: 123456}, s)
	for _, bad := range []string{"", "42 comm S", "42 (comm) S 7", "42 (comm) S x 42 42 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 123456 1"} {
		_, err := parseStat(bad)
		must.Error(t, err, must.Sprint(bad))
	}
}
