package tensor

import (
	"bytes"
	"encoding/binary"
	"io"
	"testing"

	"github.com/shoenig/test/must"
)

// items is a file as FileSystemWriter of torch.distributed.checkpoint writes it: an object, then two tensors.
func items() *image {
	m := &image{}
	for _, object := range []any{
		[]pair{{"step", 7}, {"rng", stored{"0", "ByteStorage", 5}}}, floats("0", 4), stored{"0", "HalfStorage", 4},
	} {
		n := map[bool]int{true: 5, false: 16}[m.size == 0]
		if s, ok := object.(stored); ok && s.class == "HalfStorage" {
			n = 8
		}
		m.zip(
			record{name: "archive/data.pkl", data: pickled(object)},
			record{name: "archive/data/0", data: bytes.Repeat([]byte{3}, n)},
			record{name: "archive/version", data: []byte("3\n")},
		)
	}
	return m
}

const itemsWant = "torch object.0.rng::u8:5 tensor.0::f32:16 tensor.1::f16:8"

func TestItems(t *testing.T) {
	m := items()
	got, err := Parse(m, m.size, "__0_0.distcp")
	must.NoError(t, err)
	must.Eq(t, itemsWant, describe(got))
	checkLayout(t, got, m.size)
	must.NoError(t, Complete(m, m.size, "__0_0.distcp"))

	// What is no zip, before, between and behind, is bytes; a single magic number leads nowhere.
	first := items()
	mixed := &image{}
	mixed.write([]byte("\x80\x02}.PK\x03\x04 and so on"))
	mixed.write(first.bytes())
	mixed.zeros(100_000)
	mixed.write([]byte("PK\x03\x04"))
	mixed.write(torchFile("archive", floats("0", 2), map[string]int64{"0": 8}).bytes())
	mixed.write([]byte("PK\x03\x04"))
	got, err = Parse(mixed, mixed.size, "__0_0.distcp")
	must.NoError(t, err)
	must.Eq(t, itemsWant+" tensor.2::f32:8", describe(got))
	checkLayout(t, got, mixed.size)

	// A last item that is cut short is bytes.
	cut := items().bytes()
	got, err = Parse(bytes.NewReader(cut), int64(len(cut)-1), "__0_0.distcp")
	must.NoError(t, err)
	must.Eq(t, "torch object.0.rng::u8:5 tensor.0::f32:16", describe(got))
	must.ErrorIs(t, Complete(bytes.NewReader(cut), int64(len(cut)-1), "__0_0.distcp"), ErrIncomplete)
}

func TestItemLengths(t *testing.T) {
	object := pickled(floats("0", 3))
	decoy := []byte("PK\x07\x08aaaaaaaaaaaa")
	cases := map[string][]record{
		"wide": {{name: "a/data.pkl", data: object, wide: true}, {name: "a/data/0", data: make([]byte, 12), wide: true}, {name: "a/version", wide: true}},
		"before the data": {
			{name: "a/data.pkl", data: object, known: true},
			{name: "a/data/0", data: make([]byte, 12), known: true},
			{name: "a/version", data: []byte("3\n"), known: true},
		},
		"other than the pickle says": {{name: "a/data.pkl", data: object}, {name: "a/data/0", data: make([]byte, 16)}},
		"with what looks like one":   {{name: "a/data.pkl", data: object}, {name: "a/data/0", data: append(decoy, decoy...)}},
	}
	for name, records := range cases {
		t.Run(name, func(t *testing.T) {
			m := &image{}
			m.zip(records...)
			m.zip(records...)
			got, err := Parse(m, m.size, "__0_0.distcp")
			must.NoError(t, err)
			checkLayout(t, got, m.size)
			must.Eq(t, 5, len(got.Sections))
			must.Eq(t, "tensor.0", got.Sections[1].Name)
			must.Eq(t, "tensor.1", got.Sections[3].Name)
			must.Eq(t, records[1].len(), got.Sections[1].Len)
		})
	}
}

// A file of tensors is not read as a whole: their lengths are known from the pickles. What is read is mostly the ends of
// the items, in search of the directories.
func TestItemsLarge(t *testing.T) {
	m := &image{}
	const large = 5 << 30
	for range 3 {
		m.zip(record{name: "archive/data.pkl", data: pickled(floats("0", large/4))}, record{name: "archive/data/0", zeros: large})
	}
	count := &counting{r: m}
	got, err := Parse(count, m.size, "__3_0.distcp")
	must.NoError(t, err)
	must.Eq(t, "torch tensor.0::f32:5368709120 tensor.1::f32:5368709120 tensor.2::f32:5368709120", describe(got))
	must.Less(t, 256<<10, count.bytes)
}

// Headers that promise much and lead nowhere do not take more than linear time.
func TestItemsHostile(t *testing.T) {
	m := &image{}
	m.zip(record{name: "a/data.pkl", data: []byte("}.")})
	one := m.bytes()[:66] // header and pickle, without the length behind it
	b := bytes.Repeat(one, 4000)
	count := &counting{r: bytes.NewReader(b)}
	got, err := Parse(count, int64(len(b)), "__0_0.distcp")
	must.NoError(t, err)
	must.Eq(t, raw(int64(len(b))), got)
	must.Less(t, 3*len(b)+(1<<20), count.bytes)
}

// Entries that all claim the same long data are not read one by one.
func TestSameEntryAgain(t *testing.T) {
	m := &image{}
	m.zip(record{name: "a/data.pkl", data: bytes.Repeat([]byte("x"), 100_000)}, record{name: "a/byteorder", data: []byte("little")})
	b := m.bytes()
	at := bytes.Index(b, centralMagic)
	one := bytes.Clone(b[at : at+centralSize+len("a/data.pkl")])
	end := bytes.Clone(b[len(b)-endSize:])
	b = append(b[:at], bytes.Repeat(one, 1000)...)
	binary.LittleEndian.PutUint32(end[12:], uint32(1000*len(one)))
	b = append(b, end...)
	count := &counting{r: bytes.NewReader(b)}
	got, err := Parse(count, int64(len(b)), "x.pt")
	must.NoError(t, err)
	must.Eq(t, Layout{Format: FormatTorch, Sections: []Section{{Len: int64(len(b))}}}, got)
	must.Less(t, 2*len(b), count.bytes)
}

// counting counts what is read.
type counting struct {
	r     io.ReaderAt
	bytes int
}

func (c *counting) ReadAt(b []byte, off int64) (int, error) {
	c.bytes += len(b)
	return c.r.ReadAt(b, off)
}
