package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"nomad-spotter/checkpointer/api"
)

// Ways of being asked for a checkpoint.
const (
	askSocket = "socket"
	askSignal = "signal"
	askFile   = "file"
	askNone   = "none"
)

// pollEvery is how often a file or a withdrawn request is looked for.
const pollEvery = 100 * time.Millisecond

// asker brings wishes for a checkpoint to the training loop.
type asker struct {
	way      string
	dir      string // checkpoint directory
	client   *api.Client
	requests chan api.Request // each open request once; a signal has the zero Request
}

func newAsker(way, dir, socket string) (*asker, error) {
	a := &asker{way: way, dir: dir, requests: make(chan api.Request)}
	switch way {
	case askSocket:
		if socket != "" {
			a.client = api.NewClient(socket)
		}
	case askSignal, askFile, askNone:
	default:
		return nil, fmt.Errorf("--ask: %q is not one of socket, signal, file, none", way)
	}
	return a, nil
}

// run delivers requests until ctx is done.
func (a *asker) run(ctx context.Context) {
	switch {
	case a.dir == "":
	case a.way == askSignal:
		c := make(chan os.Signal, 1)
		signal.Notify(c, syscall.SIGUSR1)
		defer signal.Stop(c)
		for {
			select {
			case <-ctx.Done():
				return
			case <-c:
				a.deliver(ctx, api.Request{})
			}
		}
	case a.way == askFile:
		a.poll(ctx, func(context.Context, uint64) (*api.Request, error) {
			r, err := a.readFile()
			return r, err
		})
	case a.client != nil:
		a.poll(ctx, func(ctx context.Context, after uint64) (*api.Request, error) {
			st, err := a.client.Status(ctx, after, 30*time.Second)
			if err != nil {
				return nil, err
			}
			return st.Request, nil
		})
	}
}

// poll delivers what open returns whenever it is newer than what was delivered before.
func (a *asker) poll(ctx context.Context, open func(ctx context.Context, after uint64) (*api.Request, error)) {
	var last uint64
	for ctx.Err() == nil {
		r, err := open(ctx, last)
		if err == nil && r != nil && r.ID > last {
			last = r.ID
			a.deliver(ctx, *r)
			continue
		}
		if err == nil && a.way == askSocket {
			continue // the wait was over; a server that does not wait is not asked without a pause
		}
		pause(ctx, pollEvery)
	}
}

func (a *asker) deliver(ctx context.Context, r api.Request) {
	select {
	case a.requests <- r:
	case <-ctx.Done():
	}
}

// readFile returns the request in the request file, or nil when there is none.
func (a *asker) readFile() (*api.Request, error) {
	b, err := os.ReadFile(filepath.Join(a.dir, api.RequestFile))
	if os.IsNotExist(err) {
		return nil, nil //nolint:nilnil // no file is no request, and no fault
	}
	if err != nil {
		return nil, err
	}
	r := new(api.Request)
	if err := json.Unmarshal(b, r); err != nil {
		return nil, fmt.Errorf("read %s: %w", api.RequestFile, err)
	}
	return r, nil
}

// finished tells the agent that path is complete. Without a socket the agent watches the directory.
func (a *asker) finished(ctx context.Context, step int64, path string, request uint64) error {
	if a.client == nil {
		return nil
	}
	_, err := a.client.Finished(ctx, step, path, request)
	return err
}

// withdrawn returns when request r is no longer open, or ctx is done: until then nothing may be trained.
func (a *asker) withdrawn(ctx context.Context, r api.Request) {
	for pause(ctx, pollEvery) {
		var now *api.Request
		var err error
		if a.way == askFile {
			now, err = a.readFile()
		} else {
			var st *api.Status
			if st, err = a.client.Status(ctx, 0, 0); err == nil {
				now = st.Request
			}
		}
		if err == nil && (now == nil || now.ID != r.ID) {
			return
		}
	}
}

// pause waits for d and tells whether ctx is still alive.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
