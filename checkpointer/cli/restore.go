package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"nomad-spotter/checkpointer/api"
	"nomad-spotter/checkpointer/repository"
)

// restored is what `restore --json` prints.
type restored struct {
	Snapshot  string       `json:"snapshot"`
	Step      int64        `json:"step"`
	Store     string       `json:"store"` // that it came from
	Path      string       `json:"path"`
	Precision string       `json:"precision"`
	RawBytes  int64        `json:"raw_bytes"`
	Damaged   []api.Damage `json:"damaged"` // newer snapshots that were passed over
}

func restoreCommand(l *line) *cobra.Command {
	var (
		flags   storeFlags
		lineage string
		step    int64
		ranks   rankFlags
		to      string
		asJSON  bool
	)
	c := &cobra.Command{
		Use:   "restore",
		Short: "Restore a checkpoint, the newest or that of a step",
		Long: `Restore the newest checkpoint of a lineage, or that of a step, under its own name into a directory.

A damaged snapshot is reported and the one before it taken; the exit code is then 3. Nothing unverified is ever put in
place. With --consul the newest over all stores that can be reached is taken.

With --rank and --ranks the part of that rank is restored, of a checkpoint that was saved by as many.`,
		Example: "  checkpointer restore --store file:///mnt/checkpoints --lineage default/train --to /tmp/restored",
		Args:    l.noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l.needLineage(lineage)
			if to == "" {
				l.fault("--to is missing: name the directory to restore into")
			}
			flags.check(l)
			ranks.check(l)
			if err := l.err(); err != nil {
				return err
			}
			repos, err := flags.openAll(cmd)
			if err != nil {
				return err
			}
			undo, err := makeDirs(to)
			defer undo()
			if err != nil {
				return fmt.Errorf("--to: %w", err)
			}
			progress := bar(cmd.ErrOrStderr(), -1, "restoring")
			target := repository.Target{Dir: to, UID: -1, GID: -1, Rank: int(ranks.rank), Ranks: int(ranks.ranks), Progress: func(n int64) { _ = progress.Add64(n) }}
			var m *repository.Manifest
			var from *repository.Repository
			damaged := []api.Damage{}
			if cmd.Flags().Changed("step") {
				m, from, err = restoreStep(cmd, repos, lineage, step, target)
				var d *repository.DamageError
				if errors.As(err, &d) {
					damaged = append(damaged, d.Damage)
				}
			} else {
				var passed []api.Damage
				m, from, passed, err = repository.NewestOf(cmd.Context(), repos, lineage, target)
				damaged = append(damaged, passed...)
			}
			_ = progress.Close() // only for people
			for _, d := range damaged {
				fmt.Fprintf(cmd.ErrOrStderr(), "checkpointer: snapshot %s (step %d) is damaged: %s: %s\n", d.Snapshot, d.Step, d.Object, d.Reason)
			}
			var d *repository.DamageError
			switch {
			case errors.As(err, &d), errors.Is(err, repository.ErrNoSnapshot) && len(damaged) > 0:
				return errDamage // said already
			case err != nil:
				return err
			case m == nil:
				return fmt.Errorf("restore: lineage %s has no snapshot in %s; `checkpointer list` shows those that exist", lineage, urls(repos))
			}
			out := restored{Snapshot: m.ID(), Step: m.Step, Store: from.URL(), Path: filepath.Join(to, m.Name), Precision: m.Precision.String(), RawBytes: m.RawBytes, Damaged: damaged}
			if asJSON {
				err = writeJSON(cmd.OutOrStdout(), out)
			} else {
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "Restored step %d from %s to %s (%s%s)\n", m.Step, out.Store, out.Path, megabytes(out.RawBytes), m.Precision.Remark())
			}
			if err == nil && len(damaged) > 0 {
				err = errDamage
			}
			return err
		},
	}
	flags.add(c)
	c.Flags().StringVar(&lineage, "lineage", "", "lineage, the sequence of checkpoints of one training")
	l.whole(c.Flags(), &step, "step", 0, 0, "step to restore (default: the newest)")
	ranks.add(l, c)
	c.Flags().StringVar(&to, "to", "", "directory to restore into; made if missing")
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

// makeDirs makes a directory, and returns what removes again what it has made and nobody has used.
func makeDirs(dir string) (undo func(), err error) {
	var made []string // the deepest first
	for d := filepath.Clean(dir); missing(d) && filepath.Dir(d) != d; d = filepath.Dir(d) {
		made = append(made, d)
	}
	undo = func() {
		for _, d := range made {
			_ = os.Remove(d) // fails if it is in use
		}
	}
	return undo, os.MkdirAll(dir, 0o755)
}

func missing(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, fs.ErrNotExist)
}

// restoreStep restores a step's snapshot of the highest epoch that has it, from the first store that has the step.
func restoreStep(cmd *cobra.Command, repos []*repository.Repository, lineage string, step int64, t repository.Target) (*repository.Manifest, *repository.Repository, error) {
	var errs []error
	for _, r := range repos {
		s, err := find(cmd.Context(), r, lineage, "", step)
		if err != nil {
			errs = append(errs, fmt.Errorf("restore: %w", err))
			continue
		}
		m, err := r.Restore(cmd.Context(), s, t)
		return m, r, err
	}
	return nil, nil, errors.Join(errs...)
}

func urls(repos []*repository.Repository) string {
	var out []string
	for _, r := range repos {
		out = append(out, r.URL())
	}
	return strings.Join(out, ", ")
}
