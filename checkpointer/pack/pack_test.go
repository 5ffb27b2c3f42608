package pack_test

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/shoenig/test/must"

	"nomad-spotter/checkpointer/delta"
	"nomad-spotter/checkpointer/pack"
)

// built is a pack of three blocks; the last is coded against two pieces of another pack.
func built(t testing.TB) (b []byte, ix *pack.Index, n int, sum pack.Sum) {
	t.Helper()
	var p pack.Builder
	must.EqOp(t, 0, p.Add([]byte("first"), pack.Block{Raw: 9, Elem: delta.F32, Sum: pack.SumOf([]byte("a"))}))
	must.EqOp(t, 1, p.Take(nil, pack.Block{Raw: 1, Elem: delta.Bytes, Sum: pack.SumOf([]byte("b"))}))
	other := p.Pack("other")
	must.EqOp(t, other, p.Pack("other"))
	must.EqOp(t, 2, p.Add([]byte("third"), pack.Block{Raw: 10, Elem: delta.BF16, Links: 2, Sum: pack.SumOf([]byte("c")), Base: []pack.Piece{
		{Pack: other, Block: 3, Off: 5, Len: 6}, {Pack: p.Pack("more"), Block: 0, Off: 0, Len: 4},
	}}))
	must.EqOp(t, 10, p.Len())
	c, ix, n, sum := p.Finish()
	b, err := io.ReadAll(io.NewSectionReader(c, 0, c.Size()))
	must.NoError(t, err)
	must.EqOp(t, c.Size(), int64(len(b)))
	must.EqOp(t, 0, p.Blocks()+p.Len())
	return b, ix, n, sum
}

func TestRoundTrip(t *testing.T) {
	b, ix, n, sum := built(t)
	foot := len(b) - pack.FooterLen
	gotLen, gotSum, err := pack.ParseFooter(b[foot:])
	must.NoError(t, err)
	must.EqOp(t, int64(n), gotLen)
	must.EqOp(t, sum, gotSum)
	got, err := pack.ParseIndex(b[foot-n:foot], sum, int64(foot-n))
	must.NoError(t, err)
	must.Eq(t, ix, got)
	must.Eq(t, []string{"other", "more"}, got.Packs)
	must.EqOp(t, "third", string(b[got.Blocks[2].Off:][:got.Blocks[2].Len]))
	must.NoError(t, pack.Verify(bytes.NewReader(b), int64(len(b)), int64(n), sum))
}

// A pack reads the same in whatever pieces, and is equal to itself alone.
func TestContent(t *testing.T) {
	var p pack.Builder
	var want []byte
	for i := range 40 {
		enc := bytes.Repeat([]byte{byte(i)}, i*7919%300_000)
		want = append(want, enc...)
		d := pack.Block{Raw: 1, Elem: delta.Bytes}
		if i%3 == 0 {
			p.Take(enc, d)
		} else {
			p.Add(enc, d)
			clear(enc) // it was copied
		}
	}
	c, _, _, _ := p.Finish()
	whole := make([]byte, c.Size())
	n, err := c.ReadAt(whole, 0)
	must.NoError(t, err)
	must.EqOp(t, len(whole), n)
	must.True(t, bytes.HasPrefix(whole, want))
	for _, off := range []int64{0, 1, 7918, 7919, 300_000, c.Size() - 1, c.Size(), c.Size() + 5} {
		for _, size := range []int{0, 1, 100_000, len(whole)} {
			got := make([]byte, size)
			n, err := c.ReadAt(got, off)
			rest := whole[min(off, c.Size()):]
			must.EqOp(t, min(size, len(rest)), n)
			must.True(t, bytes.Equal(got[:n], rest[:n]))
			must.EqOp(t, n < size, errors.Is(err, io.EOF))
		}
	}
	for name, other := range map[string][]byte{"short": whole[:len(whole)-1], "empty": nil, "long": append(bytes.Clone(whole), 0), "changed": append([]byte{9}, whole[1:]...)} {
		same, err := c.Equal(bytes.NewReader(other))
		must.NoError(t, err)
		must.False(t, same, must.Sprint(name))
	}
	same, err := c.Equal(bytes.NewReader(whole))
	must.NoError(t, err)
	must.True(t, same)
}

// short is a writer that takes so many bytes.
type short struct{ left int }

func (s *short) Write(p []byte) (int, error) {
	n := min(s.left, len(p))
	if s.left -= n; n < len(p) {
		return n, io.ErrShortWrite
	}
	return n, nil
}

// A pack is written in parts from wherever its reader is, in memory that the user gave.
func TestReader(t *testing.T) {
	asked := 0
	p := pack.Builder{Memory: func(n int) []byte {
		asked++
		return make([]byte, 0, n+10)
	}}
	for i := range 9 {
		enc := bytes.Repeat([]byte{byte(i)}, i*i)
		if i%4 == 0 {
			p.Take(enc, pack.Block{Raw: 1, Elem: delta.Bytes})
		} else {
			p.Add(enc, pack.Block{Raw: 1, Elem: delta.Bytes})
		}
	}
	must.Positive(t, asked)
	c, _, _, _ := p.Finish()
	must.NotNil(t, p.Memory)
	want, err := io.ReadAll(c.Reader())
	must.NoError(t, err)
	must.EqOp(t, c.Size(), int64(len(want)))
	for at := range len(want) + 1 {
		r := c.Reader()
		_, err := io.CopyN(io.Discard, onlyReader{r}, int64(at))
		must.NoError(t, err)
		var out bytes.Buffer
		n, err := r.WriteTo(&out)
		must.NoError(t, err)
		must.EqOp(t, int64(len(want)-at), n)
		must.True(t, bytes.Equal(want[at:], out.Bytes()))
		n, err = r.WriteTo(&out) // nothing is left
		must.NoError(t, err)
		must.Zero(t, n)
		if at < len(want) {
			n, err = c.Reader().WriteTo(&short{at})
			must.ErrorIs(t, err, io.ErrShortWrite)
			must.EqOp(t, int64(at), n)
		}
	}
}

// onlyReader hides how else a reader can be read.
type onlyReader struct{ io.Reader }

// Every changed bit and every truncation of a pack is noticed, and so is what is appended.
func TestVerifyDamage(t *testing.T) {
	b, _, n, sum := built(t)
	verify := func(b []byte, size int) error { return pack.Verify(bytes.NewReader(b), int64(size), int64(n), sum) }
	for i := range b {
		must.ErrorIs(t, verify(b[:i], len(b)), pack.ErrDamaged, must.Sprintf("cut at %d", i))
		for bit := range 8 {
			c := bytes.Clone(b)
			c[i] ^= 1 << bit
			must.ErrorIs(t, verify(c, len(b)), pack.ErrDamaged, must.Sprintf("bit %d of byte %d", bit, i))
		}
	}
	must.ErrorIs(t, verify(append(bytes.Clone(b), 0), len(b)), pack.ErrDamaged)
	failed := errors.New("disk failed")
	must.ErrorIs(t, pack.Verify(failing{failed}, int64(len(b)), int64(n), sum), failed)
}

// Blocks that no writer makes are refused, with what is wrong with them.
func TestParseIndex_refused(t *testing.T) {
	piece := func(lens ...int) (out []pack.Piece) {
		for _, n := range lens {
			out = append(out, pack.Piece{Len: n})
		}
		return out
	}
	for want, d := range map[string]pack.Block{
		"it is empty":                       {},
		"1 links, and a base of 0 pieces":   {Raw: 4, Links: 1},
		"0 links, and a base of 1 pieces":   {Raw: 4, Base: piece(4)},
		"its base has 3 bytes, it has 4":    {Raw: 4, Links: 1, Base: piece(3)},
		"a piece of its base is empty":      {Raw: 4, Links: 1, Base: piece(4, 0)},
		"65 links exceed 64":                {Raw: 4, Links: 65, Base: piece(4)},
		"its base has 500000 bytes, it has": {Raw: 4, Links: 1, Base: piece(500_000)},
	} {
		var p pack.Builder
		p.Pack("other")
		p.Add([]byte("x"), d)
		c, _, n, sum := p.Finish()
		b, err := io.ReadAll(c.Reader())
		must.NoError(t, err)
		foot := len(b) - pack.FooterLen
		_, err = pack.ParseIndex(b[foot-n:foot], sum, int64(foot-n))
		must.ErrorContains(t, err, want)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// What parses is what some Finish wrote, and nothing makes the parser allocate more than the index is long or panic.
func FuzzParseIndex(f *testing.F) {
	b, _, n, _ := built(f)
	foot := len(b) - pack.FooterLen
	f.Add(b[foot-n:foot], int64(foot-n))
	f.Add([]byte{}, int64(0))
	f.Add(bytes.Repeat([]byte{0xff}, 64), int64(1<<40))
	f.Fuzz(func(t *testing.T, enc []byte, body int64) {
		if body < 0 {
			return
		}
		ix, err := pack.ParseIndex(enc, pack.SumOf(enc), body)
		if err != nil {
			return
		}
		var end int64
		for _, d := range ix.Blocks {
			must.EqOp(t, end, d.Off)
			must.Between(t, 1, d.Raw, pack.MaxRaw)
			must.EqOp(t, d.Links > 0, len(d.Base) > 0)
			end += int64(d.Len)
			total := 0
			for _, p := range d.Base {
				must.Less(t, len(ix.Packs), p.Pack)
				total += p.Len
			}
			must.True(t, len(d.Base) == 0 || total == d.Raw)
		}
		must.EqOp(t, body, end)
	})
}

func FuzzParseFooter(f *testing.F) {
	b, _, _, _ := built(f)
	f.Add(b[len(b)-pack.FooterLen:])
	f.Fuzz(func(t *testing.T, b []byte) {
		n, _, err := pack.ParseFooter(b)
		if err == nil {
			must.Between(t, 0, n, pack.MaxIndex)
		}
	})
}
