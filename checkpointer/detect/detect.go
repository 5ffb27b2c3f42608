// Package detect decides which entries of a checkpoint directory are finished checkpoints. Detector is pure: it is fed
// listings and times; List does the looking.
package detect

import (
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Settle times: how long an entry must not have changed. The short one holds where the kernel tells that nobody has the
// files open for writing, the long one where it cannot (no leases: NFS and the like) and for a directory that is filled
// under its final name.
const (
	Settle     = 300 * time.Millisecond
	SettleLong = 3 * time.Second
)

// Entry is what a listing says about one name of the directory.
type Entry struct {
	Name      string
	Signature string    // changes with every file's path, size, time and inode
	Changed   time.Time // last change of any of its files or names (newest ctime)
	Renamed   bool      // got its name after its last write, as code does that writes to a temporary name first
	Busy      bool      // somebody has a file of it open for writing
	NoLease   bool      // that could not be found out
	Dir       bool      // a directory
	Partial   bool      // a directory without a file, or with a temporary name in it
	Torn      string    // why a file of it cannot be complete, by what its format says; "" if nothing speaks against it
}

// Detector remembers what it saw. Its zero value is not usable; see New.
type Detector struct {
	pattern string
	since   map[string]seen   // name to when its signature was first seen
	done    map[string]string // name to the signature that was handled
}

type seen struct {
	signature string
	at        time.Time
	idle      bool // was seen without a writer in the last listing
	quiet     bool // and in an earlier one
}

// New returns a detector for names that match the glob pattern; empty means all. done holds what was handled before.
func New(pattern string, done map[string]string) *Detector {
	if done == nil {
		done = map[string]string{}
	}
	return &Detector{pattern: pattern, since: map[string]seen{}, done: done}
}

// Candidate tells whether a name can be a checkpoint: it matches, and it is not a temporary name.
func (d *Detector) Candidate(name string) bool {
	if temporary(name) {
		return false
	}
	if d.pattern == "" {
		return true
	}
	ok, err := path.Match(d.pattern, name)
	return err == nil && ok
}

// temporary tells whether a name is one that programs give to what is not complete: hidden, with a telling extension, or
// Hugging Face's tmp-checkpoint-N.
func temporary(name string) bool {
	switch strings.ToLower(filepath.Ext(name)) {
	case ".tmp", ".part", ".partial", ".incomplete", ".lock":
		return true
	}
	return strings.HasPrefix(name, ".") || strings.HasPrefix(name, "tmp-")
}

// Handled marks an entry as dealt with, until its signature changes.
func (d *Detector) Handled(name, signature string) {
	d.done[name] = signature
	delete(d.since, name)
}

// Done returns what was handled, for a state file.
func (d *Detector) Done() map[string]string { return d.done }

// Pending tells whether an entry is still to be dealt with.
func (d *Detector) Pending(e Entry) bool { return d.Candidate(e.Name) && d.done[e.Name] != e.Signature }

// Finished returns the entries of a listing that have become finished checkpoints. An entry that changed while it was
// watched starts anew. Whoever writes must be known to live on after the listing: see Left for what a dead task left.
func (d *Detector) Finished(now time.Time, list []Entry) []Entry {
	var out []Entry
	present := map[string]bool{}
	for _, e := range list {
		present[e.Name] = true
		if !d.Pending(e) {
			continue
		}
		s, ok := d.since[e.Name]
		if !ok || s.signature != e.Signature {
			d.since[e.Name] = seen{signature: e.Signature, at: now, idle: !e.Busy}
			continue
		}
		// A process that is killed closes its files a moment before it is known to have ended: one look is not enough.
		s.quiet = s.idle && !e.Busy
		s.idle = !e.Busy
		d.since[e.Name] = s
		if !s.quiet || e.Partial || e.Torn != "" {
			continue
		}
		settle := Settle
		if e.NoLease || e.Dir && !e.Renamed { // a directory that is filled in place may pause between two files
			settle = SettleLong
		}
		if now.Sub(s.at) >= settle {
			out = append(out, e)
		}
	}
	for name := range d.since {
		if !present[name] {
			delete(d.since, name)
		}
	}
	for name := range d.done {
		if !present[name] {
			delete(d.done, name)
		}
	}
	return out
}

// Left returns what a task left finished when it ended. Nobody writes any more, so there is nothing to wait for; but a
// file that the end of the task may have cut short, written under its final name and not seen twice without its writer, is
// not finished unless the task ended well (clean). Nor is a directory that was being filled under its final name: without
// a writer it may have been between two files.
func (d *Detector) Left(list []Entry, clean bool) []Entry {
	var out []Entry
	for _, e := range list {
		if !d.Pending(e) || e.Busy || e.Partial || e.Torn != "" {
			continue
		}
		s, ok := d.since[e.Name]
		quiet := ok && s.signature == e.Signature && s.quiet && !e.Dir
		if clean || e.Renamed || quiet {
			out = append(out, e)
		}
	}
	return out
}

// Step returns the number in a checkpoint's name: the last one of its base name without extension, as in ckpt_0100.pt,
// checkpoint-1200 or epoch3-step1200.safetensors.
func Step(name string) (int64, bool) {
	if ext := filepath.Ext(name); ext != "" && strings.Trim(ext[1:], "0123456789") != "" {
		name = strings.TrimSuffix(name, ext)
	}
	end := strings.LastIndexAny(name, "0123456789")
	if end < 0 {
		return 0, false
	}
	start := end
	for start > 0 && name[start-1] >= '0' && name[start-1] <= '9' {
		start--
	}
	n, err := strconv.ParseInt(name[start:end+1], 10, 64)
	return n, err == nil
}
