package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"

	"nomad-spotter/checkpointer/delta"
	"nomad-spotter/checkpointer/repository"
)

// codecRequest asks for the cost of saving and restoring a series between memory and memory: hashing, coding, packing,
// and no disk.
type codecRequest struct {
	Files   []File `json:"files"`
	Effort  string `json:"effort"`
	Workers int    `json:"workers"`
	Reps    int    `json:"repetitions"`
}

// codecAnswer has one entry for each checkpoint and repetition.
type codecAnswer struct {
	Saves    []codecCost `json:"saves"`
	Restores []codecCost `json:"restores"`
}

type codecCost struct {
	Step   int64   `json:"step"`
	First  bool    `json:"first"` // it stands alone
	Raw    int64   `json:"raw_bytes"`
	Stored int64   `json:"stored_bytes"` // 0 of a restore
	WallS  float64 `json:"wall_s"`
	CPUS   float64 `json:"cpu_s"`
}

var effortOf = map[string]delta.Effort{"fast": delta.Fast, "auto": delta.Auto, "small": delta.Small}

// codecFiles is how many checkpoints of a series are taken: enough for the longest chain and what comes after it.
const codecFiles = 6

// maxCodecBytes bounds how much of a series is held in memory at once.
const maxCodecBytes = 4 << 30

// errContent is returned when what comes back from memory is not what went in.
var errContent = errors.New("the restored content differs from the saved one")

func codec(ctx context.Context, q codecRequest) (codecAnswer, error) {
	var a codecAnswer
	effort, ok := effortOf[q.Effort]
	if !ok {
		return a, fmt.Errorf("there is no effort %q", q.Effort)
	}
	var raw int64
	for _, f := range q.Files {
		raw += f.Bytes
	}
	if raw > maxCodecBytes {
		return a, fmt.Errorf("the series has %d bytes; at most %d are held in memory", raw, int64(maxCodecBytes))
	}
	sources := make([]memorySource, len(q.Files))
	for i, f := range q.Files {
		var err error
		if sources[i], err = loadSource(f); err != nil {
			return a, err
		}
	}
	s := newSink(int(raw) + 64<<20)
	for rep := range q.Reps + 1 {
		s.reset()
		if rep == 1 { // before, all memory was touched for the first time, which on a virtual machine takes longer than coding it
			a = codecAnswer{}
		}
		if err := codecOnce(ctx, q, effort, sources, s, &a); err != nil {
			return a, err
		}
	}
	return a, nil
}

func codecOnce(ctx context.Context, q codecRequest, effort delta.Effort, sources []memorySource, s *sink, a *codecAnswer) error {
	repo, err := repository.Open(ctx, s, true)
	if err != nil {
		return err
	}
	w, err := repo.Claim(ctx, "bench", "bench", time.Now())
	if err != nil {
		return err
	}
	byID := map[string]repository.Source{}
	w.Options = repository.Options{
		Effort: effort, Workers: q.Workers,
		Local: func(id string) repository.Source { return byID[id] },
	}
	for i, src := range sources {
		var p repository.Published
		c := codecCost{Step: q.Files[i].Step, First: i == 0, Raw: int64(len(src.data))}
		c.WallS, c.CPUS, err = timed(func() (err error) {
			p, err = w.Publish(ctx, c.Step, src, time.Now())
			return err
		})
		if err != nil {
			return err
		}
		c.Stored = p.StoredBytes
		byID[p.ID] = src
		a.Saves = append(a.Saves, c)
	}
	list, err := repo.Snapshots(ctx, "bench")
	if err != nil {
		return err
	}
	for i, snap := range list { // newest first
		want := sources[len(sources)-1-i].data
		c := codecCost{Step: snap.Step, First: i == len(list)-1, Raw: int64(len(want))}
		// Read verifies every block by its sum; this compares the bytes too, a small part of the cost.
		c.WallS, c.CPUS, err = timed(func() error {
			_, _, err := repo.Read(ctx, snap, func(_ string, off int64, b []byte) error {
				if off < 0 || off+int64(len(b)) > int64(len(want)) || string(want[off:off+int64(len(b))]) != string(b) {
					return fmt.Errorf("%w: step %d, %d bytes at %d", errContent, snap.Step, len(b), off)
				}
				return nil
			})
			return err
		})
		if err != nil {
			return err
		}
		a.Restores = append(a.Restores, c)
	}
	return nil
}

// timed returns the wall and CPU seconds of f in this process.
func timed(f func() error) (wall, cpu float64, err error) {
	before, err := cpuSeconds()
	if err != nil {
		return 0, 0, err
	}
	start := time.Now()
	if err := f(); err != nil {
		return 0, 0, err
	}
	wall = time.Since(start).Seconds()
	after, err := cpuSeconds()
	return wall, after - before, err
}

func cpuSeconds() (float64, error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, fmt.Errorf("getrusage: %w", err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds(), nil
}

// speeds are raw GB per CPU second, medians: of the first checkpoint, of the others, of all restores; and the wall
// seconds of all saves and restores of one repetition.
type speeds struct{ First, Later, Restore, SaveWallS, RestoreWallS float64 }

func (a codecAnswer) speeds(reps int) speeds {
	var first, later, restore []float64
	var s speeds
	for _, c := range a.Saves {
		v := float64(c.Raw) / 1e9 / max(c.CPUS, 1e-9)
		if c.First {
			first = append(first, v)
		} else {
			later = append(later, v)
		}
		s.SaveWallS += c.WallS / float64(reps)
	}
	for _, c := range a.Restores {
		restore = append(restore, float64(c.Raw)/1e9/max(c.CPUS, 1e-9))
		s.RestoreWallS += c.WallS / float64(reps)
	}
	s.First, s.Later, s.Restore = median(first), median(later), median(restore)
	return s
}

// codecGoals measures the series that the goals name in all efforts, on one processor, and what a second one brings.
func codecGoals(ctx context.Context, series []Series, reps int, log io.Writer) ([]Goal, []Table, error) {
	t := Table{
		Title:  "Memory to memory, one processor",
		Note:   "GB of raw bytes per CPU second, hashes included; medians; restored bytes are verified and compared",
		Header: []string{"series, effort", "save, first", "save, later", "restore"},
	}
	rows := []struct {
		name, series string
		limit        float64
		value        func(speeds) float64
		goal         Goal
	}{
		{name: "save to memory, standalone, fp32", series: "fp32", limit: .9, value: func(s speeds) float64 { return s.First }},
		{name: "save to memory, delta, fp32", series: "fp32", limit: .6, value: func(s speeds) float64 { return s.Later }},
		{name: "save to memory, delta, bf16 weights at 1e-5", series: "ftbf16" + weightsOnly, limit: .25, value: func(s speeds) float64 { return s.Later }},
		{name: "restore, verified, fp32", series: "fp32", limit: .8, value: func(s speeds) float64 { return s.Restore }},
		{name: "restore, verified, bf16 weights at 1e-5", series: "ftbf16" + weightsOnly, limit: .3, value: func(s speeds) float64 { return s.Restore }},
	}
	scaling := Goal{Name: "scaling on two processors, fp32, save", Limit: 1.8, AtLeast: true, Unit: "times", Missing: "the series fp32 was not run"}
	back := Goal{Name: "scaling on two processors, fp32, restore", Limit: 1.8, AtLeast: true, Unit: "times", Missing: "the series fp32 was not run"}
	for _, s := range series {
		if s.Name != "fp32" && s.Name != "ftbf16"+weightsOnly {
			continue
		}
		for _, e := range efforts {
			fmt.Fprintf(log, "%s, %s: memory to memory\n", s.Name, e)
			var one, two []speeds
			for range reps { // alternating, so that other work on the machine hits both
				for p, to := range map[int]*[]speeds{1: &one, 2: &two} {
					var a codecAnswer
					if err := ask(ctx, "codec", p, codecRequest{s.Files[:min(len(s.Files), codecFiles)], e, p, 1}, &a); err != nil {
						return nil, nil, err
					}
					*to = append(*to, a.speeds(1))
				}
			}
			m := medianSpeeds(one)
			t.Rows = append(t.Rows, []string{s.Name + ", " + e, number(m.First), number(m.Later), number(m.Restore)})
			for i := range rows {
				if rows[i].series == s.Name {
					rows[i].goal.Measured = append(rows[i].goal.Measured, Setting{e, rows[i].value(m)})
				}
			}
			if s.Name == "fp32" {
				n := medianSpeeds(two)
				scaling.Measured = append(scaling.Measured, Setting{e, m.SaveWallS / n.SaveWallS})
				back.Measured = append(back.Measured, Setting{e, m.RestoreWallS / n.RestoreWallS})
			}
		}
	}
	var out []Goal
	for _, r := range rows {
		g := r.goal
		g.Name, g.Limit, g.AtLeast, g.Unit, g.Missing = r.name, r.limit, true, "GB/s", "the series "+r.series+" was not run"
		out = append(out, g.judged())
	}
	return append(out, scaling.judged(), back.judged()), []Table{t}, nil
}

func medianSpeeds(all []speeds) speeds {
	of := func(f func(speeds) float64) float64 {
		vs := make([]float64, len(all))
		for i, s := range all {
			vs[i] = f(s)
		}
		return median(vs)
	}
	return speeds{
		of(func(s speeds) float64 { return s.First }), of(func(s speeds) float64 { return s.Later }),
		of(func(s speeds) float64 { return s.Restore }), of(func(s speeds) float64 { return s.SaveWallS }),
		of(func(s speeds) float64 { return s.RestoreWallS }),
	}
}
