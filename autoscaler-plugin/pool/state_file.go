package pool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"nomad-spotter/autoscaler-plugin/atomicfile"
)

// fileStore keeps the count in a file and holds the lease as a lock on another one beside it. The kernel frees the lock
// when its holder dies. Both must be on a file system of this machine.
type fileStore struct{ path string }

var _ Store = fileStore{}

func newFileStore(path string) fileStore { return fileStore{path: path} }

// lockPoll is how often a waiting process tries for the lock again.
const lockPoll = 100 * time.Millisecond

func (s fileStore) Load(context.Context) (Desired, bool, error) {
	data, err := os.ReadFile(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return Desired{}, false, nil
	}
	if err != nil {
		return Desired{}, false, fmt.Errorf("load pool state: %w", err)
	}
	d, err := parseDesired(data)
	if err != nil {
		return Desired{}, false, fmt.Errorf("load pool state %s: %w; restore the file, or remove it to start from the running instances", s.path, err)
	}
	return d, true, nil
}

func (s fileStore) Acquire(ctx context.Context) (Lease, error) {
	if err := os.MkdirAll(filepath.Dir(s.path), 0o700); err != nil {
		return nil, fmt.Errorf("acquire pool lease: %w", err)
	}
	f, err := os.OpenFile(s.path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("acquire pool lease: %w", err)
	}
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return &fileLease{path: s.path, lock: f, lost: make(chan struct{})}, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return nil, errors.Join(fmt.Errorf("acquire pool lease %s: %w", f.Name(), err), f.Close())
		}
		if err := pause(ctx, lockPoll); err != nil {
			return nil, errors.Join(fmt.Errorf("acquire pool lease: %s is locked by another process: %w", f.Name(), err), f.Close())
		}
	}
}

type fileLease struct {
	path string

	mu   sync.Mutex
	lock *os.File // nil once released
	lost chan struct{}
}

func (l *fileLease) Lost() <-chan struct{} { return l.lost }

func (l *fileLease) Save(_ context.Context, d Desired) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lock == nil {
		return fmt.Errorf("save pool state: %w", ErrLeaseLost)
	}
	data, err := json.Marshal(d)
	if err != nil {
		return fmt.Errorf("save pool state: %w", err)
	}
	if err := atomicfile.WriteFile(l.path, append(data, '\n'), 0o600); err != nil {
		return fmt.Errorf("save pool state: %w", err)
	}
	return nil
}

func (l *fileLease) Release(context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lock == nil {
		return nil
	}
	err := l.lock.Close()
	l.lock = nil
	close(l.lost)
	return err
}

// pause waits for a time, or less when the context ends; then it returns the context's error.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
