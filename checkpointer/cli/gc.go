package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"nomad-spotter/checkpointer/api"
	"nomad-spotter/checkpointer/repository"
)

// collected is what `gc --json` prints.
type collected struct {
	DryRun   bool                  `json:"dry_run"`
	Pinned   []repository.Snapshot `json:"pinned"`
	Unpinned []repository.Snapshot `json:"unpinned"`
	Lineages []*repository.Garbage `json:"lineages"`
	Damaged  []api.Damage          `json:"damaged"` // why nothing was removed from a lineage
}

// gcFlags are the flags of gc.
type gcFlags struct {
	storeFlags
	lineage    string
	all        bool
	last       int64
	every      int64
	pin, unpin []string
	dry, dead  bool
	json       bool
}

func gcCommand(l *line) *cobra.Command {
	var f gcFlags
	c := &cobra.Command{
		Use:   "gc",
		Short: "Remove old snapshots, and what nothing needs any more",
		Long: `Remove the snapshots of a lineage that no rule keeps, and all packs that no snapshot needs any more, also those that a
save left that was killed. The newest snapshot is always kept. Saves may be under way. Where the manifest
of one that stays is damaged nothing of that lineage is removed, and the exit code is 3. One gc at a time works on a lineage;
another one fails.

A pin keeps a snapshot until it is unpinned. With pins alone, without a --keep flag, nothing is removed.

A copy, a claim or a gc that died may keep gc from removing anything, as it cannot be told from one that is still at work.
The error or the output then says so. --drop-dead forgets them: give it when you know that none is at work.`,
		Example: `  checkpointer gc --store file:///mnt/checkpoints --lineage default/train --keep-last 5 --keep-every 1000 --dry-run
  checkpointer gc --store file:///mnt/checkpoints --lineage default/train --keep-last 5 --pin 12000
  checkpointer gc --consul http://127.0.0.1:8500 --all --keep-last 3`,
		Args: l.noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f.check(l)
			switch {
			case (f.lineage == "") == !f.all:
				l.fault("give exactly one of --lineage NAME and --all")
			case f.all && len(f.pin)+len(f.unpin) > 0:
				l.fault("--pin and --unpin need --lineage NAME")
			}
			l.checkLineage(f.lineage)
			if f.last == 0 && f.every == 0 && len(f.pin)+len(f.unpin) == 0 {
				l.fault("nothing says what to keep: give --keep-last N (the newest N), --keep-every N (the newest of every N steps) or both")
			}
			if f.dead && f.last == 0 && f.every == 0 {
				l.fault("--drop-dead needs --keep-last or --keep-every: without them nothing is removed")
			}
			if err := l.err(); err != nil {
				return err
			}
			return f.run(cmd)
		},
	}
	f.add(c)
	c.Flags().StringVar(&f.lineage, "lineage", "", "the lineage")
	c.Flags().BoolVar(&f.all, "all", false, "all lineages, each by itself")
	l.whole(c.Flags(), &f.last, "keep-last", 0, 1, "keep the newest so many snapshots")
	l.whole(c.Flags(), &f.every, "keep-every", 0, 1, "keep the newest snapshot of every span of so many steps")
	c.Flags().StringArrayVar(&f.pin, "pin", nil, "keep this snapshot, a name or a step, from now on; may be repeated")
	c.Flags().StringArrayVar(&f.unpin, "unpin", nil, "end a pin; may be repeated")
	c.Flags().BoolVar(&f.dead, "drop-dead", false, "forget copies into the lineage, claims and other runs of gc that died and keep everything that is there")
	c.Flags().BoolVar(&f.dry, "dry-run", false, "change nothing, say what would be done")
	c.Flags().BoolVar(&f.json, "json", false, "print one JSON object")
	return c
}

func (f *gcFlags) run(cmd *cobra.Command) error {
	ctx := cmd.Context()
	repo, err := f.open(ctx, false)
	if err != nil {
		return err
	}
	if err := exists(ctx, repo, f.lineage); err != nil {
		return err // before anything is written below its name
	}
	out := collected{DryRun: f.dry, Lineages: []*repository.Garbage{}, Damaged: []api.Damage{}}
	if out.Pinned, err = findAll(ctx, repo, f.lineage, f.pin); err != nil {
		return err
	}
	if out.Unpinned, err = findAll(ctx, repo, f.lineage, f.unpin); err != nil {
		return err
	}
	keep := repository.Retention{Last: int(f.last), Every: f.every, Pins: map[string]bool{}}
	for _, s := range out.Unpinned {
		keep.Pins[s.ID] = false
	}
	for _, s := range out.Pinned {
		keep.Pins[s.ID] = true
	}
	if !f.dry {
		for _, s := range out.Unpinned {
			if err := repo.Unpin(ctx, s); err != nil {
				return fmt.Errorf("unpin snapshot %s: %w", s.ID, err)
			}
		}
		for _, s := range out.Pinned {
			if err := repo.Pin(ctx, s); err != nil {
				return fmt.Errorf("pin snapshot %s: %w", s.ID, err)
			}
		}
	}
	lineages := []string{f.lineage}
	switch {
	case f.last == 0 && f.every == 0:
		lineages = nil
	case f.all:
		if lineages, err = repo.Lineages(ctx); err != nil {
			return err
		}
	}
	var errs []error
	var found error
	for _, lineage := range lineages {
		if f.dead && !f.dry {
			if err := repo.DropDead(ctx, lineage); err != nil {
				errs = append(errs, err)
				continue
			}
		}
		g, err := repo.Collect(ctx, lineage, keep, repository.CollectOptions{Dry: f.dry, By: "checkpointer gc on " + hostname()})
		var d *repository.DamageError
		switch {
		case errors.As(err, &d):
			out.Damaged = append(out.Damaged, d.Damage)
			errs = append(errs, err)
		case err != nil:
			errs = append(errs, err)
		default:
			out.Lineages = append(out.Lineages, g)
			if len(g.Damaged) > 0 {
				found = errDamage
			}
		}
		if ctx.Err() != nil {
			break
		}
	}
	if f.json {
		err = writeJSON(cmd.OutOrStdout(), out)
	} else {
		err = out.print(cmd.OutOrStdout())
	}
	return cmp.Or(errors.Join(append(errs, err)...), found)
}

func (c *collected) print(w io.Writer) error {
	not := ""
	if c.DryRun {
		not = "would be "
	}
	err := table(w, func(w io.Writer) {
		fmt.Fprintln(w, "LINEAGE\tSNAPSHOT\tSTEP\tOUTCOME\tREASON")
		row := func(lineage, id, outcome, reason string) {
			fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\n", lineage, id, stepOf(id), outcome, reason)
		}
		for _, s := range c.Pinned {
			row(s.Lineage, s.ID, not+"pinned", "--pin")
		}
		for _, s := range c.Unpinned {
			row(s.Lineage, s.ID, not+"unpinned", "--unpin")
		}
		for _, g := range c.Lineages {
			ids := slices.Concat(slices.Collect(maps.Keys(g.Kept)), g.Snapshots, g.Busy)
			slices.SortFunc(ids, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(b, a)) })
			for _, id := range ids {
				switch {
				case g.Kept[id] != "":
					row(g.Lineage, id, "kept", g.Kept[id])
				case slices.Contains(g.Busy, id):
					row(g.Lineage, id, "kept for now", "a save under way relies on it")
				case len(g.Copies) > 0:
				default:
					row(g.Lineage, id, not+"removed", "no rule keeps it")
				}
			}
		}
	})
	for _, g := range c.Lineages {
		if err == nil && len(g.Copies) > 0 {
			_, err = fmt.Fprintf(w, "%s: nothing is removed while snapshots are copied into it: %s; if no copy is at work, add --drop-dead\n", g.Lineage, strings.Join(g.Copies, ", "))
			continue
		}
		if err == nil {
			_, err = fmt.Fprintf(w, "%s: %d kept, %d snapshots and %d packs %sremoved, %s %sfreed\n",
				g.Lineage, len(g.Kept), len(g.Snapshots), g.Packs, not, size(g.Bytes), not)
		}
	}
	return err
}

// stepOf reads the step from a snapshot's name.
func stepOf(id string) int64 {
	_, step, _ := strings.Cut(id, "-")
	n, _ := strconv.ParseInt(step, 10, 64) // it is a snapshot's
	return n
}

// findAll finds snapshots by name or step.
func findAll(ctx context.Context, repo *repository.Repository, lineage string, names []string) ([]repository.Snapshot, error) {
	out := []repository.Snapshot{}
	for _, name := range names {
		id, step := name, int64(0)
		if n, err := strconv.ParseInt(name, 10, 64); err == nil {
			id, step = "", n
		}
		s, err := find(ctx, repo, lineage, id, step)
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}
