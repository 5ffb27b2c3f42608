package delta

const (
	maxRows        = 64 // groups of context bytes times classes, before merging
	maxGroups      = 16
	tableBits      = 40 // what a table costs in its model, beside symbolBits
	symbolHalfBits = 5  // half bits per symbol that occurs
)

// fitter counts symbols by context and finds the tables of a plane.
type fitter struct {
	model  tableModel
	row    [classes * 256]uint8 // context to row
	rows   int
	counts [4][maxRows * 256]uint32
	costs  [maxRows]uint64 // bits/65536 of each row, with its table
	joined [maxRows]uint64 // the same of a row and its successor in one
}

// group makes the rows: context bytes fall into at most groups ranges that hold about as many elements each, a byte
// with more being a range of its own, times the classes.
func (f *fitter) group(x []byte, classes, groups int) {
	var hist [256]uint32
	step := len(x)>>11 | 1 // two thousand tell enough
	for i := 0; i < len(x); i += step {
		hist[x[i]]++
	}
	share := uint32(len(x)/step/groups + 1)
	var in, used uint32
	for b := range 256 {
		c := hist[b]
		if in > 0 && in+c > share && used < uint32(groups-1) {
			used++
			in = 0
		}
		in += c
		f.row[b] = uint8(used)
	}
	f.rows = int(used) + 1
	for c := 1; c < classes; c++ {
		for b := range 256 {
			f.row[c*256+b] = f.row[b] + uint8(c*f.rows)
		}
	}
	f.rows *= classes
}

// context writes the row of each element to ctx; cls may be nil.
func (f *fitter) context(ctx, x, cls []byte) { contexts(ctx, x, cls, &f.row) }

// count counts syms, by the rows in ctx unless that is nil. Many symbols are counted in four banks, as the processor
// waits for one count of a symbol before the next of the same.
func (f *fitter) count(syms, ctx []byte) {
	if ctx == nil {
		f.rows = 1
	}
	used := f.rows * 256
	clear(f.counts[0][:used])
	if len(syms) < manySymbols {
		f.countFew(syms, ctx)
		return
	}
	a, b, c, d := &f.counts[0], &f.counts[1], &f.counts[2], &f.counts[3]
	clear(b[:used])
	clear(c[:used])
	clear(d[:used])
	whole := len(syms) &^ 3
	if ctx == nil {
		for s := syms[:whole]; len(s) >= 4; s = s[4:] {
			a[s[0]]++
			b[s[1]]++
			c[s[2]]++
			d[s[3]]++
		}
		f.countFew(syms[whole:], nil)
	} else {
		for s, x := syms[:whole], ctx[:whole]; len(s) >= 4 && len(x) >= 4; s, x = s[4:], x[4:] {
			a[uint(x[0]&(maxRows-1))<<8|uint(s[0])]++
			b[uint(x[1]&(maxRows-1))<<8|uint(s[1])]++
			c[uint(x[2]&(maxRows-1))<<8|uint(s[2])]++
			d[uint(x[3]&(maxRows-1))<<8|uint(s[3])]++
		}
		f.countFew(syms[whole:], ctx[whole:])
	}
	for i := range a[:used] {
		a[i] += b[i] + c[i] + d[i]
	}
}

const manySymbols = 1 << 14

// countFew counts into the first bank.
func (f *fitter) countFew(syms, ctx []byte) {
	counts := &f.counts[0]
	if ctx == nil {
		for _, s := range syms {
			counts[s]++
		}
		return
	}
	ctx = ctx[:len(syms)]
	for i, s := range syms {
		counts[uint(ctx[i]&(maxRows-1))<<8|uint(s)]++
	}
}

func (f *fitter) counted(row int) *[256]uint32 {
	return (*[256]uint32)(f.counts[0][row*256:])
}

// cost is the size of a table and of the symbols that it codes, in bits/65536.
func cost(counts *[256]uint32) uint64 {
	var total, symbols uint32
	var sum uint64
	for _, c := range counts {
		if c != 0 {
			symbols++
			total += c
			sum += nlogn(c)
		}
	}
	if symbols == 0 {
		return 0
	}
	whole := nlogn(total)
	return whole - min(whole, sum) + tableBits<<16 + uint64(symbols)*symbolHalfBits<<15
}

func jointCost(a, b *[256]uint32) uint64 {
	var both [256]uint32
	for i := range both {
		both[i] = a[i] + b[i]
	}
	return cost(&both)
}

// estimate is the size of what was counted, in bits/65536, with a table for each row: a sample's entropy is too low by
// about half a natural bit for each kind of symbol in it, and so is this estimate raised.
func (f *fitter) estimate() uint64 {
	var sum uint64
	for row := range f.rows {
		counts := f.counted(row)
		symbols := 0
		for _, c := range counts {
			if c != 0 {
				symbols++
			}
		}
		sum += entropy(counts) + uint64(max(symbols-1, 0))*47274 // 1/(2 ln 2)
	}
	return sum
}

// merge joins neighbouring rows while that makes the whole smaller, or there are too many, and leaves the model.
func (f *fitter) merge(classes, limit int) {
	var tableOf [maxRows]uint8
	var start [maxRows + 1]int // the first row of each run of joined rows
	n := f.rows
	for i := range n {
		start[i] = i
		f.costs[i] = cost(f.counted(i))
	}
	for i := range n - 1 {
		f.joined[i] = jointCost(f.counted(i), f.counted(i+1))
	}
	for n > 1 {
		best, gain := 0, int64(-1)<<62
		for i := range n - 1 {
			if g := int64(f.costs[i]+f.costs[i+1]) - int64(f.joined[i]); g > gain {
				best, gain = i, g
			}
		}
		if gain < 0 && n <= limit {
			break
		}
		into, gone := f.counted(start[best]), f.counted(start[best+1])
		for i := range into {
			into[i] += gone[i]
		}
		f.costs[best] = f.joined[best]
		n--
		copy(start[best+1:n], start[best+2:])
		copy(f.costs[best+1:n], f.costs[best+2:])
		copy(f.joined[best:max(n-1, best)], f.joined[best+1:])
		if best < n-1 {
			f.joined[best] = jointCost(into, f.counted(start[best+1]))
		}
		if best > 0 {
			f.joined[best-1] = jointCost(f.counted(start[best-1]), into)
		}
	}
	f.model.tables, f.model.classes = n, classes
	start[n] = f.rows
	for k := range n {
		counts := f.counted(start[k])
		var total uint32
		for _, c := range counts {
			total += c
		}
		for i, c := range counts {
			f.model.tokens[k][i] = token(c, total)
		}
		for row := start[k]; row < start[k+1]; row++ {
			tableOf[row] = uint8(k)
		}
	}
	for i := range classes * 256 {
		f.model.table[i] = tableOf[f.row[i]]
	}
}

// single tells whether all that was counted is one symbol.
func (f *fitter) single() (byte, bool) {
	found := -1
	for i, c := range f.counts[0][:f.rows*256] {
		if c != 0 {
			if found >= 0 && found != i&255 {
				return 0, false
			}
			found = i & 255
		}
	}
	return byte(max(found, 0)), true
}
