package storetest

import (
	"io/fs"
	"path/filepath"
	"slices"
	"sync"

	"nomad-spotter/checkpointer/store"
)

// Node is one machine's view of a file system that several share, as bad as a client of NFS may be: once it has looked
// into a directory it remembers for ever which names are there and which are not, until it changes the directory itself.
type Node struct {
	*Sim
	mu    sync.Mutex
	names map[string][]string // of a directory
}

var _ store.FS = (*Node)(nil)

// NewNode returns a machine that has looked at nothing yet.
func NewNode(shared *Sim) *Node { return &Node{Sim: shared, names: map[string][]string{}} }

// Shared implements store.FS.
func (n *Node) Shared(string) (bool, error) { return true, nil }

// look returns what the node believes to be in a directory.
func (n *Node) look(dir string) ([]string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if names, ok := n.names[dir]; ok {
		return slices.Clone(names), nil
	}
	names, err := n.Sim.ReadDir(dir)
	if err == nil {
		n.names[dir] = names
	}
	return slices.Clone(names), err
}

// see returns fs.ErrNotExist if the node believes that a path is not there.
func (n *Node) see(path string) error {
	if path == "/" {
		return nil
	}
	if err := n.see(filepath.Dir(path)); err != nil {
		return err
	}
	names, err := n.look(filepath.Dir(path))
	if err == nil && !slices.Contains(names, filepath.Base(path)) {
		err = &fs.PathError{Op: "look", Path: path, Err: fs.ErrNotExist}
	}
	return err
}

// change forgets what was in the directory of a path that the node changes.
func (n *Node) change(path string, err error) error {
	if err == nil {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.names, filepath.Dir(path))
	}
	return err
}

// Mkdir implements store.FS.
func (n *Node) Mkdir(path string) error { return n.change(path, n.Sim.Mkdir(path)) }

// Create implements store.FS. Only the directory must be seen: that the file is new is for the server to say.
func (n *Node) Create(path string) (store.Writable, error) {
	if err := n.see(filepath.Dir(path)); err != nil {
		return nil, err
	}
	w, err := n.Sim.Create(path)
	return w, n.change(path, err)
}

// Publish implements store.FS.
func (n *Node) Publish(from, to string) error {
	return n.change(from, n.change(to, n.Sim.Publish(from, to)))
}

// Remove implements store.FS.
func (n *Node) Remove(path string) error { return n.change(path, n.Sim.Remove(path)) }

// Open implements store.FS.
func (n *Node) Open(path string) (store.Readable, error) {
	if err := n.see(path); err != nil {
		return nil, err
	}
	return n.Sim.Open(path)
}

// Stat implements store.FS.
func (n *Node) Stat(path string) (int64, bool, error) {
	if err := n.see(path); err != nil {
		return 0, false, err
	}
	return n.Sim.Stat(path)
}

// ReadDir implements store.FS.
func (n *Node) ReadDir(path string) ([]string, error) {
	if err := n.see(path); err != nil {
		return nil, err
	}
	return n.look(path)
}
