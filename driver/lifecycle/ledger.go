package lifecycle

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"nomad-spotter/driver/atomicfile"
	"nomad-spotter/driver/config"
)

// State is what Nomad keeps for the driver, written once when the task started.
type State struct {
	Version   int
	TaskID    string
	AllocID   string
	Name      string
	JobID     string
	Group     string
	Namespace string
	NodeID    string
	Config    config.Task

	Dir           string // the task's own directory, with its ledger
	AllocDir      string
	ContainerID   string
	PID           int
	PIDStart      uint64 // see process.Start
	CgroupPath    string // below the cgroup root
	StopSignal    string // the image's; empty if it names none
	StartedAt     time.Time
	CheckpointDir string // on the host; empty without checkpoints
	Lineage       string
}

// stateVersion is the version of State.
const stateVersion = 1

// ledger is what is learned about a task after its start.
type ledger struct {
	TaskID      string `json:"task_id"`
	AllocID     string `json:"alloc_id"`
	AllocDir    string `json:"alloc_dir"`
	Name        string `json:"name"`
	ContainerID string `json:"container_id"`

	Agent      process `json:"agent"`
	EventSeq   uint64  `json:"event_seq"` // last event passed on, of the agent in EventAgent
	EventAgent process `json:"event_agent"`

	Final      final       `json:"final,omitempty"`  // of the evacuation's last checkpoint
	Warned     bool        `json:"warned,omitempty"` // the owner was told what will not work in the job
	Ended      bool        `json:"ended,omitempty"`  // ended by an evacuation, to be rescheduled
	Superseded string      `json:"superseded,omitempty"`
	Exit       *exitRecord `json:"exit,omitempty"`
	Destroyed  bool        `json:"destroyed,omitempty"`
}

// final is the state of the final checkpoint, as a word in the ledger.
type final string

const (
	finalNone    final = ""
	finalOpen    final = "open"
	finalDurable final = "durable"
)

// exitRecord is how a container ended.
type exitRecord struct {
	Code int       `json:"code"`
	OOM  bool      `json:"oom,omitempty"`
	At   time.Time `json:"at"`
	Err  string    `json:"error,omitempty"` // the end is not known, for this reason
}

const ledgerFile = "task.json"

// readLedger returns the ledger in dir; a missing one is empty.
func readLedger(dir string) (ledger, error) {
	var l ledger
	b, err := os.ReadFile(filepath.Join(dir, ledgerFile))
	if errors.Is(err, os.ErrNotExist) {
		return l, nil
	}
	if err != nil {
		return l, fmt.Errorf("read ledger: %w", err)
	}
	if err := json.Unmarshal(b, &l); err != nil {
		return l, fmt.Errorf("decode ledger %s: %w", filepath.Join(dir, ledgerFile), err)
	}
	return l, nil
}

func writeLedger(dir string, l ledger) error {
	b, err := json.MarshalIndent(l, "", "  ")
	if err != nil {
		return fmt.Errorf("encode ledger: %w", err)
	}
	return atomicfile.WriteFile(filepath.Join(dir, ledgerFile), b, 0o600)
}
