package repository

import (
	"context"
	"errors"
	"fmt"

	"nomad-spotter/checkpointer/api"
	"nomad-spotter/checkpointer/layout"
)

// Report is the result of a verification.
type Report struct {
	Snapshots int          `json:"snapshots"`
	Objects   int          `json:"objects"`
	Bytes     int64        `json:"bytes"` // read
	Damaged   []api.Damage `json:"damaged"`
}

// Verify reads and hashes every object that the snapshots of a lineage and its forks (all lineages for "") need; with all, it also
// decodes every snapshot. progress, if not nil, is called with the bytes read so far.
func (r *Repository) Verify(ctx context.Context, lineage string, all bool, progress func(bytes int64)) (Report, error) {
	rep := Report{Damaged: []api.Damage{}}
	find := r.History
	if lineage == "" {
		find = r.Snapshots
	}
	list, err := find(ctx, lineage)
	if err != nil {
		return rep, err
	}
	checked := map[string]string{} // key of a pack to what is wrong with it
	rep.Snapshots = len(list)
	for _, s := range parts(list) {
		sound := len(rep.Damaged)
		m, err := r.Manifest(ctx, s)
		if err == nil {
			err = r.verifyPacks(ctx, s, m, checked, &rep, progress)
		}
		var v *view
		if err == nil && len(rep.Damaged) == sound {
			v, err = r.open(ctx, s)
		}
		if err == nil && v != nil && all {
			err = v.decode(ctx, 0, func(layout.Block, []byte) error { return nil })
		}
		var d *DamageError
		if errors.As(err, &d) {
			rep.Damaged = append(rep.Damaged, d.Damage)
			continue
		}
		if err != nil {
			return rep, fmt.Errorf("verify snapshot %s of %s: %w", s.ID, s.Lineage, err)
		}
	}
	return rep, nil
}

// verifyPacks reads those packs of a snapshot that were not read before.
func (r *Repository) verifyPacks(ctx context.Context, s Snapshot, m *Manifest, checked map[string]string, rep *Report, progress func(int64)) error {
	for _, p := range m.Packs {
		key := packKey(s.Lineage, p.Name)
		reason, ok := checked[key]
		if !ok {
			err := r.checkPack(ctx, s, p)
			var d *DamageError
			switch {
			case errors.As(err, &d):
				reason = d.Reason
			case err != nil:
				return err
			}
			checked[key] = reason
			rep.Objects++
			if rep.Bytes += p.Bytes; progress != nil {
				progress(rep.Bytes)
			}
		}
		if reason != "" {
			rep.Damaged = append(rep.Damaged, damage(s.ID, s.Step, key, reason).Damage)
		}
	}
	return nil
}
