package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"nomad-spotter/checkpointer/stage"
)

// stallRequest asks how long a training waits while its checkpoint of so many bytes in so many files is staged.
type stallRequest struct {
	Dir   string `json:"dir"`
	Bytes int64  `json:"bytes"`
	Files int    `json:"files"`
	Reps  int    `json:"repetitions"`
}

// stallAnswer has medians in seconds.
type stallAnswer struct {
	StageS float64 `json:"stage_s"` // scanning and staging
	CopyS  float64 `json:"copy_s"`  // copying the bytes instead, without fsync
}

func stall(ctx context.Context, q stallRequest) (stallAnswer, error) {
	var a stallAnswer
	dir := filepath.Join(q.Dir, constantName)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return a, err
	}
	each := q.Bytes / int64(q.Files)
	for i := range q.Files {
		if _, err := noise(filepath.Join(dir, fmt.Sprintf("part_%03d.bin", i)), each); err != nil {
			return a, err
		}
	}
	st, _, err := stage.Open(filepath.Join(q.Dir, "stage"))
	if err != nil {
		return a, err
	}
	var staged, copied []float64
	for range q.Reps {
		if err := ctx.Err(); err != nil {
			return a, err
		}
		start := time.Now()
		t, err := stage.Scan(q.Dir, constantName)
		if err != nil {
			return a, err
		}
		s, err := st.Add(t, stage.Meta{Step: 1})
		if err != nil {
			return a, err
		}
		staged = append(staged, time.Since(start).Seconds())
		if err := st.Remove(s); err != nil {
			return a, err
		}
		start = time.Now()
		to := filepath.Join(q.Dir, "copy")
		if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
			return a, err
		}
		copied = append(copied, time.Since(start).Seconds())
		if err := os.RemoveAll(to); err != nil {
			return a, err
		}
	}
	return stallAnswer{median(staged), median(copied)}, nil
}

// stallTable measures 1 GB in one file and in 200.
func stallTable(ctx context.Context, work string, reps int, log io.Writer) (Table, error) {
	t := Table{
		Title:  "Handing over a checkpoint of 1 GB",
		Note:   "scanning and staging on the checkpoint's own file system, which is all that the training waits for; medians",
		Header: []string{"files", "stage, ms", "copying instead, ms", "copying : staging"},
	}
	for _, n := range []int{1, 200} {
		fmt.Fprintf(log, "handing over 1 GB in %d files\n", n)
		a, err := stallOnce(ctx, work, stallRequest{Bytes: 1e9, Files: n, Reps: reps})
		if err != nil {
			return t, err
		}
		t.Rows = append(t.Rows, []string{fmt.Sprint(n), number(a.StageS * 1000), number(a.CopyS * 1000), number(a.CopyS / a.StageS)})
	}
	return t, nil
}

func stallOnce(ctx context.Context, work string, q stallRequest) (a stallAnswer, err error) {
	if q.Dir, err = os.MkdirTemp(work, "bench-stall-"); err != nil {
		return a, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(q.Dir)) }()
	return a, ask(ctx, "stall", 0, q, &a)
}
