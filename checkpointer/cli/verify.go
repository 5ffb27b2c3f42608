package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"nomad-spotter/checkpointer/repository"
)

// verified is what `verify --json` prints.
type verified struct {
	OK bool `json:"ok"`
	repository.Report
}

func verifyCommand(l *line) *cobra.Command {
	var (
		flags   storeFlags
		lineage string
		all     bool
		asJSON  bool
	)
	c := &cobra.Command{
		Use:   "verify",
		Short: "Read and hash every object, and report what is damaged",
		Example: `  checkpointer verify --store file:///mnt/checkpoints
  checkpointer verify --consul http://127.0.0.1:8500 --lineage default/train --all`,
		Args: l.noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l.checkLineage(lineage)
			flags.check(l)
			if err := l.err(); err != nil {
				return err
			}
			repo, err := flags.open(cmd.Context(), false)
			if err != nil {
				return err
			}
			progress := bar(cmd.ErrOrStderr(), -1, "verifying")
			rep, err := repo.Verify(cmd.Context(), lineage, all, func(n int64) { _ = progress.Set64(n) })
			err = errors.Join(err, progress.Close())
			if err == nil && rep.Snapshots == 0 && len(rep.Damaged) == 0 {
				err = exists(cmd.Context(), repo, lineage)
			}
			if err != nil {
				return err
			}
			if asJSON {
				err = writeJSON(cmd.OutOrStdout(), verified{OK: len(rep.Damaged) == 0, Report: rep})
			} else {
				for _, d := range rep.Damaged {
					of := "record of the lineage"
					if d.Snapshot != "" {
						of = fmt.Sprintf("snapshot %s (step %d)", d.Snapshot, d.Step)
					}
					fmt.Fprintf(cmd.OutOrStdout(), "damaged: %s: %s: %s\n", of, d.Object, d.Reason)
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "%d snapshots, %d objects, %s read, %d faults\n", rep.Snapshots, rep.Objects, megabytes(rep.Bytes), len(rep.Damaged))
			}
			if err == nil && len(rep.Damaged) > 0 {
				err = errDamage
			}
			return err
		},
	}
	flags.add(c)
	c.Flags().StringVar(&lineage, "lineage", "", "only this lineage")
	c.Flags().BoolVar(&all, "all", false, "also decode every snapshot")
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}
