package tensor

import (
	"bytes"
	"encoding/binary"
	"math"
	"strconv"
)

// maxValues bounds the lists, tuples, dictionaries and objects that a pickle may make, the height of its stack, and with
// a factor of two its memo. With the bound on a pickle's length it bounds memory and time.
const maxValues = 4 << 20

// machine interprets a pickle. See pickletools.py of CPython for the opcodes.
type machine struct {
	buf      []byte
	pos      int
	stack    []any
	marks    []int // heights of the stack
	memo     []any
	far      map[uint64]any      // what was memoized out of order
	values   int                 // made so far
	limit    int                 // see maxValues
	keys     int                 // bytes of the text made of keys
	storages map[string]*storage // by key
	bad      bool
}

// run returns the pickled value. It reports false if the pickle is damaged, or exceeds the bounds.
func (m *machine) run() (any, bool) {
	m.far = map[uint64]any{}
	for !m.bad {
		op := m.byte()
		if op == '.' {
			v := m.pop()
			return v, !m.bad
		}
		if !m.scalar(op) && !m.text(op) && !m.memory(op) && !m.container(op) && !m.object(op) {
			m.bad = true
		}
		if max(len(m.stack), len(m.marks), m.values, (len(m.memo)+len(m.far))/2) > m.limit {
			m.bad = true
		}
	}
	return nil, false
}

// take returns the next n bytes of the pickle.
func (m *machine) take(n uint64) []byte {
	if n > uint64(len(m.buf)-m.pos) {
		m.bad = true
		return nil
	}
	b := m.buf[m.pos : m.pos+int(n)]
	m.pos += int(n)
	return b
}

func (m *machine) byte() byte {
	if b := m.take(1); b != nil {
		return b[0]
	}
	return 0
}

// uint returns the next n bytes, at most 8, as a little-endian number.
func (m *machine) uint(n uint64) uint64 {
	var b [8]byte
	copy(b[:], m.take(n))
	return binary.LittleEndian.Uint64(b[:])
}

// line returns the next line.
func (m *machine) line() string {
	n := bytes.IndexByte(m.buf[m.pos:], '\n')
	if n < 0 {
		m.bad = true
		return ""
	}
	b := m.take(uint64(n) + 1)
	return string(b[:n])
}

func (m *machine) push(v any) { m.stack = append(m.stack, v) }

// pop takes the top value, but none from below the last mark.
func (m *machine) pop() any {
	floor := 0
	if len(m.marks) > 0 {
		floor = m.marks[len(m.marks)-1]
	}
	if len(m.stack) <= floor {
		m.bad = true
		return opaque{}
	}
	v := m.stack[len(m.stack)-1]
	m.stack = m.stack[:len(m.stack)-1]
	return v
}

// top returns the top value and leaves it.
func (m *machine) top() any {
	if len(m.stack) == 0 {
		m.bad = true
		return opaque{}
	}
	return m.stack[len(m.stack)-1]
}

// popMark takes the values above the last mark, and the mark. The result is overwritten by the next push.
func (m *machine) popMark() []any {
	if len(m.marks) == 0 {
		m.bad = true
		return nil
	}
	at := m.marks[len(m.marks)-1]
	m.marks = m.marks[:len(m.marks)-1]
	items := m.stack[at:]
	m.stack = m.stack[:at]
	return items
}

func (m *machine) pushNode() *node {
	m.values++
	n := &node{}
	m.push(n)
	return n
}

func (m *machine) pushTuple(items []any) {
	m.values++
	m.push(newTuple(append([]any(nil), items...)))
}

// scalar handles opcodes that push a number, text, or bytes given in binary.
func (m *machine) scalar(op byte) bool {
	switch op {
	case 0x80: // PROTO
		m.take(1)
	case 0x95: // FRAME
		m.take(8)
	case 'N', 0x97: // NONE, NEXT_BUFFER
		m.push(opaque{})
	case 0x98: // READONLY_BUFFER
	case 0x88, 0x89: // NEWTRUE, NEWFALSE
		m.push(op == 0x88)
	case 'K': // BININT1
		m.push(int64(m.uint(1)))
	case 'M': // BININT2
		m.push(int64(m.uint(2)))
	case 'J': // BININT
		m.push(int64(int32(m.uint(4))))
	case 0x8a: // LONG1
		m.push(long(m.take(m.uint(1))))
	case 0x8b: // LONG4
		m.push(long(m.take(m.uint(4))))
	case 'G': // BINFLOAT
		if b := m.take(8); b != nil {
			m.push(math.Float64frombits(binary.BigEndian.Uint64(b)))
		}
	case 'X', 'T': // BINUNICODE, BINSTRING
		m.push(string(m.take(m.uint(4))))
	case 0x8c, 'U': // SHORT_BINUNICODE, SHORT_BINSTRING
		m.push(string(m.take(m.uint(1))))
	case 0x8d: // BINUNICODE8
		m.push(string(m.take(m.uint(8))))
	case 'C': // SHORT_BINBYTES
		m.skip(1)
	case 'B': // BINBYTES
		m.skip(4)
	case 0x8e, 0x96: // BINBYTES8, BYTEARRAY8
		m.skip(8)
	default:
		return false
	}
	return true
}

// skip pushes a run of bytes whose length is given by a number of n bytes.
func (m *machine) skip(n uint64) {
	m.take(m.uint(n))
	m.push(opaque{})
}

// long is a little-endian number in two's complement.
func long(b []byte) any {
	if len(b) > 8 {
		return opaque{}
	}
	var v int64
	for i, x := range b {
		v |= int64(x) << (8 * i)
	}
	if n := len(b); n > 0 && n < 8 && b[n-1]&0x80 != 0 {
		v -= 1 << (8 * n)
	}
	return v
}

// text handles opcodes of protocol 0 that push what a line of text says.
func (m *machine) text(op byte) bool {
	switch op {
	case 'I', 'L': // INT, LONG
		s := m.line()
		if op == 'L' && len(s) > 0 && s[len(s)-1] == 'L' {
			s = s[:len(s)-1]
		}
		switch v, err := strconv.ParseInt(s, 10, 64); {
		case op == 'I' && s == "00":
			m.push(false)
		case op == 'I' && s == "01":
			m.push(true)
		case err == nil:
			m.push(v)
		default:
			m.push(opaque{})
		}
	case 'F': // FLOAT
		v, err := strconv.ParseFloat(m.line(), 64)
		if err != nil {
			m.push(opaque{})
		} else {
			m.push(v)
		}
	case 'S': // STRING
		s := m.line()
		if len(s) >= 2 {
			s = s[1 : len(s)-1]
		}
		m.push(s)
	case 'V': // UNICODE
		m.push(m.line())
	case 'P': // PERSID
		m.line()
		m.push(opaque{})
	default:
		return false
	}
	return true
}

// memory handles opcodes that move values: the stack's and the memo's.
func (m *machine) memory(op byte) bool {
	switch op {
	case '(': // MARK
		m.marks = append(m.marks, len(m.stack))
	case '0': // POP
		if n := len(m.marks); n > 0 && m.marks[n-1] == len(m.stack) {
			m.marks = m.marks[:n-1]
		} else {
			m.pop()
		}
	case '1': // POP_MARK
		m.popMark()
	case '2': // DUP
		m.push(m.top())
	case 'q': // BINPUT
		m.put(m.uint(1))
	case 'r': // LONG_BINPUT
		m.put(m.uint(4))
	case 0x94: // MEMOIZE
		m.put(uint64(len(m.memo) + len(m.far)))
	case 'p': // PUT
		m.put(m.number())
	case 'h': // BINGET
		m.get(m.uint(1))
	case 'j': // LONG_BINGET
		m.get(m.uint(4))
	case 'g': // GET
		m.get(m.number())
	default:
		return false
	}
	return true
}

// number returns the memo's index on the next line.
func (m *machine) number() uint64 {
	v, err := strconv.ParseUint(m.line(), 10, 32)
	if err != nil {
		m.bad = true
	}
	return v
}

func (m *machine) put(i uint64) {
	switch n := uint64(len(m.memo)); {
	case i < n:
		m.memo[i] = m.top()
	case i == n:
		m.memo = append(m.memo, m.top())
	default:
		m.far[i] = m.top()
	}
}

func (m *machine) get(i uint64) {
	if i < uint64(len(m.memo)) {
		m.push(m.memo[i])
		return
	}
	v, ok := m.far[i]
	if !ok {
		m.bad = true
		return
	}
	m.push(v)
}
