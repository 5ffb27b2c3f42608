package repository

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"nomad-spotter/checkpointer/internal/ctxio"
	"nomad-spotter/checkpointer/pack"
	"nomad-spotter/checkpointer/store"
)

// Errors of Copy that callers branch on.
var (
	// ErrFork says that both stores hold an object of the same key and of different content: they were written to
	// independently.
	ErrFork = errors.New("the two stores have different objects of the same key: they were written to independently, and a copy replaces nothing")
	// ErrUncollected says that the target holds packs that nothing there needs and the copy does: a collection may be about
	// to remove them.
	ErrUncollected = errors.New("the target holds packs that no snapshot there needs: run `checkpointer gc` there, then copy again")
)

// maxPack bounds what is read of one pack into memory, in bytes; writers end a pack at packBytes.
const maxPack = 1 << 30

// parallelCopies is how many packs are on their way at once, each in memory.
const parallelCopies = 3

// Copied tells what a copy did, or, from Missing, would do.
type Copied struct {
	Snapshot
	Packs int       `json:"packs"`        // that the snapshot needs
	New   []PackRef `json:"-"`            // of which were not in the target
	Count int       `json:"copied_packs"` // how many those are
	Bytes int64     `json:"copied_bytes"` // of those
	There bool      `json:"there"`        // the target had the whole snapshot
}

// CopyOptions say how a copy works. The zero value is a good default.
type CopyOptions struct {
	// Progress is called with the bytes of packs done since the last call, copied or found, by several goroutines.
	Progress func(bytes int64)
	// Run joins copies into one repository; nil: the copy is alone.
	Run *CopyRun
}

// Copy makes a replica of a snapshot in another store: the lineage's epochs, then all packs that the snapshot needs, each
// verified while it is read, then its manifest. What is there already is checked, by size and by sum, and not copied; in a
// file store the sum is that of the whole pack, elsewhere that of its index, as such stores keep sums of the rest. Nothing
// is ever replaced: ErrFork. A copy that was interrupted goes on when it is repeated. Until then a collection removes
// nothing from the lineage in the target (FORMAT.md, "Copies").
//
// A *DamageError is about the source. ErrSuperseded says that the snapshot would not count in the target, where a newer
// epoch was begun without it.
func Copy(ctx context.Context, from, to *Repository, s Snapshot, o CopyOptions) (Copied, error) {
	out := Copied{Snapshot: s, There: true}
	err := reserve(ctx, to, s)
	for _, p := range s.Parts() {
		c := &copying{from: from, to: to, opts: o, whole: s, out: Copied{Snapshot: p}}
		if err == nil {
			err = c.run(ctx)
		}
		out.add(c.out)
	}
	if err != nil && s.Ranks > 1 {
		err = giveUp(ctx, to, o.Run, lineageKey(s.Lineage, kindCopies, s.Part(s.Ranks-1).ID), err)
	}
	if err != nil {
		return Copied{}, fmt.Errorf("copy snapshot %s of %s from %s to %s: %w", s.ID, s.Lineage, from.URL(), to.URL(), err)
	}
	return out, nil
}

// add sums up what was done for the parts of a snapshot.
func (c *Copied) add(o Copied) {
	c.Packs += o.Packs
	c.New = append(c.New, o.New...)
	c.Count += o.Count
	c.Bytes += o.Bytes
	c.There = c.There && o.There
}

// Missing tells what Copy would do, and changes nothing. A target of nil stands for an empty store.
func Missing(ctx context.Context, from, to *Repository, s Snapshot) (Copied, error) {
	out := Copied{Snapshot: s, There: true}
	for _, p := range s.Parts() {
		c := &copying{from: from, to: to, whole: s, out: Copied{Snapshot: p}}
		err := c.read(ctx)
		if err == nil && to == nil {
			c.missing = c.manifest.Packs
		}
		if err == nil && to != nil {
			err = c.compare(ctx)
		}
		if err != nil {
			return Copied{}, fmt.Errorf("compare snapshot %s of %s: %w", s.ID, s.Lineage, err)
		}
		c.count()
		out.add(c.out)
	}
	return out, nil
}

// copying is one copy at work, of one part of a snapshot if it has several.
type copying struct {
	whole    Snapshot
	from, to *Repository
	opts     CopyOptions
	manifest *Manifest
	encoded  []byte // the manifest
	missing  []PackRef
	token    []byte // what the mark holds
	brought  []bool // of those that are missing, whether this copy made them
	out      Copied
}

func (c *copying) run(ctx context.Context) error {
	if err := c.records(ctx); err != nil {
		return err
	}
	// After the records, so that what they hide is not copied.
	if err := c.read(ctx); err != nil {
		return err
	}
	if err := c.counts(ctx); err != nil {
		return err
	}
	if err := c.compare(ctx); err != nil {
		return err
	}
	c.count()
	mark := lineageKey(c.out.Lineage, kindCopies, c.out.ID)
	if c.out.There && len(c.missing) == 0 {
		return unmark(ctx, c.to, mark)
	}
	if err := c.mark(ctx, mark); err != nil {
		return err
	}
	// Again: what was there before the mark may be gone.
	if err := c.compare(ctx); err != nil {
		return err
	}
	c.count()
	if err := c.packs(ctx); err != nil {
		c.handOver(mark)
		return giveUp(ctx, c.to, c.opts.Run, mark, err)
	}
	_, err := c.to.store.Put(ctx, manifestKey(c.out.Lineage, c.out.ID), bytes.NewReader(c.encoded))
	if errors.Is(err, store.ErrExists) {
		err = c.same(ctx)
	}
	if err == nil {
		err = c.covered(ctx, mark)
	}
	if err != nil {
		return err
	}
	if _, err := c.to.note(ctx, c.out.Snapshot); err != nil {
		return err
	}
	return unmark(ctx, c.to, mark)
}

func (c *copying) count() {
	c.out.Packs, c.out.New, c.out.Count, c.out.Bytes = len(c.manifest.Packs), c.missing, len(c.missing), 0
	for _, p := range c.missing {
		c.out.Bytes += p.Bytes
	}
}

// read reads the source's manifest.
func (c *copying) read(ctx context.Context) error {
	list, err := c.from.Snapshots(ctx, c.out.Lineage)
	if err != nil {
		return err
	}
	if !slices.Contains(list, c.whole) {
		return ErrNoSnapshot
	}
	if c.manifest, err = c.from.Manifest(ctx, c.out.Snapshot); err != nil {
		return err
	}
	c.encoded, err = c.manifest.Encode()
	return err
}

// records copies what decides which snapshots count: who claimed an epoch, and what he saw; and before all else where the
// lineage is written: who claims an epoch in the target must know that it is not there.
func (c *copying) records(ctx context.Context) error {
	have, err := c.claims(ctx)
	if err != nil {
		return err
	}
	there, err := c.to.list(ctx, c.out.Lineage, kindAuthority, kindEpochs, kindStarts, kindSeen)
	if err != nil {
		return err
	}
	seen, known := map[uint64]string{}, map[string]bool{} // in the target
	for _, k := range there {
		known[k.kind+"/"+k.id] = true
		if n, ok := k.epochOf(); ok && k.kind == kindSeen {
			seen[n] = k.id
		}
	}
	for _, k := range have {
		n, _ := k.epochOf()
		if other, ok := seen[n]; ok && k.kind == kindSeen && other != k.id {
			return c.fork(lineageKey(c.out.Lineage, kindSeen, k.id), lineageKey(c.out.Lineage, kindSeen, other))
		}
	}
	if err := c.record(ctx, kindAuthority, recordID, known[kindAuthority+"/"+recordID]); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(8)
	for _, k := range have {
		if there := known[k.kind+"/"+k.id]; !there || k.kind != kindSeen {
			g.Go(func() error { return c.record(ctx, k.kind, k.id, there) })
		}
	}
	return g.Wait()
}

// claims lists the records of the source's claims that are complete. An incomplete one says nothing yet, and would keep
// collections in the target from their work.
func (c *copying) claims(ctx context.Context) ([]object, error) {
	// In this order: the rest of a claim is there when its last record is.
	have, err := c.from.list(ctx, c.out.Lineage, kindSeen, kindStarts, kindEpochs)
	if err != nil {
		return nil, err
	}
	complete := map[uint64]bool{}
	for _, k := range have {
		if n, ok := k.epochOf(); ok && k.kind == kindSeen {
			complete[n] = true
		}
	}
	return slices.DeleteFunc(have, func(k object) bool {
		n, ok := k.epochOf()
		return !ok || !complete[n]
	}), nil
}

// maxRecord bounds an epoch's record, in bytes; a writer's name is in it.
const maxRecord = 1 << 20

// record copies one small object, or compares it with the one that is there; once in a process.
func (c *copying) record(ctx context.Context, kind, id string, there bool) error {
	key := lineageKey(c.out.Lineage, kind, id)
	done := "copied from " + c.from.URL() + ": " + key
	if _, ok := c.to.trusted.Load(done); ok {
		return nil
	}
	b, err := readObject(ctx, c.from.store, key, maxRecord)
	if errors.Is(err, store.ErrNotFound) {
		return damage(c.out.ID, c.out.Step, key, "missing")
	}
	if err != nil {
		return c.out.found(key, err)
	}
	if reason := unreadable(kind, b); reason != "" {
		return damage(c.out.ID, c.out.Step, key, reason)
	}
	if len(b) > maxRecord {
		return fmt.Errorf("%s has more than %d bytes", key, maxRecord)
	}
	err = store.ErrExists
	if !there {
		_, err = c.to.store.Put(ctx, key, bytes.NewReader(b))
	}
	if errors.Is(err, store.ErrExists) {
		var old []byte
		if old, err = readObject(ctx, c.to.store, key, maxRecord); err == nil && !bytes.Equal(old, b) {
			err = c.fork(key, key)
		}
	}
	if err == nil {
		c.to.trusted.Store(done, true)
	}
	return err
}

func (c *copying) fork(a, b string) error {
	return fmt.Errorf("%w: %s in %s, %s in %s", ErrFork, a, c.from.URL(), b, c.to.URL())
}

// counts fails unless the snapshot will count in the target.
func (c *copying) counts(ctx context.Context) error {
	keys, err := c.to.list(ctx, c.out.Lineage, kindSeen, kindRemoved, kindStale)
	if err != nil {
		return err
	}
	for _, k := range keys {
		if k.kind != kindSeen && k.id == c.whole.ID {
			return fmt.Errorf("it is being removed from the target: let `checkpointer gc` there come to its end, then copy again: %w", ErrUncollected)
		}
	}
	if sightings(keys).hide(c.whole) {
		return fmt.Errorf("%w in %s, begun without this snapshot", ErrSuperseded, c.to.URL())
	}
	return nil
}

// same fails unless the target's manifest is the source's.
func (c *copying) same(ctx context.Context) error {
	key := manifestKey(c.out.Lineage, c.out.ID)
	b, err := readObject(ctx, c.to.store, key, maxManifest)
	if err == nil && !bytes.Equal(b, c.encoded) {
		err = c.fork(key, key)
	}
	return err
}

// compare finds out what is missing in the target, and checks what is not.
func (c *copying) compare(ctx context.Context) error {
	switch err := c.same(ctx); {
	case err == nil:
		c.out.There = true
	case !errors.Is(err, store.ErrNotFound):
		return err
	}
	c.missing = nil
	there := make([]bool, len(c.manifest.Packs))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallelCopies)
	for i, p := range c.manifest.Packs {
		g.Go(func() (err error) {
			there[i], err = c.holds(ctx, p)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for i, p := range c.manifest.Packs {
		if !there[i] {
			c.missing = append(c.missing, p)
		}
	}
	return nil
}

// holds tells whether the target has a pack, as it was written.
func (c *copying) holds(ctx context.Context, p PackRef) (bool, error) {
	key := packKey(c.out.Lineage, p.Name)
	size, err := c.to.store.Stat(ctx, key)
	switch {
	case errors.Is(err, store.ErrNotFound):
		c.to.trusted.Delete(key)
		return false, nil
	case err != nil:
		return false, err
	case size != p.Bytes:
		return false, fmt.Errorf("%s has %d bytes in %s, %d in %s: one of them is damaged; `checkpointer verify` shows which", key, size, c.to.URL(), p.Bytes, c.from.URL())
	}
	if _, ok := c.to.trusted.Load(key); ok {
		return true, nil
	}
	if c.to.keepsSums() {
		_, err = c.to.index(ctx, c.out.Snapshot, p)
	} else {
		err = c.to.checkPack(ctx, c.out.Snapshot, p)
	}
	var d *DamageError
	if errors.As(err, &d) {
		return false, fmt.Errorf("%s is damaged in %s, %s: nothing is replaced; delete it there and copy again", key, c.to.URL(), d.Reason)
	}
	if err != nil {
		return false, err
	}
	c.to.trusted.Store(key, true)
	return true, nil
}

// packs copies what is missing.
func (c *copying) packs(ctx context.Context) error {
	if c.opts.Progress != nil {
		var needed int64
		for _, p := range c.manifest.Packs {
			needed += p.Bytes
		}
		c.opts.Progress(needed - c.out.Bytes)
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallelCopies)
	c.brought = make([]bool, len(c.missing))
	for i, p := range c.missing {
		g.Go(func() (err error) {
			c.brought[i], err = c.pack(ctx, p)
			return err
		})
	}
	return g.Wait()
}

// pack reads a pack, verifies it and creates it in the target. made tells that it was not there.
func (c *copying) pack(ctx context.Context, p PackRef) (made bool, err error) {
	key := packKey(c.out.Lineage, p.Name)
	if p.Bytes > maxPack {
		return false, fmt.Errorf("%s has %d bytes, more than %d", key, p.Bytes, maxPack)
	}
	rc, err := c.from.store.Get(ctx, key)
	if errors.Is(err, store.ErrNotFound) {
		return false, c.from.missing(ctx, c.out.Snapshot, key)
	}
	if err != nil {
		return false, c.out.found(key, err)
	}
	b, err := io.ReadAll(io.LimitReader(&counted{r: ctxio.Reader(ctx, rc), f: c.opts.Progress}, p.Bytes+1))
	if err = errors.Join(err, rc.Close()); err != nil {
		return false, c.out.found(key, fmt.Errorf("read %s: %w", key, err))
	}
	_, want, _ := parsePackName(p.Name) // the manifest was checked
	err = pack.Verify(bytes.NewReader(b), p.Bytes, p.Index, want)
	if errors.Is(err, pack.ErrDamaged) {
		return false, damage(c.out.ID, c.out.Step, key, strings.TrimPrefix(err.Error(), pack.ErrDamaged.Error()+": "))
	}
	if err != nil {
		return false, err
	}
	_, err = c.to.store.Put(ctx, key, bytes.NewReader(b))
	if made = err == nil; errors.Is(err, store.ErrExists) {
		_, err = c.holds(ctx, p)
	}
	if err == nil {
		c.to.trusted.Store(key, true)
	}
	return made, err
}

// counted tells how much was read.
type counted struct {
	r io.Reader
	f func(int64)
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	if c.f != nil && n > 0 {
		c.f(int64(n))
	}
	return n, err
}
