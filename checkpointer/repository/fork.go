package repository

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"nomad-spotter/checkpointer/store"
)

// A fork is how a lineage goes on where its home cannot be reached: as a lineage of its own in a replica, under
// LINEAGE/@forks/REPOSITORY with that replica's id, so that its keys are nobody else's wherever it is copied to. Its epochs
// begin above those that the replica knew. Once both are in one store, the one whose newest snapshot has the lower epoch,
// or the lower step of the same one, is not written any more. Nothing of either is removed.

// forkMark is between a lineage and the id of the repository in which its fork is written.
const forkMark = "/@forks/"

// Origin is the snapshot from which a fork went on.
type Origin struct {
	Lineage  string `json:"lineage"`
	Snapshot string `json:"snapshot"`
}

func (o *Origin) check() error {
	if o == nil {
		return nil
	}
	if _, err := parsePart(o.Snapshot); err != nil {
		return err
	}
	return CheckLineage(o.Lineage)
}

// splitFork returns the lineage that a fork is one of, and the id of the fork's home; "" for what is no fork.
func splitFork(lineage string) (base, id string) {
	i := strings.LastIndex(lineage, forkMark)
	if i <= 0 || !isID(lineage[i+len(forkMark):]) {
		return lineage, ""
	}
	return lineage[:i], lineage[i+len(forkMark):]
}

// Base is the lineage that a snapshot is of, be it of a fork.
func (s Snapshot) Base() string {
	base, _ := splitFork(s.Lineage)
	return base
}

// History lists the complete snapshots of a lineage and of all its forks, newest first, by epoch and step.
func (r *Repository) History(ctx context.Context, lineage string) ([]Snapshot, error) {
	base, _ := splitFork(lineage)
	lines, err := r.lines(ctx, base)
	if err != nil {
		return nil, fmt.Errorf("list forks: %w", err)
	}
	var out []Snapshot
	for _, l := range lines {
		list, err := r.Snapshots(ctx, l)
		if err != nil {
			return nil, err
		}
		out = append(out, list...)
	}
	slices.SortFunc(out, newestFirst)
	return out, nil
}

// newestFirst orders snapshots of a lineage and its forks. Of two equal ones the lineage's own comes first.
func newestFirst(a, b Snapshot) int {
	return cmp.Or(b.compare(a), strings.Compare(a.Lineage, b.Lineage))
}

// lines returns a lineage and its forks, sorted.
func (r *Repository) lines(ctx context.Context, base string) ([]string, error) {
	if err := CheckLineage(base); err != nil {
		return nil, err
	}
	entries, err := r.store.List(ctx, "lineages/"+escape(base)+forkMark)
	if err != nil {
		return nil, err
	}
	out := []string{base}
	for _, e := range entries {
		name, _, _, ok := parseKey(e.Key)
		if of, id := splitFork(name); ok && id != "" && of == base && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out, nil
}

// Known tells whether there is anything of a lineage or a fork of it.
func (r *Repository) Known(ctx context.Context, lineage string) (bool, error) {
	lines, err := r.lines(ctx, lineage)
	if err != nil || len(lines) > 1 {
		return err == nil, err
	}
	entries, err := r.store.List(ctx, lineagePrefix(lineage))
	return slices.ContainsFunc(entries, func(e store.Entry) bool {
		name, _, _, ok := parseKey(e.Key)
		return ok && name == lineage
	}), err
}

// line returns under which name a lineage is to be written in this store, above which epoch, and from where it goes on if
// that makes it a fork. Without fork it is an error when that would be one.
func (r *Repository) line(ctx context.Context, lineage string, fork bool) (line string, above uint64, forked *Origin, err error) {
	base, id := splitFork(lineage)
	if id != "" && id != r.id {
		return "", 0, nil, fmt.Errorf("%w: that fork is written in %s", ErrForeign, id)
	}
	lines, err := r.lines(ctx, base)
	if err != nil {
		return "", 0, nil, err
	}
	for _, l := range lines {
		last, err := r.lastEpoch(ctx, l, claimKinds...)
		if err != nil {
			return "", 0, nil, err
		}
		above = max(above, last)
	}
	a, err := r.record(ctx, base)
	if err != nil {
		return "", 0, nil, err
	}
	line = base
	if a != nil && a.Repository != r.id || a == nil && len(lines) > 1 {
		line = base + forkMark + r.id
	}
	if len(lines) == 1 && line == base {
		return line, 0, nil, nil
	}
	list, err := r.History(ctx, base)
	if err != nil {
		return "", 0, nil, err
	}
	if len(list) > 0 {
		forked = &Origin{list[0].Lineage, list[0].ID}
	}
	leading := base
	if len(list) > 0 {
		leading = list[0].Lineage
	}
	if leading == line || fork {
		return line, above, forked, nil
	}
	_, home := splitFork(leading)
	if home == "" && a != nil {
		home = a.Repository
	}
	return "", 0, nil, fmt.Errorf("%w: it is repository %s, the lineage is written in %s, where its newest snapshot is from: reach that one, or go on as a fork", ErrForeign, r.id, home)
}

// outrun fails with ErrSuperseded when another line of the lineage has gone further than this writer's.
func (w *Writer) outrun(ctx context.Context) error {
	base, _ := splitFork(w.Lineage)
	lines, err := w.repo.lines(ctx, base)
	if err != nil || len(lines) == 1 {
		return err
	}
	list, err := w.repo.History(ctx, base)
	if err != nil || len(list) == 0 {
		return err
	}
	begun := Snapshot{Lineage: w.Lineage, Epoch: w.Epoch, Step: -1}
	if s := list[0]; s.Lineage != w.Lineage && newestFirst(s, begun) < 0 {
		return fmt.Errorf("%w: the lineage has gone further as %s, to snapshot %s", ErrSuperseded, s.Lineage, s.ID)
	}
	return nil
}

// Standing is how far a lineage has come in one store.
type Standing struct {
	Origin string   // the id of the repository in which it was begun; "": it is not here
	Newest Snapshot // of the lineage or a fork; its step is -1 if there is none
	Home   bool     // this store is where it may be written: what is newest was written here
}

// Standing tells how far a lineage has come in this store.
func (r *Repository) Standing(ctx context.Context, lineage string) (Standing, error) {
	base, _ := splitFork(lineage)
	st := Standing{Newest: Snapshot{Lineage: base, Step: -1}, Home: true}
	list, err := r.History(ctx, base)
	if err != nil {
		return st, err
	}
	a, err := r.record(ctx, base)
	if err != nil {
		return st, err
	}
	if a != nil {
		st.Origin = a.Repository
		st.Home = a.Repository == r.id
	}
	if len(list) > 0 {
		st.Newest = list[0]
		if _, id := splitFork(list[0].Lineage); id != "" {
			st.Home = id == r.id
		}
	}
	return st, nil
}

// Ahead tells whether this standing is the one to go on from rather than the other: the later epoch and step, or, where
// the two were begun independently, so that their epochs mean nothing to each other, the later step. Of two equal ones it
// is the one where the lineage may be written.
func (s Standing) Ahead(o Standing) bool {
	by := cmp.Compare(s.Newest.Step, o.Newest.Step)
	if s.Origin == o.Origin {
		by = s.Newest.compare(o.Newest)
	}
	return by > 0 || by == 0 && s.Home && !o.Home
}
