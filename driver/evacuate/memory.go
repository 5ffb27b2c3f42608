package evacuate

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// memory is what must outlive the plugin: that this driver, and nobody else, made the node ineligible. Without it a
// notice withdrawn while the plugin restarts, or an instance that was stopped and started again, would leave a node that
// takes no work for ever.
type memory struct {
	IneligibleSince time.Time `json:"ineligible_since,omitzero"`
}

func loadMemory(path string) (memory, error) {
	var m memory
	if path == "" {
		return m, nil
	}
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	if err != nil {
		return m, fmt.Errorf("read evacuation state: %w", err)
	}
	if err := json.Unmarshal(b, &m); err != nil {
		return memory{}, fmt.Errorf("parse evacuation state %s: %w", path, err)
	}
	return m, nil
}

// save writes m so that it survives a crash: temporary file, fsync, rename, fsync of the directory.
func (m memory) save(path string) (err error) {
	if path == "" {
		return nil
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("write evacuation state: %w", err)
		}
	}()
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, filepath.Base(path)+".*.tmp")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
		}
	}()
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	if err = os.Rename(f.Name(), path); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
