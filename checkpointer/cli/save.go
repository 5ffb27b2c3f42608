package cli

import (
	"errors"
	"fmt"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"nomad-spotter/checkpointer/delta"
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
	Precision   string  `json:"precision"`
	RawBytes    int64   `json:"raw_bytes"`
	StoredBytes int64   `json:"stored_bytes"` // new bytes in the store, metadata included
	WallS       float64 `json:"wall_s"`
	CPUS        float64 `json:"cpu_s"` // user and system time of this process
	*gangSaved
}

func saveCommand(l *line) *cobra.Command {
	var (
		flags   storeFlags
		lineage string
		step    int64
		epoch   int64
		ranks   rankFlags
		claims  claimFlags
		effort  string
		exact   string
		workers int64
		asJSON  bool
	)
	c := &cobra.Command{
		Use:   "save PATH",
		Short: "Save a checkpoint, a file or a directory",
		Long: `Save a checkpoint, a file or a directory. The epoch of the lineage is taken for this one save, unless --epoch names one
that was taken before with "checkpointer claim".

With --ranks the checkpoint has a part for every rank, saved by itself, and exists once all of them are there.`,
		Example: `  checkpointer save ckpt_1200.pt --store file:///mnt/checkpoints --lineage default/train --step 1200
  checkpointer save ckpt_1200 --store s3://bucket/prefix --lineage default/train --epoch 7 --rank 3 --ranks 8`,
		Args: l.oneArg("PATH"),
		RunE: func(cmd *cobra.Command, args []string) error {
			start := time.Now()
			l.needLineage(lineage)
			flags.check(l)
			ranks.check(l)
			if ranks.ranks > 1 && epoch == 0 {
				l.fault("--epoch is missing: all ranks need the same one, take it once with `checkpointer claim`")
			}
			level, ok := efforts[effort]
			if !ok {
				l.fault("--effort: %q is none of fast, auto, small", effort)
			}
			precision := checkPrecision(l, exact)
			path := ""
			if len(args) == 1 {
				var err error
				if path, err = filepath.Abs(args[0]); err != nil {
					return err
				}
				if n, ok := detect.Step(filepath.Base(path)); ok && !cmd.Flags().Changed("step") {
					step = n
				} else if !ok && !cmd.Flags().Changed("step") {
					l.fault("--step is missing and %q has no number in its name", filepath.Base(path))
				}
			}
			if err := l.err(); err != nil {
				return err
			}
			collectSeldom()
			tree, err := stage.Scan(filepath.Dir(path), filepath.Base(path))
			if err != nil {
				return err
			}
			repo, err := flags.open(cmd.Context(), epoch == 0)
			if err != nil {
				return err
			}
			w := ranks.writer(repo, lineage, uint64(epoch))
			if epoch == 0 {
				if w, err = claims.take(cmd, &flags, repo, lineage, start); err != nil {
					return err
				}
			}
			progress := bar(cmd.ErrOrStderr(), tree.RawBytes(), "saving "+tree.Name())
			w.Options.Effort, w.Options.Precision, w.Options.Workers = level, precision, int(workers)
			w.Options.Local = func(snapshot string) repository.Source { return recall(repo.URL(), ranks.memory(w.Lineage), snapshot) }
			w.Options.Progress = func(n int64) { _ = progress.Set64(n) }
			p, err := w.Publish(cmd.Context(), step, tree, start)
			if err = errors.Join(err, progress.Close()); err != nil {
				return unclaimed(err, epoch)
			}
			if err := remember(repo.URL(), ranks.memory(w.Lineage), p.ID, path, tree); err != nil {
				fmt.Fprintf(cmd.ErrOrStderr(), "checkpointer: the next save will read this one from the store: %v\n", err)
			}
			out := saved{
				Snapshot: p.ID, Lineage: w.Lineage, Epoch: w.Epoch, Step: step, Store: repo.URL(), Precision: precision.String(), RawBytes: p.RawBytes,
				StoredBytes: p.StoredBytes, WallS: time.Since(start).Seconds(), CPUS: cpuSeconds(),
			}
			if ranks.ranks > 1 {
				out.gangSaved = &gangSaved{ranks.rank, ranks.ranks, p.Complete}
			}
			if asJSON {
				return writeJSON(cmd.OutOrStdout(), out)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "Saved step %d as snapshot %s of %s: %s, %s new, in %.1f s%s\n",
				step, p.ID, w.Lineage, megabytes(p.RawBytes), megabytes(p.StoredBytes), out.WallS, precision.Remark())
			return err
		},
	}
	flags.add(c)
	c.Flags().StringVar(&lineage, "lineage", "", "lineage, the sequence of checkpoints of one training")
	l.whole(c.Flags(), &step, "step", 0, 0, "step of the training (default: the last number in PATH's name)")
	l.whole(c.Flags(), &epoch, "epoch", 0, 1, "writer epoch that was taken with claim (default: the next one, for this save alone)")
	ranks.add(l, c)
	claims.add(c, &flags)
	c.Flags().StringVar(&effort, "effort", "auto", "fast (least CPU), small (least bytes) or auto")
	addPrecision(c.Flags(), &exact)
	l.whole(c.Flags(), &workers, "workers", 0, 0, "blocks coded at once (default: one per CPU)")
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

// unclaimed says what to do about an epoch that nobody has claimed.
func unclaimed(err error, epoch int64) error {
	if !errors.Is(err, repository.ErrUnclaimed) {
		return err
	}
	return fmt.Errorf("--epoch %d: %w; take an epoch of this lineage with `checkpointer claim`", epoch, err)
}

// addPrecision adds the flag that says what may be rounded.
func addPrecision(f *pflag.FlagSet, to *string) {
	f.StringVar(to, "precision", repository.Exact.String(), "exact, or compact: an optimizer's moments are rounded, all else is exact")
}

func checkPrecision(l *line, value string) repository.Precision {
	p, ok := repository.ParsePrecision(value)
	if !ok {
		l.fault("--precision: %q is neither exact nor compact", value)
	}
	return p
}

// efforts are the values of --effort.
var efforts = map[string]delta.Effort{"fast": delta.Fast, "auto": delta.Auto, "small": delta.Small}

func cpuSeconds() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}
