package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"nomad-spotter/checkpointer/api"
	"nomad-spotter/checkpointer/stage"
)

// state is what survives the agent's process.
type state struct {
	Epochs   map[string]uint64   `json:"epochs"`          // store URL to the epoch that this agent claimed there
	Lines    map[string]string   `json:"lines,omitempty"` // store URL to the fork of the lineage that is written there, if it is one
	Done     map[string]string   `json:"done"`            // see detect.Detector
	Events   uint64              `json:"events"`          // number of the last event
	Requests uint64              `json:"requests"`        // number of the last request
	Request  *request            `json:"request,omitempty"`
	Answered uint64              `json:"answered"` // highest request that a durable checkpoint answers
	Ready    bool                `json:"ready"`
	Resumed  *api.Checkpoint     `json:"resumed,omitempty"`
	Last     *api.Checkpoint     `json:"last,omitempty"`
	Durable  *api.Checkpoint     `json:"durable,omitempty"`
	Stored   *saved              `json:"stored,omitempty"`
	Saved    uint64              `json:"saved,omitempty"`    // highest request that a stored checkpoint answers
	Waiting  []saved             `json:"waiting,omitempty"`  // stored, and durable only once replicated, oldest first
	Replicas map[string]*replica `json:"replicas,omitempty"` // by the URL of their store
	Kept     *kept               `json:"kept,omitempty"`
	Rates    Rates               `json:"rates,omitzero"`
	Pace     pace                `json:"pace,omitzero"`
	PID      int                 `json:"pid,omitempty"`
	Started  uint64              `json:"started,omitempty"` // the process's start time, see startTime
	Finish   *api.FinishRequest  `json:"finish,omitempty"`
}

const stateName = "state.json"

func loadState(dir string) (state, error) {
	s := state{Epochs: map[string]uint64{}}
	b, err := os.ReadFile(filepath.Join(dir, stateName))
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return s, fmt.Errorf("read state: %w", err)
	}
	if err := json.Unmarshal(b, &s); err != nil {
		return s, fmt.Errorf("decode state %s: %w", filepath.Join(dir, stateName), err)
	}
	return s, nil
}

func (s *state) save(dir string) error {
	b, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("encode state: %w", err)
	}
	return stage.WriteFile(filepath.Join(dir, stateName), b)
}
