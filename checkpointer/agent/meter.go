package agent

import (
	"context"
	"io"
	"sync"
	"time"

	"nomad-spotter/checkpointer/store"
)

// meter measures the link into the stores of an agent: how many bytes of large objects were sent, and during which time at
// least one of them was on its way.
type meter struct {
	now func() time.Time

	mu      sync.Mutex
	sent    int64 // bytes of objects that are there now
	flying  int64 // bytes of those that are on their way
	count   int   // of those
	since   time.Time
	sending time.Duration // before since
}

// reading is what a meter shows.
type reading struct {
	sent, flying int64
	sending      time.Duration
}

func (m *meter) read() reading {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := reading{m.sent, m.flying, m.sending}
	if m.count > 0 {
		out.sending += m.now().Sub(m.since)
	}
	return out
}

// minus is what happened between an earlier reading and this one.
func (r reading) minus(o reading) reading {
	return reading{r.sent - o.sent, r.flying, r.sending - o.sending}
}

func (m *meter) begin(size int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.count == 0 {
		m.since = m.now()
	}
	m.count++
	m.flying += size
}

// end counts what the store says it took: nothing if the object was there already.
func (m *meter) end(size, stored int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.count--
	m.flying -= size
	m.sent += stored
	if m.count == 0 {
		m.sending += m.now().Sub(m.since)
	}
}

// metered is a store whose large objects are measured on their way in.
type metered struct {
	store.Store
	meter *meter
}

// Put implements store.Store. Small objects say more of the way's length than of its width.
func (s metered) Put(ctx context.Context, key string, r io.Reader) (int64, error) {
	sized, ok := r.(interface{ Size() int64 })
	if !ok || sized.Size() < minSample {
		return s.Store.Put(ctx, key, r)
	}
	s.meter.begin(sized.Size())
	n, err := s.Store.Put(ctx, key, r)
	if err != nil {
		n = 0
	}
	s.meter.end(sized.Size(), n)
	return n, err
}
