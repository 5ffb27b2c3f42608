package repository

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"nomad-spotter/checkpointer/layout"
	"nomad-spotter/checkpointer/pack"
	"nomad-spotter/checkpointer/store"
)

// Writer publishes snapshots of one lineage in one epoch. It is not safe for concurrent use.
type Writer struct {
	Lineage string
	Epoch   uint64
	Rank    int // of a gang
	Ranks   int // of the gang, which all are given one epoch; 0 or 1: there is none
	Options Options

	repo       *Repository
	record     *record  // the authority that it claimed from
	unreported int64    // bytes written for no snapshot in particular
	cleaned    bool     // what earlier attempts of this epoch left is gone
	intents    []string // keys of the intents of the save at work
	failed     []string // those of saves that failed
}

// Published tells what a publication did.
type Published struct {
	ID          string // with several ranks, of this rank's part
	RawBytes    int64
	StoredBytes int64 // new bytes in the store, metadata included
	Complete    bool  // with several ranks, whether the other parts are there as well
}

// Publish makes a snapshot of src durable. It fails with ErrSuperseded when a newer epoch exists. Publishing the same
// content again under the same step is harmless; other content under a step of this epoch is ErrConflict.
func (w *Writer) Publish(ctx context.Context, step int64, src Source, now time.Time) (Published, error) {
	p, err := w.publish(ctx, step, src, now)
	if err != nil {
		return Published{}, fmt.Errorf("publish step %d of %s: %w", step, w.Lineage, err)
	}
	return p, nil
}

func (w *Writer) publish(ctx context.Context, step int64, src Source, now time.Time) (p Published, err error) {
	m := &Manifest{Format: Format, Lineage: w.Lineage, Epoch: w.Epoch, Step: step, Name: src.Name(), Created: now.UTC(), Packs: []PackRef{}, Blocks: []Run{}}
	if err := CheckRank(w.Rank, w.Ranks); err != nil {
		return p, err
	}
	if w.Ranks > 1 {
		m.Rank, m.Ranks = w.Rank, w.Ranks
	}
	if !validName(m.Name) {
		return p, fmt.Errorf("name %q is not a file name in UTF-8", m.Name)
	}
	if err := w.current(ctx); err != nil {
		return p, err
	}
	if err := w.entitled(ctx); err != nil {
		return p, err
	}
	m.Authority, m.Forked = w.record.name(), w.record.Forked
	r := newReader(src)
	defer func() { err = errors.Join(err, r.close()) }()
	lay, err := r.layout()
	if err != nil {
		return p, err
	}
	if _, err := lay.Encode(); err != nil { // before anything is written
		return p, err
	}
	if w.Options.Precision == Compact {
		m.Precision = Compact
		if err := r.compact(ctx, lay, w.Options.workers()); err != nil {
			return p, err
		}
	}
	defer func() { w.cleaned = w.cleaned && err == nil }()
	base, first, err := w.begin(ctx, m.ID(), step)
	if err != nil {
		return p, err
	}
	var par *parent
	if base != nil {
		if par, err = w.parent(base); err != nil {
			return p, err
		}
		if par.local != nil {
			defer func() { err = errors.Join(err, par.local.close()) }()
		}
	}
	e := w.encoding(m, r, lay, par)
	e.made = first
	err = e.run(ctx)
	w.unreported += e.stored
	if err != nil {
		return p, err
	}
	e.finish()
	if err := src.Check(); err != nil {
		return p, err
	}
	n, complete, err := w.install(ctx, m)
	if err != nil {
		return p, err
	}
	w.unreported += n
	if err := w.end(ctx); err != nil {
		return p, err
	}
	p = Published{ID: m.ID(), RawBytes: m.RawBytes, StoredBytes: w.unreported, Complete: complete}
	w.unreported = 0
	return p, nil
}

// encoding prepares a save.
func (w *Writer) encoding(m *Manifest, r *reader, lay *layout.Layout, par *parent) *encoding {
	e := &encoding{
		writer: w, opts: w.Options, id: m.ID(), src: r, layout: lay, plan: layout.Plan(lay), parent: par, manifest: m,
		numbers: map[string]int{}, bases: map[address]bool{}, builder: pack.Builder{Memory: codedMemory},
	}
	if par != nil {
		e.match = par.places.Match(lay, e.plan, m.Step)
	}
	return e
}

// finish completes the manifest.
func (e *encoding) finish() {
	m := e.manifest
	m.RawBytes, m.Files = e.layout.RawBytes(), e.layout.Files()
	old := func(name string) PackRef { return e.parent.view.refs[name] }
	m.Layout = e.runs(e.head, old)
	m.Blocks = append(m.Blocks, e.runs(e.blocks, old)...)
	// And what those packs are decoded with, block by block.
	if e.parent == nil {
		return
	}
	seen := map[address]bool{}
	var follow func(a address)
	follow = func(a address) {
		ix := e.parent.view.packs[a.pack]
		if ix == nil || seen[a] || a.block >= len(ix.Blocks) {
			return
		}
		seen[a] = true
		e.addPack(old(a.pack))
		for from := range e.parent.view.bases(a) {
			if e.parent.view.mayUse(a, from) {
				follow(from)
			}
		}
	}
	for _, a := range slices.Concat(e.head, e.blocks) {
		follow(a)
	}
	for a := range e.bases {
		follow(a)
	}
}

// install writes the manifest, last of all, and tells whether the snapshot is complete with it.
func (w *Writer) install(ctx context.Context, m *Manifest) (n int64, complete bool, err error) {
	b, err := m.Encode()
	if err != nil {
		return 0, false, err
	}
	if err := w.current(ctx); err != nil {
		return 0, false, err
	}
	n, err = w.repo.store.Put(ctx, manifestKey(w.Lineage, m.ID()), bytes.NewReader(b))
	if errors.Is(err, store.ErrExists) {
		err = w.same(ctx, m)
	} else if err == nil {
		err = w.covered(ctx)
	}
	if err == nil {
		complete, err = w.complete(ctx, m.ID())
	}
	if err != nil {
		return 0, false, err
	}
	// A successor that claimed in between may not have seen this snapshot, or the last of its parts: only what it has seen
	// counts.
	if err := w.current(ctx); err != nil {
		return 0, false, err
	}
	noted, err := w.repo.note(ctx, Snapshot{Lineage: w.Lineage, ID: m.ID(), Epoch: m.Epoch, Step: m.Step})
	return n + noted, complete, err
}

// note says that a snapshot is durable, so that its manifest is missed should it get lost. Its writer may have been held up
// since it looked for newer epochs, and the snapshot may have been removed by now: then there must be no note.
func (r *Repository) note(ctx context.Context, s Snapshot) (int64, error) {
	key := lineageKey(s.Lineage, kindDurable, s.ID)
	n, err := r.store.Put(ctx, key, strings.NewReader(""))
	if errors.Is(err, store.ErrExists) {
		err = nil
	}
	if err != nil {
		return 0, err
	}
	if _, err = r.store.Stat(ctx, manifestKey(s.Lineage, s.ID)); errors.Is(err, store.ErrNotFound) {
		err = errors.Join(fmt.Errorf("%w: it was removed as soon as it was published", ErrSuperseded), r.store.Delete(ctx, key))
	}
	return n, err
}

// Current fails with ErrSuperseded when a newer epoch was claimed, and with ErrUnclaimed when this writer's was not.
func (w *Writer) Current(ctx context.Context) error {
	if err := w.current(ctx); err != nil {
		return fmt.Errorf("epoch %d of %s: %w", w.Epoch, w.Lineage, err)
	}
	return nil
}

// current fails when a newer epoch was claimed, or when this writer's own claim is not there: then something else is
// mounted in the store's place.
func (w *Writer) current(ctx context.Context) error {
	last, err := w.repo.lastEpoch(ctx, w.Lineage, kindEpochs, kindSeen)
	switch {
	case err != nil:
		return err
	case last > w.Epoch:
		return fmt.Errorf("%w: %d, this writer has %d", ErrSuperseded, last, w.Epoch)
	case last < w.Epoch:
		return fmt.Errorf("%s: %w: %d; is the right file system mounted there?", w.repo.URL(), ErrUnclaimed, w.Epoch)
	}
	return nil
}

// same fails unless the snapshot that is there already has the content of m.
func (w *Writer) same(ctx context.Context, m *Manifest) error {
	s := Snapshot{Lineage: m.Lineage, ID: m.ID(), Epoch: m.Epoch, Step: m.Step}
	old, err := w.repo.open(ctx, s)
	if err != nil {
		return err
	}
	now := &view{repo: w.repo, snapshot: s, manifest: m, packs: map[string]*pack.Index{}, refs: map[string]PackRef{}}
	for _, p := range m.Packs {
		if now.packs[p.Name], err = w.repo.index(ctx, s, p); err != nil {
			return err
		}
	}
	if err := now.resolve(ctx); err != nil {
		return err
	}
	if old.manifest.Name != m.Name || !old.equal(now) {
		return ErrConflict
	}
	if w.repo.keepsSums() {
		return nil
	}
	for _, p := range old.manifest.Packs { // also those that were trusted before: this is what will be called durable
		if err := w.repo.checkPack(ctx, s, p); err != nil {
			return err
		}
	}
	return nil
}

// equal tells whether two snapshots have the same content.
func (v *view) equal(o *view) bool {
	a, aerr := v.layout.Encode()
	b, berr := o.layout.Encode()
	if aerr != nil || berr != nil || !bytes.Equal(a, b) || len(v.blocks) != len(o.blocks) {
		return false
	}
	for i := range v.blocks {
		x, y := v.packs[v.blocks[i].pack].Blocks[v.blocks[i].block], o.packs[o.blocks[i].pack].Blocks[o.blocks[i].block]
		if x.Sum != y.Sum {
			return false
		}
	}
	return true
}

// parent prepares a snapshot to be coded against.
func (w *Writer) parent(v *view) (*parent, error) {
	b, err := v.layout.Encode()
	if err != nil {
		return nil, err
	}
	p := &parent{view: v, encoded: b, places: layout.NewMap(v.layout, v.plan, v.snapshot.Step)}
	if w.Options.Local == nil {
		return p, nil
	}
	if src := w.Options.Local(v.snapshot.ID); src != nil && sameFiles(src, v.layout) {
		p.local = newReader(src)
		if v.manifest.Precision == Compact {
			p.local.rounding = newRounding(v.layout)
		}
	}
	return p, nil
}

// sameFiles tells whether a source has the files of a layout, by name and size.
func sameFiles(src Source, l *layout.Layout) bool {
	return slices.EqualFunc(src.Entries(), l.Entries, func(a Entry, b layout.Entry) bool {
		return a.Path == b.Path && a.Dir == b.Dir && (a.Dir || a.Size == b.Size())
	})
}
