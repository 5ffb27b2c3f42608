package repository

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"

	"nomad-spotter/checkpointer/store"
)

// A copy marks in its target what it is about to bring, so that no collection removes it before its manifest is there. A
// second mark says that the copy has looked at what was there before the first one, and may rely on it.

// kindCopies: SNAPSHOT: it is being copied into this store; SNAPSHOT.checked: what is there may be relied on.
const kindCopies = "@copies"

const checkedMark = ".checked"

// mark says in the target that the copy is under way. Of the packs that are there it relies on those that a snapshot needs,
// and on those that came after the mark.
func (c *copying) mark(ctx context.Context, mark string) error {
	err := putMark(ctx, c.to, mark)
	if err != nil {
		return err
	}
	if c.token, err = readObject(ctx, c.to.store, mark, maxRecord); err != nil {
		return err
	}
	_, err = c.to.store.Stat(ctx, mark+checkedMark)
	if !errors.Is(err, store.ErrNotFound) {
		return err
	}
	if err := c.uncollected(ctx); err != nil {
		return giveUp(ctx, c.to, c.opts.Run, mark, err)
	}
	_, err = c.to.store.Put(ctx, mark+checkedMark, strings.NewReader(""))
	if errors.Is(err, store.ErrExists) {
		err = nil
	}
	return err
}

// putMark makes sure that there is a mark. Its content tells it from one that is made after it was removed.
func putMark(ctx context.Context, to *Repository, mark string) error {
	_, err := to.store.Put(ctx, mark, strings.NewReader(rand.Text()))
	if errors.Is(err, store.ErrExists) {
		return nil
	}
	return err
}

// covered fails unless the packs were protected until the manifest was there. Another copy of the snapshot has the same mark
// and may have ended it; then the snapshot may have been removed since, and what is left of that collection would remove
// packs of this one.
func (c *copying) covered(ctx context.Context, mark string) error {
	b, err := readObject(ctx, c.to.store, mark, maxRecord)
	if err == nil && bytes.Equal(b, c.token) {
		return nil
	}
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	// In this order: a collection that begins now sees the manifest.
	collecting, err := c.to.list(ctx, c.out.Lineage, kindCollect)
	if err != nil {
		return err
	}
	if len(collecting) > 0 {
		return fmt.Errorf("another copy of the snapshot has ended, and a collection is at work: copy again later: %w", ErrCollecting)
	}
	if err := c.compare(ctx); err != nil {
		return err
	}
	gone := len(c.missing) > 0
	for _, p := range c.whole.Parts() { // those that this copy has brought before are there, or all are gone
		if gone || p.ID == c.out.ID {
			break
		}
		_, err := c.to.store.Stat(ctx, manifestKey(p.Lineage, p.ID))
		if gone = errors.Is(err, store.ErrNotFound); err != nil && !gone {
			return err
		}
	}
	if gone {
		return errors.New("another copy of the snapshot has ended, and a collection has removed it: copy again")
	}
	return nil
}

// uncollected fails if the target has a pack that the copy needs and no snapshot there does.
func (c *copying) uncollected(ctx context.Context) error {
	packs, err := c.to.list(ctx, c.out.Lineage, kindPacks)
	if err != nil {
		return err
	}
	loose := map[string]bool{}
	for _, p := range packs {
		loose[p.id] = true
	}
	list, err := c.to.Snapshots(ctx, c.out.Lineage)
	if err != nil {
		return err
	}
	for _, s := range parts(list) {
		m, err := c.to.Manifest(ctx, s)
		var d *DamageError
		if errors.As(err, &d) || errors.Is(err, ErrNoSnapshot) {
			continue
		}
		if err != nil {
			return err
		}
		for _, p := range m.Packs {
			delete(loose, p.Name)
		}
	}
	for _, p := range c.manifest.Packs {
		if !loose[p.Name] {
			continue
		}
		key := packKey(c.out.Lineage, p.Name)
		if ok, err := c.opts.Run.protects(ctx, key); err != nil || !ok {
			return cmp.Or(err, fmt.Errorf("%w: %s", ErrUncollected, key))
		}
	}
	return nil
}

// reserve says in the target that the last part of a gang's snapshot is being copied, before the first one is: until that
// part is there, a collection does not take the others for the rest of a save that died.
func reserve(ctx context.Context, to *Repository, s Snapshot) error {
	if s.Ranks <= 1 || s.isPart() {
		return nil
	}
	return putMark(ctx, to, lineageKey(s.Lineage, kindCopies, s.Part(s.Ranks-1).ID))
}

// giveUp takes the marks away where repeating the copy would not help: in a run, where others may go on with what it has
// brought, at its end.
func giveUp(ctx context.Context, to *Repository, run *CopyRun, mark string, err error) error {
	var d *DamageError
	switch {
	case !hopeless(err):
		return err
	case run != nil && errors.As(err, &d):
		run.marks = append(run.marks, mark)
		return err
	}
	return errors.Join(err, unmark(ctx, to, mark))
}

// hopeless tells whether a copy would fail again.
func hopeless(err error) bool {
	var d *DamageError
	return errors.As(err, &d) || errors.Is(err, ErrUncollected) || errors.Is(err, ErrFork) || errors.Is(err, ErrSuperseded) || errors.Is(err, ErrNoSnapshot)
}

// unmark says that a copy is not under way any more.
func unmark(ctx context.Context, r *Repository, mark string) error {
	for _, key := range []string{mark + checkedMark, mark} {
		if err := r.store.Delete(ctx, key); err != nil {
			return err
		}
	}
	return nil
}

// Copies lists the snapshots of a lineage that are being copied into this store, or that a copy was to bring that died.
func (r *Repository) Copies(ctx context.Context, lineage string) ([]string, error) {
	keys, err := r.list(ctx, lineage, kindCopies)
	if err != nil {
		return nil, fmt.Errorf("list copies: %w", err)
	}
	out := []string{}
	for _, k := range keys {
		out = append(out, strings.TrimSuffix(k.id, checkedMark))
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// dropCopies forgets the copies into a lineage. Where one is still at work, what it has brought may be collected, and it may
// leave a snapshot without its packs.
func (r *Repository) dropCopies(ctx context.Context, lineage string) error {
	list, err := r.Copies(ctx, lineage)
	if err != nil {
		return err
	}
	for _, id := range list {
		if err := unmark(ctx, r, lineageKey(lineage, kindCopies, id)); err != nil {
			return err
		}
	}
	return nil
}

// unfinished returns the copies into a lineage that have no manifest yet; with tidy, the marks of others are removed.
func (r *Repository) unfinished(ctx context.Context, lineage string, tidy bool) ([]string, error) {
	list, err := r.Copies(ctx, lineage)
	if err != nil {
		return nil, err
	}
	out := []string{}
	for _, id := range list {
		switch _, err := r.store.Stat(ctx, manifestKey(lineage, id)); {
		case errors.Is(err, store.ErrNotFound):
			out = append(out, id)
		case err != nil:
			return nil, err
		case tidy:
			if err := unmark(ctx, r, lineageKey(lineage, kindCopies, id)); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// CopyRun joins the copies of several snapshots into one repository: what one has brought that failed because its source is
// damaged, the next ones go on with. It is not safe for concurrent use. End it with End.
type CopyRun struct {
	to      *Repository
	marks   []string          // of copies that failed
	brought map[string]string // key of a pack to the mark under which it was brought
}

// NewCopyRun begins copies into a repository.
func NewCopyRun(to *Repository) *CopyRun {
	return &CopyRun{to: to, brought: map[string]string{}}
}

// End lets collections remove what the copies that failed have brought, also when the copies were told to stop.
func (r *CopyRun) End(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endWithin)
	defer cancel()
	for _, mark := range r.marks {
		if err := unmark(ctx, r.to, mark); err != nil {
			return fmt.Errorf("end copies: %w", err)
		}
	}
	r.marks = nil
	return nil
}

// protects tells whether a pack may be relied on although no snapshot needs it: it came after the mark of a copy that is
// still marked, so that no collection has had a look at it that may remove anything.
func (r *CopyRun) protects(ctx context.Context, key string) (bool, error) {
	if r == nil || r.brought[key] == "" {
		return false, nil
	}
	_, err := r.to.store.Stat(ctx, r.brought[key])
	if errors.Is(err, store.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// handOver lets the run's next copies go on with what this one has brought under its mark. A snapshot that had its manifest
// in the target may have been removed meanwhile, whatever its mark.
func (c *copying) handOver(mark string) {
	if c.opts.Run == nil || c.out.There {
		return
	}
	for i, p := range c.missing {
		if c.brought[i] {
			c.opts.Run.brought[packKey(c.out.Lineage, p.Name)] = mark
		}
	}
}
