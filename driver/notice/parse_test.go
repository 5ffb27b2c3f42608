package notice

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/shoenig/test/must"
)

func recorded(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "ec2", name))
	must.NoError(t, err)
	return b
}

var t0 = time.Date(2026, 12, 1, 3, 30, 56, 0, time.UTC)

func TestParseInstanceAction(t *testing.T) {
	for name, tc := range map[string]struct {
		body string
		exp  instanceAction
		err  string
	}{
		"recorded terminate":     {body: string(recorded(t, "instance-action.json")), exp: instanceAction{"terminate", t0.Add(2 * time.Minute)}},
		"recorded stop":          {body: string(recorded(t, "instance-action-stop.json")), exp: instanceAction{"stop", time.Date(2017, 9, 18, 8, 22, 0, 0, time.UTC)}},
		"recorded hibernate":     {body: string(recorded(t, "instance-action-hibernate.json")), exp: instanceAction{"hibernate", time.Date(2017, 9, 18, 8, 22, 0, 0, time.UTC)}},
		"hibernate without time": {body: `{"action":"hibernate"}`, exp: instanceAction{Action: "hibernate"}},
		"unknown action":         {body: `{"action":"evict","time":"2026-12-01T03:30:56Z"}`, exp: instanceAction{"evict", t0}},
		"other zone":             {body: `{"action":"stop","time":"2026-12-01T04:30:56+01:00"}`, exp: instanceAction{"stop", t0}},
		"no time":                {body: `{"action":"terminate"}`, err: `"terminate" without a time`},
		"no action":              {body: `{"time":"2026-12-01T03:30:56Z"}`, err: "no action"},
		"null":                   {body: `null`, err: "no action"},
		"html":                   {body: string(recorded(t, "404.html")), err: "parse instance action"},
		"empty":                  {body: "", err: "parse instance action"},
		"wrong time":             {body: `{"action":"stop","time":"soon"}`, err: "parse instance action"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parseInstanceAction([]byte(tc.body))
			if tc.err != "" {
				must.ErrorContains(t, err, tc.err)
				return
			}
			must.NoError(t, err)
			must.Eq(t, tc.exp.Action, got.Action)
			must.True(t, tc.exp.Time.Equal(got.Time), must.Sprint(got.Time))
		})
	}
}

func FuzzParseInstanceAction(f *testing.F) {
	for _, name := range []string{"instance-action.json", "instance-action-stop.json", "instance-action-hibernate.json", "404.html", "rebalance.json"} {
		f.Add(recorded(f, name))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		a, err := parseInstanceAction(body)
		if err != nil {
			return
		}
		printed, err := json.Marshal(a)
		if err != nil {
			return // a year beyond 9999 parses but does not print
		}
		again, err := parseInstanceAction(printed)
		must.NoError(t, err)
		must.Eq(t, a.Action, again.Action)
		must.True(t, a.Time.Equal(again.Time))
	})
}

func TestParseRebalance(t *testing.T) {
	got, err := parseRebalance(recorded(t, "rebalance.json"))
	must.NoError(t, err)
	must.Eq(t, t0.Add(-3*time.Second), got)
	for _, body := range []string{"", "{}", `{"noticeTime":""}`, `{"noticeTime":5}`, string(recorded(t, "404.html"))} {
		_, err := parseRebalance([]byte(body))
		must.ErrorContains(t, err, "parse rebalance recommendation", must.Sprint(body))
	}
}

func FuzzParseRebalance(f *testing.F) {
	f.Add(recorded(f, "rebalance.json"))
	f.Add(recorded(f, "404.html"))
	f.Fuzz(func(t *testing.T, body []byte) {
		if at, err := parseRebalance(body); err == nil {
			must.False(t, at.IsZero())
		}
	})
}

func TestParseToken(t *testing.T) {
	body := recorded(t, "token")
	for name, tc := range map[string]struct {
		body []byte
		ttl  string
		life time.Duration // until renewal
		err  bool
	}{
		"recorded":        {body, "21600", 6*time.Hour - time.Minute, false},
		"no header":       {body, "", 6*time.Hour - time.Minute, false},
		"odd header":      {body, "soon", 6*time.Hour - time.Minute, false},
		"header too long": {body, "21601", 6*time.Hour - time.Minute, false},
		"two minutes":     {body, "120", time.Minute, false},
		"below that":      {body, "119", 59500 * time.Millisecond, false},
		"one second":      {body, "1", 500 * time.Millisecond, false},
		"zero":            {body, "0", 6*time.Hour - time.Minute, false},
		"final newline":   {append(body, '\n'), "21600", 6*time.Hour - time.Minute, false},
		"empty":           {nil, "21600", 0, true},
		"html":            {recorded(t, "404.html"), "21600", 0, true},
		"header break":    {[]byte("a\r\nb"), "21600", 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parseToken(tc.body, tc.ttl, t0)
			if tc.err {
				must.ErrorContains(t, err, "parse IMDS token")
				return
			}
			must.NoError(t, err)
			must.Eq(t, strings.TrimSpace(string(tc.body)), got.value)
			must.Eq(t, t0.Add(tc.life), got.until)
			must.False(t, got.due(got.until.Add(-1)))
			must.True(t, got.due(got.until))
		})
	}
}

func FuzzParseToken(f *testing.F) {
	f.Add(recorded(f, "token"), "21600")
	f.Add([]byte("a b"), "-1")
	f.Fuzz(func(t *testing.T, body []byte, ttl string) {
		tok, err := parseToken(body, ttl, t0)
		if err != nil {
			return
		}
		must.NotEq(t, "", tok.value)
		must.False(t, strings.ContainsAny(tok.value, "\r\n \x00"))
		must.True(t, tok.until.After(t0) && !tok.until.After(t0.Add(tokenTTL)))
	})
}

func TestLocalTime(t *testing.T) {
	deadline := t0.Add(2 * time.Minute)
	for name, tc := range map[string]struct {
		t, date, at, exp time.Time
	}{
		"in step":           {deadline, t0, t0, deadline},
		"two seconds ahead": {deadline, t0, t0.Add(2 * time.Second), deadline},
		"more than that":    {deadline, t0, t0.Add(2*time.Second + 1), deadline.Add(2*time.Second + 1)},
		"two behind":        {deadline, t0, t0.Add(-2 * time.Second), deadline},
		"an hour behind":    {deadline, t0, t0.Add(-time.Hour), deadline.Add(-time.Hour)},
		"no date":           {deadline, time.Time{}, t0.Add(time.Hour), deadline},
		"no time":           {time.Time{}, t0, t0.Add(time.Hour), time.Time{}},
	} {
		t.Run(name, func(t *testing.T) { must.Eq(t, tc.exp, localTime(tc.t, tc.date, tc.at)) })
	}
}

func TestTracker(t *testing.T) {
	term := func(d time.Duration) *instanceAction { return &instanceAction{"terminate", t0.Add(d)} }
	hib := &instanceAction{"hibernate", t0}
	m := 2 * time.Minute
	for name, tc := range map[string]struct {
		polls []*instanceAction
		exp   string // a letter per poll: - nothing, N notice, W withdrawn
	}{
		"nothing":               {[]*instanceAction{nil, nil, nil, nil}, "----"},
		"once":                  {[]*instanceAction{nil, term(m), term(m), term(m)}, "-N--"},
		"moves away each poll":  {[]*instanceAction{term(m), term(m + time.Second), term(m + time.Hour)}, "N--"},
		"a second nearer":       {[]*instanceAction{term(m), term(m - time.Second)}, "N-"},
		"nearer than that":      {[]*instanceAction{term(m), term(m - time.Second - 1), term(m - time.Second - 1)}, "NN-"},
		"flapping":              {[]*instanceAction{term(m), nil, nil, term(m), nil, nil, term(m)}, "N------"},
		"withdrawn once":        {[]*instanceAction{term(m), nil, nil, nil, nil}, "N--W-"},
		"again after that":      {[]*instanceAction{term(m), nil, nil, nil, term(m)}, "N--WN"},
		"hibernate once":        {[]*instanceAction{hib, hib}, "N-"},
		"terminate after sleep": {[]*instanceAction{hib, term(m)}, "NN"},
	} {
		t.Run(name, func(t *testing.T) {
			var tr tracker
			got := ""
			for _, p := range tc.polls {
				switch ev := tr.interruption(p, t0); {
				case len(ev) == 0:
					got += "-"
				case ev[0].Kind == KindInterruption:
					got += "N"
					must.Eq(t, p.Action == ActionHibernate, ev[0].Deadline.IsZero())
				default:
					got += "W"
				}
			}
			must.Eq(t, tc.exp, got)
		})
	}
}

func TestTracker_Recommendation(t *testing.T) {
	var tr tracker
	must.True(t, tr.recommendation(t0))
	must.False(t, tr.recommendation(t0))
	must.False(t, tr.recommendation(t0.Add(-time.Hour)))
	must.False(t, tr.recommendation(t0.Add(10*time.Minute-1)))
	must.True(t, tr.recommendation(t0.Add(10*time.Minute)))
}

func TestWatchState(t *testing.T) {
	for name, tc := range map[string]struct{ polls, exp string }{ // o ok, x failed; C changed
		"starts well":    {"ooo", "C--"},
		"starts badly":   {"xxxxo", "--C-C"},
		"one late":       {"oxoxo", "C----"},
		"lost and found": {"oxxxxoo", "C--C-C-"},
	} {
		t.Run(name, func(t *testing.T) {
			var w watchState
			got := ""
			for _, p := range tc.polls {
				if w.step(p == 'o') {
					got += "C"
				} else {
					got += "-"
				}
			}
			must.Eq(t, tc.exp, got)
		})
	}
}

func TestEvent_Left(t *testing.T) {
	for left, exp := range map[time.Duration]string{
		118*time.Second + 400*time.Millisecond: "118 s left",
		117*time.Second + 500*time.Millisecond: "118 s left",
		-time.Second:                           "0 s left",
	} {
		must.Eq(t, exp, Event{Deadline: t0.Add(left)}.Left(t0))
	}
	must.StrContains(t, Event{}.Left(t0), "at any moment")
}
