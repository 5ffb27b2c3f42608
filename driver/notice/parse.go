package notice

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// instanceAction is the document at spot/instance-action.
type instanceAction struct {
	Action string    `json:"action"`
	Time   time.Time `json:"time"`
}

// parseInstanceAction reads {"action": "terminate", "time": "2026-12-01T03:32:56Z"}. An action that EC2 does not
// document today is kept: whatever it is, the instance is not to be relied on.
func parseInstanceAction(body []byte) (instanceAction, error) {
	var a instanceAction
	if err := json.Unmarshal(body, &a); err != nil {
		return instanceAction{}, fmt.Errorf("parse instance action: %w", err)
	}
	switch {
	case a.Action == "":
		return instanceAction{}, errors.New("parse instance action: no action")
	case a.Time.IsZero() && a.Action != ActionHibernate:
		return instanceAction{}, fmt.Errorf("parse instance action: %q without a time", a.Action)
	}
	return a, nil
}

// parseRebalance reads {"noticeTime": "2026-12-01T03:30:53Z"}.
func parseRebalance(body []byte) (time.Time, error) {
	var r struct {
		NoticeTime time.Time `json:"noticeTime"`
	}
	if err := json.Unmarshal(body, &r); err != nil {
		return time.Time{}, fmt.Errorf("parse rebalance recommendation: %w", err)
	}
	if r.NoticeTime.IsZero() {
		return time.Time{}, errors.New("parse rebalance recommendation: no noticeTime")
	}
	return r.NoticeTime, nil
}

const (
	// renewBefore is how long before its end a token is renewed.
	renewBefore = time.Minute
	// v1Recheck is how long to do without tokens before asking for one again.
	v1Recheck = 5 * time.Minute
)

// imdsToken is a session token of IMDSv2. An empty value with a time in until means that the service has none.
type imdsToken struct {
	value string
	until time.Time // when to ask for a new one
}

func (t imdsToken) due(now time.Time) bool { return !now.Before(t.until) }

func (t imdsToken) version() string {
	if t.value == "" {
		return "v1"
	}
	return "v2"
}

// parseToken reads the answer of the token endpoint. ttl is the header in seconds; without a sensible one, the TTL that
// was asked for counts. Short-lived tokens are renewed at half their life.
func parseToken(body []byte, ttl string, now time.Time) (imdsToken, error) {
	value := string(bytes.TrimSpace(body))
	if value == "" || strings.ContainsFunc(value, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return imdsToken{}, errors.New("parse IMDS token: not a token")
	}
	life := tokenTTL
	if s, err := strconv.Atoi(ttl); err == nil && s > 0 && s <= int(tokenTTL/time.Second) {
		life = time.Duration(s) * time.Second
	}
	return imdsToken{value: value, until: now.Add(life - min(renewBefore, life/2))}, nil
}

// maxSkew is how far this machine's clock may be off before the metadata service's own clock counts. The Date header
// has whole seconds.
const maxSkew = 2 * time.Second

// localTime translates t from the clock of a server whose answer said date into this machine's clock, which said at
// when the answer came. A deadline of 03:32:56 that came with a Date of 03:30:56 is 120 s away, whatever the clock here
// says.
func localTime(t, date, at time.Time) time.Time {
	if t.IsZero() || date.IsZero() {
		return t
	}
	skew := date.Sub(at)
	if skew.Abs() <= maxSkew {
		return t
	}
	return t.Add(-skew)
}

// tracker turns polls into events: what was seen is told once.
type tracker struct {
	noticed  bool
	action   string
	deadline time.Time
	absent   int // polls in a row without a notice

	recommended time.Time
}

// nearer is by how much a deadline must move towards now to be told again. Some metadata mocks compute the time anew
// for every request, always later: the first one counts.
const nearer = time.Second

// interruption takes the answer of one poll (nil: no notice) and returns the events it makes.
func (t *tracker) interruption(a *instanceAction, now time.Time) []Event {
	if a == nil {
		if !t.noticed {
			return nil
		}
		if t.absent++; t.absent < withdrawAfter {
			return nil
		}
		*t = tracker{recommended: t.recommended}
		return []Event{{Kind: KindWithdrawn}}
	}
	t.absent = 0
	deadline := a.Time
	if a.Action == ActionHibernate {
		deadline = time.Time{} // hibernation begins with the notice
	}
	switch {
	case !t.noticed, a.Action != t.action, !deadline.IsZero() && deadline.Before(t.deadline.Add(-nearer)):
	default:
		return nil
	}
	t.noticed, t.action, t.deadline = true, a.Action, deadline
	return []Event{{Kind: KindInterruption, Action: a.Action, Deadline: deadline, Seen: now}}
}

// recommendation says whether a recommendation is a new one.
func (t *tracker) recommendation(noticed time.Time) bool {
	if !noticed.After(t.recommended) {
		return false
	}
	first := t.recommended.IsZero()
	again := noticed.Sub(t.recommended) >= recommendAgain
	if first || again {
		t.recommended = noticed
	}
	return first || again
}

// recommendAgain is how much newer a recommendation must be to be told again.
const recommendAgain = 10 * time.Minute
