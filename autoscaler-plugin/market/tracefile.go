package market

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"
)

// maxTick bounds the length of one tick, so that a position in any trace fits a time.Duration.
const maxTick = 24 * time.Hour

// maxTicks bounds a trace in memory: 2^16 ticks of a day are 179 years, and less than the 292 years of a time.Duration.
const maxTicks = 1 << 16

// traceShape is said where a file is not one.
const traceShape = `it must be JSON like {"metadata":{"gap_seconds":195},"data":[1,0]}`

// ParseTrace reads a trace in the format of spot-traces. It reports every fault it finds, each with its field path, and
// refuses a file that looks inverted with a *PolarityError.
func ParseTrace(data []byte) (Trace, error) { return ReadTrace(bytes.NewReader(data), PolarityAsk) }

// ReadTrace reads a whole trace of at most 65,536 ticks, as ParseTrace does, of the given polarity. Its fields may stand in
// any order.
func ReadTrace(r io.Reader, polarity Polarity) (Trace, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return Trace{}, fmt.Errorf("parse trace: %w", err)
	}
	tr, err := OpenTrace(bytes.NewReader(metadataFirst(data)), polarity)
	if err != nil {
		return Trace{}, err
	}
	t := Trace{Tick: tr.tick}
	for {
		up, err := tr.Next()
		switch {
		case errors.Is(err, io.EOF):
			return t, nil
		case err != nil:
			return Trace{}, err
		case len(t.Up) == maxTicks:
			return Trace{}, fmt.Errorf("parse trace: data: more than %d ticks; cut the trace, or stream it", maxTicks)
		}
		t.Up = append(t.Up, up)
	}
}

// metadataFirst is a trace file with its metadata before all else, as a TraceReader wants it. What is no object is left
// as it is.
func metadataFirst(data []byte) []byte {
	dec := json.NewDecoder(bytes.NewReader(data))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return data
	}
	var metadata, others []string
	late := false
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return data
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return data
		}
		name, err := json.Marshal(key)
		if err != nil {
			return data
		}
		field := string(name) + ":" + string(value)
		if key == "metadata" {
			late = late || len(others) > 0
			metadata = append(metadata, field)
		} else {
			others = append(others, field)
		}
	}
	if _, err := dec.Token(); err != nil || !late {
		return data
	}
	return append([]byte("{"+strings.Join(append(metadata, others...), ",")+"}"), data[dec.InputOffset():]...)
}

// TraceReader hands out the ticks of a trace file one by one, in memory that does not grow with the file. The format is
// that of skypilot-org/spot-traces: {"metadata":{"gap_seconds":195},"data":[1,0,…]}; metadata stands before data. A field
// metadata.available, 0 or 1, may say which number means available. Other fields, such as prices, are skipped.
type TraceReader struct {
	dec      *json.Decoder
	tick     time.Duration
	inverted bool
	ones, n  int
	faults   faults
	seen     map[string]bool // fields that matter
	err      error           // what Next returns from now on
}

// OpenTrace reads a trace file up to its first tick. With PolarityAsk, a file that looks inverted is read to its end and
// refused with a *PolarityError: one with metadata.start_time or with generator = random_start_time, as only the slices
// of the simulator of "Can't Be Late" have them, in which 0 means available.
func OpenTrace(r io.Reader, polarity Polarity) (*TraceReader, error) {
	t := &TraceReader{dec: json.NewDecoder(r), seen: map[string]bool{}, inverted: polarity == PolarityInverted}
	var gap, available *float64
	packaged := ""
	begun, err := t.fields(func(path string) error {
		switch path {
		case "metadata.gap_seconds":
			return t.dec.Decode(&gap)
		case "metadata.available":
			return t.dec.Decode(&available)
		case "metadata.start_time":
			packaged = "it has metadata.start_time"
		case "generator":
			packaged = "it has a generator"
		}
		return t.skip()
	})
	if err != nil {
		return nil, t.syntax(err)
	}
	switch {
	case gap == nil:
		t.faults.add("metadata.gap_seconds: missing before data; put the metadata with the length of a tick in seconds first")
	case !(*gap >= 0.001 && *gap <= maxTick.Seconds()):
		t.faults.add("metadata.gap_seconds: %v is outside 0.001 to %v", *gap, maxTick.Seconds())
	default:
		t.tick = time.Duration(math.Round(*gap * float64(time.Second)))
	}
	if available != nil && *available != 0 && *available != 1 {
		t.faults.add("metadata.available: %v is neither 0 nor 1, the number that means available", *available)
	}
	if polarity == PolarityAsk && available != nil {
		t.inverted = *available == 0
	}
	if !begun {
		t.faults.add("data: empty; give at least one tick, 1 = available, 0 = not")
	}
	if len(t.faults.told) > 0 {
		if begun {
			t.drain()
		}
		return nil, t.faults.err("parse trace")
	}
	if polarity == PolarityAsk && available == nil && packaged != "" {
		t.drain()
		if err := t.faults.err("parse trace"); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("parse trace: %w", &PolarityError{
			Ones:   float64(t.ones) / float64(t.n),
			Reason: packaged + ", like the slices packaged with the simulator of Can't Be Late, where 0 is available",
		})
	}
	return t, nil
}

// Tick is the length of one tick.
func (t *TraceReader) Tick() time.Duration { return t.tick }

// Position is the end of the ticks that Next has handed out; after io.EOF, the length of the trace.
func (t *TraceReader) Position() time.Duration { return time.Duration(t.n) * t.tick }

// Next says whether the next tick is up. After the last it returns io.EOF; at the first fault it reads on to the end, and
// returns all faults together.
func (t *TraceReader) Next() (bool, error) {
	if t.err != nil {
		return false, t.err
	}
	up, ok := t.value()
	if ok && len(t.faults.told) == 0 {
		return up, nil
	}
	if ok {
		t.drain()
	}
	if t.err = t.faults.err("parse trace"); t.err == nil {
		t.err = io.EOF
	}
	return false, t.err
}

// drain reads to the end and keeps the faults.
func (t *TraceReader) drain() {
	for ok := true; ok; {
		_, ok = t.value()
	}
}

// value reads one element of data; false after the last, when what follows data has been read, too.
func (t *TraceReader) value() (up, ok bool) {
	if !t.dec.More() {
		if err := t.finish(); err != nil {
			t.faults.add("%s", t.where(err))
		}
		return false, false
	}
	token, err := t.dec.Token()
	if err != nil {
		t.faults.add("data[%d]: %s; NaN and empty values are gaps: cut the trace there", t.n, t.where(err))
		return false, false
	}
	at := t.n
	t.n++
	switch v, number := token.(float64); {
	case token == nil:
		t.faults.add("data[%d]: null is a gap: cut the trace there", at)
	case !number:
		t.faults.add("data[%d]: %s is neither 0 (not available) nor 1 (available)", at, written(token))
		if d, open := token.(json.Delim); open && (d == '[' || d == '{') {
			t.faults.add("data: holds lists; give one trace a file")
			return false, false
		}
	case v != 0 && v != 1:
		t.faults.add("data[%d]: %v is neither 0 (not available) nor 1 (available)", at, v)
	case t.tick > 0 && t.n > int(math.MaxInt64/t.tick):
		t.faults.add("data[%d]: later than 292 years; cut the trace", at)
		return false, false
	default:
		if v == 1 {
			t.ones++
		}
		return (v == 1) != t.inverted, true
	}
	return false, true
}

// finish reads what follows data.
func (t *TraceReader) finish() error {
	if _, err := t.dec.Token(); err != nil { // the end of data
		return err
	}
	if t.n == 0 {
		t.faults.add("data: empty; give at least one tick, 1 = available, 0 = not")
	}
	for t.dec.More() {
		key, err := t.dec.Token()
		if err != nil {
			return err
		}
		if err := t.field(fmt.Sprint(key)); err != nil {
			return err
		}
		if err := t.skip(); err != nil {
			return err
		}
	}
	if _, err := t.dec.Token(); err != nil { // the end of the file's object
		return err
	}
	if _, err := t.dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the trace")
	}
	return nil
}

// fields calls f for each field up to data, and says whether data begins; f reads the field's value. Objects of the name
// metadata are entered.
func (t *TraceReader) fields(f func(path string) error) (bool, error) {
	if err := t.open('{'); err != nil {
		return false, err
	}
	prefix := ""
	for {
		if !t.dec.More() {
			if _, err := t.dec.Token(); err != nil {
				return false, err
			}
			if prefix == "" {
				return false, nil
			}
			prefix = ""
			continue
		}
		token, err := t.dec.Token()
		if err != nil {
			return false, err
		}
		path := prefix + fmt.Sprint(token)
		if err := t.field(path); err != nil {
			return false, err
		}
		switch path {
		case "data":
			return true, t.open('[')
		case "metadata":
			if err := t.open('{'); err != nil {
				return false, err
			}
			prefix = "metadata."
		default:
			if err := f(path); err != nil {
				return false, fmt.Errorf("%s: %w", path, err)
			}
		}
	}
}

// field takes note of a field that matters, and refuses it the second time or in the wrong place.
func (t *TraceReader) field(path string) error {
	switch path {
	case "data", "metadata", "metadata.gap_seconds", "metadata.available":
	default:
		return nil
	}
	if t.seen[path] {
		return fmt.Errorf("%s: given twice", path)
	}
	if path == "metadata" && t.seen["data"] {
		return errors.New("metadata: must stand before data")
	}
	t.seen[path] = true
	return nil
}

func (t *TraceReader) open(want json.Delim) error {
	token, err := t.dec.Token()
	if err == nil && token != want {
		err = fmt.Errorf("%s where %v is expected", written(token), want)
	}
	return err
}

// written is a token as it stands in a file.
func written(token json.Token) string {
	switch v := token.(type) {
	case nil:
		return "null"
	case string:
		return strconv.Quote(v)
	}
	return fmt.Sprint(token)
}

// skip passes over one value, however long.
func (t *TraceReader) skip() error {
	for depth := 0; ; {
		token, err := t.dec.Token()
		if err != nil {
			return err
		}
		switch token {
		case json.Delim('['), json.Delim('{'):
			depth++
		case json.Delim(']'), json.Delim('}'):
			depth--
		}
		if depth == 0 {
			return nil
		}
	}
}

func (t *TraceReader) where(err error) string {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Sprintf("byte %d: %v: the file is empty or cut off; get it again", t.dec.InputOffset(), io.ErrUnexpectedEOF)
	}
	return fmt.Sprintf("byte %d: %v", t.dec.InputOffset(), err)
}

func (t *TraceReader) syntax(err error) error {
	return fmt.Errorf("parse trace: %s; %s", t.where(err), traceShape)
}
