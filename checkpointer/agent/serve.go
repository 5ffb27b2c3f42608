package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"

	"nomad-spotter/checkpointer/api"
)

// Bounds on what a caller may ask.
const (
	maxWait    = 10 * time.Minute
	maxRequest = 1 << 20 // bytes of a body
)

// serve opens both sockets. The servers end with ctx.
func (a *Agent) serve(ctx context.Context, wg *sync.WaitGroup) error {
	task := newCalls()
	control := newCalls()
	for _, mux := range []*calls{task, control} {
		handle(mux, "POST /v1/finished", a.handleFinished)
		handle(mux, "GET /v1/durable", a.handleDurable)
	}
	handle(task, "GET /v1/status", func(ctx context.Context, r *http.Request) (any, error) { return a.handleStatus(ctx, r, true) })
	handle(control, "GET /v1/status", func(ctx context.Context, r *http.Request) (any, error) { return a.handleStatus(ctx, r, false) })
	handle(control, "POST /v1/attach", body(func(_ context.Context, b api.Attach) (any, error) { return struct{}{}, a.attach(b) }))
	handle(control, "POST /v1/restore", body(func(ctx context.Context, b api.RestoreRequest) (any, error) {
		return a.restore(ctx, time.Duration(b.Timeout))
	}))
	handle(control, "POST /v1/request", body(func(_ context.Context, b api.CheckpointRequest) (any, error) { return a.ask(b) }))
	handle(control, "POST /v1/cancel", body(func(_ context.Context, b api.CancelRequest) (any, error) {
		a.withdraw(b.ID)
		return struct{}{}, nil
	}))
	handle(control, "POST /v1/finish", body(a.handleFinish))
	handle(control, "GET /v1/outcome", a.handleOutcome)
	handle(control, "GET /v1/events", a.handleEvents)
	handle(control, "POST /v1/quit", func(context.Context, *http.Request) (any, error) {
		time.AfterFunc(10*time.Millisecond, a.quit) // after the answer
		return struct{}{}, nil
	})
	if err := a.listen(ctx, wg, a.conf.TaskSocket, task, a.conf.UID, a.conf.GID); err != nil {
		return fmt.Errorf("task_socket: %w", err)
	}
	if err := a.listen(ctx, wg, a.conf.ControlSocket, control, os.Geteuid(), os.Getegid()); err != nil {
		return fmt.Errorf("control_socket: %w", err)
	}
	return nil
}

// listen serves a socket that only uid may use. A directory that is missing is made for it alone. Nothing of a path that
// the task may have put in the socket's place is followed.
func (a *Agent) listen(ctx context.Context, wg *sync.WaitGroup, path string, h http.Handler, uid, gid int) error {
	if dir := filepath.Dir(path); !isDir(dir) {
		if err := errors.Join(os.MkdirAll(dir, 0o700), os.Lchown(dir, uid, gid)); err != nil {
			return err
		}
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var lc net.ListenConfig
	old := syscall.Umask(0o177) // nothing else makes files yet
	l, err := lc.Listen(ctx, "unix", path)
	syscall.Umask(old)
	if err != nil {
		return err
	}
	if err := os.Lchown(path, uid, gid); err != nil {
		return errors.Join(err, l.Close())
	}
	srv := &http.Server{
		Handler: h, ReadHeaderTimeout: 10 * time.Second,
		BaseContext: func(net.Listener) context.Context { return ctx },
		ErrorLog:    a.log.StandardLogger(&hclog.StandardLoggerOptions{InferLevels: true}),
	}
	wg.Go(func() {
		<-ctx.Done()
		if err := srv.Close(); err != nil {
			a.log.Debug("close server", "error", err)
		}
	})
	wg.Go(func() {
		if err := srv.Serve(l); err != nil && !errors.Is(err, http.ErrServerClosed) {
			a.log.Error("the socket is no longer served", "socket", path, "error", err)
		}
	})
	return nil
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

type handler func(ctx context.Context, r *http.Request) (any, error)

// calls are those of one socket.
type calls struct {
	*http.ServeMux
	patterns []string
}

func newCalls() *calls {
	c := &calls{ServeMux: http.NewServeMux()}
	c.HandleFunc("/", c.unknown)
	return c
}

// unknown answers what no other pattern matches.
func (c *calls) unknown(w http.ResponseWriter, r *http.Request) {
	answer(w, http.StatusNotFound, api.Error{Message: fmt.Sprintf("there is no %s %s on this socket: use one of %s", r.Method, r.URL.Path, strings.Join(c.patterns, ", "))})
}

func handle(c *calls, pattern string, h handler) {
	c.patterns = append(c.patterns, pattern)
	c.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxRequest)
		v, err := h(r.Context(), r)
		if err != nil {
			answer(w, http.StatusBadRequest, api.Error{Message: err.Error()})
			return
		}
		answer(w, http.StatusOK, v)
	})
}

func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // fails when the caller is gone
}

// body decodes a request's body before it calls f. What it does not know is passed over: the driver may be newer.
func body[T any](f func(context.Context, T) (any, error)) handler { return decoded(decoder{}, f) }

// strictBody is for what people's code sends: a field that is mistyped would be taken for one that was left out.
func strictBody[T any](f func(context.Context, T) (any, error)) handler {
	return decoded(decoder{strict: true}, f)
}

func decoded[T any](d decoder, f func(context.Context, T) (any, error)) handler {
	return func(ctx context.Context, r *http.Request) (any, error) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, fmt.Errorf("read body: %w", err)
		}
		var v T
		d := d // one per call
		if err := d.decode(b, &v); err != nil {
			return nil, fmt.Errorf("decode body: %w", err)
		}
		return f(ctx, v)
	}
}

// query reads a whole number and the wait of a long poll.
func query(r *http.Request, name string) (n int64, wait time.Duration, err error) {
	q := r.URL.Query()
	if v := q.Get(name); v != "" {
		if n, err = strconv.ParseInt(v, 10, 64); err != nil {
			return 0, 0, fmt.Errorf("%s: %q is not a whole number", name, v)
		}
	}
	if v := q.Get("wait"); v != "" {
		if wait, err = time.ParseDuration(v); err != nil || wait < 0 {
			return 0, 0, fmt.Errorf("wait: %q is not a duration such as 30s", v)
		}
	}
	return n, min(wait, maxWait), nil
}

func (a *Agent) handleStatus(ctx context.Context, r *http.Request, fromTask bool) (any, error) {
	after, wait, err := query(r, "after")
	if err != nil {
		return nil, err
	}
	if wait > 0 {
		if fromTask {
			a.polling(1)
			defer a.polling(-1)
		}
		a.await(ctx, wait, func() bool {
			q := a.state.Request
			return q != nil && q.visible() && q.ID > uint64(after)
		})
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return copyOf(a.status()), nil
}

// polling counts the long polls of the task: who polls will answer.
func (a *Agent) polling(n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.polls += n
	a.lastPoll = a.now()
}

func (a *Agent) handleFinished(_ context.Context, r *http.Request) (any, error) {
	return strictBody(func(_ context.Context, f api.Finished) (any, error) {
		if err := a.announced(f); err != nil {
			return nil, err
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		return copyOf(a.status()), nil
	})(r.Context(), r)
}

func (a *Agent) handleDurable(ctx context.Context, r *http.Request) (any, error) {
	step, wait, err := query(r, "step")
	if err != nil {
		return nil, err
	}
	is := func() bool { return a.state.Durable != nil && a.state.Durable.Step >= step }
	ok := a.await(ctx, wait, is)
	a.mu.Lock()
	defer a.mu.Unlock()
	return api.Durable{Durable: ok || is(), Checkpoint: a.state.Durable}, nil
}

func (a *Agent) handleOutcome(ctx context.Context, r *http.Request) (any, error) {
	id, wait, err := query(r, "id")
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	last := a.state.Requests
	a.mu.Unlock()
	if id < 1 || uint64(id) > last {
		return nil, fmt.Errorf("id: there is no request %d", id)
	}
	// An older request was joined by the last one and ends with it.
	a.await(ctx, wait, func() bool { return a.state.Request.Closed })
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.outcome(), nil
}

func (a *Agent) handleFinish(ctx context.Context, f api.FinishRequest) (any, error) {
	a.mu.Lock()
	if a.finish == nil || f.Clean && !a.finish.Clean {
		a.finish, a.state.Finish = &f, &f
		a.gone, a.swept = true, false
		a.save()
		a.bump()
	}
	a.mu.Unlock()
	ok := a.await(ctx, max(0, f.Deadline.Sub(a.now())), a.settled)
	a.mu.Lock()
	defer a.mu.Unlock()
	out := &api.Outcome{Done: ok, Durable: ok && !a.super && a.state.Durable != nil, Checkpoint: a.state.Durable, Pending: a.pending()}
	switch {
	case a.super:
		out.Error = "a newer run of this task has taken over"
	case !ok:
		out.Error = fmt.Sprintf("%d checkpoints are not in the store yet; the agent goes on", out.Pending)
	}
	a.endIfDone()
	return out, nil
}

func (a *Agent) handleEvents(ctx context.Context, r *http.Request) (any, error) {
	after, wait, err := query(r, "after")
	if err != nil {
		return nil, err
	}
	out := []api.Event{}
	collect := func() bool {
		out = out[:0]
		for _, e := range a.events {
			if e.Seq > uint64(after) {
				out = append(out, e)
			}
		}
		return len(out) > 0
	}
	a.await(ctx, wait, collect)
	return out, nil
}

// copyOf keeps an answer from changing while it is encoded.
func copyOf(s *api.Status) *api.Status {
	c := *s
	if s.Request != nil {
		r := *s.Request
		c.Request = &r
	}
	return &c
}
