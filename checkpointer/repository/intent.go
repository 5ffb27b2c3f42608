package repository

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"nomad-spotter/checkpointer/store"
)

// unused returns a number above those of all packs that a snapshot has.
func (w *Writer) unused(ctx context.Context, id string) (int, error) {
	packs, err := w.repo.list(ctx, w.Lineage, kindPacks)
	if err != nil {
		return 0, err
	}
	next := 0
	for _, p := range packs {
		if of, _, ok := parsePackName(p.id); ok && of == id {
			next = max(next, packNumber(p.id)+1)
		}
	}
	return next, nil
}

// covered fails unless the intents of the save are there, after its manifest was created: another process that saved the
// same step in this epoch may have ended them, and a collection may have removed what it made, and then packs of this one.
func (w *Writer) covered(ctx context.Context) error {
	for _, key := range w.intents {
		_, err := w.repo.store.Stat(ctx, key)
		if errors.Is(err, store.ErrNotFound) {
			return fmt.Errorf("%w: another process saves this step in this epoch: claim an epoch for each, or save the step again", ErrConflict)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// begin says in the store that a save is under way and what it relies on, so that nothing of that is removed, and returns
// the snapshot to code against, if there is one. It is the first half of a protocol with Collect (gc.go): the writer
// creates its intent, then looks for removals; a removal is announced, then looks for intents. One of the two sees the
// other.
//
// first is the number of the first pack that the save makes. Those before it were there before the intent, left by an
// attempt whose intent has gone, and may be on a collection's list. The intent names the number, so that a later attempt
// that finds the intent knows which packs have been protected all the time: those it uses.
func (w *Writer) begin(ctx context.Context, id string, step int64) (base *view, first int, err error) {
	w.failed, w.intents = append(w.failed, w.intents...), nil
	first, err = w.clean(ctx, id)
	if err == nil && len(w.intents) == 0 {
		first, err = w.unused(ctx, id)
	}
	if err != nil {
		return nil, 0, err
	}
	list, err := w.parents(ctx, step)
	if err != nil {
		return nil, 0, err
	}
	for _, s := range list {
		if err := w.intend(ctx, intent{id, s.ID, first}); err != nil {
			return nil, 0, err
		}
		if base, err = w.usable(ctx, s); err != nil {
			return nil, 0, err
		}
		if base != nil {
			break
		}
	}
	if base == nil {
		if err := w.intend(ctx, intent{id, noParent, first}); err != nil {
			return nil, 0, err
		}
	}
	leaving, err := w.repo.leaving(ctx, Snapshot{Lineage: w.Lineage, ID: id})
	if err == nil && leaving {
		err = errors.Join(fmt.Errorf("%w: it is being removed", ErrConflict), w.end(ctx))
	}
	if err != nil {
		return nil, 0, err
	}
	return base, first, nil
}

// noParent stands for a snapshot in the intent of a save that relies on none.
const noParent = "none"

// intent is what the name of an intent tells.
type intent struct {
	id, parent string // parts; the parent may be noParent
	first      int    // number of the first pack that the save makes
}

func (i intent) String() string { return fmt.Sprintf("%s.%s.%d", i.id, i.parent, i.first) }

// parseIntent reverses intent.String; the part that is being saved comes with it.
func parseIntent(name string) (intent, part, error) {
	f := strings.Split(name, ".")
	if len(f) != 3 {
		return intent{}, part{}, fmt.Errorf("intent %q is not SNAPSHOT.PARENT.NUMBER", name)
	}
	p, err := parsePart(f[0])
	first, ferr := strconv.ParseUint(f[2], 10, 31)
	return intent{f[0], f[1], int(first)}, p, errors.Join(err, ferr)
}

func (w *Writer) intend(ctx context.Context, i intent) error {
	key := lineageKey(w.Lineage, kindSaves, i.String())
	_, err := w.repo.store.Put(ctx, key, strings.NewReader(""))
	if err != nil && !errors.Is(err, store.ErrExists) {
		return err
	}
	if !slices.Contains(w.intents, key) {
		w.intents = append(w.intents, key)
	}
	return nil
}

// end removes the intents of a save: not before it is over, so that there is one from its first effect to its last.
func (w *Writer) end(ctx context.Context) error {
	for _, key := range w.intents {
		if err := w.repo.store.Delete(ctx, key); err != nil {
			return err
		}
	}
	w.intents = nil
	return nil
}

// clean removes the intents that dead writers left, those of older epochs, and this writer's own of saves that failed. Those
// of the snapshot that is about to be saved stay until it is, and those of other processes of the epoch, which may be at work,
// until they end them or a later epoch begins.
// It returns the number of the first pack that has been protected by those.
func (w *Writer) clean(ctx context.Context, id string) (first int, err error) {
	if w.cleaned {
		return 0, nil
	}
	keys, err := w.repo.list(ctx, w.Lineage, kindSaves, kindSeen)
	if err != nil {
		return 0, err
	}
	claims := sightings(keys)
	for _, k := range keys {
		if k.kind != kindSaves {
			continue
		}
		i, p, err := parseIntent(k.id)
		if err != nil {
			continue
		}
		key := lineageKey(w.Lineage, kindSaves, k.id)
		switch {
		case i.id == id:
			w.intents = append(w.intents, key)
			first = max(first, i.first)
		case slices.Contains(w.failed, key), claims.over(Snapshot{Lineage: w.Lineage, Epoch: p.epoch}):
			if err := w.repo.store.Delete(ctx, key); err != nil {
				return 0, err
			}
		}
	}
	w.cleaned, w.failed = true, nil
	return first, nil
}
