package local

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"nomad-spotter/autoscaler-plugin/cloud"
)

// Files of an instance's directory that are the provider's own.
const (
	recordFile    = "instance.json"  // the record: what the instance is and was
	specFile      = "spec.json"      // what the supervisor and the init are to do
	deathFile     = "death.json"     // which process ended first, written by the init
	supervisorLog = "supervisor.log" // stderr of the supervisor
	initLog       = "init.log"       // stderr of the init
	lockName      = ".lock"          // guards the record against two writers
)

// record is instance.json. The supervisor writes it; when that is dead, whoever lists the instances.
type record struct {
	cloud.Instance
	Dir         string  `json:"dir"`
	MetadataURL string  `json:"metadata_url"`
	Ports       ports   `json:"ports"`
	Supervisor  procRef `json:"supervisor"`
	Init        procRef `json:"init"`
}

// spec is spec.json.
type spec struct {
	Dir       string        `json:"dir"`
	StateDir  string        `json:"state_dir"`
	Trace     string        `json:"trace,omitempty"` // path; empty means that the market never takes the instance
	Notice    time.Duration `json:"notice_ns"`
	KeepDisk  bool          `json:"keep_disk"`
	Private   []string      `json:"private_dirs,omitempty"`
	Processes []process     `json:"processes"`
}

// death is death.json: why an init ended by itself.
type death struct {
	Process string `json:"process"`
	How     string `json:"how"` // "exit code 1", "signal killed", "start: …"
}

func readRecord(dir string) (record, error) {
	var r record
	err := readJSON(filepath.Join(dir, recordFile), &r)
	return r, err
}

func writeRecord(r record) error { return writeJSON(filepath.Join(r.Dir, recordFile), r) }

// end turns a record into that of an ended instance; one that has ended already stays as it is.
func (r *record) end(now time.Time, reason string) {
	if r.State == cloud.Gone {
		return
	}
	r.State = cloud.Gone
	r.EndedAt = now.UTC()
	r.Reason = reason
}

// logTailBytes is how much of a log is kept in the record of an instance that died by itself.
const logTailBytes = 2048

// describeDeath says why an init ended by itself: from what it wrote, and from the log of the process that ended.
func describeDeath(dir string) (reason, tail string) {
	var d death
	if err := readJSON(filepath.Join(dir, deathFile), &d); err != nil {
		return "its init ended without a word", logTail(filepath.Join(dir, initLog))
	}
	return fmt.Sprintf("process %q ended by itself: %s", d.Process, d.How), logTail(filepath.Join(dir, d.Process+".log"))
}

// logTail returns the last whole lines of a log, at most logTailBytes.
func logTail(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	cut := false
	if info, err := f.Stat(); err == nil && info.Size() > logTailBytes {
		if _, err := f.Seek(-logTailBytes, io.SeekEnd); err != nil {
			return ""
		}
		cut = true
	}
	data, err := io.ReadAll(io.LimitReader(f, logTailBytes))
	if err != nil {
		return ""
	}
	text := string(data)
	if _, rest, found := strings.Cut(text, "\n"); cut && found {
		text = rest
	}
	return strings.TrimSpace(strings.ToValidUTF8(text, "?"))
}

// wipe removes what was the instance's disk: everything in its directory except records and logs. Its mounts are gone
// with the mount namespace by then, so nothing below the directory belongs to anything else.
func wipe(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		name := e.Name()
		if e.Type().IsRegular() && (filepath.Ext(name) == ".log" || name == recordFile || name == specFile || name == deathFile || name == lockName) {
			continue
		}
		errs = append(errs, os.RemoveAll(filepath.Join(dir, name)))
	}
	return errors.Join(errs...)
}
