package repository

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"nomad-spotter/checkpointer/store"
)

// One collection of a lineage is at work at a time: a pack or a manifest that one has on its list may be removed by another
// and made again, with the same name, before the first gets to it. A collection that died is not waited for for ever: it
// stops by its own clock long before others take it for dead by theirs. The time between allows for clocks that differ and
// for a request that was held up.
const (
	collectFor  = 2 * time.Hour  // a collection stops
	collectDead = 12 * time.Hour // others do not wait for it any more
	endWithin   = 10 * time.Second
)

// ErrCollecting says that another collection of the lineage is at work.
var ErrCollecting = errors.New("another collection of the lineage is at work, nothing was removed by this one")

// errHeld says that a collection has no right to remove anything any more; the next one goes on where it was.
var errHeld = errors.New("the collection was held up for too long, or its mark was dropped: collect again")

// collector is what the mark of a collection holds.
type collector struct {
	By      string    `json:"by"` // for people
	At      time.Time `json:"at"`
	Process string    `json:"process"`
}

// process tells marks of this process; working holds those of its collections that are at work. A mark that a collection
// could not take back is known by that to be a dead one's.
var (
	process = rand.Text()
	working sync.Map
)

// turn is the right to collect.
type turn struct {
	repo *Repository
	key  string
	at   time.Time
	now  func() time.Time
}

// take marks a collection as being at work, unless another one is.
func (r *Repository) take(ctx context.Context, lineage, by string, now func() time.Time) (*turn, error) {
	t := &turn{repo: r, key: lineageKey(lineage, kindCollect, rand.Text()), at: now().Round(0), now: now}
	if err := r.alone(ctx, lineage, "", t.at); err != nil { // first: a mark would only make that one fail which has come earlier
		return nil, err
	}
	b, err := json.Marshal(collector{by, t.at.UTC(), process})
	if err != nil {
		return nil, err
	}
	working.Store(t.key, true)
	_, err = r.store.Put(ctx, t.key, strings.NewReader(string(b)))
	if err == nil {
		// In this order: of two that come at once at least one sees the other.
		err = r.alone(ctx, lineage, t.key, t.at)
	}
	if err != nil {
		return nil, errors.Join(err, t.end(ctx))
	}
	return t, nil
}

// alone fails with ErrCollecting if there is the mark of another collection that may be at work.
func (r *Repository) alone(ctx context.Context, lineage, own string, now time.Time) error {
	keys, err := r.list(ctx, lineage, kindCollect)
	if err != nil {
		return err
	}
	for _, k := range keys {
		key := lineageKey(lineage, kindCollect, k.id)
		if key == own {
			continue
		}
		b, err := readObject(ctx, r.store, key, maxRecord)
		if errors.Is(err, store.ErrNotFound) {
			continue
		}
		var c collector
		if err == nil {
			err = json.Unmarshal(b, &c)
		}
		if err != nil {
			return fmt.Errorf("%w: %s cannot be read, %w; if none is, `checkpointer gc --drop-dead`", ErrCollecting, key, err)
		}
		_, busy := working.Load(key)
		if dead := now.Sub(c.At) >= collectDead || c.Process == process && !busy; !dead {
			return fmt.Errorf("%w: %s, since %s; if that one died, `checkpointer gc --drop-dead`, else collect again later", ErrCollecting, c.By, c.At.Format(time.RFC3339))
		}
		if err := r.store.Delete(ctx, key); err != nil {
			return err
		}
	}
	return nil
}

// valid fails with errHeld when others may not wait for this collection any more.
func (t *turn) valid() error {
	if d := t.now().Round(0).Sub(t.at); d < 0 || d > collectFor {
		return errHeld
	}
	return nil
}

// present fails with errHeld when the mark is not there any more.
func (t *turn) present(ctx context.Context) error {
	_, err := t.repo.store.Stat(ctx, t.key)
	if errors.Is(err, store.ErrNotFound) {
		return errHeld
	}
	return err
}

// remove deletes an object in the name of a collection.
func (t *turn) remove(ctx context.Context, key string) error {
	if err := t.valid(); err != nil {
		return err
	}
	return t.repo.store.Delete(ctx, key)
}

// end takes the mark back, also when the collection was told to stop.
func (t *turn) end(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endWithin)
	defer cancel()
	defer working.Delete(t.key)
	return t.repo.store.Delete(ctx, t.key)
}

// DropDead forgets what died and keeps collections of a lineage from removing anything: copies into it, claims and other
// collections. The caller makes sure that none of them is at work.
func (r *Repository) DropDead(ctx context.Context, lineage string) error {
	for _, drop := range []func(context.Context, string) error{r.dropCopies, r.dropClaims, r.dropCollections} {
		if err := drop(ctx, lineage); err != nil {
			return fmt.Errorf("drop what died of %s: %w", lineage, err)
		}
	}
	return nil
}

// dropCollections forgets the collections of a lineage. One that is still at work stops, unless it is removing already.
func (r *Repository) dropCollections(ctx context.Context, lineage string) error {
	keys, err := r.list(ctx, lineage, kindCollect)
	if err != nil {
		return err
	}
	for _, k := range keys {
		if err := r.store.Delete(ctx, lineageKey(lineage, kindCollect, k.id)); err != nil {
			return err
		}
	}
	return nil
}
