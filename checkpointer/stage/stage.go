package stage

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"nomad-spotter/checkpointer/repository"
)

// Meta is what is known about a staged checkpoint besides its files.
type Meta struct {
	Step       int64     `json:"step"`
	Name       string    `json:"name"`
	Request    uint64    `json:"request"` // the request that it answers, 0 for none
	FinishedAt time.Time `json:"finished_at"`
	RawBytes   int64     `json:"raw_bytes"`
}

// Staged is one checkpoint in the stage.
type Staged struct {
	Meta
	Seq    uint64 // order of staging
	Synced bool   // it survives a crash of the machine, and no write to the original's files reaches it: see Harden
	tree   *Tree
	stats  []Stat
}

// Stage is a directory of staged checkpoints: SEQ/data/NAME or SEQ/own/NAME and, written last, SEQ/staged.json.
type Stage struct {
	dir  string
	next uint64
}

// record is staged.json. What is staged is not synced, as that would cost O(bytes): after a crash of the machine, told by
// another boot, it is dropped, unless it was hardened. Of the other nobody was told that it is durable.
type record struct {
	Meta
	Boot   string `json:"boot"`
	Stats  []Stat `json:"stats"`
	Synced bool   `json:"synced,omitempty"` // it is in ownDir
}

// Directories of the files of a staged checkpoint: as it was staged, and once it was hardened.
const (
	dataDir = "data"
	ownDir  = "own"
)

func (r record) dir() string {
	if r.Synced {
		return ownDir
	}
	return dataDir
}

// bootID names the machine's present boot (random(4)).
func bootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b)), err
}

const recordName = "staged.json"

// Open opens a stage, making its directory, and returns what survived in it, oldest first. What was not complete is
// removed.
func Open(dir string) (*Stage, []*Staged, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, nil, fmt.Errorf("open stage: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("open stage: %w", err)
	}
	s := &Stage{dir: dir, next: 1}
	var out []*Staged
	for _, e := range entries {
		seq, err := strconv.ParseUint(e.Name(), 10, 64)
		if err != nil {
			continue
		}
		s.next = max(s.next, seq+1)
		st, err := s.load(seq)
		if err != nil {
			if err := os.RemoveAll(s.path(seq)); err != nil {
				return nil, nil, fmt.Errorf("clean stage: %w", err)
			}
			continue
		}
		out = append(out, st)
	}
	slices.SortFunc(out, func(a, b *Staged) int { return int(int64(a.Seq) - int64(b.Seq)) })
	return s, out, nil
}

func (s *Stage) path(seq uint64) string { return filepath.Join(s.dir, fmt.Sprintf("%08d", seq)) }

func (s *Stage) load(seq uint64) (*Staged, error) {
	b, err := os.ReadFile(filepath.Join(s.path(seq), recordName))
	if err != nil {
		return nil, err
	}
	var r record
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, err
	}
	boot, err := bootID()
	if err != nil {
		return nil, err
	}
	if r.Boot != boot && !r.Synced {
		return nil, fmt.Errorf("staged in another boot, %s", r.Boot)
	}
	t, err := Scan(filepath.Join(s.path(seq), r.dir()), r.Name)
	if err != nil {
		return nil, err
	}
	return &Staged{Meta: r.Meta, Seq: seq, Synced: r.Synced, tree: t, stats: r.Stats}, nil
}

// Add stages the checkpoint t. It costs O(number of files) where the file system can clone or link, else O(bytes).
func (s *Stage) Add(t *Tree, m Meta) (*Staged, error) {
	seq := s.next
	s.next++
	m.Name, m.RawBytes = t.name, t.RawBytes()
	st, err := s.add(seq, t, m)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("stage %s: %w", filepath.Join(t.dir, t.name), err), os.RemoveAll(s.path(seq)))
	}
	return st, nil
}

func (s *Stage) add(seq uint64, t *Tree, m Meta) (*Staged, error) {
	staged, err := place(t, filepath.Join(s.path(seq), dataDir), true)
	if err != nil {
		return nil, err
	}
	// After the scan of the copy: a write in place through a hard link is seen here, or later by its changed time.
	if err := t.Check(); err != nil {
		return nil, err
	}
	st := &Staged{Meta: m, Seq: seq, tree: staged, stats: staged.stats}
	return st, s.record(st)
}

// place copies a checkpoint into a directory, which it makes.
func place(t *Tree, dir string, link bool) (*Tree, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	for _, f := range t.stats {
		dst := filepath.Join(dir, t.name, f.Path)
		if f.Mode.IsDir() {
			if err := os.Mkdir(dst, 0o700); err != nil {
				return nil, err
			}
			continue
		}
		if err := copyFile(t.dir, filepath.Join(t.name, f.Path), dst, f, link); err != nil {
			return nil, err
		}
	}
	for _, f := range slices.Backward(t.stats) {
		if f.Mode.IsDir() {
			if err := os.Chmod(filepath.Join(dir, t.name, f.Path), f.Mode.Perm()|0o700); err != nil {
				return nil, err
			}
		}
	}
	return Scan(dir, t.name)
}

// record writes staged.json.
func (s *Stage) record(st *Staged) error {
	boot, err := bootID()
	if err != nil {
		return err
	}
	b, err := json.Marshal(record{Meta: st.Meta, Boot: boot, Stats: st.stats, Synced: st.Synced})
	if err != nil {
		return err
	}
	return WriteFile(filepath.Join(s.path(st.Seq), recordName), b)
}

// Harden makes a staged checkpoint survive a crash of the machine and every write to the original's files, and returns what
// takes its place; the files of the old one are gone then. It costs O(bytes). ErrChanged tells that it was overwritten
// already.
func (s *Stage) Harden(st *Staged) (*Staged, error) {
	out, err := s.harden(st)
	if err != nil {
		return nil, fmt.Errorf("harden staged %s: %w", st.Name, err)
	}
	return out, nil
}

func (s *Stage) harden(st *Staged) (*Staged, error) {
	dir := filepath.Join(s.path(st.Seq), ownDir)
	if err := os.RemoveAll(dir); err != nil {
		return nil, err
	}
	tree, err := place(st.tree, dir, false)
	if err == nil {
		err = st.Source().Check()
	}
	if err == nil {
		err = tree.sync()
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if err := errors.Join(syncPath(s.dir), syncPath(s.path(st.Seq))); err != nil {
		return nil, err
	}
	out := &Staged{Meta: st.Meta, Seq: st.Seq, Synced: true, tree: tree, stats: tree.stats}
	if err := s.record(out); err != nil {
		return nil, err
	}
	return out, os.RemoveAll(filepath.Join(s.path(st.Seq), dataDir))
}

func (t *Tree) sync() error {
	for _, f := range t.stats {
		if err := syncPath(filepath.Join(t.dir, t.name, f.Path)); err != nil {
			return err
		}
	}
	return syncPath(t.dir)
}

func syncPath(p string) error {
	f, err := os.Open(p)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// copyFile makes dst the content of dir/name: by FICLONE, which shares blocks; by link(2), if that is wanted, which survives
// deletion and replacement of the name and lets Check see a write in place; by copying.
func copyFile(dir, name, dst string, want Stat, link bool) (err error) {
	src, err := openBeneath(dir, name)
	if err != nil {
		return asChanged(err)
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	if info, err := src.Stat(); err != nil {
		return err
	} else if !want.matches(info) {
		return fmt.Errorf("%w: %s", ErrChanged, name)
	}
	out, err := os.OpenFile(dst, os.O_CREATE|os.O_EXCL|os.O_WRONLY, want.Mode.Perm())
	if err != nil {
		return err
	}
	err = unix.IoctlFileClone(int(out.Fd()), int(src.Fd()))
	if err == nil {
		return errors.Join(out.Chmod(want.Mode.Perm()), out.Close())
	}
	if err := errors.Join(out.Close(), os.Remove(dst)); err != nil {
		return err
	}
	if link {
		err = unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", src.Fd()), unix.AT_FDCWD, dst, unix.AT_SYMLINK_FOLLOW)
		if err == nil {
			return nil
		}
	}
	out, err = os.OpenFile(dst, os.O_CREATE|os.O_EXCL|os.O_WRONLY, want.Mode.Perm())
	if err != nil {
		return err
	}
	n, err := io.Copy(out, src)
	if err == nil && n != want.Size {
		err = fmt.Errorf("%w: %s has %d bytes instead of %d", ErrChanged, name, n, want.Size)
	}
	return errors.Join(err, out.Chmod(want.Mode.Perm()), out.Close())
}

// Source returns the staged files for publication; its Check also sees a write in place through a hard link.
func (st *Staged) Source() repository.Source { return source{st.tree, st.stats} }

type source struct {
	*Tree
	stats []Stat
}

func (s source) Check() error {
	if !slices.Equal(s.Tree.stats, s.stats) {
		return fmt.Errorf("%w: %s", ErrChanged, s.Name())
	}
	return s.Tree.Check()
}

// Remove drops a staged checkpoint.
func (s *Stage) Remove(st *Staged) error {
	// The record first: a crash must not leave one whose files are gone in part.
	if err := os.Remove(filepath.Join(s.path(st.Seq), recordName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove from stage: %w", err)
	}
	if err := os.RemoveAll(s.path(st.Seq)); err != nil {
		return fmt.Errorf("remove from stage: %w", err)
	}
	return nil
}

// WriteFile replaces a file durably: temporary file, fsync, rename, fsync of the directory.
func WriteFile(path string, b []byte) (err error) {
	tmp := path + ".tmp"
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	if err := os.Rename(tmp, path); err != nil {
		return err
	}
	return syncPath(filepath.Dir(path))
}
