package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
)

// Run is one contender on one series, once.
type Run struct {
	Series    string    `json:"series"`
	Contender string    `json:"contender"`
	Effort    string    `json:"effort,omitempty"`
	Ours      bool      `json:"ours"`
	Exact     bool      `json:"exact"`
	Rep       int       `json:"repetition"`
	Saves     []Save    `json:"saves"`
	Again     Save      `json:"again"` // the last checkpoint once more, unchanged
	Restores  []Restore `json:"restores"`
	Error     string    `json:"error,omitempty"` // what went wrong; then nothing else counts
}

// Save is one checkpoint saved.
type Save struct {
	Step    int64 `json:"step"`
	Raw     int64 `json:"raw_bytes"`
	Stored  int64 `json:"stored_bytes"`  // growth of the repository's folder
	Claimed int64 `json:"claimed_bytes"` // what our own command says; 0 of others
	Usage
}

// Restore is one checkpoint restored.
type Restore struct {
	Step     int64 `json:"step"`
	Raw      int64 `json:"raw_bytes"`
	Compared bool  `json:"compared"` // byte by byte with what was saved
	Usage
}

// Sequencer runs contenders side by side.
type Sequencer struct {
	Work       string // folder for repositories and restored files; what it makes there it removes
	Contenders []Contender
	Reps       int
	Log        io.Writer
}

// Run saves the checkpoints of s one by one with every contender in turn, in an order that changes with every checkpoint,
// then restores. It does so Reps times with new repositories. A contender that fails has an Error and is left out of the
// rest.
func (q Sequencer) Run(ctx context.Context, s Series) ([]Run, error) {
	var out []Run
	failed := map[string]bool{}
	for rep := range q.Reps {
		runs, err := q.once(ctx, s, rep, failed)
		if err != nil {
			return nil, fmt.Errorf("series %s: %w", s.Name, err)
		}
		out = append(out, runs...)
	}
	return out, nil
}

func (q Sequencer) once(ctx context.Context, s Series, rep int, failed map[string]bool) (out []Run, err error) {
	root, err := os.MkdirTemp(q.Work, "bench-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(root)) }()
	runs := make([]Run, len(q.Contenders))
	dirs := make([]string, len(q.Contenders))
	each := func(turn int, f func(i int) error) error {
		for k := range q.Contenders {
			i := (k + turn) % len(q.Contenders)
			if failed[q.Contenders[i].Name] {
				continue
			}
			if err := f(i); err != nil {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				failed[q.Contenders[i].Name] = true
				runs[i].Error = err.Error()
				fmt.Fprintf(q.Log, "%s failed: %v\n", q.Contenders[i].Name, err)
			}
		}
		return nil
	}
	steps := []func() error{func() error {
		return each(0, func(i int) error {
			c := q.Contenders[i]
			runs[i] = Run{Series: s.Name, Contender: c.Name, Effort: c.Effort, Ours: c.Ours, Exact: c.Exact, Rep: rep}
			dirs[i] = filepath.Join(root, fmt.Sprint(i))
			return newRepo(ctx, c, dirs[i])
		})
	}}
	for n, f := range s.Files {
		steps = append(steps, func() error {
			fmt.Fprintf(q.Log, "%s, repetition %d of %d: step %d\n", s.Name, rep+1, q.Reps, f.Step)
			if err := warm(f.Path); err != nil {
				return err
			}
			return each(rep+n, func(i int) error {
				save, err := saveOne(ctx, q.Contenders[i], dirs[i], f)
				runs[i].Saves = append(runs[i].Saves, save)
				return err
			})
		})
	}
	again := s.Files[len(s.Files)-1]
	again.Step++
	steps = append(steps, func() error {
		return each(rep, func(i int) (err error) {
			runs[i].Again, err = saveOne(ctx, q.Contenders[i], dirs[i], again)
			return err
		})
	})
	for n, f := range s.Files {
		steps = append(steps, func() error {
			return each(rep+n, func(i int) error {
				c := q.Contenders[i]
				if last := n == len(s.Files)-1; !last && (rep > 0 || !c.Ours && n > 0) {
					return nil // of all others one proof is enough
				}
				r, err := restoreOne(ctx, c, dirs[i], f)
				runs[i].Restores = append(runs[i].Restores, r)
				return err
			})
		})
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return nil, err
		}
	}
	for _, r := range runs {
		if r.Series != "" { // it was not left out
			out = append(out, r)
		}
	}
	return out, nil
}

// saveOne saves f with c and measures by how much the repository grew.
func saveOne(ctx context.Context, c Contender, dir string, f File) (Save, error) {
	s := Save{Step: f.Step, Raw: f.Bytes}
	constant := filepath.Join(dir, workDir, constantName)
	if err := place(f.Path, constant); err != nil {
		return s, err
	}
	before, err := treeBytes(repo(dir))
	if err != nil {
		return s, err
	}
	if err := settle(ctx); err != nil {
		return s, err
	}
	text, u, err := measure(ctx, c.tool.save(dir, constant, f))
	if err != nil {
		return s, err
	}
	after, err := treeBytes(repo(dir))
	if err != nil {
		return s, err
	}
	s.Stored, s.Usage = after-before, u
	if c.Ours {
		said, err := parseSaved(text)
		if err != nil {
			return s, err
		}
		s.Claimed = said.StoredBytes
	}
	return s, nil
}

// restoreOne restores f into a new folder, compares it with the original and removes it.
func restoreOne(ctx context.Context, c Contender, dir string, f File) (r Restore, err error) {
	r = Restore{Step: f.Step, Raw: f.Bytes}
	to, err := os.MkdirTemp(dir, "restored-")
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(to)) }()
	if err := settle(ctx); err != nil {
		return r, err
	}
	cmd, restored := c.tool.restore(dir, to, f)
	if _, r.Usage, err = measure(ctx, cmd); err != nil {
		return r, err
	}
	if !c.Exact {
		_, err = os.Stat(restored)
		return r, err
	}
	r.Compared = true
	return r, compareFiles(f.Path, restored)
}

// Fixed measures what a call costs before the first byte: each contender saves 4 KiB into a new repository. The medians
// of reps tries, by contender.
func (q Sequencer) Fixed(ctx context.Context) (map[string]Usage, error) {
	dir, err := os.MkdirTemp(q.Work, "bench-fixed-")
	if err != nil {
		return nil, err
	}
	f, err := noise(filepath.Join(dir, "checkpoint_1.bin"), 4096)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	out := map[string]Usage{}
	runs, err := q.Run(ctx, Series{Name: "4 KiB", Files: []File{f}})
	for _, c := range q.Contenders {
		var wall, cpu, peak []float64
		for _, r := range runs {
			if r.Contender == c.Name && r.Error == "" {
				wall, cpu, peak = append(wall, r.Saves[0].WallS), append(cpu, r.Saves[0].CPUS), append(peak, r.Saves[0].PeakMB)
			}
		}
		if len(cpu) > 0 {
			out[c.Name] = Usage{median(wall), median(cpu), slices.Max(peak)}
		}
	}
	return out, errors.Join(err, os.RemoveAll(dir))
}

// noise writes n incompressible bytes, the same in every run.
func noise(path string, n int64) (File, error) {
	f, err := os.Create(path)
	if err != nil {
		return File{}, fmt.Errorf("make noise: %w", err)
	}
	_, err = io.CopyN(f, rand.NewChaCha8([32]byte{1}), n)
	if err = errors.Join(err, f.Close()); err != nil {
		return File{}, fmt.Errorf("make noise: %w", err)
	}
	return File{Path: path, Step: 1, Bytes: n}, nil
}
