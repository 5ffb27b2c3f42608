package cli

import (
	"context"
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
	l.check("--rank, --ranks", repository.CheckRank(int(f.rank), int(f.ranks)))
}

// gangSaved is what `save --json` tells in addition where there are several ranks.
type gangSaved struct {
	Rank     int64 `json:"rank"`
	Ranks    int64 `json:"ranks"`
	Complete bool  `json:"complete"` // the other ranks' parts are there as well
}

// writer returns the writer of an epoch that was claimed for all ranks.
func (f *rankFlags) writer(repo *repository.Repository, lineage string, epoch uint64) *repository.Writer {
	w := repo.Resume(lineage, epoch)
	w.Rank, w.Ranks = int(f.rank), int(f.ranks)
	return w
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

// claimFlags say what a claim allows.
type claimFlags struct{ fork, single bool }

func (f *claimFlags) add(c *cobra.Command, flags *storeFlags) {
	flags.addEpochs(c)
	c.Flags().BoolVar(&f.fork, "fork", false, "go on in this store although the lineage is written in another one, which cannot be reached")
	c.Flags().BoolVar(&f.single, "single-writer", false, "nobody else ever writes this lineage: then a store that does not create objects conditionally will do")
}

// take takes the next epoch.
func (f *claimFlags) take(cmd *cobra.Command, flags *storeFlags, repo *repository.Repository, lineage string, now time.Time) (*repository.Writer, error) {
	return repo.ClaimWith(cmd.Context(), lineage, repository.Claim{
		Writer: fmt.Sprintf("checkpointer %s on %s", cmd.Name(), hostname()), Now: now,
		Authority: flags.authority(), Fork: f.fork, SingleWriter: f.single || flags.single,
	})
}

// history lists the snapshots of a lineage and its forks, or of all lineages.
func history(ctx context.Context, repo *repository.Repository, lineage string) ([]repository.Snapshot, error) {
	if lineage == "" {
		return repo.Snapshots(ctx, "")
	}
	return repo.History(ctx, lineage)
}

// claimed is what `claim --json` prints.
type claimed struct {
	Lineage string               `json:"lineage"`
	Epoch   uint64               `json:"epoch"`
	Store   string               `json:"store"`
	ID      string               `json:"repository"` // the store's repository
	Newest  *repository.Snapshot `json:"newest"`     // what all ranks go on from; null: there is none yet
}

func claimCommand(l *line) *cobra.Command {
	var (
		flags   storeFlags
		claims  claimFlags
		lineage string
		asJSON  bool
	)
	c := &cobra.Command{
		Use:   "claim",
		Short: "Take the next writer epoch of a lineage, for all ranks of a training",
		Long: `Take the next writer epoch of a lineage and print it. A training of several ranks takes one, and hands it to all of them:
each saves with "save --epoch E --rank R --ranks N". From here on nobody can save with an earlier epoch. When one rank is
started again, a new epoch is taken for all.

A lineage is written in one store. With --fork it goes on in another one, a replica, while its own cannot be reached: as a
lineage NAME/@forks/ID, which restore and list find under NAME. Save to that one then.`,
		Example: `  checkpointer claim --store s3://bucket/prefix --lineage default/train
  checkpointer save ckpt_1200 --store s3://bucket/prefix --lineage default/train --epoch 7 --rank 3 --ranks 8`,
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
			w, err := claims.take(cmd, &flags, repo, lineage, time.Now())
			if err != nil {
				return err
			}
			out := claimed{Lineage: w.Lineage, Epoch: w.Epoch, Store: repo.URL(), ID: repo.ID()}
			list, err := repo.History(cmd.Context(), lineage)
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
	claims.add(c, &flags)
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
