package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"nomad-spotter/checkpointer/api"
	"nomad-spotter/checkpointer/repository"
	"nomad-spotter/checkpointer/store"
	"nomad-spotter/checkpointer/store/sealed"
)

// replicated is what `cp --json` prints.
type replicated struct {
	From      string              `json:"from"`
	To        string              `json:"to"`
	DryRun    bool                `json:"dry_run"`
	Snapshots []repository.Copied `json:"snapshots"`
	Packs     int                 `json:"copied_packs"`
	Bytes     int64               `json:"copied_bytes"` // of packs
	WallS     float64             `json:"wall_s"`
	Damaged   []api.Damage        `json:"damaged"` // snapshots of the source that were passed over
}

// cpFlags are the flags of cp.
type cpFlags struct {
	from, to            string
	key, fromKey, toKey keyFlags
	lineage             string
	snapshots           []string
	newest, dry, json   bool
}

func cpCommand(l *line) *cobra.Command {
	var f cpFlags
	c := &cobra.Command{
		Use:   "cp",
		Short: "Copy snapshots to another store",
		Long: `Copy snapshots with all that they need to another store, newest first. The copy is a replica: epochs, steps and names stay
the same. What the target has is checked and not copied again, so that a copy that was interrupted goes on where it was when
it is repeated. Nothing is ever replaced: where the two stores have different objects of one name the copy fails.

A damaged snapshot of the source is passed over; the exit code is then 3. Each side is opened with its own key if
--from-key-file or --to-key-file is given, else both with --key-file or the environment's.`,
		Example: `  checkpointer cp --from file:///mnt/checkpoints --to s3://bucket/checkpoints --lineage default/train --newest
  checkpointer cp --from file:///mnt/old --to file:///mnt/encrypted --to-key-file /etc/spotter/key`,
		Args: l.noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, u := range []struct{ flag, url string }{{"--from", f.from}, {"--to", f.to}} {
				if u.url == "" {
					l.fault("%s is missing: give the URL of a store", u.flag)
					continue
				}
				l.checkURL(u.flag, u.url)
			}
			if f.from != "" && sameStore(f.from, f.to) {
				l.fault("--from %q and --to %q are the same: give two stores", f.from, f.to)
			}
			if f.newest && len(f.snapshots) > 0 {
				l.fault("give --newest or --snapshot, not both")
			}
			l.checkLineage(f.lineage)
			if err := l.err(); err != nil {
				return err
			}
			return f.run(cmd)
		},
	}
	c.Flags().StringVar(&f.from, "from", "", "URL of the store to copy from")
	c.Flags().StringVar(&f.to, "to", "", "URL of the store to copy to; made if empty")
	f.key.add(c)
	c.Flags().StringVar(&f.fromKey.file, "from-key-file", "", "file with the key of the store to copy from")
	c.Flags().StringVar(&f.toKey.file, "to-key-file", "", "file with the key of the store to copy to")
	c.Flags().StringVar(&f.lineage, "lineage", "", "only this lineage")
	c.Flags().StringArrayVar(&f.snapshots, "snapshot", nil, "only this snapshot, a name or a step; may be repeated")
	c.Flags().BoolVar(&f.newest, "newest", false, "only the newest snapshot of each lineage")
	c.Flags().BoolVar(&f.dry, "dry-run", false, "change nothing, say what would be copied")
	c.Flags().BoolVar(&f.json, "json", false, "print one JSON object")
	return c
}

// sameStore tells whether two URLs are of one store, however they are written.
func sameStore(a, b string) bool {
	x, xerr := store.ParseLocation(a)
	y, yerr := store.ParseLocation(b)
	return a == b || xerr == nil && yerr == nil && x.String() == y.String()
}

// keys reads the keys of the two stores.
func (f *cpFlags) keys() (from, to *sealed.Key, err error) {
	none := func(string) string { return "" }
	if f.fromKey.file == "" && f.toKey.file == "" {
		from, err = f.key.load()
		return from, from, err
	}
	if from, err = sealed.LoadKey(f.fromKey.file, none); err != nil {
		return nil, nil, err
	}
	to, err = sealed.LoadKey(f.toKey.file, none)
	return from, to, err
}

func (f *cpFlags) run(cmd *cobra.Command) error {
	ctx, start := cmd.Context(), time.Now()
	fromKey, toKey, err := f.keys()
	if err != nil {
		return err
	}
	from, err := openURL(ctx, f.from, fromKey, false)
	if err != nil {
		return fmt.Errorf("--from: %w", err)
	}
	list, err := f.pick(ctx, from)
	if err != nil {
		return err
	}
	to, err := openURL(ctx, f.to, toKey, !f.dry)
	if f.dry && errors.Is(err, store.ErrNotFound) {
		to, err = nil, nil // all is missing
	}
	if err != nil {
		return fmt.Errorf("--to: %w", err)
	}
	out := replicated{From: f.from, To: f.to, DryRun: f.dry, Snapshots: []repository.Copied{}, Damaged: []api.Damage{}}
	counted := map[string]bool{} // packs, which snapshots share
	run := repository.NewCopyRun(to)
	var errs []error
	for _, s := range list {
		var c repository.Copied
		if f.dry {
			c, err = repository.Missing(ctx, from, to, s)
		} else {
			c, err = f.one(cmd, from, to, s, run)
		}
		var d *repository.DamageError
		if errors.As(err, &d) {
			complain(cmd.ErrOrStderr(), err)
			out.Damaged = append(out.Damaged, d.Damage)
			continue
		}
		if err != nil {
			errs = append(errs, err)
		}
		// Others may not need those packs; and what was removed from the source meanwhile is not there to be copied.
		if errors.Is(err, repository.ErrUncollected) || errors.Is(err, repository.ErrNoSnapshot) {
			continue
		}
		if err != nil {
			break
		}
		out.Snapshots = append(out.Snapshots, c)
		for _, p := range c.New {
			if key := s.Lineage + "\n" + p.Name; !counted[key] {
				counted[key] = true
				out.Packs++
				out.Bytes += p.Bytes
			}
		}
	}
	errs = append(errs, run.End(ctx))
	out.WallS = time.Since(start).Seconds()
	if f.json {
		err = writeJSON(cmd.OutOrStdout(), out)
	} else {
		err = out.print(cmd.OutOrStdout())
	}
	if err = errors.Join(append(errs, err)...); err == nil && len(out.Damaged) > 0 {
		err = errDamage
	}
	return err
}

// one copies one snapshot.
func (f *cpFlags) one(cmd *cobra.Command, from, to *repository.Repository, s repository.Snapshot, run *repository.CopyRun) (repository.Copied, error) {
	var total int64 = -1
	if m, err := from.Manifest(cmd.Context(), s); err == nil { // Copy says what is wrong with it
		total = 0
		for _, p := range m.Packs {
			total += p.Bytes
		}
	}
	progress := bar(cmd.ErrOrStderr(), total, fmt.Sprintf("copying step %d of %s", s.Step, s.Lineage))
	c, err := repository.Copy(cmd.Context(), from, to, s, repository.CopyOptions{Progress: func(n int64) { _ = progress.Add64(n) }, Run: run})
	return c, errors.Join(err, progress.Close())
}

// pick returns the snapshots to copy.
func (f *cpFlags) pick(ctx context.Context, from *repository.Repository) ([]repository.Snapshot, error) {
	if len(f.snapshots) > 0 {
		return findAll(ctx, from, f.lineage, f.snapshots)
	}
	list, err := history(ctx, from, f.lineage)
	if err != nil {
		return nil, err
	}
	switch {
	case f.newest && f.lineage != "" && len(list) > 0:
		list = list[:1]
	case f.newest:
		list = slices.CompactFunc(list, func(a, b repository.Snapshot) bool { return a.Lineage == b.Lineage })
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("cp: %s has no snapshot in %s", orAny(f.lineage), f.from)
	}
	return list, nil
}

func (r *replicated) print(w io.Writer) error {
	verb, did := "Copied", "copied"
	if r.DryRun {
		verb, did = "Would copy", "would be copied"
	}
	err := table(w, func(w io.Writer) {
		fmt.Fprintln(w, "LINEAGE\tSTEP\tSNAPSHOT\tPACKS\tNEW\tSIZE\tOUTCOME")
		for _, c := range r.Snapshots {
			outcome := did
			if c.There && c.Count == 0 {
				outcome = "there already"
			}
			fmt.Fprintf(w, "%s\t%d\t%s\t%d\t%d\t%s\t%s\n", c.Lineage, c.Step, c.ID, c.Packs, c.Count, size(c.Bytes), outcome)
		}
	})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s %d packs, %s, from %s to %s in %.1f s\n", verb, r.Packs, size(r.Bytes), r.From, r.To, r.WallS)
	return err
}
