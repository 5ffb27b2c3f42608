package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"nomad-spotter/checkpointer/detect"
	"nomad-spotter/checkpointer/repository"
	"nomad-spotter/checkpointer/stage"
)

// saved is what `save --json` prints.
type saved struct {
	Snapshot    string  `json:"snapshot"`
	Lineage     string  `json:"lineage"`
	Epoch       uint64  `json:"epoch"`
	Step        int64   `json:"step"`
	Store       string  `json:"store"`
	RawBytes    int64   `json:"raw_bytes"`
	StoredBytes int64   `json:"stored_bytes"` // new bytes in the store, metadata included
	WallS       float64 `json:"wall_s"`
	CPUS        float64 `json:"cpu_s"` // user and system time of this process
}

func saveCommand() *cobra.Command {
	var (
		flags   storeFlags
		lineage string
		step    int64
		asJSON  bool
	)
	c := &cobra.Command{
		Use:     "save PATH",
		Short:   "Save a checkpoint, a file or a directory",
		Example: "  checkpointer save ckpt_1200.pt --store file:///mnt/checkpoints --lineage default/train --step 1200",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError{fmt.Errorf("save takes one PATH, got %d", len(args))}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			start := time.Now()
			if err := needLineage(lineage); err != nil {
				return err
			}
			path, err := filepath.Abs(args[0])
			if err != nil {
				return err
			}
			if !cmd.Flags().Changed("step") {
				n, ok := detect.Step(filepath.Base(path))
				if !ok {
					return usageError{fmt.Errorf("--step is missing and %q has no number in its name", filepath.Base(path))}
				}
				step = n
			}
			if step < 0 {
				return usageError{fmt.Errorf("--step: %d is negative", step)}
			}
			tree, err := stage.Scan(filepath.Dir(path), filepath.Base(path))
			if err != nil {
				return err
			}
			repo, err := flags.open(cmd.Context(), true)
			if err != nil {
				return err
			}
			host, err := os.Hostname()
			if err != nil {
				host = "unknown"
			}
			w, err := repo.Claim(cmd.Context(), lineage, fmt.Sprintf("checkpointer save on %s", host), start)
			if err != nil {
				return err
			}
			// Every byte is read twice: once for its hash, once on its way into the store.
			progress := bar(cmd.ErrOrStderr(), 2*tree.RawBytes(), "saving "+tree.Name())
			p, err := w.Publish(cmd.Context(), step, counted{tree, progress}, start)
			if err = errors.Join(err, progress.Close()); err != nil {
				return err
			}
			out := saved{
				Snapshot: p.ID, Lineage: lineage, Epoch: w.Epoch, Step: step, Store: repo.URL(), RawBytes: p.RawBytes,
				StoredBytes: p.StoredBytes, WallS: time.Since(start).Seconds(), CPUS: cpuSeconds(),
			}
			if asJSON {
				return writeJSON(cmd.OutOrStdout(), out)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "Saved step %d as snapshot %s of %s: %s, %s new, in %.1f s\n",
				step, p.ID, lineage, megabytes(p.RawBytes), megabytes(p.StoredBytes), out.WallS)
			return err
		},
	}
	flags.add(c)
	c.Flags().StringVar(&lineage, "lineage", "", "lineage, the sequence of checkpoints of one training")
	c.Flags().Int64Var(&step, "step", 0, "step of the training (default: the last number in PATH's name)")
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

// counted is a source whose reads move a progress bar.
type counted struct {
	repository.Source
	bar *progressbar.ProgressBar
}

func (c counted) Open(path string) (io.ReadCloser, error) {
	f, err := c.Source.Open(path)
	if err != nil {
		return nil, err
	}
	r := progressbar.NewReader(f, c.bar)
	return struct {
		io.Reader
		io.Closer
	}{&r, f}, nil
}

func cpuSeconds() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}
