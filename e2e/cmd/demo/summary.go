package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"time"

	"nomad-spotter/e2e/cluster"
)

// result is what the demo measured. Times count from the moment the metadata endpoint first answered with the notice.
type result struct {
	notice, deadline, noticeSeen, durable, running, gone, replaced time.Time

	stepsLost      int64
	sum, reference string // sha256 of the model, and of that of the uninterrupted run
	checkpoints    int
	rawBytes       int64 // what the training program wrote
	storedBytes    int64 // what the store holds
	pool           *cluster.PoolStatus
	finished       bool
}

// count takes the last figures.
func (r *result) count(ctx context.Context, c *cluster.Cluster) error {
	list, err := c.Snapshots(ctx)
	if err != nil {
		return err
	}
	r.checkpoints = len(list)
	for _, s := range list {
		r.rawBytes += s.RawBytes
	}
	if r.storedBytes, err = c.StoredBytes(); err != nil {
		return err
	}
	if r.pool, err = c.PoolStatus(ctx); err != nil {
		return err
	}
	r.finished = true
	return nil
}

// verdict is nil when nothing was lost.
func (r *result) verdict() error {
	var errs []error
	if r.sum != r.reference {
		errs = append(errs, fmt.Errorf("the model differs: sha256 is %s, that of the uninterrupted run %s", r.sum, r.reference))
	}
	if r.stepsLost != 0 {
		errs = append(errs, fmt.Errorf("%d steps were lost", r.stepsLost))
	}
	return errors.Join(errs...)
}

func (r *result) after(t time.Time) float64 {
	return math.Round(t.Sub(r.notice).Seconds()*1000) / 1000
}

func (r *result) print(s *screen) {
	s.head("Summary")
	row := func(name, format string, args ...any) {
		s.clear()
		fmt.Fprintf(s.w, "   %-26s %s\n", name, fmt.Sprintf(format, args...))
	}
	type moment struct {
		name string
		at   time.Time
	}
	line := []moment{
		{"notice", r.notice},
		{"seen by the driver", r.noticeSeen},
		{"checkpoint durable", r.durable},
		{"replacement trains", r.running},
		{"pool's new node launched", r.replaced},
		{"instance gone", r.gone},
	}
	slices.SortStableFunc(line, func(a, b moment) int { return a.at.Compare(b.at) })
	for _, t := range line {
		row(t.name, "%s  +%.2f s", clock(t.at), r.after(t.at))
	}
	row("steps lost", "%d", r.stepsLost)
	same := "no"
	if r.sum == r.reference {
		same = "yes"
	}
	row("model bit-identical", "%s (%.16s… and %.16s…)", same, r.sum, r.reference)
	row("checkpoints in the store", "%d: %.1f MB written by the program, %.1f MB stored", r.checkpoints, float64(r.rawBytes)/1e6, float64(r.storedBytes)/1e6)
	kinds := make([]string, 0, len(r.pool.NodeHours))
	for k := range r.pool.NodeHours {
		kinds = append(kinds, k)
	}
	slices.Sort(kinds)
	for _, k := range kinds {
		row("node-hours "+k, "%.3f", r.pool.NodeHours[k])
	}
	saved := 0.0
	if r.pool.OnDemandCostUSD > 0 {
		saved = 100 * (1 - r.pool.CostUSD/r.pool.OnDemandCostUSD)
	}
	row("cost of the pool", "$%.4f; all on-demand $%.4f: %.0f %% saved", r.pool.CostUSD, r.pool.OnDemandCostUSD, saved)
}

// write writes the summary as JSON; without a path it does nothing.
func (r *result) write(path string) error {
	if path == "" {
		return nil
	}
	b, err := json.MarshalIndent(struct {
		Identical       bool    `json:"identical"`
		StepsLost       int64   `json:"steps_lost"`
		NoticeSeen      float64 `json:"notice_seen_s"`
		NoticeToDurable float64 `json:"notice_to_durable_s"`
		NoticeToRunning float64 `json:"notice_to_running_s"`
		Checkpoints     int     `json:"checkpoints"`
		RawBytes        int64   `json:"raw_bytes"`
		StoredBytes     int64   `json:"stored_bytes"`
		CostUSD         float64 `json:"cost_usd"`
		OnDemandCostUSD float64 `json:"ondemand_cost_usd"`
	}{
		r.sum == r.reference, r.stepsLost, r.after(r.noticeSeen), r.after(r.durable), r.after(r.running),
		r.checkpoints, r.rawBytes, r.storedBytes, r.pool.CostUSD, r.pool.OnDemandCostUSD,
	}, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, append(b, '\n'), 0o644); err != nil {
		return fmt.Errorf("write summary: %w", err)
	}
	return nil
}
