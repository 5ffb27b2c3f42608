package repository

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"nomad-spotter/checkpointer/layout"
	"nomad-spotter/checkpointer/pack"
)

// Limits on what a manifest may claim, so that a damaged or hostile one cannot exhaust memory.
const (
	maxManifest = 64 << 20 // bytes
	maxPacks    = 1 << 20
	maxLineage  = 1024 // bytes, once escaped
	maxElement  = 255  // bytes of one element of a lineage, once escaped: it is a file name
)

// PackRef names a pack that a snapshot needs.
type PackRef struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"` // of the whole pack
	Index int64  `json:"index"` // bytes of its index
}

// Run is a run of blocks of a pack: the pack's number in Manifest.Packs, the first block, how many.
type Run [3]int

// Manifest describes one snapshot. It is the last object that is written; the snapshot exists when it does.
type Manifest struct {
	Format    int       `json:"format"`
	Lineage   string    `json:"lineage"`
	Authority string    `json:"authority"`        // where its epoch comes from: "repository:ID", or that of an Authority
	Forked    *Origin   `json:"forked,omitempty"` // of a fork: what it went on from
	Epoch     uint64    `json:"epoch"`
	Step      int64     `json:"step"`
	Rank      int       `json:"rank,omitempty"`  // of a gang
	Ranks     int       `json:"ranks,omitempty"` // of the gang, from 2 on; 0: there is none
	Name      string    `json:"name"`            // base name of the checkpoint
	Created   time.Time `json:"created"`
	Precision Precision `json:"precision,omitempty"`
	RawBytes  int64     `json:"raw_bytes"` // size of the checkpoint's files
	Files     int       `json:"files"`
	Packs     []PackRef `json:"packs"`  // all that are needed to restore it
	Layout    []Run     `json:"layout"` // blocks of the layout
	Blocks    []Run     `json:"blocks"` // blocks of the content, in the order of the layout's plan
}

// ID is the snapshot's name within its lineage; that of a part where there are ranks.
func (m *Manifest) ID() string { return part{m.Epoch, m.Step, m.Rank, m.Ranks}.String() }

func snapshotID(epoch uint64, step int64) string { return fmt.Sprintf("%08d-%012d", epoch, step) }

// parseID reverses snapshotID.
func parseID(id string) (epoch uint64, step int64, err error) {
	e, s, ok := strings.Cut(id, "-")
	if ok {
		if epoch, err = strconv.ParseUint(e, 10, 64); err == nil {
			if step, err = strconv.ParseInt(s, 10, 64); err == nil && step >= 0 && snapshotID(epoch, step) == id {
				return epoch, step, nil
			}
		}
	}
	return 0, 0, fmt.Errorf("snapshot name %q is not EPOCH-STEP", id)
}

// ParseManifest reads what Encode wrote and refuses everything else: a wrong checksum, a path outside the checkpoint, a
// size below zero.
func ParseManifest(b []byte) (*Manifest, error) {
	if len(b) > maxManifest {
		return nil, fmt.Errorf("manifest of %d bytes exceeds %d", len(b), maxManifest)
	}
	body, sum, ok := bytes.Cut(b, []byte("\n"))
	if !ok || string(sum) != checksumLine(body) {
		return nil, errors.New("manifest checksum does not match")
	}
	var m Manifest
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&m); err != nil {
		return nil, fmt.Errorf("decode manifest: %w", err)
	}
	again, err := m.Encode()
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(again, b) {
		return nil, errors.New("manifest is not in the form that this format has")
	}
	return &m, nil
}

// Encode returns the manifest's bytes: one line of JSON and one with its checksum.
func (m *Manifest) Encode() ([]byte, error) {
	if err := m.check(); err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	body, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode manifest: %w", err)
	}
	b := append(append(body, '\n'), checksumLine(body)...)
	if len(b) > maxManifest {
		return nil, fmt.Errorf("manifest has %d bytes, more than %d: put fewer files into one checkpoint", len(b), maxManifest)
	}
	return b, nil
}

func checksumLine(body []byte) string {
	sum := sha256.Sum256(body)
	return "sha256:" + hex.EncodeToString(sum[:]) + "\n"
}

func (m *Manifest) check() error {
	switch {
	case m.Format != Format:
		return fmt.Errorf("format %d is not %d: use a newer checkpointer", m.Format, Format)
	case m.Epoch == 0:
		return errors.New("epoch is 0")
	case m.Step < 0:
		return fmt.Errorf("step %d is negative", m.Step)
	case m.Ranks == 1 || CheckRank(m.Rank, m.Ranks) != nil:
		return fmt.Errorf("rank %d of %d", m.Rank, m.Ranks)
	case !validName(m.Name):
		return fmt.Errorf("name %q is not a file name in UTF-8", m.Name)
	case m.Precision != Exact && m.Precision != Compact:
		return fmt.Errorf("precision %.300q is neither absent nor %q", string(m.Precision), string(Compact))
	case m.RawBytes < 0 || m.Files < 0 || m.Files > layout.MaxEntries:
		return fmt.Errorf("%d bytes in %d files", m.RawBytes, m.Files)
	case len(m.Packs) > maxPacks:
		return fmt.Errorf("%d packs exceed %d", len(m.Packs), maxPacks)
	case len(m.Layout) == 0:
		return errors.New("it has no layout")
	}
	if m.Authority == "" || len(m.Authority) > maxElement || !utf8.ValidString(m.Authority) {
		return fmt.Errorf("authority %.300q", m.Authority)
	}
	if err := m.Forked.check(); err != nil {
		return fmt.Errorf("forked: %w", err)
	}
	if err := CheckLineage(m.Lineage); err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, p := range m.Packs {
		if err := p.check(); err != nil {
			return fmt.Errorf("pack %q: %w", p.Name, err)
		}
		if seen[p.Name] {
			return fmt.Errorf("pack %q occurs twice", p.Name)
		}
		seen[p.Name] = true
	}
	for _, r := range slices.Concat(m.Layout, m.Blocks) {
		if r[0] < 0 || r[0] >= len(m.Packs) || r[1] < 0 || r[2] < 1 || r[1] > math.MaxInt32 || r[2] > math.MaxInt32 {
			return fmt.Errorf("run of %d blocks from block %d of pack %d", r[2], r[1], r[0])
		}
	}
	return nil
}

func (p PackRef) check() error {
	if _, _, ok := parsePackName(p.Name); !ok {
		return errors.New("that is no name of a pack")
	}
	if p.Index < 0 || p.Index > pack.MaxIndex || p.Bytes < p.Index+pack.FooterLen {
		return fmt.Errorf("it has %d bytes, its index %d", p.Bytes, p.Index)
	}
	return nil
}

// packName is the name of the n-th pack that the writer of a snapshot made: it ends with the sum of the pack's index, which
// covers all of the pack. A writer that is started again so finds what it had uploaded.
func packName(snapshot string, n int, sum pack.Sum) string {
	return fmt.Sprintf("%s-%04d-%x", snapshot, n, sum[:])
}

// parsePackName returns the snapshot for which a pack was made, and the sum of its index.
func parsePackName(name string) (snapshot string, sum pack.Sum, ok bool) {
	parts := strings.Split(name, "-")
	if len(parts) != 4 || len(parts[3]) != 2*pack.SumLen {
		return "", sum, false
	}
	n, err := strconv.Atoi(parts[2])
	b, herr := hex.DecodeString(parts[3])
	snapshot = parts[0] + "-" + parts[1]
	if _, ierr := parsePart(snapshot); err != nil || herr != nil || ierr != nil || n < 0 {
		return "", sum, false
	}
	sum = pack.Sum(b)
	return snapshot, sum, packName(snapshot, n, sum) == name
}

// packNumber returns the number of a pack among those of its snapshot; name is one that parsePackName takes.
func packNumber(name string) int {
	n, err := strconv.Atoi(strings.Split(name, "-")[2])
	if err != nil {
		return 0
	}
	return n
}

func validName(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.ContainsAny(name, "/\x00") && len(name) <= 255 && utf8.ValidString(name)
}

// CheckLineage tells whether a lineage's name can be used.
func CheckLineage(lineage string) error {
	if !utf8.ValidString(lineage) || strings.ContainsRune(lineage, 0) {
		return fmt.Errorf("lineage %q is not UTF-8 text", lineage)
	}
	esc := escape(lineage)
	if len(esc) > maxLineage {
		return fmt.Errorf("lineage %q has %d bytes, escaped as in a URL: at most %d are possible", lineage, len(esc), maxLineage)
	}
	for e := range strings.SplitSeq(esc, "/") {
		if e == "" || e == "." || e == ".." || len(e) > maxElement {
			return fmt.Errorf("lineage %q has the element %q: each must have 1 to %d bytes, escaped as in a URL, and be neither \".\" nor \"..\" itself", lineage, e, maxElement)
		}
	}
	return nil
}
