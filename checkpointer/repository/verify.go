package repository

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"nomad-spotter/checkpointer/api"
	"nomad-spotter/checkpointer/layout"
	"nomad-spotter/checkpointer/store"
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
	var lineages []string
	if lineage == "" {
		lineages, err = r.Lineages(ctx)
	} else {
		base, _ := splitFork(lineage)
		lineages, err = r.lines(ctx, base)
	}
	if err != nil {
		return rep, err
	}
	for _, l := range lineages {
		if err := r.verifyRecords(ctx, l, &rep); err != nil {
			return rep, fmt.Errorf("verify the records of %s: %w", l, err)
		}
	}
	checked := map[string]string{} // key of a pack to what is wrong with it
	rep.Snapshots = len(list)
	for _, s := range parts(list) {
		sound := len(rep.Damaged)
		rep.Objects++
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
		if errors.Is(err, ErrNoSnapshot) { // removed meanwhile
			continue
		}
		if err != nil {
			return rep, fmt.Errorf("verify snapshot %s of %s: %w", s.ID, s.Lineage, err)
		}
	}
	return rep, nil
}

// verifyRecords checks what says who may write a lineage, and which of its snapshots count.
func (r *Repository) verifyRecords(ctx context.Context, lineage string, rep *Report) error {
	found := func(kind, id, reason string) {
		rep.Damaged = append(rep.Damaged, damage("", 0, lineageKey(lineage, kind, id), reason).Damage)
	}
	keys, err := r.list(ctx, lineage, append([]string{kindAuthority}, claimKinds...)...)
	if err != nil || len(keys) == 0 {
		return err
	}
	a, err := r.record(ctx, lineage)
	switch {
	case errors.Is(err, store.ErrDamaged):
		_, reason, _ := strings.Cut(err.Error(), store.ErrDamaged.Error()+": ")
		found(kindAuthority, recordID, reason)
	case err != nil:
		return err
	case a == nil:
		found(kindAuthority, recordID, "missing")
	default:
		rep.Objects++
	}
	for _, n := range untold(keys) {
		found(kindEpochs, fmt.Sprintf("%08d", n), "missing; the next writer makes it again")
	}
	seen, written := map[uint64]string{}, map[uint64]bool{}
	for _, k := range keys {
		n, ok := k.epochOf()
		switch {
		case !ok:
		case k.kind == kindSeen:
			_, seen[n], _ = strings.Cut(k.id, "-")
		case k.isSnapshot():
			written[n] = true
		}
	}
	for _, n := range slices.Sorted(maps.Keys(written)) {
		if _, ok := seen[n]; !ok {
			found(kindSeen, fmt.Sprintf("%08d", n), "missing; the next writer makes it again")
		}
	}
	for _, k := range keys {
		n, ok := k.epochOf()
		if !ok || k.kind != kindEpochs && k.kind != kindStarts {
			continue
		}
		b, err := readObject(ctx, r.store, lineageKey(lineage, k.kind, k.id), maxRecord)
		reason := unreadable(k.kind, b)
		switch last, ok := seen[n]; {
		case errors.Is(err, store.ErrDamaged):
			_, reason, _ := strings.Cut(err.Error(), store.ErrDamaged.Error()+": ")
			found(k.kind, k.id, reason)
		case err != nil:
			return err
		case reason != "":
			found(k.kind, k.id, reason)
		case k.kind == kindStarts && ok && string(b) != last:
			found(k.kind, k.id, fmt.Sprintf("it says %.40q, %s/%s-%s another", b, kindSeen, k.id, last))
		default:
			rep.Objects++
		}
	}
	return nil
}

// unreadable tells what is wrong with the content of a record, as far as that can be told from it alone.
func unreadable(kind string, b []byte) string {
	switch kind {
	case kindEpochs:
		if !json.Valid(b) {
			return "it is no JSON"
		}
	case kindStarts:
		if _, _, err := parseID(string(b)); err != nil && string(b) != noneSeen {
			return fmt.Sprintf("%.40q is no snapshot", b)
		}
	case kindAuthority:
		if _, err := parseRecord(b); err != nil {
			return err.Error()
		}
	}
	return ""
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
