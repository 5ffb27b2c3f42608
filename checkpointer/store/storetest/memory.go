package storetest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"

	"nomad-spotter/checkpointer/store"
)

// Memory is a store in memory that keeps the whole contract of store.Store except durability. It is safe for use by
// several goroutines; the zero value is an empty store.
type Memory struct {
	mu      sync.Mutex
	objects map[string][]byte
}

var _ store.Store = (*Memory)(nil)

// URL implements store.Store.
func (m *Memory) URL() string { return "memory:" }

// Put implements store.Store. It reads all of r before it looks whether the object exists, as writers that race do.
func (m *Memory) Put(ctx context.Context, key string, r io.Reader) (int64, error) {
	if err := store.CheckKey(key); err != nil {
		return 0, err
	}
	b, err := io.ReadAll(r)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return 0, fmt.Errorf("put %s: %w", key, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.objects[key]; ok {
		return 0, fmt.Errorf("put %s: %w", key, store.ErrExists)
	}
	if m.objects == nil {
		m.objects = map[string][]byte{}
	}
	m.objects[key] = b
	return int64(len(b)), nil
}

func (m *Memory) get(ctx context.Context, key string) ([]byte, error) {
	if err := store.CheckKey(key); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("get %s: %w", key, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	b, ok := m.objects[key]
	if !ok {
		return nil, fmt.Errorf("get %s: %w", key, store.ErrNotFound)
	}
	return b, nil
}

// Get implements store.Store.
func (m *Memory) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	b, err := m.get(ctx, key)
	if err != nil {
		return nil, err
	}
	return io.NopCloser(bytes.NewReader(b)), nil
}

// GetRange implements store.Store.
func (m *Memory) GetRange(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	if off < 0 || n < 0 {
		return nil, fmt.Errorf("get %s: range of %d bytes from %d on", key, n, off)
	}
	b, err := m.get(ctx, key)
	if err != nil {
		return nil, err
	}
	return io.NopCloser(io.NewSectionReader(bytes.NewReader(b), off, n)), nil
}

// Stat implements store.Store.
func (m *Memory) Stat(ctx context.Context, key string) (int64, error) {
	b, err := m.get(ctx, key)
	return int64(len(b)), err
}

// List implements store.Store.
func (m *Memory) List(ctx context.Context, prefix string) ([]store.Entry, error) {
	if err := store.CheckPrefix(prefix); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("list %s: %w", prefix, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []store.Entry
	for _, key := range slices.Sorted(maps.Keys(m.objects)) {
		if strings.HasPrefix(key, prefix) {
			out = append(out, store.Entry{Key: key, Size: int64(len(m.objects[key]))})
		}
	}
	return out, nil
}

// Delete implements store.Store.
func (m *Memory) Delete(ctx context.Context, key string) error {
	if err := store.CheckKey(key); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("delete %s: %w", key, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.objects, key)
	return nil
}

// Damage changes the content of an object behind the contract's back; ok is false when there is none of that key.
func (m *Memory) Damage(key string, change func([]byte) []byte) (ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	b, ok := m.objects[key]
	if ok {
		m.objects[key] = change(bytes.Clone(b))
	}
	return ok
}
