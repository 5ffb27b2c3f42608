package evacuate

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"nomad-spotter/driver/atomicfile"
)

// memory is what must outlive the plugin: that this driver, and nobody else, made the node ineligible. Without it a
// notice withdrawn while the plugin restarts, or an instance that was stopped and started again, would leave a node that
// takes no work for ever.
type memory struct {
	IneligibleSince time.Time `json:"ineligible_since,omitzero"`
	NodeID          string    `json:"node_id,omitempty"` // of that node: after a restart no task may come to tell it
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

// save writes m so that it survives a crash.
func (m memory) save(path string) error {
	if path == "" {
		return nil
	}
	b, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("write evacuation state: %w", err)
	}
	return atomicfile.WriteFile(path, b, 0o600)
}
