package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Client talks to one agent over one of its sockets. It holds no connection between calls, so an agent may be
// restarted under it.
type Client struct {
	socket string
	http   *http.Client
}

// NewClient returns a client for the socket at path. Nothing is dialled yet.
func NewClient(path string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", path)
	}
	return &Client{socket: path, http: &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}}
}

// Status returns the agent's state; with wait > 0 it blocks until a request newer than after is open, or wait is over.
func (c *Client) Status(ctx context.Context, after uint64, wait time.Duration) (*Status, error) {
	q := url.Values{"after": {strconv.FormatUint(after, 10)}, "wait": {wait.String()}}
	return call[Status](ctx, c, http.MethodGet, "/v1/status?"+q.Encode(), nil)
}

// Finished reports a complete checkpoint; request is the one that it answers, 0 for none.
func (c *Client) Finished(ctx context.Context, step int64, path string, request uint64) (*Status, error) {
	return call[Status](ctx, c, http.MethodPost, "/v1/finished", Finished{Step: step, Path: path, Request: request})
}

// Durable tells whether step is in the store, waiting for it at most wait.
func (c *Client) Durable(ctx context.Context, step int64, wait time.Duration) (*Durable, error) {
	q := url.Values{"step": {strconv.FormatInt(step, 10)}, "wait": {wait.String()}}
	return call[Durable](ctx, c, http.MethodGet, "/v1/durable?"+q.Encode(), nil)
}

// Attach hands over the process to signal, with its start time if that is known.
func (c *Client) Attach(ctx context.Context, pid int, started uint64) error {
	_, err := call[struct{}](ctx, c, http.MethodPost, "/v1/attach", Attach{PID: pid, Started: started})
	return err
}

// Restore puts the newest snapshot into the checkpoint directory.
func (c *Client) Restore(ctx context.Context, timeout time.Duration) (*Restored, error) {
	return call[Restored](ctx, c, http.MethodPost, "/v1/restore", RestoreRequest{Timeout: Duration(timeout)})
}

// Request asks the task for a checkpoint.
func (c *Client) Request(ctx context.Context, r CheckpointRequest) (*Request, error) {
	return call[Request](ctx, c, http.MethodPost, "/v1/request", r)
}

// Outcome returns the state of request id, blocking at most wait for it to be done.
func (c *Client) Outcome(ctx context.Context, id uint64, wait time.Duration) (*Outcome, error) {
	q := url.Values{"id": {strconv.FormatUint(id, 10)}, "wait": {wait.String()}}
	return call[Outcome](ctx, c, http.MethodGet, "/v1/outcome?"+q.Encode(), nil)
}

// Cancel withdraws request id.
func (c *Client) Cancel(ctx context.Context, id uint64) error {
	_, err := call[struct{}](ctx, c, http.MethodPost, "/v1/cancel", CancelRequest{ID: id})
	return err
}

// Finish tells the agent that the task has ended and waits until everything is durable or deadline has come.
// clean says that it ended by itself with exit code 0.
func (c *Client) Finish(ctx context.Context, deadline time.Time, clean bool) (*Outcome, error) {
	return call[Outcome](ctx, c, http.MethodPost, "/v1/finish", FinishRequest{Deadline: deadline, Clean: clean})
}

// Events returns the events after seq, blocking at most wait for the first.
func (c *Client) Events(ctx context.Context, after uint64, wait time.Duration) ([]Event, error) {
	q := url.Values{"after": {strconv.FormatUint(after, 10)}, "wait": {wait.String()}}
	ev, err := call[[]Event](ctx, c, http.MethodGet, "/v1/events?"+q.Encode(), nil)
	if err != nil {
		return nil, err
	}
	return *ev, nil
}

// Quit ends the agent at once. What is not durable stays where it is.
func (c *Client) Quit(ctx context.Context) error {
	_, err := call[struct{}](ctx, c, http.MethodPost, "/v1/quit", struct{}{})
	return err
}

// maxBody bounds an answer in bytes; the largest honest one is a page of events.
const maxBody = 4 << 20

func call[T any](ctx context.Context, c *Client, method, path string, body any) (*T, error) {
	var in io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("encode request: %w", err)
		}
		in = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://agent"+path, in)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask checkpoint agent at %s: %w", c.socket, err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	if err != nil {
		return nil, fmt.Errorf("read answer of checkpoint agent: %w", err)
	}
	if resp.StatusCode >= http.StatusBadRequest {
		var e Error
		if json.Unmarshal(b, &e) != nil || e.Message == "" {
			return nil, fmt.Errorf("checkpoint agent: %s", resp.Status)
		}
		return nil, fmt.Errorf("checkpoint agent: %w", &e)
	}
	out := new(T)
	if len(bytes.TrimSpace(b)) == 0 {
		return out, nil
	}
	if err := json.Unmarshal(b, out); err != nil {
		return nil, fmt.Errorf("decode answer of checkpoint agent: %w", err)
	}
	return out, nil
}

// IsGone tells whether err means that no agent listens on the socket, as opposed to an agent that refused.
func IsGone(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}
