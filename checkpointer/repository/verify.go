package repository

import (
	"context"
	"errors"
	"fmt"

	"nomad-spotter/checkpointer/api"
	"nomad-spotter/checkpointer/store"
)

// Report is the result of a verification.
type Report struct {
	Snapshots int          `json:"snapshots"`
	Objects   int          `json:"objects"`
	Bytes     int64        `json:"bytes"` // read
	Damaged   []api.Damage `json:"damaged"`
}

// Verify reads and hashes every object that the snapshots of a lineage (all lineages for "") need. progress, if not nil,
// is called with the bytes read so far.
func (r *Repository) Verify(ctx context.Context, lineage string, progress func(bytes int64)) (Report, error) {
	rep := Report{Damaged: []api.Damage{}}
	list, err := r.Snapshots(ctx, lineage)
	if err != nil {
		return rep, err
	}
	checked := map[Entry]string{} // file content to what is wrong with it
	for _, s := range list {
		rep.Snapshots++
		m, err := r.Manifest(ctx, s)
		var d *DamageError
		if errors.As(err, &d) {
			rep.Damaged = append(rep.Damaged, d.Damage)
			continue
		}
		if err != nil {
			return rep, fmt.Errorf("verify: %w", err)
		}
		for _, e := range m.Entries {
			if e.Dir {
				continue
			}
			content := Entry{Size: e.Size, SHA256: e.SHA256}
			reason, ok := checked[content]
			if !ok {
				if reason, err = r.fault(ctx, content); err != nil {
					return rep, fmt.Errorf("verify snapshot %s of %s: %w", s.ID, s.Lineage, err)
				}
				checked[content] = reason
				rep.Objects++
				rep.Bytes += e.Size
				if progress != nil {
					progress(rep.Bytes)
				}
			}
			if reason != "" {
				rep.Damaged = append(rep.Damaged, damage(s.ID, s.Step, objectKey(e.SHA256), reason).Damage)
			}
		}
	}
	return rep, nil
}

// fault says in words what is wrong with an object; an error means that this could not be found out.
func (r *Repository) fault(ctx context.Context, e Entry) (string, error) {
	err := r.checkObject(ctx, e)
	switch {
	case err == nil:
		return "", nil
	case errors.Is(err, store.ErrNotFound):
		return "missing", nil
	case errors.Is(err, errWrongContent):
		return err.Error(), nil
	}
	return "", err
}
