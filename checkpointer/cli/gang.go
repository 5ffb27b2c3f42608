package cli

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"nomad-spotter/checkpointer/repository"
)

// rankFlags say which rank of how many this is.
type rankFlags struct {
	rank, ranks int64
}

func (f *rankFlags) add(l *line, c *cobra.Command) {
	l.whole(c.Flags(), &f.rank, "rank", 0, 0, "rank of this process, from 0; needs --ranks")
	l.whole(c.Flags(), &f.ranks, "ranks", 1, 1, "how many ranks save one checkpoint together")
}

func (f *rankFlags) check(l *line) {
	l.check("--rank, --ranks", repository.CheckRank(int(min(f.rank, repository.MaxRanks)), int(min(f.ranks, repository.MaxRanks+1))))
}

// gangSaved is what `save --json` tells in addition where there are several ranks.
type gangSaved struct {
	Rank     int64 `json:"rank"`
	Ranks    int64 `json:"ranks"`
	Complete bool  `json:"complete"` // the other ranks' parts are there as well
}

// writer returns the writer of an epoch that was claimed for all ranks, or claims the next one.
func (f *rankFlags) writer(cmd *cobra.Command, repo *repository.Repository, lineage string, epoch uint64, now time.Time) (*repository.Writer, error) {
	if epoch == 0 {
		return repo.Claim(cmd.Context(), lineage, fmt.Sprintf("checkpointer %s on %s", cmd.Name(), hostname()), now)
	}
	w := repo.Resume(lineage, epoch)
	w.Rank, w.Ranks = int(f.rank), int(f.ranks)
	return w, nil
}

// memory is the name under which the files of a rank's last save are remembered.
func (f *rankFlags) memory(lineage string) string {
	if f.ranks <= 1 {
		return lineage
	}
	return fmt.Sprintf("%s\nrank %d of %d", lineage, f.rank, f.ranks)
}

func hostname() string {
	host, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return host
}

// claimed is what `claim --json` prints.
type claimed struct {
	Lineage string               `json:"lineage"`
	Epoch   uint64               `json:"epoch"`
	Store   string               `json:"store"`
	Newest  *repository.Snapshot `json:"newest"` // what all ranks go on from; null: there is none yet
}

func claimCommand(l *line) *cobra.Command {
	var (
		flags   storeFlags
		lineage string
		asJSON  bool
	)
	c := &cobra.Command{
		Use:   "claim",
		Short: "Take the next writer epoch of a lineage, for all ranks of a training",
		Long: `Take the next writer epoch of a lineage and print it. A training of several ranks takes one, and hands it to all of them:
each saves with "save --epoch E --rank R --ranks N". From here on nobody can save with an earlier epoch. When one rank is
started again, a new epoch is taken for all.`,
		Example: `  epoch=$(checkpointer claim --store s3://bucket/prefix --lineage default/train)
  checkpointer save ckpt_1200 --store s3://bucket/prefix --lineage default/train --epoch $epoch --rank 3 --ranks 8`,
		Args: l.noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l.needLineage(lineage)
			flags.check(l)
			if err := l.err(); err != nil {
				return err
			}
			repo, err := flags.open(cmd.Context(), true)
			if err != nil {
				return err
			}
			w, err := (&rankFlags{}).writer(cmd, repo, lineage, 0, time.Now())
			if err != nil {
				return err
			}
			out := claimed{Lineage: lineage, Epoch: w.Epoch, Store: repo.URL()}
			list, err := repo.Snapshots(cmd.Context(), lineage)
			if err != nil {
				return err
			}
			if len(list) > 0 {
				out.Newest = &list[0]
			}
			if asJSON {
				return writeJSON(cmd.OutOrStdout(), out)
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), w.Epoch)
			return err
		},
	}
	flags.add(c)
	c.Flags().StringVar(&lineage, "lineage", "", "lineage, the sequence of checkpoints of one training")
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

// listedIncomplete is one element of what `list --all --json` prints for a step of which parts are missing.
type listedIncomplete struct {
	repository.Incomplete
	Complete bool `json:"complete"` // false
}

func (i listedIncomplete) print(w io.Writer) {
	name := fmt.Sprintf("incomplete: %d of %d parts", i.Present, i.Ranks[0])
	if len(i.Ranks) > 1 {
		name = fmt.Sprintf("incomplete: %d parts, of ranks that disagree on how many there are: %v", i.Present, i.Ranks)
	}
	fmt.Fprintf(w, "%s\t%d\t%d\t-\t-\t%s\t%s\n", i.Lineage, i.Step, i.Epoch, name, i.ID)
}
