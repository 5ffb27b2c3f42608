package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"nomad-spotter/checkpointer/repository"
)

// used is what `stats --json` prints.
type used struct {
	Lineages  []*repository.Usage      `json:"lineages"`
	Total     repository.SnapshotStats `json:"total"`
	Inherited int64                    `json:"inherited_bytes"`
	Unneeded  int64                    `json:"unneeded_bytes"`
}

func statsCommand(l *line) *cobra.Command {
	var (
		flags   storeFlags
		lineage string
		asJSON  bool
	)
	c := &cobra.Command{
		Use:   "stats",
		Short: "Show what snapshots take in the store, and what saved how much",
		Long: `Show, for each snapshot and in total: the size of its files (RAW), what was new in the store for it (STORED), and why
that is less: blocks that were there already (UNCHANGED), blocks coded as differences to earlier ones (DIFFERENCES), blocks
coded alone (CODING); METADATA is what came on top.`,
		Example: `  checkpointer stats --store file:///mnt/checkpoints
  checkpointer stats --store file:///mnt/checkpoints --lineage default/train --json`,
		Args: l.noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l.checkLineage(lineage)
			flags.check(l)
			if err := l.err(); err != nil {
				return err
			}
			ctx := cmd.Context()
			repo, err := flags.open(ctx, false)
			if err != nil {
				return err
			}
			lineages := []string{lineage}
			if lineage == "" {
				if lineages, err = repo.Lineages(ctx); err != nil {
					return err
				}
			}
			out := used{Lineages: []*repository.Usage{}}
			damaged := false
			for _, name := range lineages {
				u, err := repo.Usage(ctx, name)
				if err == nil && len(u.Snapshots) == 0 && lineage != "" {
					err = exists(ctx, repo, lineage)
				}
				if err != nil {
					return err
				}
				out.Lineages = append(out.Lineages, u)
				out.Total.Add(u.Total)
				out.Inherited += u.Inherited
				out.Unneeded += u.Unneeded
				for _, d := range u.Damaged {
					damaged = true
					complain(cmd.ErrOrStderr(), &repository.DamageError{Damage: d})
				}
			}
			if asJSON {
				err = writeJSON(cmd.OutOrStdout(), out)
			} else {
				err = out.print(cmd.OutOrStdout())
			}
			if err == nil && damaged {
				err = errDamage
			}
			return err
		},
	}
	flags.add(c)
	c.Flags().StringVar(&lineage, "lineage", "", "only this lineage")
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

func (u *used) print(w io.Writer) error {
	return table(w, func(w io.Writer) {
		fmt.Fprintln(w, "LINEAGE\tSTEP\tRAW\tSTORED\tRATIO\tUNCHANGED\tDIFFERENCES\tCODING\tMETADATA\tSNAPSHOT")
		row := func(lineage, step string, s repository.SnapshotStats, last string) {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", lineage, step, size(s.Raw), size(s.Stored), ratio(s.Stored, s.Raw),
				size(s.Unchanged), size(s.Differences), size(s.Coding), size(s.Metadata), last)
		}
		for _, l := range u.Lineages {
			for _, s := range l.Snapshots {
				row(s.Lineage, fmt.Sprint(s.Step), s.SnapshotStats, s.ID)
			}
			row(l.Lineage, "total", l.Total, fmt.Sprintf("%d snapshots", len(l.Snapshots)))
			if l.Inherited > 0 {
				row(l.Lineage, "removed", repository.SnapshotStats{Stored: l.Inherited}, "packs of removed snapshots that others need")
			}
			if l.Unneeded > 0 {
				row(l.Lineage, "unneeded", repository.SnapshotStats{Stored: l.Unneeded}, fmt.Sprintf("%d packs that no snapshot needs: `checkpointer gc` frees them", l.UnneededPacks))
			}
		}
		if len(u.Lineages) > 1 {
			row("all", "total", u.Total, "")
		}
	})
}

// ratio is stored/raw with three digits; "-" without raw bytes.
func ratio(stored, raw int64) string {
	if raw == 0 {
		return "-"
	}
	return fmt.Sprintf("%.3f", float64(stored)/float64(raw))
}
