package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"nomad-spotter/autoscaler-plugin/cost"
)

// poolStatus is what is read of `nomad-autoscaler-spotter status --json`.
type poolStatus struct {
	Instances json.RawMessage `json:"instances"` // null where there are none
}

// poolInstance is an instance in it.
type poolInstance struct {
	ID         string    `json:"id"`
	Kind       cost.Kind `json:"kind"`
	Price      float64   `json:"price_usd_per_hour"`
	State      string    `json:"state"`
	LaunchedAt time.Time `json:"launched_at"`
	EndedAt    time.Time `json:"ended_at"`
	Terminated bool      `json:"terminated"`
}

// check returns the faults of an instance that would make a report wrong.
func (i poolInstance) check() []error {
	var faults []error
	add := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf("instance %q: %w", i.ID, fmt.Errorf(format, args...)))
	}
	if i.ID == "" {
		add("id: missing; every instance must have one")
	}
	if !slices.Contains([]cost.Kind{cost.Spot, cost.OnDemand, cost.Reserved}, i.Kind) {
		add("kind: %q is unknown; it must be %q, %q or %q", i.Kind, cost.Spot, cost.OnDemand, cost.Reserved)
	}
	if i.Price < 0 || i.Price > maxNodePrice {
		add("price_usd_per_hour: %v is outside 0 to %v; give $/h of one instance", i.Price, float64(maxNodePrice))
	}
	switch {
	case i.LaunchedAt.IsZero():
		add("launched_at: missing; give the time from which it is paid")
	case !i.EndedAt.IsZero() && i.EndedAt.Before(i.LaunchedAt):
		add("ended_at: %s is before launched_at %s; correct one of them", i.EndedAt.Format(time.RFC3339), i.LaunchedAt.Format(time.RFC3339))
	}
	return faults
}

// Bounds of what records may hold: more was mistyped.
const (
	maxNodePrice = 1e6     // $/h
	maxStored    = 1 << 60 // bytes of one snapshot
)

// snapshotID names a snapshot in what the checkpointer prints.
type snapshotID struct {
	Lineage string `json:"lineage"`
	ID      string `json:"snapshot"`
}

// listedSnapshot is what is read of an element of `checkpointer list --json`.
type listedSnapshot struct {
	snapshotID
	Created time.Time `json:"created"`
}

// storeStats is what is read of `checkpointer stats --json`.
type storeStats struct {
	Lineages []struct {
		Snapshots []struct {
			snapshotID
			Stored float64 `json:"stored_bytes"`
		} `json:"snapshots"`
	} `json:"lineages"`
}

// reportOutput is what `spotter cost report --json` prints.
type reportOutput struct {
	At    time.Time      `json:"at"`
	Usage cost.Usage     `json:"usage"`
	Cost  cost.Breakdown `json:"cost"`
}

// costReport is `spotter cost report`.
func costReport() *cobra.Command {
	var files recordFiles
	var at string
	var asJSON bool
	in := &inputs{list: []*input{
		{name: "on-demand-price", kind: kindNumber, usage: "USD per node-hour: what the same work is compared with (required)"},
		{name: "storage-price", kind: kindNumber, usage: "USD per GiB and month of 730 h (default 0)"},
	}}
	cmd := &cobra.Command{
		Use:   "report --pool-status FILE",
		Short: "Price a job that runs or has ended, from records",
		Long: `Price a job that runs or has ended, from the records of the pool that it has for itself and of its checkpoints.

The hours between the newest snapshot and the moment at which an instance was taken count as recovery, on every instance
that ran then; all others count as training. A snapshot that was removed is in no record: its storage is not counted, and
where it was the newest then, more counts as lost. Without --snapshots every hour counts as training.

Exit codes: 0 done, 1 a file could not be read, 2 wrong usage, faulty figures among it.`,
		Example: `  nomad-autoscaler-spotter status --pool pool.hcl --json > pool.json
  checkpointer list --store file:///mnt/checkpoints --lineage default/train --json > snapshots.json
  checkpointer stats --store file:///mnt/checkpoints --lineage default/train --json > stats.json
  spotter cost report --pool-status pool.json --snapshots snapshots.json --stats stats.json \
    --on-demand-price 3 --storage-price 0.023`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !in.given("on-demand-price") {
				in.fault("on-demand-price", "missing; give what a node-hour costs on demand")
			}
			if files.pool == "" {
				in.faults = append(in.faults, errors.New("--pool-status: missing; give the output of nomad-autoscaler-spotter status --json"))
			}
			now := time.Now()
			if at != "" {
				var err error
				if now, err = time.Parse(time.RFC3339, at); err != nil {
					in.faults = append(in.faults, fmt.Errorf("--at: %q is no time; write it like 2026-12-01T12:00:00Z", at))
				}
			}
			if files.stats != "" && files.snapshots == "" {
				in.faults = append(in.faults, errors.New(
					"--stats: has no times; give --snapshots too, the output of checkpointer list --json"))
			}
			prices := cost.Prices{Currency: "USD", OnDemand: in.number("on-demand-price"), Storage: in.number("storage-price")}
			in.check(prices.Check())
			if err := errors.Join(in.faults...); err != nil {
				return usageError{err}
			}
			record, err := files.read()
			if err != nil {
				return err
			}
			usage := record.Usage(now)
			out := reportOutput{At: now, Usage: usage, Cost: prices.Of(usage)}
			if asJSON {
				return writeJSON(cmd.OutOrStdout(), out)
			}
			return printReport(cmd.OutOrStdout(), out)
		},
	}
	cmd.Flags().SortFlags = false
	cmd.Flags().StringVar(&files.pool, "pool-status", "", "output of nomad-autoscaler-spotter status --json (required)")
	cmd.Flags().StringVar(&files.snapshots, "snapshots", "", "output of checkpointer list --json: when there were which")
	cmd.Flags().StringVar(&files.stats, "stats", "", "output of checkpointer stats --json: what they take")
	in.addTo(cmd.Flags())
	cmd.Flags().StringVar(&at, "at", "", "until when to count, such as 2026-12-01T12:00:00Z (default now)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// recordFiles are where what is known of a job is read from; "" is nothing.
type recordFiles struct{ pool, snapshots, stats string }

// read reads what is known of a job. It reports the faults of all files together.
func (f recordFiles) read() (cost.Record, error) {
	record := cost.Record{InStep: true}
	var faults []error
	wrong := func(file string, errs ...error) {
		for _, err := range errs {
			faults = append(faults, fmt.Errorf("read records: %s: %w", file, err))
		}
	}
	var status poolStatus
	var instances []poolInstance
	err := readJSON(f.pool, &status)
	switch {
	case err != nil:
		faults = append(faults, err)
	case status.Instances == nil:
		wrong(f.pool, errors.New("instances: missing; give the output of nomad-autoscaler-spotter status --json"))
	default:
		if err := json.Unmarshal(status.Instances, &instances); err != nil {
			wrong(f.pool, fmt.Errorf("instances: %w; they must be what the command prints with --json", err))
			instances = nil
		}
	}
	seen := map[string]bool{}
	for _, i := range instances {
		wrong(f.pool, i.check()...)
		if seen[i.ID] {
			wrong(f.pool, fmt.Errorf("instance %q: given twice; it would be paid twice", i.ID))
		}
		seen[i.ID] = true
		gone := i.State == "gone"
		record.Instances = append(record.Instances, cost.Instance{
			ID: i.ID, Kind: i.Kind, Price: cost.Constant(i.Price), Launched: i.LaunchedAt, Ended: i.EndedAt,
			Interrupted: f.snapshots != "" && gone && !i.Terminated,
		})
	}
	var snapshots []listedSnapshot
	if f.snapshots != "" {
		faults = append(faults, readJSON(f.snapshots, &snapshots))
	}
	stored := map[snapshotID]float64{}
	if f.stats != "" {
		var stats storeStats
		faults = append(faults, readJSON(f.stats, &stats))
		for _, l := range stats.Lineages {
			for _, s := range l.Snapshots {
				if s.Stored < 0 || s.Stored > maxStored {
					wrong(f.stats, fmt.Errorf("snapshot %q: stored_bytes: %v is outside 0 to %v; it is what the snapshot takes",
						s.ID, s.Stored, float64(maxStored)))
				}
				stored[s.snapshotID] = s.Stored
			}
		}
	}
	for _, s := range snapshots {
		if s.Created.IsZero() {
			continue // incomplete, or its manifest cannot be read: nothing is restored from it
		}
		record.Checkpoints = append(record.Checkpoints, cost.Checkpoint{At: s.Created, Stored: s.Created, Bytes: stored[s.snapshotID]})
	}
	return record, errors.Join(faults...)
}

func readJSON(file string, into any) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read records: %w", err)
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("read records: %s: %w; it must be what the command prints with --json", file, err)
	}
	return nil
}

// printReport writes a report for people.
func printReport(w io.Writer, out reportOutput) error {
	_, _ = fmt.Fprintf(w, "Until %s: %s interruptions.\n\n", out.At.Format(time.RFC3339), figure(out.Usage.Interruptions))
	u, b := out.Usage, out.Cost
	lines := [][]string{
		{"", "SPOT", "ON DEMAND", "RESERVED", "COST"},
		reportLine("training", u.Work, b.Compute, b.Currency),
		reportLine("recovery", u.Recovery, b.Recovery, b.Currency),
		{"storage", "", "", "", cost.Money(b.Storage, b.Currency)},
		{"total", "", "", "", money(b, cost.Breakdown.Total)},
		{"the training on demand", "", "", "", cost.Money(b.OnDemand, b.Currency)},
		{"saved, " + share(b.SavedShare()), "", "", "", money(b, cost.Breakdown.Saved)},
	}
	return columnsRight(w, lines)
}

func reportLine(name string, h cost.Hours, paid float64, currency string) []string {
	return []string{
		name, figure(h.Spot.Hours) + " h", figure(h.OnDemand.Hours) + " h", figure(h.Reserved.Hours) + " h", cost.Money(paid, currency),
	}
}
