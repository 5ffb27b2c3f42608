package pool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"sync"
	"time"

	consul "github.com/hashicorp/consul/api"
)

// consulStore keeps the count under PREFIX/POOL/desired, and holds the lease as a session lock on PREFIX/POOL/lease.
// Every write is one transaction with a check that the lock is still this session's: a holder that was cut off and
// comes back cannot overwrite its successor's count.
type consulStore struct {
	client  *consul.Client
	desired string
	lease   string
	ttl     time.Duration
}

var _ Store = (*consulStore)(nil)

const (
	consulTimeout = 5 * time.Second // of one request
	consulPoll    = time.Second     // between two tries for the lock
	// lockDelay is how long Consul keeps the lock from others after a session expired. A holder knows by its own clock
	// that its session may have expired no later than Consul does, so that the least delay is enough.
	lockDelay = time.Second
)

func newConsulStore(c StateConfig, pool string) (*consulStore, error) {
	cfg := consul.DefaultConfig()
	cfg.Address = c.Consul
	if c.Token != "" {
		cfg.Token = c.Token
	}
	client, err := consul.NewClient(cfg)
	if err != nil {
		return nil, fmt.Errorf("open Consul: %w", err)
	}
	return &consulStore{
		client: client, desired: path.Join(c.Prefix, pool, "desired"), lease: path.Join(c.Prefix, pool, "lease"), ttl: c.SessionTTL,
	}, nil
}

func (s *consulStore) Load(ctx context.Context) (Desired, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, consulTimeout)
	defer cancel()
	// Consistent: the count that a predecessor saved must be seen, also right after Consul changed its leader.
	pair, _, err := s.client.KV().Get(s.desired, (&consul.QueryOptions{RequireConsistent: true}).WithContext(ctx))
	if err != nil {
		return Desired{}, false, fmt.Errorf("load pool state: %w", err)
	}
	if pair == nil {
		return Desired{}, false, nil
	}
	d, err := parseDesired(pair.Value)
	if err != nil {
		return Desired{}, false, fmt.Errorf("load pool state from Consul key %s: %w; correct the key, or delete it to start from the running instances", s.desired, err)
	}
	return d, true, nil
}

func (s *consulStore) Acquire(ctx context.Context) (Lease, error) {
	l := &consulLease{store: s, lost: make(chan struct{}), stop: make(chan struct{}), stopped: make(chan struct{})}
	sent := time.Now()
	id, err := s.newSession(ctx)
	if err != nil {
		return nil, fmt.Errorf("acquire pool lease: %w", err)
	}
	l.session = id
	for {
		won, err := s.tryLock(ctx, id)
		if won {
			go l.keep(context.WithoutCancel(ctx), sent)
			return l, nil
		}
		if err == nil {
			err = pause(ctx, consulPoll)
		}
		if err == nil {
			sent = time.Now()
			err = s.renew(ctx, id)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("acquire pool lease: Consul key %s: %w", s.lease, err), s.destroy(context.WithoutCancel(ctx), id))
		}
	}
}

func (s *consulStore) newSession(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, consulTimeout)
	defer cancel()
	id, _, err := s.client.Session().CreateNoChecks(&consul.SessionEntry{
		Name: "spotter-pool", TTL: s.ttl.String(), Behavior: consul.SessionBehaviorRelease, LockDelay: lockDelay,
	}, (&consul.WriteOptions{}).WithContext(ctx))
	return id, err
}

func (s *consulStore) tryLock(ctx context.Context, session string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, consulTimeout)
	defer cancel()
	host, err := os.Hostname()
	if err != nil {
		return false, err
	}
	holder := fmt.Sprintf("%s pid %d", host, os.Getpid())
	won, _, err := s.client.KV().Acquire(&consul.KVPair{Key: s.lease, Value: []byte(holder), Session: session}, (&consul.WriteOptions{}).WithContext(ctx))
	return won, err
}

// renew keeps a session alive; a session that Consul does not know any more is ErrLeaseLost.
func (s *consulStore) renew(ctx context.Context, session string) error {
	ctx, cancel := context.WithTimeout(ctx, consulTimeout)
	defer cancel()
	entry, _, err := s.client.Session().Renew(session, (&consul.WriteOptions{}).WithContext(ctx))
	if err == nil && entry == nil {
		return ErrLeaseLost
	}
	return err
}

func (s *consulStore) holds(ctx context.Context, session string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, consulTimeout)
	defer cancel()
	pair, _, err := s.client.KV().Get(s.lease, (&consul.QueryOptions{RequireConsistent: true}).WithContext(ctx))
	return pair != nil && pair.Session == session, err
}

func (s *consulStore) destroy(ctx context.Context, session string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second) // a plugin has 2 s to end
	defer cancel()
	_, err := s.client.Session().Destroy(session, (&consul.WriteOptions{}).WithContext(ctx))
	return err
}

// consulLease is a held session lock. keep owns its renewal.
type consulLease struct {
	store   *consulStore
	session string
	lost    chan struct{}
	stop    chan struct{}
	stopped chan struct{} // keep has ended
	once    sync.Once     // closes lost
	release sync.Once     // closes stop
}

func (l *consulLease) Lost() <-chan struct{} { return l.lost }

// keep renews the session at a third of its TTL. The lease is lost when Consul says so, or when it has not confirmed
// for a whole TTL, counted from when the last successful request was sent.
func (l *consulLease) keep(ctx context.Context, confirmed time.Time) {
	defer close(l.stopped)
	defer l.lose()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-l.stop:
			cancel()
		case <-ctx.Done():
		}
	}()
	wait := l.store.ttl / 3
	for {
		if pause(ctx, min(wait, time.Until(confirmed.Add(l.store.ttl)))) != nil {
			return
		}
		if time.Since(confirmed) >= l.store.ttl {
			return
		}
		sent := time.Now()
		attempt, done := context.WithDeadline(ctx, confirmed.Add(l.store.ttl))
		err := l.store.renew(attempt, l.session)
		held := true
		if err == nil {
			held, err = l.store.holds(attempt, l.session)
		}
		done()
		switch {
		case errors.Is(err, ErrLeaseLost) || err == nil && !held:
			return
		case err != nil:
			wait = consulPoll
		default:
			confirmed, wait = sent, l.store.ttl/3
		}
	}
}

func (l *consulLease) lose() { l.once.Do(func() { close(l.lost) }) }

func (l *consulLease) Save(ctx context.Context, d Desired) error {
	select {
	case <-l.lost:
		return fmt.Errorf("save pool state: %w", ErrLeaseLost)
	default:
	}
	data, err := json.Marshal(d)
	if err != nil {
		return fmt.Errorf("save pool state: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, consulTimeout)
	defer cancel()
	ok, answer, _, err := l.store.client.Txn().Txn(consul.TxnOps{
		{KV: &consul.KVTxnOp{Verb: consul.KVCheckSession, Key: l.store.lease, Session: l.session}},
		{KV: &consul.KVTxnOp{Verb: consul.KVSet, Key: l.store.desired, Value: data}},
	}, (&consul.QueryOptions{}).WithContext(ctx))
	if err != nil {
		return fmt.Errorf("save pool state: %w", err)
	}
	if ok {
		return nil
	}
	if held, err := l.store.holds(ctx, l.session); err == nil && !held {
		l.lose()
		return fmt.Errorf("save pool state: %w", ErrLeaseLost)
	}
	var faults []error
	for _, e := range answer.Errors {
		faults = append(faults, errors.New(e.What))
	}
	return fmt.Errorf("save pool state: Consul refused: %w", errors.Join(faults...))
}

func (l *consulLease) Release(ctx context.Context) error {
	l.release.Do(func() { close(l.stop) })
	<-l.stopped
	return l.store.destroy(ctx, l.session)
}
