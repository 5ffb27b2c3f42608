package agent

import (
	"encoding/json"
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// markFile, in the checkpoint directory, says which epochs its content belongs to. The next run of the task on this node
// has an agent with a new state, and the same directory.
const markFile = ".spotter-epochs"

// marked reads the mark: store URL to epoch. An unreadable one counts as none.
func (a *Agent) marked() map[string]uint64 {
	m := map[string]uint64{}
	root, err := os.OpenRoot(a.conf.CheckpointDir)
	if err != nil {
		return m
	}
	defer root.Close()
	b, err := root.ReadFile(markFile)
	if err == nil {
		err = json.Unmarshal(b, &m)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		a.log.Warn("mark of the checkpoint directory is unreadable", "error", err)
		return map[string]uint64{}
	}
	return m
}

// mark records the epoch that was claimed in a store.
func (a *Agent) mark(url string, epoch uint64) error {
	m := a.marked()
	m[url] = epoch
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return a.writeForTask(markFile, b)
}

// writeForTask replaces a small file of ours in the checkpoint directory. The directory belongs to the task, so nothing
// in it is followed.
func (a *Agent) writeForTask(name string, b []byte) (err error) {
	root, err := os.OpenRoot(a.conf.CheckpointDir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	tmp := name + ".tmp"
	if err := root.RemoveAll(tmp); err != nil {
		return err
	}
	f, err := root.OpenFile(tmp, os.O_CREATE|os.O_EXCL|os.O_WRONLY|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(b, '\n'))
	if err = errors.Join(err, f.Chown(a.conf.UID, a.conf.GID), f.Close()); err != nil {
		return err
	}
	return root.Rename(tmp, name)
}
