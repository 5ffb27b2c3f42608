package local

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"nomad-spotter/autoscaler-plugin/cloud"
)

// Paths of the provider's own requests, beside EC2's, on an instance's metadata endpoint.
const (
	adminInstance  = "/spotter/v1/instance"  // GET: the record
	adminReclaim   = "/spotter/v1/reclaim"   // POST {"notice":"30s"}: the market takes the instance, whatever its trace says
	adminTerminate = "/spotter/v1/terminate" // POST {"id":…,"reason":…}: end it now, without a notice
)

// Headers and limits of IMDSv2.
const (
	tokenHeader   = "X-Aws-Ec2-Metadata-Token"
	ttlHeader     = "X-Aws-Ec2-Metadata-Token-Ttl-Seconds"
	maxTTLSeconds = 21600
)

// maxTokens bounds the tokens kept for one instance; those that expire first make room.
const maxTokens = 1024

// notFound is what EC2 answers where an item does not exist, the notice before there is one included.
const notFound = `<?xml version="1.0" encoding="iso-8859-1"?>
<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.0 Transitional//EN"
	"http://www.w3.org/TR/xhtml1/DTD/xhtml1-transitional.dtd">
<html xmlns="http://www.w3.org/1999/xhtml" xml:lang="en" lang="en">
 <head>
  <title>404 - Not Found</title>
 </head>
 <body>
  <h1>404 - Not Found</h1>
 </body>
</html>
`

type reclaimRequest struct {
	Notice string `json:"notice"` // a duration; "" means the pool file's notice, 0s the end at once
}

type terminateRequest struct {
	ID     string `json:"id"` // must match: a port may have come to belong to another instance
	Reason string `json:"reason"`
}

// metadata answers HTTP requests for one instance: EC2's metadata service, version 1 and 2, and the admin paths.
type metadata struct {
	now       func() time.Time
	snapshot  func() record
	reclaim   func(notice *time.Duration) error // nil: the pool file's notice
	terminate func(reason string) error

	mu     sync.Mutex
	tokens map[string]time.Time // token to the time it expires
}

var errNoticed = errors.New("the instance has had its notice; only a notice of 0s ends it earlier")

func (m *metadata) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path == "/latest/api/token":
		m.serveToken(w, r)
	case strings.HasPrefix(r.URL.Path, "/spotter/v1/"):
		m.serveAdmin(w, r)
	default:
		m.serveItem(w, r)
	}
}

// serveToken answers a PUT with a session token. EC2 refuses a missing or impossible TTL with 400, and requests that
// came through a proxy with 403.
func (m *metadata) serveToken(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPut {
		w.Header().Set("Allow", http.MethodPut)
		htmlError(w, http.StatusMethodNotAllowed)
		return
	}
	if r.Header.Get("X-Forwarded-For") != "" {
		htmlError(w, http.StatusForbidden)
		return
	}
	ttl, err := strconv.Atoi(r.Header.Get(ttlHeader))
	if err != nil || ttl < 1 || ttl > maxTTLSeconds {
		htmlError(w, http.StatusBadRequest)
		return
	}
	random := make([]byte, 32)
	if _, err := rand.Read(random); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	token := base64.StdEncoding.EncodeToString(random)
	m.keepToken(token, m.now().Add(time.Duration(ttl)*time.Second))
	w.Header().Set("Content-Type", "text/plain")
	w.Header().Set(ttlHeader, strconv.Itoa(ttl))
	_, _ = io.WriteString(w, token)
}

func (m *metadata) keepToken(token string, expires time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now()
	soonest := ""
	for t, at := range m.tokens {
		if !now.Before(at) {
			delete(m.tokens, t)
		} else if soonest == "" || at.Before(m.tokens[soonest]) {
			soonest = t
		}
	}
	if len(m.tokens) >= maxTokens {
		delete(m.tokens, soonest)
	}
	m.tokens[token] = expires
}

func (m *metadata) tokenValid(token string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	expires, ok := m.tokens[token]
	return ok && m.now().Before(expires)
}

// serveItem answers one metadata item. A request without a token is version 1; a wrong or expired token is refused.
func (m *metadata) serveItem(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		htmlError(w, http.StatusMethodNotAllowed)
		return
	}
	if token, given := r.Header[tokenHeader]; given && !m.tokenValid(token[0]) {
		htmlError(w, http.StatusUnauthorized)
		return
	}
	path, ok := strings.CutPrefix(r.URL.Path, "/latest/meta-data/")
	if !ok {
		htmlError(w, http.StatusNotFound)
		return
	}
	text, contentType := item(m.snapshot(), strings.TrimSuffix(path, "/"))
	if text == "" {
		htmlError(w, http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", contentType)
	_, _ = io.WriteString(w, text)
}

// item returns the text of a metadata item, "" where there is none. The time of a notice is fixed when the notice is
// given, in whole seconds and never later than the true end.
func item(r record, path string) (text, contentType string) {
	const plain = "text/plain"
	noticed := r.State != cloud.Running && !r.Deadline.IsZero()
	deadline := r.Deadline.UTC().Format("2006-01-02T15:04:05Z")
	switch path {
	case "instance-id":
		return r.ID, plain
	case "instance-life-cycle":
		return string(r.Kind), plain
	case "instance-type":
		return r.Type, plain
	case "placement/availability-zone":
		return r.Zone, plain
	case "placement/region":
		return r.Region, plain
	case "local-ipv4":
		return loopbackTCP, plain
	case "spot/instance-action":
		if noticed {
			return fmt.Sprintf("{\"action\":\"terminate\",\"time\":%q}", deadline), "application/json"
		}
	case "spot/termination-time":
		if noticed {
			return deadline, plain
		}
	}
	return "", ""
}

func (m *metadata) serveAdmin(w http.ResponseWriter, r *http.Request) {
	want := http.MethodPost
	if r.URL.Path == adminInstance {
		want = http.MethodGet
	}
	if r.Method != want {
		w.Header().Set("Allow", want)
		http.Error(w, "use "+want, http.StatusMethodNotAllowed)
		return
	}
	var err error
	switch r.URL.Path {
	case adminInstance:
	case adminReclaim:
		err = m.serveReclaim(r)
	case adminTerminate:
		err = m.serveTerminate(r)
	default:
		http.Error(w, "no such path", http.StatusNotFound)
		return
	}
	switch {
	case errors.Is(err, errNoticed):
		http.Error(w, err.Error(), http.StatusConflict)
	case err != nil:
		http.Error(w, err.Error(), http.StatusBadRequest)
	default:
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(m.snapshot())
	}
}

func (m *metadata) serveReclaim(r *http.Request) error {
	var req reclaimRequest
	if err := decodeBody(r, &req); err != nil {
		return err
	}
	if req.Notice == "" {
		return m.reclaim(nil)
	}
	notice, err := time.ParseDuration(req.Notice)
	if err != nil || notice < 0 {
		return fmt.Errorf("notice: %q is not a duration of 0s or more; write it like \"30s\"", req.Notice)
	}
	return m.reclaim(&notice)
}

func (m *metadata) serveTerminate(r *http.Request) error {
	var req terminateRequest
	if err := decodeBody(r, &req); err != nil {
		return err
	}
	if own := m.snapshot().ID; req.ID != own {
		return fmt.Errorf("id: %q is not this instance, %q", req.ID, own)
	}
	if req.Reason == "" {
		req.Reason = "terminated"
	}
	return m.terminate(req.Reason)
}

// decodeBody reads a JSON body; an empty one leaves the value as it is.
func decodeBody(r *http.Request, value any) error {
	dec := json.NewDecoder(io.LimitReader(r.Body, 64<<10))
	dec.DisallowUnknownFields()
	if err := dec.Decode(value); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("body: %w", err)
	}
	return nil
}

func htmlError(w http.ResponseWriter, status int) {
	text := notFound
	if status != http.StatusNotFound {
		text = strings.ReplaceAll(notFound, "404 - Not Found", fmt.Sprintf("%d - %s", status, http.StatusText(status)))
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text)
}
