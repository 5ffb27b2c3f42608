package sealed

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"nomad-spotter/checkpointer/store"
)

const (
	plainKeys     = "keys"
	slotPrefix    = plainKeys + "/"
	removedPrefix = slotPrefix + "removed/"
	slotIDSize    = 8        // bytes, twice as many hexadecimal digits
	maxSlots      = 256      // objects below slotPrefix that are looked at
	maxSlot       = 16 << 10 // bytes
	maxComment    = 256      // bytes
	maxRemoved    = 10_000
	maxConflicts  = 100 // removals by others that come first while one is under way
)

// Errors of AddSlot and RemoveSlot that callers branch on.
var (
	ErrSlotExists = errors.New("this key opens a slot already")
	ErrOwnSlot    = errors.New("this slot is the only one that the given key is known to open: remove it with another key, so that one is left that opens")
	ErrNoSlot     = errors.New("no such key slot")
)

// Slot is one key slot.
type Slot struct {
	ID      string `json:"id"`
	Kind    Kind   `json:"kind"`    // of the user key that opens it
	Comment string `json:"comment"` // for people; not authenticated
}

func (s Slot) String() string {
	if s.Comment == "" {
		return fmt.Sprintf("%s (%s)", s.ID, s.Kind)
	}
	return fmt.Sprintf("%s (%s, %q)", s.ID, s.Kind, s.Comment)
}

// record is the content of a slot's object.
type record struct {
	Slot       int    `json:"slot"`       // Version
	Repository string `json:"repository"` // ID of the key within
	Kind       Kind   `json:"kind"`
	Comment    string `json:"comment,omitempty"`
	Wrapped    []byte `json:"wrapped"` // an age file that holds the repository's key
}

func checkComment(c string) error {
	if len(c) > maxComment || !isLine(c) {
		return fmt.Errorf("comment %q is not one line of at most %d bytes", c[:min(len(c), maxComment)], maxComment)
	}
	return nil
}

func isSlotID(id string) bool {
	b, err := hex.DecodeString(id)
	return err == nil && len(b) == slotIDSize
}

// parseRecord reads a slot's object.
func parseRecord(b []byte) (record, error) {
	var r record
	if err := json.Unmarshal(b, &r); err != nil {
		return record{}, fmt.Errorf("decode key slot: %w", err)
	}
	if r.Slot != Version {
		return record{}, fmt.Errorf("key slot has version %d, this program knows %d", r.Slot, Version)
	}
	if r.Kind != Passphrase && r.Kind != Random {
		return record{}, fmt.Errorf("key slot is of the unknown kind %q", r.Kind)
	}
	return r, checkComment(r.Comment)
}

// opened is a slot with its record.
type opened struct {
	Slot
	record record
}

// readSlots returns the slots of the repository's key id, all for "", sorted by ID. What cannot be read as a slot is not
// one, as anything may have been left there; an error of the store is an error.
func readSlots(ctx context.Context, s store.Store, id string) (out []opened, broken []string, err error) {
	entries, err := s.List(ctx, slotPrefix)
	if err != nil {
		return nil, nil, err
	}
	read := 0
	for _, e := range entries {
		name := strings.TrimPrefix(e.Key, slotPrefix)
		if !isSlotID(name) {
			continue
		}
		if read++; read > maxSlots {
			return nil, nil, fmt.Errorf("more than %d objects in %s: remove those that are no key slots", maxSlots, slotPrefix)
		}
		b, err := readUpTo(ctx, s, e.Key, maxSlot)
		if errors.Is(err, store.ErrNotFound) {
			continue // removed since
		}
		if err != nil {
			return nil, nil, err
		}
		r, err := parseRecord(b)
		switch {
		case err != nil:
			broken = append(broken, fmt.Sprintf("%s: %v", e.Key, err))
		case id == "" || r.Repository == id:
			out = append(out, opened{Slot{ID: name, Kind: r.Kind, Comment: r.Comment}, r})
		}
	}
	return out, broken, nil
}

// slotRepositories returns the IDs of repository keys that slots are of, sorted.
func slotRepositories(ctx context.Context, s store.Store) ([]string, error) {
	slots, _, err := readSlots(ctx, s, "")
	if err != nil {
		return nil, err
	}
	var out []string
	for _, o := range slots {
		out = append(out, o.record.Repository)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// unlock returns the repository's key and the IDs of slots that hold it for key.
func unlock(ctx context.Context, s store.Store, h head, key Key) (repository []byte, mine []string, err error) {
	slots, broken, err := readSlots(ctx, s, h.Repository)
	if err != nil {
		return nil, nil, err
	}
	repository, mine, err = tryAll(ctx, slots, h.Repository, key)
	if err != nil {
		return nil, nil, err
	}
	if repository != nil {
		return repository, mine, nil
	}
	names := make([]string, len(slots))
	for i, o := range slots {
		names[i] = o.String()
	}
	switch {
	case len(broken) > 0:
		err = fmt.Errorf("%w: %w: key slots that cannot be read: %s; others: %s", ErrWrongKey, store.ErrDamaged, strings.Join(broken, ", "), cmp.Or(strings.Join(names, ", "), "none"))
	case len(slots) == 0:
		err = fmt.Errorf("%w: %w: there is none of the key that %s names: bring %s back from a backup or restore from a replica", ErrWrongKey, store.ErrDamaged, headKey, plainKeys)
	default:
		err = fmt.Errorf("%w; the slots are: %s", ErrWrongKey, strings.Join(names, ", "))
	}
	return nil, nil, err
}

// tryAll opens slots with key. A passphrase is tried until the first slot opens, as each takes long; another key is tried
// on all.
func tryAll(ctx context.Context, slots []opened, id string, key Key) (repository []byte, mine []string, err error) {
	for _, o := range slots {
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
		if o.Kind != key.kind {
			continue
		}
		b, ok := key.unwrap(o.record.Wrapped)
		if !ok {
			continue
		}
		if have, err := idOf(b); err != nil || have != id {
			continue
		}
		repository, mine = b, append(mine, o.ID)
		if key.kind == Passphrase {
			break
		}
	}
	return repository, mine, nil
}

// putSlot stores a repository's key, of the given id, for a user's key. It returns the size in bytes of what it stored.
func putSlot(ctx context.Context, s store.Store, id string, repository []byte, key Key, comment string) (Slot, int64, error) {
	if err := checkComment(comment); err != nil {
		return Slot{}, 0, err
	}
	wrapped, err := key.wrap(repository)
	if err != nil {
		return Slot{}, 0, err
	}
	// A slot that does not open would be found out when it is too late.
	if b, ok := key.unwrap(wrapped); !ok || !bytes.Equal(b, repository) {
		return Slot{}, 0, errors.New("the new key slot does not open")
	}
	b, err := json.Marshal(record{Slot: Version, Repository: id, Kind: key.kind, Comment: comment, Wrapped: wrapped})
	if err != nil {
		return Slot{}, 0, err
	}
	name := make([]byte, slotIDSize)
	if _, err := rand.Read(name); err != nil {
		return Slot{}, 0, err
	}
	slot := Slot{ID: hex.EncodeToString(name), Kind: key.kind, Comment: comment}
	n, err := s.Put(ctx, slotPrefix+slot.ID, bytes.NewReader(b))
	return slot, n, err
}

// headOf is readHead for those who need an encrypted store.
func headOf(ctx context.Context, s store.Store) (head, error) {
	h, err := readHead(ctx, s)
	if errors.Is(err, store.ErrNotFound) {
		err = ErrNotEncrypted
	}
	return h, err
}

// Slots lists the key slots of an encrypted repository, sorted by ID. It needs no key.
func Slots(ctx context.Context, s store.Store) ([]Slot, error) {
	h, err := headOf(ctx, s)
	if err != nil {
		return nil, fmt.Errorf("list key slots of %s: %w", s.URL(), err)
	}
	slots, _, err := readSlots(ctx, s, h.Repository)
	if err != nil {
		return nil, fmt.Errorf("list key slots of %s: %w", s.URL(), err)
	}
	out := make([]Slot, len(slots))
	for i, o := range slots {
		out[i] = o.Slot
	}
	return out, nil
}

// AddSlot lets the key add open the repository, too, that have opens. It fails with ErrSlotExists if add does already.
func AddSlot(ctx context.Context, s store.Store, have, add Key, comment string) (Slot, error) {
	slot, err := addSlot(ctx, s, have, add, comment)
	if err != nil {
		return Slot{}, fmt.Errorf("add key slot to %s: %w", s.URL(), err)
	}
	return slot, nil
}

func addSlot(ctx context.Context, s store.Store, have, add Key, comment string) (Slot, error) {
	h, err := headOf(ctx, s)
	if err != nil {
		return Slot{}, err
	}
	repository, _, err := unlock(ctx, s, h, have)
	if err != nil {
		return Slot{}, err
	}
	switch _, mine, err := unlock(ctx, s, h, add); {
	case err == nil:
		return Slot{}, fmt.Errorf("%w: %s", ErrSlotExists, strings.Join(mine, ", "))
	case !errors.Is(err, ErrWrongKey):
		return Slot{}, err
	}
	slot, _, err := putSlot(ctx, s, h.Repository, repository, add, comment)
	return slot, err
}

// RemoveSlot removes a slot with a key that opens another one, so that the last one is never removed: ErrOwnSlot if have
// opens no other. Removals are put in order by creating keys/removed/1, 2 and so on, whatever other programs do at the same
// time: two that remove each other's slot do not both succeed. A removal that was interrupted may be repeated. A slot that
// is not there, nor was, is ErrNoSlot.
func RemoveSlot(ctx context.Context, s store.Store, have Key, id string) error {
	if err := removeSlot(ctx, s, have, id); err != nil {
		return fmt.Errorf("remove key slot %s from %s: %w", id, s.URL(), err)
	}
	return nil
}

// removal is the content of an object below removedPrefix.
type removal struct {
	Slot string `json:"slot"`
}

func removeSlot(ctx context.Context, s store.Store, have Key, id string) error {
	if !isSlotID(id) {
		return ErrNoSlot
	}
	h, err := headOf(ctx, s)
	if err != nil {
		return err
	}
	slots, _, err := readSlots(ctx, s, h.Repository)
	if err != nil {
		return err
	}
	removed := map[string]bool{}
	conflicts := 0
	for n := 1; n <= maxRemoved && conflicts <= maxConflicts; {
		key := fmt.Sprintf("%s%08d", removedPrefix, n)
		b, err := readUpTo(ctx, s, key, maxHead)
		if err == nil {
			var r removal
			if err := json.Unmarshal(b, &r); err != nil {
				return fmt.Errorf("decode %s: %w", key, err)
			}
			removed[r.Slot] = true
			n++
			continue
		}
		if !errors.Is(err, store.ErrNotFound) {
			return err
		}
		if !removed[id] {
			if err := mayRemove(ctx, slots, removed, h.Repository, have, id); err != nil {
				return err
			}
			if b, err = json.Marshal(removal{Slot: id}); err != nil {
				return err
			}
			_, err := s.Put(ctx, key, bytes.NewReader(b))
			if errors.Is(err, store.ErrExists) {
				conflicts++ // another removal came first: it counts, too
				continue
			}
			if err != nil {
				return err
			}
		}
		return s.Delete(ctx, slotPrefix+id)
	}
	return fmt.Errorf("more than %d removals, or more than %d at the same time", maxRemoved, maxConflicts)
}

// mayRemove fails unless id is a slot, and have opens another one that was not removed.
func mayRemove(ctx context.Context, slots []opened, removed map[string]bool, repository string, have Key, id string) error {
	found := false
	var others []opened
	for _, o := range slots {
		found = found || o.ID == id
		if o.ID != id && !removed[o.ID] {
			others = append(others, o)
		}
	}
	if !found {
		return ErrNoSlot
	}
	b, _, err := tryAll(ctx, others, repository, have)
	if err != nil || b != nil {
		return err
	}
	if b, _, err = tryAll(ctx, slots, repository, have); err != nil {
		return err
	}
	if b == nil {
		return ErrWrongKey
	}
	return ErrOwnSlot
}
