package layout_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/shoenig/test/must"

	"nomad-spotter/checkpointer/delta"
	"nomad-spotter/checkpointer/layout"
	"nomad-spotter/checkpointer/tensor"
)

func file(path string, sections ...tensor.Section) layout.Entry {
	return layout.Entry{Path: path, Mode: 0o644, Format: "torch", Sections: sections}
}

func weight(name string, n int64) tensor.Section {
	return tensor.Section{Name: name, Kind: tensor.Weight, DType: tensor.F32, Len: n}
}

func gap(n int64) tensor.Section { return tensor.Section{Len: n} }

func valid() *layout.Layout {
	return &layout.Layout{Entries: []layout.Entry{
		{Dir: true, Mode: 0o755},
		file("a_100.pt", gap(64), weight("w", 400), gap(8)),
		{Path: "d", Dir: true, Mode: 0o700},
		file("d/b", weight("v", 1<<20)),
		file("empty"),
	}}
}

func TestRoundTrip(t *testing.T) {
	l := valid()
	b, err := l.Encode()
	must.NoError(t, err)
	got, err := layout.Parse(b)
	must.NoError(t, err)
	again, err := got.Encode()
	must.NoError(t, err)
	must.EqOp(t, string(b), string(again))
	must.Eq(t, layout.Plan(l), layout.Plan(got))
	must.EqOp(t, 472+1<<20, got.RawBytes())
	must.EqOp(t, 3, got.Files())
}

func TestRefused(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(l *layout.Layout)
		err    string
	}{
		{"no entry", func(l *layout.Layout) { l.Entries = nil }, "first entry"},
		{"no root", func(l *layout.Layout) { l.Entries = l.Entries[1:] }, "first entry"},
		{"path leads up", func(l *layout.Layout) { l.Entries[1].Path = "../a" }, "within"},
		{"path leads up later", func(l *layout.Layout) { l.Entries[1].Path = "d/../../a" }, "within"},
		{"path absolute", func(l *layout.Layout) { l.Entries[1].Path = "/etc/passwd" }, "within"},
		{"path of the root", func(l *layout.Layout) { l.Entries[1].Path = "." }, "within"},
		{"path is not text", func(l *layout.Layout) { l.Entries[1].Path = "a\xff" }, "UTF-8"},
		{"path with a zero byte", func(l *layout.Layout) { l.Entries[1].Path = "a\x00" }, "within"},
		{"path twice", func(l *layout.Layout) { l.Entries[2].Path = "a_100.pt" }, "occurs twice"},
		{"path below a file", func(l *layout.Layout) { l.Entries[3].Path = "a_100.pt/b" }, "before its directory"},
		{"path before its directory", func(l *layout.Layout) { l.Entries[2], l.Entries[3] = l.Entries[3], l.Entries[2] }, "before its directory"},
		{"setuid", func(l *layout.Layout) { l.Entries[1].Mode = 0o4755 }, "only permission bits"},
		{"directory with content", func(l *layout.Layout) { l.Entries[2].Sections = []tensor.Section{gap(1)} }, "has content"},
		{"empty section", func(l *layout.Layout) { l.Entries[1].Sections[0].Len = 0 }, "of 0 bytes"},
		{"size below zero", func(l *layout.Layout) { l.Entries[1].Sections[0].Len = -1 }, "of -1 bytes"},
		{"sizes overflow", func(l *layout.Layout) { l.Entries[1].Sections[0].Len = math.MaxInt64 }, "larger than"},
	} {
		l := valid()
		c.change(l)
		_, err := l.Encode()
		must.ErrorContains(t, err, c.err, must.Sprint(c.name))
	}
	for _, b := range []string{
		"", "null", "[]", "{}", `[{"path":"","dir":true,"mode":493},{"path":"a","mode":420,"sections":[["w"]]}]`,
		`[{"path":"","mode":420,"sections":[["w","?","f32",4]]}]`, `[{"path":"","mode":420,"sections":[["w","w","f33",4]]}]`,
		`[{"path":"","mode":420,"sections":[[1,2]]}]`, `[{"path":"","mode":420,"sections":[[1.5]]}]`,
	} {
		_, err := layout.Parse([]byte(b))
		must.Error(t, err, must.Sprint(b))
	}
}

// random returns a layout of sections of all sizes and types.
func random(r *rand.Rand) *layout.Layout {
	l := &layout.Layout{Entries: []layout.Entry{{Dir: true, Mode: 0o755}}}
	for i := range 1 + r.IntN(4) {
		e := file(fmt.Sprintf("f%d", i))
		for j := range r.IntN(30) {
			n := int64(1 + r.IntN(1<<[]int{3, 10, 18, 22}[r.IntN(4)]))
			switch r.IntN(3) {
			case 0:
				e.Sections = append(e.Sections, gap(n))
			case 1:
				e.Sections = append(e.Sections, weight(fmt.Sprint("w", j), 4*n))
			case 2:
				e.Sections = append(e.Sections, tensor.Section{Name: fmt.Sprint("m", j), Kind: tensor.Momentum, DType: tensor.BF16, Len: n})
			}
		}
		l.Entries = append(l.Entries, e)
	}
	return l
}

// A plan holds every byte of every file once, in blocks of one class and of a size that the codec takes.
func TestPlanCovers(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		l := random(r)
		covered := map[[2]int64]bool{} // file and offset of pieces
		ends := map[int]int64{}
		for _, b := range layout.Plan(l) {
			n := 0
			for _, p := range b.Pieces {
				must.Positive(t, p.Len)
				must.False(t, covered[[2]int64{int64(p.Entry), p.Off}])
				covered[[2]int64{int64(p.Entry), p.Off}] = true
				ends[p.Entry] += int64(p.Len)
				s := l.Entries[p.Entry].Sections[p.Section]
				must.LessEq(t, s.Len, p.At+int64(p.Len))
				if s.DType == tensor.F32 {
					must.EqOp(t, delta.F32, b.Elem)
				}
				n += p.Len
			}
			must.EqOp(t, b.Len, n)
			must.Between(t, 1, b.Len, layout.BlockBytes)
		}
		for i, e := range l.Entries {
			must.EqOp(t, e.Size(), ends[i])
		}
	}
}

// Every byte of a snapshot is found at its own place in itself.
func TestMatchSelf(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 100 {
		l := random(r)
		plan := layout.Plan(l)
		for i, places := range layout.NewMap(l, plan, 5).Match(l, plan, 6) {
			must.Eq(t, []layout.Place{{Block: i, Off: 0, Len: plan[i].Len}}, places)
		}
	}
}

// A tensor is found by its name wherever it has gone: to another offset, into another block, behind others; the step may
// be in the name of the file. One that has another size or type is not found, and its block goes without.
func TestMatchMoved(t *testing.T) {
	before := &layout.Layout{Entries: []layout.Entry{{Dir: true}, file("step_100/a", gap(10), weight("big", 1<<20), weight("x", 400), weight("y", 800))}}
	after := &layout.Layout{Entries: []layout.Entry{
		{Dir: true},
		file("step_140/a", gap(11), weight("y", 800), weight("new", 4<<20), weight("x", 400), weight("big", 1<<20)),
	}}
	old := layout.Plan(before)
	plan := layout.Plan(after)
	got := layout.NewMap(before, old, 100).Match(after, plan, 140)
	bytesOf := func(places []layout.Place) (n int) {
		for _, p := range places {
			n += p.Len
		}
		return n
	}
	found := map[string]int{}
	for i, b := range plan {
		name := after.Entries[1].Sections[b.Pieces[0].Section].Name
		found[name] += bytesOf(got[i])
		if got[i] != nil {
			must.EqOp(t, b.Len, bytesOf(got[i]))
		}
	}
	must.Eq(t, map[string]int{"": 0, "new": 0, "y": 1200, "big": 1 << 20}, found)
	// y, then x: each in the one old block that has both, the other way round.
	for i, b := range plan {
		if len(b.Pieces) == 2 {
			must.Eq(t, []layout.Place{{Block: len(old) - 1, Off: 400, Len: 800}, {Block: len(old) - 1, Off: 0, Len: 400}}, got[i])
		}
	}
	// Without the step the file has another name.
	for i, places := range layout.NewMap(before, old, 100).Match(after, plan, 141) {
		must.Nil(t, places, must.Sprint(i))
	}
}

func FuzzParse(f *testing.F) {
	b, err := valid().Encode()
	must.NoError(f, err)
	f.Add(b)
	f.Add([]byte(`[{"path":"","mode":420,"sections":[[9223372036854775807]]}]`))
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := layout.Parse(b)
		if err != nil {
			return
		}
		b, err = l.Encode()
		must.NoError(t, err)
		again, err := layout.Parse(b)
		must.NoError(t, err)
		must.Eq(t, l.RawBytes(), again.RawBytes())
	})
}
