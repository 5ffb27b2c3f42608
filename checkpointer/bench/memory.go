package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"nomad-spotter/checkpointer/repository"
	"nomad-spotter/checkpointer/store"
)

// memorySource is a checkpoint of one file in memory.
type memorySource struct {
	name string
	data []byte
}

// loadSource reads a checkpoint into memory.
func loadSource(f File) (memorySource, error) {
	b, err := os.ReadFile(f.Path)
	if err != nil {
		return memorySource{}, fmt.Errorf("load checkpoint: %w", err)
	}
	return memorySource{filepath.Base(f.Path), b}, nil
}

func (m memorySource) Name() string { return m.name }

func (m memorySource) Entries() []repository.Entry {
	return []repository.Entry{{Mode: 0o600, Size: int64(len(m.data))}}
}

func (m memorySource) Open(string) (repository.File, error) {
	return memoryFile{bytes.NewReader(m.data)}, nil
}

func (memorySource) Check() error { return nil }

type memoryFile struct{ *bytes.Reader }

func (memoryFile) Close() error { return nil }

// sink is a store that costs a copy in memory and nothing else: what it keeps lies in one piece that was touched before.
type sink struct {
	mu      sync.Mutex
	arena   []byte
	used    int
	objects map[string][]byte
}

var _ store.Store = (*sink)(nil)

var errSinkFull = errors.New("the store in memory is full")

func newSink(capacity int) *sink {
	s := &sink{arena: make([]byte, capacity)}
	for i := 0; i < len(s.arena); i += os.Getpagesize() {
		s.arena[i] = 1
	}
	s.reset()
	return s
}

// reset empties the sink.
func (s *sink) reset() { s.used, s.objects = 0, map[string][]byte{} }

func (s *sink) URL() string { return "memory:" }

func (s *sink) Put(_ context.Context, key string, r io.Reader) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.objects[key]; ok {
		return 0, fmt.Errorf("put %s: %w", key, store.ErrExists)
	}
	start := s.used
	for {
		if s.used == len(s.arena) {
			s.used = start
			return 0, fmt.Errorf("put %s: %w", key, errSinkFull)
		}
		n, err := r.Read(s.arena[s.used:])
		s.used += n
		if errors.Is(err, io.EOF) {
			s.objects[key] = s.arena[start:s.used:s.used]
			return int64(s.used - start), nil
		}
		if err != nil {
			s.used = start
			return 0, fmt.Errorf("put %s: %w", key, err)
		}
	}
}

func (s *sink) object(key string) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, ok := s.objects[key]
	if !ok {
		return nil, fmt.Errorf("get %s: %w", key, store.ErrNotFound)
	}
	return b, nil
}

func (s *sink) Get(_ context.Context, key string) (io.ReadCloser, error) {
	b, err := s.object(key)
	return io.NopCloser(bytes.NewReader(b)), err
}

func (s *sink) GetRange(_ context.Context, key string, off, n int64) (io.ReadCloser, error) {
	b, err := s.object(key)
	off = min(max(off, 0), int64(len(b)))
	return io.NopCloser(bytes.NewReader(b[off:min(off+max(n, 0), int64(len(b)))])), err
}

func (s *sink) Stat(_ context.Context, key string) (int64, error) {
	b, err := s.object(key)
	return int64(len(b)), err
}

func (s *sink) List(_ context.Context, prefix string) ([]store.Entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := []store.Entry{}
	for k, b := range s.objects {
		if strings.HasPrefix(k, prefix) {
			out = append(out, store.Entry{Key: k, Size: int64(len(b))})
		}
	}
	slices.SortFunc(out, func(a, b store.Entry) int { return strings.Compare(a.Key, b.Key) })
	return out, nil
}

func (s *sink) Delete(_ context.Context, key string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.objects, key)
	return nil
}
