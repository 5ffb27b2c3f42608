package storetest

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"testing"
)

// Wire says what goes wrong between a client and a server.
type Wire int

const (
	// Answer answers with Status and Body in the server's place.
	Answer Wire = iota
	// ResetBefore cuts the connection; the server learns of nothing.
	ResetBefore
	// ResetAfter lets the server do its work and cuts the connection instead of passing on the answer.
	ResetAfter
	// HalfBody passes on the head and half of the body of the answer and cuts the connection.
	HalfBody
	// Stall passes on the head and half of the body and then nothing, until the client goes.
	Stall
	// Silent never answers.
	Silent
)

// Mishap is one rule of a Proxy: the Nth request of one of the methods meets it.
type Mishap struct {
	Methods []string // of HTTP; empty: all
	N       int      // counted from 1 among requests of these methods; 0: every one
	Wire    Wire
	Status  int
	Header  http.Header
	Body    string
}

// Proxy passes requests on to an HTTP server on the loopback interface, Host header and all, so that signatures hold.
type Proxy struct {
	URL string // http://127.0.0.1:PORT

	target   string
	client   http.Client
	mu       sync.Mutex
	rules    []Mishap
	seen     []int
	requests []string
}

// NewProxy starts a proxy in front of target, http://HOST:PORT, until the test ends.
func NewProxy(t *testing.T, target string) *Proxy {
	t.Helper()
	p := &Proxy{target: target, client: http.Client{
		Transport:     &http.Transport{DisableCompression: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	server := httptest.NewServer(p)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		p.client.CloseIdleConnections()
	})
	p.URL = server.URL
	return p
}

// Set replaces the mishaps and counts requests from here on.
func (p *Proxy) Set(mishaps ...Mishap) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules, p.seen, p.requests = mishaps, make([]int, len(mishaps)), nil
}

// Requests returns "METHOD PATH" of the requests since Set.
func (p *Proxy) Requests() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.requests)
}

func (p *Proxy) next(r *http.Request) (Mishap, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requests = append(p.requests, r.Method+" "+r.URL.EscapedPath())
	hit := -1
	for i, m := range p.rules {
		if len(m.Methods) > 0 && !slices.Contains(m.Methods, r.Method) {
			continue
		}
		if p.seen[i]++; hit < 0 && (m.N == 0 || m.N == p.seen[i]) {
			hit = i
		}
	}
	if hit < 0 {
		return Mishap{}, false
	}
	return p.rules[hit], true
}

// ServeHTTP implements http.Handler.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m, bad := p.next(r)
	if bad {
		switch m.Wire {
		case Answer:
			_, _ = io.Copy(io.Discard, r.Body)
			for name, values := range m.Header {
				w.Header()[name] = values
			}
			w.Header().Set("Content-Length", strconv.Itoa(len(m.Body)))
			w.WriteHeader(m.Status)
			if r.Method != http.MethodHead {
				_, _ = io.WriteString(w, m.Body)
			}
			return
		case ResetBefore:
			panic(http.ErrAbortHandler)
		case Silent:
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
			return
		case ResetAfter, HalfBody, Stall:
		}
	}
	// The server must see a request whole even when the client goes: the mishap is on the way back.
	out, err := http.NewRequestWithContext(context.WithoutCancel(r.Context()), r.Method, p.target+r.URL.RequestURI(), r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	out.Header, out.Host, out.ContentLength = r.Header.Clone(), r.Host, r.ContentLength
	resp, err := p.client.Do(out)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer resp.Body.Close()
	if bad && m.Wire == ResetAfter {
		_, _ = io.Copy(io.Discard, resp.Body)
		panic(http.ErrAbortHandler)
	}
	for name, values := range resp.Header {
		w.Header()[name] = values
	}
	if resp.ContentLength >= 0 {
		w.Header().Set("Content-Length", strconv.FormatInt(resp.ContentLength, 10))
	}
	w.WriteHeader(resp.StatusCode)
	if !bad {
		_, _ = io.Copy(w, resp.Body)
		return
	}
	_, _ = io.CopyN(w, resp.Body, resp.ContentLength/2)
	_ = http.NewResponseController(w).Flush()
	if m.Wire == Stall {
		<-r.Context().Done()
		return
	}
	panic(http.ErrAbortHandler)
}
