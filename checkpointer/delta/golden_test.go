package delta

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/shoenig/test/must"
)

var update = flag.Bool("update", false, "write the golden files anew")

// goldenBlock makes the same block everywhere: whole-number arithmetic and exact conversions only.
func goldenBlock(elem Elem, n int, spread int64) (cur, ref []byte) {
	state := uint64(elem)*977 + 12345
	next := func() int64 { // about normal, of deviation 37,000
		var sum int64
		for range 4 {
			state = state*6364136223846793005 + 1442695040888963407
			sum += int64(state >> 48)
		}
		return sum - 4*32768
	}
	for range n {
		x := next()
		y := x + next()*spread/1_000_000
		switch elem.Width() {
		case 1:
			ref, cur = append(ref, byte(x>>11)), append(cur, byte(y>>11))
		case 2:
			a, b := math.Float32bits(float32(x)/(1<<22)), math.Float32bits(float32(y)/(1<<22))
			ref = binary.LittleEndian.AppendUint16(ref, uint16(a>>16))
			cur = binary.LittleEndian.AppendUint16(cur, uint16(b>>16))
		case 4:
			ref = binary.LittleEndian.AppendUint32(ref, math.Float32bits(float32(x)/(1<<22)))
			cur = binary.LittleEndian.AppendUint32(cur, math.Float32bits(float32(y)/(1<<22)))
		default:
			ref = binary.LittleEndian.AppendUint64(ref, math.Float64bits(float64(x)/(1<<22)))
			cur = binary.LittleEndian.AppendUint64(cur, math.Float64bits(float64(y)/(1<<22)))
		}
	}
	return append(cur, "end"[:elem.Width()&3]...), append(ref, "END"[:elem.Width()&3]...)
}

// TestGolden decodes blocks as they were once written, and finds that they are still written so. After a change of the
// encoder, go test ./checkpointer/delta -run Golden -update writes them anew; a decoder must go on reading old ones,
// which are in the history of testdata.
func TestGolden(t *testing.T) {
	for elem := Bytes; elem < elems; elem++ {
		for _, alone := range []bool{true, false} {
			for effort := Auto; effort <= Small; effort++ {
				name := fmt.Sprintf("%d-%d-%v", elem, effort, map[bool]string{true: "alone", false: "delta"}[alone])
				t.Run(name, func(t *testing.T) {
					cur, ref := goldenBlock(elem, 2500, 3000)
					given := ref
					if alone {
						given = nil
					}
					got, _ := NewEncoder(effort).Encode(nil, cur, given, elem)
					path := filepath.Join("testdata", name+".block")
					if *update {
						must.NoError(t, os.WriteFile(path, got, 0o600))
					}
					want, err := os.ReadFile(path)
					must.NoError(t, err)
					out := make([]byte, len(cur))
					must.NoError(t, NewDecoder().Decode(out, want, ref))
					must.True(t, bytes.Equal(cur, out), must.Sprint("the golden block decodes to something else"))
					must.True(t, bytes.Equal(want, got), must.Sprintf("encoded to %d bytes, once to %d", len(got), len(want)))
				})
			}
		}
	}
}

// TestUsedEncoder finds that what an encoder did before leaves no trace in its output.
func TestUsedEncoder(t *testing.T) {
	for effort := Auto; effort <= None; effort++ {
		used := NewEncoder(effort)
		for round := range 2 {
			for elem := Bytes; elem < elems; elem++ {
				cur, ref := goldenBlock(elem, 5000+round, 3000)
				text := []byte(strings.Repeat("optimizer state of ", 200+int(elem)))
				for _, given := range [][]byte{nil, ref} {
					want, needs := NewEncoder(effort).Encode(nil, cur, given, elem)
					got, also := used.Encode(nil, cur, given, elem)
					must.Eq(t, needs, also)
					must.True(t, bytes.Equal(want, got))
				}
				want, _ := NewEncoder(effort).Encode(nil, text, nil, Bytes)
				got, _ := used.Encode(nil, text, nil, Bytes)
				must.True(t, bytes.Equal(want, got))
			}
		}
	}
}

// TestLargest round-trips the largest blocks.
func TestLargest(t *testing.T) {
	e, d := NewEncoder(Auto), NewDecoder()
	for elem := Bytes; elem < elems; elem++ {
		cur, ref := goldenBlock(elem, MaxElems-1, 1000)
		cur, ref = cur[:(MaxElems-1)*elem.Width()], ref[:(MaxElems-1)*elem.Width()]
		cur, ref = append(cur, cur[:elem.Width()]...), append(ref, ref[:elem.Width()]...)
		roundTrip(t, e, d, cur, nil, elem)
		enc := roundTrip(t, e, d, cur, ref, elem)
		must.Less(t, len(cur)*3/4, len(enc), must.Sprintf("element %d", elem))
		long := append(cur, 1)
		enc, _ = e.Encode(nil, long, nil, elem)
		must.Eq(t, "stored", Method(enc))
	}
}

// TestRatio holds the codec to what it reaches on numbers like a model's.
func TestRatio(t *testing.T) {
	for _, tc := range []struct {
		elem   Elem
		spread int64 // change, in millionths of the numbers' deviation
		alone  float64
		delta  float64
	}{
		{F32, 3000, .84, .60},
		{F32, 30, .84, .43},
		{BF16, 3000, .68, .20},
		{BF16, 30, .68, .01},
	} {
		cur, ref := goldenBlock(tc.elem, 60_000, tc.spread)
		e := NewEncoder(Auto)
		enc, needs := e.Encode(nil, cur, nil, tc.elem)
		must.False(t, needs)
		must.LessEq(t, tc.alone, float64(len(enc))/float64(len(cur)), must.Sprint("alone ", tc))
		enc, needs = e.Encode(nil, cur, ref, tc.elem)
		must.True(t, needs)
		must.LessEq(t, tc.delta, float64(len(enc))/float64(len(cur)), must.Sprint("delta ", tc))
	}
}

// TestMaxDelta finds that a reference is not used where the block would take more than it may, but for what a sample's
// estimate is wrong by, and that the block is then coded as if there were none.
func TestMaxDelta(t *testing.T) {
	for elem := Bytes; elem < elems; elem++ {
		for _, effort := range []Effort{Auto, Fast, Small} {
			cur, ref := goldenBlock(elem, 50_000, 1000)
			e := NewEncoder(effort)
			alone, _ := e.Encode(nil, cur, nil, elem)
			free, needs := e.Encode(nil, cur, ref, elem)
			for _, limit := range []int{1, len(free) / 2, len(free) * 9 / 10, len(free) * 11 / 10, len(cur), 2 * len(cur)} {
				e.MaxDelta = limit
				got, with := e.Encode(nil, cur, ref, elem)
				must.True(t, !with || len(got) <= limit)
				switch {
				case limit > len(free) && needs:
					must.True(t, with)
					must.True(t, bytes.Equal(free, got))
				case needs:
					must.False(t, with, must.Sprint(elem, effort, limit, len(free), len(alone)))
					must.True(t, bytes.Equal(alone, got))
				}
			}
		}
	}
}

// TestMaxDelta_sample finds that the limit holds where the sample misleads: it is the reference's, all else is not.
func TestMaxDelta_sample(t *testing.T) {
	const n = 50_000
	cur, ref := goldenBlock(F32, n, 0)
	random := rand.New(rand.NewPCG(1, 2))
	e := NewEncoder(Fast)
	for i := range n {
		if i%((n-piece)/(e.pieces-1)) >= piece { // not in the sample
			cur[4*i], cur[4*i+1] = byte(random.Uint32()), byte(random.Uint32())
		}
	}
	free, with := e.Encode(nil, cur, ref, F32)
	must.True(t, with)
	e.MaxDelta = len(free) - 1
	got, with := e.Encode(nil, cur, ref, F32)
	alone, _ := NewEncoder(Fast).Encode(nil, cur, nil, F32)
	must.False(t, with)
	must.True(t, bytes.Equal(alone, got))
}

func TestMethod(t *testing.T) {
	cur, ref := goldenBlock(F32, 5000, 1000)
	text := []byte(strings.Repeat("layers.3.attention.weight ", 300))
	near := bytes.Clone(text)
	for i := range len(near) / 50 {
		near[i*50] ^= byte(i*i*7 + i)
	}
	words := make([]byte, 4000)
	for i := range 1000 {
		binary.LittleEndian.PutUint32(words[4*i:], uint32(i*i))
	}
	for _, tc := range []struct {
		want     string
		cur, ref []byte
		elem     Elem
		effort   Effort
		needs    bool
	}{
		{want: "stored", cur: cur, ref: ref, elem: F32, effort: None},
		{want: "rotated", cur: cur, elem: F32},
		{want: "difference", cur: cur, ref: ref, elem: F32, needs: true},
		{want: "planes", cur: words, elem: Word32},
		{want: "bytes", cur: text, elem: Bytes},
		{want: "xor", cur: noisy(near, 1), ref: noisy(near, 2), elem: Bytes, needs: true},
	} {
		enc, needs := NewEncoder(tc.effort).Encode(nil, tc.cur, tc.ref, tc.elem)
		must.Eq(t, tc.want, Method(enc))
		must.Eq(t, tc.needs, needs)
	}
	must.Eq(t, "corrupt", Method(nil))
	must.Eq(t, "corrupt", Method([]byte{255}))
	_, err := NeedsRef(nil)
	must.ErrorIs(t, err, ErrCorrupt)
}

// noisy is b repeated, with the same noise over it whatever the salt, which changes one byte in a thousand.
func noisy(b []byte, salt byte) []byte {
	out := bytes.Repeat(b, 2)
	state := uint32(1)
	for i := range out {
		state = state*1664525 + 1013904223
		out[i] ^= byte(state >> 24)
		if i%1000 == 0 {
			out[i] += salt
		}
	}
	return out
}
