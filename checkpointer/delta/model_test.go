package delta

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/shoenig/test/must"
)

// TestFrequencies finds for any tokens frequencies that sum to 4,096, none of them 0 for a symbol that occurs.
func TestFrequencies(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 9))
	for range 3000 {
		var tokens [256]uint8
		for range 1 + r.IntN(256)*r.IntN(2) {
			tokens[r.IntN(256)] = uint8(r.IntN(1 + 1 + r.IntN(maxToken)))
		}
		if r.IntN(3) == 0 {
			tokens = [256]uint8(bytes.Repeat([]byte{1}, 256))
			tokens[r.IntN(256)] = uint8(r.IntN(maxToken + 1))
		}
		var f [256]uint16
		frequencies(&f, &tokens)
		sum := 0
		for i, n := range f {
			sum += int(n)
			must.True(t, tokens[i] == 0 || n > 0)
			must.Less(t, scale, n)
		}
		must.Eq(t, scale, sum)
	}
}

func TestModelRoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(10, 10))
	for range 300 {
		var m, got tableModel
		m.classes = []int{0, 1, classes}[r.IntN(3)]
		m.tables = 1
		for i := 1; i < m.classes*256; i++ {
			if m.tables < maxTables && r.IntN(40) == 0 {
				m.tables++
			}
			m.table[i] = uint8(m.tables - 1)
		}
		for k := range m.tables {
			for i := range m.tokens[k] {
				m.tokens[k][i] = uint8(max(0, r.IntN(maxToken+21)-20))
			}
		}
		got.classes = m.classes
		must.NoError(t, got.read(m.write(nil)))
		must.Eq(t, m.tables, got.tables)
		must.True(t, m.table == got.table)
		must.True(t, m.tokens == got.tokens)
	}
}

// TestLog2 compares with floats.
func TestLog2(t *testing.T) {
	for n := uint32(1); n < 1<<31; n += n/7 + 1 {
		must.InDelta(t, math.Log2(float64(n)), float64(log2(n))/65536, 1e-4, must.Sprint(n))
		must.InDelta(t, float64(n)*math.Log2(float64(n)), float64(nlogn(n))/65536, float64(n)*1e-4+1e-9)
	}
	var counts [256]uint32
	for i := range counts {
		counts[i] = 1000
	}
	must.InDelta(t, 256*1000*8, float64(entropy(&counts))/65536, 20)
}

// TestQuiet finds that planes with far less than a bit per symbol take far less than a bit.
func TestQuiet(t *testing.T) {
	syms := make([]byte, 1<<16)
	r := rand.New(rand.NewPCG(11, 11))
	for range 600 {
		syms[r.IntN(len(syms))] = byte(1 + r.IntN(2))
	}
	e := NewEncoder(Auto)
	enc, needs := e.Encode(nil, syms, nil, Bytes)
	must.False(t, needs)
	must.LessEq(t, 1000, len(enc))
}
