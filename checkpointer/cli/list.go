package cli

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"nomad-spotter/checkpointer/repository"
)

// listed is one element of what `list --json` prints.
type listed struct {
	repository.Snapshot
	Name      string    `json:"name"`
	Created   time.Time `json:"created"`
	Precision string    `json:"precision,omitempty"` // of the least precise part; empty if no manifest can be read
	RawBytes  int64     `json:"raw_bytes"`
	Damage    string    `json:"damage,omitempty"` // why the manifest cannot be read
}

func listCommand(l *line) *cobra.Command {
	var (
		flags   storeFlags
		lineage string
		all     bool
		asJSON  bool
	)
	c := &cobra.Command{
		Use:     "list",
		Short:   "List snapshots, newest first",
		Example: "  checkpointer list --store file:///mnt/checkpoints --lineage default/train",
		Args:    l.noArgs,
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
			snapshots, err := history(cmd.Context(), repo, lineage)
			if err != nil {
				return err
			}
			var incomplete []repository.Incomplete
			if all {
				if incomplete, err = repo.Incomplete(cmd.Context(), lineage); err != nil {
					return err
				}
			}
			out := make([]listed, 0, len(snapshots))
			for _, s := range snapshots {
				l := listed{Snapshot: s}
				for _, p := range s.Parts() {
					m, err := repo.Manifest(cmd.Context(), p)
					var d *repository.DamageError
					switch {
					case errors.As(err, &d):
						l.Damage = d.Reason
					case err != nil:
						return err
					default:
						l.Name, l.Created, l.RawBytes = m.Name, m.Created, l.RawBytes+m.RawBytes
						if l.Precision == "" || m.Precision != repository.Exact {
							l.Precision = m.Precision.String()
						}
					}
				}
				out = append(out, l)
			}
			if asJSON {
				rows := make([]any, 0, len(out)+len(incomplete))
				for _, l := range out {
					rows = append(rows, l)
				}
				for _, i := range incomplete {
					rows = append(rows, listedIncomplete{Incomplete: i})
				}
				return writeJSON(cmd.OutOrStdout(), rows)
			}
			return table(cmd.OutOrStdout(), func(w io.Writer) {
				fmt.Fprintln(w, "LINEAGE\tSTEP\tEPOCH\tSIZE\tPRECISION\tCREATED\tNAME\tSNAPSHOT")
				for _, l := range out {
					name := l.Name
					if l.Damage != "" {
						name = "damaged: " + l.Damage
					}
					fmt.Fprintf(w, "%s\t%d\t%d\t%s\t%s\t%s\t%s\t%s\n", l.Lineage, l.Step, l.Epoch, megabytes(l.RawBytes), l.Precision, l.Created.Format(time.RFC3339), name, l.ID)
				}
				for _, i := range incomplete {
					listedIncomplete{Incomplete: i}.print(w)
				}
			})
		},
	}
	flags.add(c)
	c.Flags().StringVar(&lineage, "lineage", "", "only this lineage")
	c.Flags().BoolVar(&all, "all", false, "also list what is incomplete, after the rest: steps of which some ranks' parts are missing")
	c.Flags().BoolVar(&asJSON, "json", false, "print a JSON array")
	return c
}
