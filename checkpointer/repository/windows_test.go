package repository_test

import (
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/shoenig/test/must"

	"nomad-spotter/checkpointer/delta"
	"nomad-spotter/checkpointer/layout"
	"nomad-spotter/checkpointer/pack"
	"nomad-spotter/checkpointer/repository"
	"nomad-spotter/checkpointer/store/storetest"
	"nomad-spotter/checkpointer/tensor"
)

// A save of which little changed reads little of its parent, not what lies ahead of every block that it needs.
func TestSparseSaveReads(t *testing.T) {
	s := &metered{Store: &storetest.Memory{}}
	r, err := repository.Open(t.Context(), s, true)
	must.NoError(t, err)
	w := claim(t, r, "l")
	b := make([]byte, 96<<20)
	_, err = rand.NewChaCha8([32]byte{1}).Read(b)
	must.NoError(t, err)
	publish(t, w, 1, memory{"c", map[string]string{"a": string(b)}})
	for i := range 3 {
		b[i*40<<20]++
	}
	s.read.Store(0)
	publish(t, w, 2, memory{"c", map[string]string{"a": string(b)}})
	must.Less(t, 30<<20, s.read.Load()) // three windows, one ahead of each, and indexes
}

// A block whose base has a million empty pieces, named forty thousand times, is damage and no work without end.
func TestHostileBase(t *testing.T) {
	const pieces, times, raw = 1_000_000, 40_000, 128 << 10
	mem := &storetest.Memory{}
	r, err := repository.Open(t.Context(), mem, true)
	must.NoError(t, err)
	publish(t, claim(t, r, "l"), 1, memory{"c", map[string]string{"a": "test"}})
	list, err := r.Snapshots(t.Context(), "l")
	must.NoError(t, err)
	m, err := r.Manifest(t.Context(), list[0])
	must.NoError(t, err)
	m.Step, m.RawBytes, m.Packs, m.Blocks = 2, raw*times, nil, nil
	add := func(b *pack.Builder) string {
		c, _, n, sum := b.Finish()
		name := fmt.Sprintf("%s-%04d-%s", m.ID(), len(m.Packs), hex.EncodeToString(sum[:]))
		_, err := mem.Put(t.Context(), "lineages/l/@packs/"+name, c.Reader())
		must.NoError(t, err)
		m.Packs = append(m.Packs, repository.PackRef{Name: name, Bytes: c.Size(), Index: int64(n)})
		return name
	}
	var first, second pack.Builder
	first.Add([]byte{0}, pack.Block{Raw: raw, Elem: delta.Bytes})
	second.Pack(add(&first))
	second.Add([]byte{0}, pack.Block{Raw: raw, Links: 1, Elem: delta.Bytes, Base: append(make([]pack.Piece, pieces), pack.Piece{Len: raw})})
	l := &layout.Layout{Entries: []layout.Entry{{Mode: 0o644, Format: "raw", Sections: []tensor.Section{{Len: raw * times}}}}}
	lay, err := l.Encode()
	must.NoError(t, err)
	z, err := zstd.NewWriter(io.Discard)
	must.NoError(t, err)
	lay = z.EncodeAll(lay, nil)
	enc, _ := delta.NewEncoder(delta.None).Encode(nil, lay, nil, delta.Bytes)
	second.Add(enc, pack.Block{Raw: len(lay), Elem: delta.Bytes, Sum: pack.SumOf(lay)})
	for range times { // as many blocks as the manifest names
		second.Add(nil, pack.Block{Raw: 1, Elem: delta.Bytes})
		m.Blocks = append(m.Blocks, repository.Run{1, 0, 1})
	}
	add(&second)
	m.Layout = []repository.Run{{1, 1, 1}}
	b, err := m.Encode()
	must.NoError(t, err)
	_, err = mem.Put(t.Context(), "lineages/l/@snapshots/"+m.ID(), strings.NewReader(string(b)))
	must.NoError(t, err)
	sn := list[0]
	sn.ID, sn.Step = m.ID(), 2
	_, _, err = r.Read(t.Context(), sn, func(string, int64, []byte) error { return nil })
	var d *repository.DamageError
	must.ErrorAs(t, err, &d)
	must.StrContains(t, d.Reason, "block 0")
}
