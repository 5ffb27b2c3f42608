package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"nomad-spotter/checkpointer/repository"
	"nomad-spotter/checkpointer/stage"
	"nomad-spotter/checkpointer/store"
)

// The repository of many snapshots: so many of so many files of so many bytes, of which a few change from one to the next.
const (
	manySnapshots = 1000
	manyFiles     = 200
	manyFileBytes = 4096
	manyChanged   = 10
)

type manyRequest struct {
	Dir string `json:"dir"` // repo and checkpoint are made below it
}

type manyAnswer struct {
	StoredBytes int64   `json:"stored_bytes"`
	RawBytes    int64   `json:"raw_bytes"`
	WallS       float64 `json:"wall_s"`
}

// fillMany makes the repository of many snapshots.
func fillMany(ctx context.Context, q manyRequest) (manyAnswer, error) {
	var a manyAnswer
	start := time.Now()
	root := filepath.Join(q.Dir, repoDir)
	checkpoint := filepath.Join(q.Dir, constantName)
	for _, d := range []string{root, checkpoint} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return a, err
		}
	}
	s, err := store.Open("file://"+root, true)
	if err != nil {
		return a, err
	}
	r, err := repository.Open(ctx, s, true)
	if err != nil {
		return a, err
	}
	w, err := r.Claim(ctx, "bench", "bench", start)
	if err != nil {
		return a, err
	}
	random := rand.NewChaCha8([32]byte{2})
	b := make([]byte, manyFileBytes)
	for n := range int64(manySnapshots) {
		for i := range int64(manyFiles) {
			if n > 0 && !changes(n, i) {
				continue
			}
			_, _ = random.Read(b) // never fails
			binary.LittleEndian.PutUint64(b, uint64(n))
			if err := os.WriteFile(filepath.Join(checkpoint, fmt.Sprintf("part_%03d.bin", i)), b, 0o600); err != nil {
				return a, err
			}
		}
		t, err := stage.Scan(q.Dir, constantName)
		if err != nil {
			return a, err
		}
		p, err := w.Publish(ctx, n+1, t, time.Now())
		if err != nil {
			return a, err
		}
		a.StoredBytes, a.RawBytes = a.StoredBytes+p.StoredBytes, a.RawBytes+p.RawBytes
	}
	a.WallS = time.Since(start).Seconds()
	return a, nil
}

// changes tells whether the n-th snapshot has a new file i: so many in a row, another lot each time.
func changes(n, i int64) bool {
	from := n * manyChanged % manyFiles
	return (i-from+manyFiles)%manyFiles < manyChanged
}

// manyGoals measures what people wait for in a repository of many snapshots.
func manyGoals(ctx context.Context, binary, work string, reps int, log io.Writer) (goals []Goal, notes []string, err error) {
	dir, err := os.MkdirTemp(work, "bench-many-")
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	fmt.Fprintf(log, "making %d snapshots of %d files\n", manySnapshots, manyFiles)
	var a manyAnswer
	if err := ask(ctx, "many", 0, manyRequest{dir}, &a); err != nil {
		return nil, nil, err
	}
	notes = append(notes, fmt.Sprintf("%d snapshots of %d files of %d bytes, %d of them new in each: %s MB raw, %s MB stored, made in %s s",
		manySnapshots, manyFiles, manyFileBytes, manyChanged, number(float64(a.RawBytes)/1e6), number(float64(a.StoredBytes)/1e6), number(a.WallS)))
	help, _, err := measure(ctx, Command{Args: []string{binary, "--help"}})
	if err != nil {
		return nil, nil, err
	}
	url := "file://" + repo(dir)
	commands := []struct {
		name string
		args []string
		ok   func(out string) error
	}{
		{"list", []string{"list", "--store", url, "--json"}, func(out string) error {
			var list []json.RawMessage
			if err := json.Unmarshal([]byte(out), &list); err != nil {
				return err
			}
			if len(list) != manySnapshots {
				return fmt.Errorf("it lists %d snapshots", len(list))
			}
			return nil
		}},
		{"restore newest", []string{"restore", "--store", url, "--lineage", "bench", "--to", filepath.Join(dir, "to"), "--json"}, func(string) error {
			return compareFiles(filepath.Join(dir, constantName, "part_000.bin"), filepath.Join(dir, "to", constantName, "part_000.bin"))
		}},
		{"gc plan", []string{"gc", "--store", url, "--lineage", "bench", "--keep-last", "10", "--dry-run", "--json"}, func(string) error { return nil }},
	}
	for _, c := range commands {
		wall := Goal{Name: fmt.Sprintf("%d snapshots of %d files: %s, wall", manySnapshots, manyFiles, c.name), Limit: 1, Unit: "s"}
		peak := Goal{Name: fmt.Sprintf("%d snapshots of %d files: %s, peak memory", manySnapshots, manyFiles, c.name), Limit: 200, Unit: "MiB"}
		if !hasCommand(help, c.args[0]) {
			wall.Missing, peak.Missing = "checkpointer has no "+c.args[0], "checkpointer has no "+c.args[0]
			goals = append(goals, wall.judged(), peak.judged())
			continue
		}
		var walls, peaks []float64
		for range reps {
			out, u, err := measure(ctx, Command{Args: append([]string{binary}, c.args...), Env: []string{"XDG_CACHE_HOME=" + dir}})
			if err != nil {
				return nil, nil, err
			}
			if err := c.ok(out); err != nil {
				return nil, nil, fmt.Errorf("%s: %w", c.name, err)
			}
			walls, peaks = append(walls, u.WallS), append(peaks, u.PeakMB*1e6/(1<<20))
		}
		wall.Measured, peak.Measured = []Setting{{"any", median(walls)}}, []Setting{{"any", median(peaks)}}
		goals = append(goals, wall.judged(), peak.judged())
	}
	return goals, notes, nil
}
