// Package storetest holds what tests of stores and of their users need: a file system in memory that forgets, at a crash,
// all that was not synced (Sim), a store in memory (Memory), and one that goes wrong as told (Faulty).
package storetest

import (
	"bytes"
	"errors"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"nomad-spotter/checkpointer/store"
)

// ErrCrash is what every effect returns from the moment of the crash.
var ErrCrash = errors.New("the machine has crashed")

// inode is a file's content, or a directory's entries, once as it is and once as it is on the disk.
type inode struct {
	dir           bool
	data, synced  []byte
	names, onDisk map[string]*inode
	modified      time.Time
}

func newDir() *inode {
	return &inode{dir: true, names: map[string]*inode{}, onDisk: map[string]*inode{}}
}

// Sim is the file system. The zero value is not usable; see New.
type Sim struct {
	mu      sync.Mutex
	root    *inode
	effects int // effects so far
	limit   int // crash before the effect of this number; 0: never
	crashed bool
	clock   time.Time
}

var _ store.FS = (*Sim)(nil)

// New returns an empty file system with the durable directory "/".
func New() *Sim { return &Sim{root: newDir(), clock: time.Unix(1_700_000_000, 0)} }

// Advance lets time pass on the file system's clock.
func (s *Sim) Advance(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock = s.clock.Add(d)
}

// CrashAt lets the effect of number n (from 1, counted from now) and all later ones fail.
func (s *Sim) CrashAt(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.effects, s.limit, s.crashed = 0, n, false
}

// Effects returns how many effects there were since CrashAt.
func (s *Sim) Effects() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.effects
}

// Reboot brings the file system back as a disk would hold it: without unsynced data and entries. keep decides, effect by
// effect, whether something unsynced happened to reach the disk all the same.
func (s *Sim) Reboot(keep func() bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.root = recover1(s.root, keep)
	s.effects, s.limit, s.crashed = 0, 0, false
}

func recover1(n *inode, keep func() bool) *inode {
	if !n.dir {
		kept := n.synced
		switch unsynced := n.data[len(n.synced):]; {
		case keep():
			kept = n.data
		case keep(): // torn: the first half got there
			kept = n.data[:len(n.synced)+len(unsynced)/2]
		}
		return &inode{data: kept, synced: kept, modified: n.modified}
	}
	out := newDir()
	all := maps.Clone(n.onDisk)
	for _, name := range slices.Sorted(maps.Keys(n.names)) {
		if all[name] != n.names[name] && keep() {
			all[name] = n.names[name]
		}
	}
	for _, name := range slices.Sorted(maps.Keys(n.onDisk)) {
		if _, ok := n.names[name]; !ok && keep() {
			delete(all, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		c := recover1(all[name], keep)
		out.names[name], out.onDisk[name] = c, c
	}
	return out
}

// effect counts one effect and fails it after the crash. The caller holds mu.
func (s *Sim) effect() error {
	s.effects++
	if s.crashed || (s.limit > 0 && s.effects >= s.limit) {
		s.crashed = true
		return ErrCrash
	}
	return nil
}

func (s *Sim) find(path string) (*inode, error) {
	n := s.root
	if path == "/" {
		return n, nil
	}
	for _, part := range split(path) {
		c, ok := n.names[part]
		if !n.dir || !ok {
			return nil, &fs.PathError{Op: "find", Path: path, Err: fs.ErrNotExist}
		}
		n = c
	}
	return n, nil
}

func split(path string) []string {
	var out []string
	for path != "/" {
		out = append(out, filepath.Base(path))
		path = filepath.Dir(path)
	}
	slices.Reverse(out)
	return out
}

func (s *Sim) add(path string, n *inode) error {
	parent, err := s.find(filepath.Dir(path))
	if err != nil {
		return err
	}
	if _, ok := parent.names[filepath.Base(path)]; ok {
		return &fs.PathError{Op: "create", Path: path, Err: fs.ErrExist}
	}
	parent.names[filepath.Base(path)] = n
	return nil
}

// Mkdir implements store.FS.
func (s *Sim) Mkdir(path string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.effect(); err != nil {
		return err
	}
	return s.add(path, newDir())
}

// Create implements store.FS.
func (s *Sim) Create(path string) (store.Writable, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.effect(); err != nil {
		return nil, err
	}
	n := &inode{modified: s.clock}
	if err := s.add(path, n); err != nil {
		return nil, err
	}
	return &file{s, n}, nil
}

type file struct {
	s *Sim
	n *inode
}

func (f *file) Write(p []byte) (int, error) {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	if err := f.s.effect(); err != nil {
		return 0, err
	}
	f.n.data = append(bytes.Clone(f.n.data), p...)
	f.n.modified = f.s.clock
	return len(p), nil
}

func (f *file) Sync() error {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	if err := f.s.effect(); err != nil {
		return err
	}
	f.n.synced = f.n.data
	return nil
}

func (f *file) Close() error { return nil }

// Publish implements store.FS.
func (s *Sim) Publish(from, to string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.effect(); err != nil {
		return err
	}
	n, err := s.find(from)
	if err != nil {
		return err
	}
	if err := s.add(to, n); err != nil {
		return err
	}
	parent, err := s.find(filepath.Dir(from))
	if err != nil {
		return err
	}
	delete(parent.names, filepath.Base(from))
	return nil
}

// Remove implements store.FS.
func (s *Sim) Remove(path string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.effect(); err != nil {
		return err
	}
	parent, err := s.find(filepath.Dir(path))
	if err != nil {
		return err
	}
	if _, ok := parent.names[filepath.Base(path)]; !ok {
		return &fs.PathError{Op: "remove", Path: path, Err: fs.ErrNotExist}
	}
	delete(parent.names, filepath.Base(path))
	return nil
}

// SyncDir implements store.FS.
func (s *Sim) SyncDir(path string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.effect(); err != nil {
		return err
	}
	n, err := s.find(path)
	if err != nil {
		return err
	}
	n.onDisk = maps.Clone(n.names)
	return nil
}

// Open implements store.FS.
func (s *Sim) Open(path string) (store.Readable, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.crashed {
		return nil, ErrCrash
	}
	n, err := s.find(path)
	if err != nil {
		return nil, err
	}
	return readable{bytes.NewReader(n.data)}, nil
}

// readable is a file being read.
type readable struct{ *bytes.Reader }

func (readable) Close() error { return nil }

// Stat implements store.FS.
func (s *Sim) Stat(path string) (int64, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.crashed {
		return 0, false, ErrCrash
	}
	n, err := s.find(path)
	if err != nil {
		return 0, false, err
	}
	return int64(len(n.data)), n.dir, nil
}

// ReadDir implements store.FS.
func (s *Sim) ReadDir(path string) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.crashed {
		return nil, ErrCrash
	}
	n, err := s.find(path)
	if err != nil {
		return nil, err
	}
	return slices.Collect(maps.Keys(n.names)), nil
}

// ModTime implements store.FS.
func (s *Sim) ModTime(path string) (time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.crashed {
		return time.Time{}, ErrCrash
	}
	n, err := s.find(path)
	if err != nil {
		return time.Time{}, err
	}
	return n.modified, nil
}

// Shared implements store.FS: one machine has the file system. See Node for several.
func (s *Sim) Shared(string) (bool, error) { return false, nil }

// Damage changes the durable content of a file, as a failing disk would; ok is false when there is no such file.
func (s *Sim) Damage(path string, change func([]byte) []byte) (ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, err := s.find(path)
	if err != nil || n.dir {
		return false
	}
	n.data = change(bytes.Clone(n.data))
	n.synced = n.data
	return true
}
