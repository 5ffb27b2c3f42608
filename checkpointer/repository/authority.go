package repository

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
	"time"

	"nomad-spotter/checkpointer/store"
)

// A lineage has one epoch authority and one home: the repository in which it is written. Which, is in an object that the
// first claimant creates and that is never replaced. A copy of the lineage in another store has the same record, so that
// nobody can write there by mistake: what is done there on purpose is a fork (fork.go).

// Errors of claims that callers branch on.
var (
	// ErrForeign says that a lineage is not written in this store: the store is a replica, or a fork of the lineage in
	// another store has gone further.
	ErrForeign = errors.New("the lineage is not written in this store")
	// ErrAuthority says that a lineage's epochs come from elsewhere than the claimant would take one.
	ErrAuthority = errors.New("the lineage's epochs come from elsewhere")
)

// kindAuthority: recordID: where the lineage is written and where its epochs come from.
const kindAuthority = "@authority"

const recordID = "record"

// Authority gives out epochs for a store that cannot do so itself. An epoch is given out once, and later ones are higher.
type Authority interface {
	// Name is what manifests call it, such as "consul:dc1".
	Name() string
	// Next gives out an epoch above the given one.
	Next(ctx context.Context, lineage string, above uint64) (uint64, error)
}

// Claim says how an epoch is taken. The zero value takes it from the store.
type Claim struct {
	Writer string    // for people
	Now    time.Time // for people
	// Authority returns who gives out epochs of a lineage that begins in a store which cannot do so. It is called only where
	// that is needed; nil: there is none.
	Authority func(context.Context) (Authority, error)
	// SingleWriter says that nobody else writes the lineage, ever: then a store that does not create objects conditionally
	// will do. Nothing checks it.
	SingleWriter bool
	// Fork allows to go on in a store that is not the lineage's home.
	Fork bool
}

// record is what a lineage's authority record holds.
type record struct {
	Repository string  `json:"repository"` // the id of the lineage's home
	Epochs     string  `json:"epochs"`     // epochsStore, epochsSingle or an Authority's name
	Forked     *Origin `json:"forked,omitempty"`
}

const (
	epochsStore  = "store"
	epochsSingle = "single"
)

// name is what manifests call the authority.
func (a *record) name() string {
	if a.Epochs == epochsStore || a.Epochs == epochsSingle {
		return "repository:" + a.Repository
	}
	return a.Epochs
}

// idLen is the length of a repository's id: 12 random bytes and their CRC-32 (IEEE, big-endian) in hexadecimal digits. With
// an id that has suffered, a repository would pass for a replica.
const idLen = 32

func newID() string {
	var b [12]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(withSum(b[:]))
}

func withSum(b []byte) []byte {
	return binary.BigEndian.AppendUint32(slices.Clip(b), crc32.ChecksumIEEE(b))
}

func validID(id string) bool {
	b, err := hex.DecodeString(id)
	return err == nil && isID(id) && bytes.Equal(withSum(b[:12]), b)
}

// isID tells whether a text has the form of an id.
func isID(id string) bool {
	return len(id) == idLen && strings.Trim(id, "0123456789abcdef") == ""
}

// ID is the repository's own, a random one.
func (r *Repository) ID() string { return r.id }

// openHead reads the repository's head and, with create, makes it where there is none.
func (r *Repository) openHead(ctx context.Context, create bool) (head, error) {
	b, err := readObject(ctx, r.store, headKey, 1<<16)
	if errors.Is(err, store.ErrNotFound) {
		if lerr := r.headless(ctx); lerr != nil {
			return head{}, lerr
		}
	}
	if create && errors.Is(err, store.ErrNotFound) {
		made, merr := json.Marshal(head{Format: Format, ID: newID()})
		if merr != nil {
			return head{}, merr
		}
		n, perr := r.store.Put(ctx, headKey, bytes.NewReader(made))
		if perr != nil && !errors.Is(perr, store.ErrExists) {
			return head{}, perr
		}
		r.created.Store(n)
		b, err = readObject(ctx, r.store, headKey, 1<<16) // others may have been faster
	}
	if err != nil {
		return head{}, err
	}
	if create { // it may be there and not yet be durable
		if err := r.touch(ctx, b); err != nil {
			return head{}, err
		}
	}
	var h head
	if err := json.Unmarshal(b, &h); err != nil {
		return h, fmt.Errorf("decode %s: %w: %w", headKey, store.ErrDamaged, err)
	}
	if again, err := json.Marshal(h); h.Format == Format && (err != nil || !bytes.Equal(again, b)) {
		return h, fmt.Errorf("decode %s: %w: it is not as it was written, without a newline at its end", headKey, store.ErrDamaged)
	}
	return h, nil
}

// headless fails where lineages were written and their repository's head is missing: the head is made before them. With
// another one in its place, which has another id, they could not be written any more.
func (r *Repository) headless(ctx context.Context) error {
	list, err := r.store.List(ctx, "lineages/")
	if err != nil || len(list) == 0 {
		return err
	}
	if _, err := r.store.Stat(ctx, headKey); !errors.Is(err, store.ErrNotFound) {
		return err // somebody has created it just now
	}
	return fmt.Errorf("%w: %s is missing, though %s is there: bring it back from a backup or, in a store that is not encrypted, make it, without a newline at its end, {\"format\":%d,\"id\":\"ID\"}, where %s of a lineage that is written here says ID as its repository",
		store.ErrDamaged, headKey, list[0].Key, Format, "lineages/LINEAGE/"+kindAuthority+"/"+recordID)
}

// touch creates the head once more, with the content that it has: no harm where the store replaces it, and by that it shows
// that it does not create objects conditionally.
func (r *Repository) touch(ctx context.Context, content []byte) error {
	_, err := r.store.Put(ctx, headKey, bytes.NewReader(content))
	switch {
	case errors.Is(err, store.ErrExists):
		r.conditional.Store(true)
		return nil
	case err == nil:
		r.conditional.Store(false)
	}
	return err
}

// isConditional tells whether the store creates objects conditionally.
func (r *Repository) isConditional(ctx context.Context) (bool, error) {
	if r.conditional.Load() {
		return true, nil
	}
	b, err := readObject(ctx, r.store, headKey, 1<<16)
	if err == nil {
		err = r.touch(ctx, b)
	}
	return r.conditional.Load(), err
}

// record reads a lineage's authority record; nil if nobody has claimed it yet.
func (r *Repository) record(ctx context.Context, lineage string) (*record, error) {
	key := lineageKey(lineage, kindAuthority, recordID)
	b, err := readObject(ctx, r.store, key, maxRecord)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil //nolint:nilnil // there is none, and that is no failure
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", key, err)
	}
	a, err := parseRecord(b)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w: %w", key, store.ErrDamaged, err)
	}
	return a, nil
}

// parseRecord reads the content of an authority record.
func parseRecord(b []byte) (*record, error) {
	var a record
	if err := json.Unmarshal(b, &a); err != nil {
		return nil, err
	}
	if again, err := json.Marshal(a); err != nil || !bytes.Equal(again, b) {
		return nil, errors.New("it is not as it was written, without a newline at its end")
	}
	if !validID(a.Repository) || a.Epochs != epochsStore && a.Epochs != epochsSingle && !strings.Contains(a.Epochs, ":") {
		return nil, errors.New("it names no repository or no source of epochs")
	}
	return &a, nil
}

// settle makes sure of a lineage's authority record, and returns the one that is there and how many bytes it took.
func (r *Repository) settle(ctx context.Context, lineage string, c Claim, forked *Origin) (*record, int64, error) {
	key := lineageKey(lineage, kindAuthority, recordID)
	have, err := r.record(ctx, lineage)
	if err == nil && have == nil {
		have, err = r.orphaned(ctx, lineage)
	}
	if err != nil {
		return nil, 0, err
	}
	if have != nil {
		if r.conditional.Load() { // another store's Put would replace it
			err = r.harden(ctx, key)
		}
		return have, 0, err
	}
	want := record{Repository: r.id, Forked: forked}
	if want.Epochs, err = r.source(ctx, c); err != nil {
		return nil, 0, err
	}
	b, err := json.Marshal(want)
	if err != nil {
		return nil, 0, err
	}
	n, err := r.store.Put(ctx, key, bytes.NewReader(b))
	if err != nil && !errors.Is(err, store.ErrExists) {
		return nil, 0, err
	}
	if have, err = r.record(ctx, lineage); err == nil && have == nil { // others may have been faster
		err = errors.New("the authority record is gone")
	}
	return have, n, err
}

// orphaned fails when a lineage has epochs and no authority record; it returns the one that somebody has created just now.
func (r *Repository) orphaned(ctx context.Context, lineage string) (*record, error) {
	last, err := r.lastEpoch(ctx, lineage, claimKinds...)
	if err != nil || last == 0 {
		return nil, err
	}
	have, err := r.record(ctx, lineage)
	if err == nil && have == nil {
		err = fmt.Errorf("%w: %s is missing, though epoch %d was claimed: it says where the lineage is written; copy it from a replica, or, if the lineage is written in this store, make it, without a newline at its end, {\"repository\":%q,\"epochs\":%q}",
			store.ErrDamaged, lineageKey(lineage, kindAuthority, recordID), last, r.id, epochsStore)
	}
	return have, err
}

// source says where the epochs of a new lineage come from.
func (r *Repository) source(ctx context.Context, c Claim) (string, error) {
	ok, err := r.isConditional(ctx)
	switch {
	case err != nil:
		return "", err
	case ok:
		return epochsStore, nil
	case c.SingleWriter:
		return epochsSingle, nil
	case c.Authority == nil:
		return "", fmt.Errorf("%w; take epochs from Consul, or say that nobody else ever writes the lineage (single_writer)", store.ErrNotConditional)
	}
	a, err := c.Authority(ctx)
	if err != nil {
		return "", err
	}
	return a.Name(), nil
}

// admits tells whether a claim fits the record of a lineage, and returns who gives out the epoch; nil: the store does.
func (r *Repository) admits(ctx context.Context, a *record, c Claim) (Authority, error) {
	switch {
	case a.Repository != r.id:
		return nil, fmt.Errorf("%w: it is repository %s, the lineage is written in %s: reach that one, or go on as a fork", ErrForeign, r.id, a.Repository)
	case a.Epochs == epochsSingle && !c.SingleWriter:
		return nil, fmt.Errorf("%w: it has a single writer, who must say so (single_writer)", ErrAuthority)
	case a.Epochs == epochsSingle || a.Epochs == epochsStore:
		return nil, nil //nolint:nilnil // the store does
	case c.Authority == nil:
		return nil, fmt.Errorf("%w: from %s", ErrAuthority, a.Epochs)
	}
	from, err := c.Authority(ctx)
	if err == nil && from.Name() != a.Epochs {
		err = fmt.Errorf("%w: from %s, not from %s", ErrAuthority, a.Epochs, from.Name())
	}
	return from, err
}

// ClaimWith takes the next writer epoch of a lineage: who holds the highest one is the only writer. Where the lineage goes
// on as a fork the writer's lineage is the fork's.
func (r *Repository) ClaimWith(ctx context.Context, lineage string, c Claim) (*Writer, error) {
	w, err := r.claim(ctx, lineage, c)
	if err != nil {
		return nil, fmt.Errorf("claim epoch of %s in %s: %w", lineage, r.URL(), err)
	}
	return w, nil
}

func (r *Repository) claim(ctx context.Context, lineage string, c Claim) (*Writer, error) {
	if err := CheckLineage(lineage); err != nil {
		return nil, err
	}
	line, above, forked, err := r.line(ctx, lineage, c.Fork)
	if err != nil {
		return nil, err
	}
	a, stored, err := r.settle(ctx, line, c, forked)
	if err != nil {
		return nil, err
	}
	from, err := r.admits(ctx, a, c)
	if err != nil {
		return nil, err
	}
	b, err := json.Marshal(map[string]any{"writer": c.Writer, "at": c.Now.UTC()})
	if err != nil {
		return nil, err
	}
	for {
		last, err := r.lastEpoch(ctx, line, claimKinds...)
		if err != nil {
			return nil, err
		}
		next := max(last, above) + 1
		if from != nil {
			if next, err = from.Next(ctx, line, next-1); err != nil {
				return nil, err
			}
		}
		n, err := r.store.Put(ctx, lineageKey(line, kindEpochs, fmt.Sprintf("%08d", next)), bytes.NewReader(b))
		if errors.Is(err, store.ErrExists) {
			above = next // somebody else took it; a later one then
			continue
		}
		if err != nil {
			return nil, err
		}
		// What the claims of others start from is decided once only where objects are created conditionally, or nobody else is.
		others := r.conditional.Load() || from == nil
		seen, err := r.complete(ctx, line, next, others)
		if err != nil {
			return nil, err
		}
		return &Writer{repo: r, Lineage: line, Epoch: next, record: a, unreported: stored + n + seen + r.created.Swap(0)}, nil
	}
}

// entitled makes sure that this writer's lineage is written in this store, and that no fork has gone further.
func (w *Writer) entitled(ctx context.Context) error {
	if w.record == nil { // it was claimed by another process
		a, err := w.repo.record(ctx, w.Lineage)
		if err != nil {
			return err
		}
		if a == nil {
			return fmt.Errorf("%s: %w: %d; is the right file system mounted there?", w.repo.URL(), ErrUnclaimed, w.Epoch)
		}
		w.record = a
	}
	if w.record.Repository != w.repo.id {
		return fmt.Errorf("%w: it is repository %s, the lineage is written in %s", ErrForeign, w.repo.id, w.record.Repository)
	}
	return w.outrun(ctx)
}
