package notice

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// EC2's instance metadata service, as in the EC2 User Guide: "Spot Instance interruption notices", "EC2 instance
// rebalance recommendations" and "Use the Instance Metadata Service".
const (
	EC2Endpoint = "http://169.254.169.254"

	pathToken     = "/latest/api/token"
	pathAction    = "/latest/meta-data/spot/instance-action"
	pathRebalance = "/latest/meta-data/events/recommendations/rebalance"

	headerToken = "X-aws-ec2-metadata-token"
	headerTTL   = "X-aws-ec2-metadata-token-ttl-seconds"

	tokenTTL       = 6 * time.Hour // the longest EC2 allows
	requestTimeout = 2 * time.Second
	maxBody        = 64 << 10 // bytes; the longest honest answer is an HTML page of an error

	busyInterval   = 5 * time.Second // between polls after a 429 or 503
	rebalanceEvery = 5               // polls
	// withdrawAfter is how many polls in a row must say "no notice" before one counts as withdrawn, so that a flapping
	// service does not start and cancel evacuations.
	withdrawAfter = 3
	// lostAfter is how many polls in a row must fail before the watch counts as lost: one late answer is no news.
	lostAfter = 3
)

// EC2 watches EC2's instance metadata service for spot interruptions and rebalance recommendations.
type EC2 struct {
	endpoint string
	interval time.Duration
	http     *http.Client
	log      hclog.Logger
	now      func() time.Time

	token imdsToken // of the Watch goroutine
	busy  bool      // the last poll met a 429 or 503

	mu     sync.Mutex
	health Health
}

var _ Source = (*EC2)(nil)

// NewEC2 returns a source that polls endpoint (empty: EC2Endpoint) every interval.
func NewEC2(endpoint string, interval time.Duration, log hclog.Logger) *EC2 {
	if endpoint == "" {
		endpoint = EC2Endpoint
	}
	// The metadata service is on this very machine: a proxy from the environment must not come between.
	transport := &http.Transport{MaxIdleConns: 2, IdleConnTimeout: time.Minute, ResponseHeaderTimeout: requestTimeout}
	return &EC2{
		endpoint: strings.TrimRight(endpoint, "/"),
		interval: interval,
		http:     &http.Client{Transport: transport, Timeout: requestTimeout},
		log:      log.Named("notice").With("source", "ec2", "endpoint", endpoint),
		now:      time.Now,
	}
}

// Name implements Source.
func (s *EC2) Name() string { return "ec2" }

// Health implements Source.
func (s *EC2) Health() Health {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.health
}

// Watch implements Source.
func (s *EC2) Watch(ctx context.Context, emit func(Event)) {
	defer s.http.CloseIdleConnections()
	var t tracker
	var w watchState
	for poll := 0; ctx.Err() == nil; poll++ {
		action, err := s.action(ctx)
		if ctx.Err() != nil {
			return
		}
		now := s.now()
		if err == nil {
			for _, e := range t.interruption(action, now) {
				s.logEvent(e)
				emit(s.named(e, now))
			}
		}
		s.observe(&w, err, now, emit)
		if err == nil && poll%rebalanceEvery == 0 {
			s.rebalance(ctx, &t, emit)
		}
		if !sleep(ctx, s.pause()) {
			return
		}
	}
}

func (s *EC2) named(e Event, now time.Time) Event {
	e.Source, e.Seen = s.Name(), now
	return e
}

func (s *EC2) logEvent(e Event) {
	switch e.Kind {
	case KindInterruption:
		s.log.Warn("interruption notice", "action", e.Action, "deadline", e.Deadline)
	case KindWithdrawn:
		s.log.Info("interruption notice withdrawn")
	case KindRebalance:
		s.log.Info("rebalance recommendation")
	case KindHealth:
	}
}

func (s *EC2) pause() time.Duration {
	if s.busy {
		return max(s.interval, busyInterval)
	}
	return s.interval
}

// watchState is what decides over health events and log lines.
type watchState struct {
	told     bool // the first state was told
	watching bool
	failures int // in a row
}

// step takes the outcome of a poll and says whether the health changed in a way worth telling.
func (w *watchState) step(ok bool) (changed bool) {
	if ok {
		w.failures = 0
		changed = !w.told || !w.watching
		w.told, w.watching = true, true
		return changed
	}
	w.failures++
	if w.failures < lostAfter {
		return false
	}
	changed = !w.told || w.watching
	w.told, w.watching = true, false
	return changed
}

func (s *EC2) observe(w *watchState, err error, now time.Time, emit func(Event)) {
	first := !w.told
	changed := w.step(err == nil)
	s.mu.Lock()
	s.health.Watching = w.watching
	if err == nil {
		s.health.LastOK, s.health.Detail = now, ""
	} else {
		s.health.Detail = err.Error()
	}
	h := s.health
	s.mu.Unlock()
	if !changed {
		return
	}
	switch {
	case err != nil && first:
		s.log.Warn("metadata service not reached, interruption notices are not seen", "error", err)
	case err != nil:
		s.log.Warn("metadata service lost, interruption notices are not seen", "error", err)
	case first:
		s.log.Info("watching for interruption notices", "interval", s.interval, "imds", s.token.version())
	default:
		s.log.Info("metadata service is back")
	}
	emit(s.named(Event{Kind: KindHealth, Health: h}, now))
}

// action asks for the interruption; nil means that there is none.
func (s *EC2) action(ctx context.Context) (*instanceAction, error) {
	a, err := s.get(ctx, pathAction)
	s.busy = err == nil && (a.status == http.StatusTooManyRequests || a.status == http.StatusServiceUnavailable)
	if err != nil {
		return nil, err
	}
	switch a.status {
	case http.StatusNotFound:
		return nil, nil
	case http.StatusOK:
	default:
		return nil, fmt.Errorf("GET %s: HTTP %d", pathAction, a.status)
	}
	act, err := parseInstanceAction(a.body)
	if err != nil {
		return nil, fmt.Errorf("GET %s: %w", pathAction, err)
	}
	act.Time = localTime(act.Time, a.date, a.at)
	return &act, nil
}

// rebalance asks for a recommendation. It is advice: a failure is only traced.
func (s *EC2) rebalance(ctx context.Context, t *tracker, emit func(Event)) {
	a, err := s.get(ctx, pathRebalance)
	if err != nil || a.status != http.StatusOK {
		s.log.Trace("no rebalance recommendation", "status", a.status, "error", err)
		return
	}
	noticed, err := parseRebalance(a.body)
	if err != nil {
		s.log.Debug("rebalance recommendation not understood", "error", err)
		return
	}
	if t.recommendation(noticed) {
		e := Event{Kind: KindRebalance}
		s.logEvent(e)
		emit(s.named(e, s.now()))
	}
}

// answer is one response, read and closed.
type answer struct {
	status int
	body   []byte
	date   time.Time // the server's clock, zero when it sent none
	at     time.Time // this machine's clock when the answer came
	ttl    string    // TTL header of a token
}

// get asks for path with the token flow of IMDSv2: a token is taken when there is none or it is about to end, and
// once more when the service answers 401.
func (s *EC2) get(ctx context.Context, path string) (answer, error) {
	for try := 0; ; try++ {
		if s.token.due(s.now()) {
			if err := s.renew(ctx); err != nil {
				return answer{}, err
			}
		}
		h := http.Header{}
		if s.token.value != "" {
			h.Set(headerToken, s.token.value)
		}
		a, err := s.do(ctx, http.MethodGet, path, h)
		if err != nil {
			return answer{}, err
		}
		if a.status != http.StatusUnauthorized {
			return a, nil
		}
		s.token = imdsToken{}
		if try > 0 {
			return answer{}, fmt.Errorf("GET %s: HTTP 401 with a fresh token", path)
		}
	}
}

// renew takes a token, or settles for version 1 where the service knows no tokens.
func (s *EC2) renew(ctx context.Context) error {
	ttl := strconv.Itoa(int(tokenTTL / time.Second))
	a, err := s.do(ctx, http.MethodPut, pathToken, http.Header{http.CanonicalHeaderKey(headerTTL): {ttl}})
	if err != nil {
		return err
	}
	switch a.status {
	case http.StatusOK:
		s.token, err = parseToken(a.body, a.ttl, s.now())
		return err
	case http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed:
		s.token = imdsToken{until: s.now().Add(v1Recheck)}
		return nil
	default:
		return fmt.Errorf("PUT %s: HTTP %d", pathToken, a.status)
	}
}

func (s *EC2) do(ctx context.Context, method, path string, h http.Header) (answer, error) {
	req, err := http.NewRequestWithContext(ctx, method, s.endpoint+path, nil)
	if err != nil {
		return answer{}, fmt.Errorf("%s %s: %w", method, path, err)
	}
	req.Header = h
	resp, err := s.http.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	if err != nil {
		return answer{}, fmt.Errorf("%s %s: read answer: %w", method, path, err)
	}
	if len(body) > maxBody {
		return answer{}, errors.New(method + " " + path + ": the answer is longer than any that EC2 gives")
	}
	a := answer{status: resp.StatusCode, body: body, at: s.now(), ttl: resp.Header.Get(headerTTL)}
	if date, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		a.date = date
	}
	return a, nil
}

// sleep waits for d and reports whether ctx is still alive.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
