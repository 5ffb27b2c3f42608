package repository

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Limits on what a manifest may claim, so that a damaged or hostile one cannot exhaust memory.
const (
	maxManifest = 64 << 20 // bytes
	maxEntries  = 1 << 20  // files and directories of one checkpoint
	maxLineage  = 1024     // bytes, once escaped
	maxElement  = 255      // bytes of one element of a lineage, once escaped: it is a file name
)

// Entry is one file or directory of a checkpoint.
type Entry struct {
	Path   string      `json:"path"` // slash-separated, relative to the checkpoint; "" is the checkpoint itself
	Dir    bool        `json:"dir,omitempty"`
	Mode   fs.FileMode `json:"mode"` // permission bits
	Size   int64       `json:"size"` // bytes; 0 for a directory
	SHA256 string      `json:"sha256,omitempty"`
}

// Manifest describes one snapshot. It is the last object that is written; the snapshot exists when it does.
type Manifest struct {
	Format  int       `json:"format"`
	Lineage string    `json:"lineage"`
	Epoch   uint64    `json:"epoch"`
	Step    int64     `json:"step"`
	Name    string    `json:"name"` // base name of the checkpoint
	Created time.Time `json:"created"`
	Entries []Entry   `json:"entries"` // a directory before what is in it
}

// ID is the snapshot's name within its lineage.
func (m *Manifest) ID() string { return snapshotID(m.Epoch, m.Step) }

// RawBytes is the size of the checkpoint's files.
func (m *Manifest) RawBytes() int64 {
	var n int64
	for _, e := range m.Entries {
		n += e.Size
	}
	return n
}

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
		return nil, fmt.Errorf("manifest of %d entries has %d bytes, more than %d: put fewer files into one checkpoint", len(m.Entries), len(b), maxManifest)
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
	case !validName(m.Name):
		return fmt.Errorf("name %q is not a file name in UTF-8", m.Name)
	case len(m.Entries) == 0 || m.Entries[0].Path != "":
		return errors.New("the first entry is not the checkpoint itself")
	case len(m.Entries) > maxEntries:
		return fmt.Errorf("%d entries exceed %d", len(m.Entries), maxEntries)
	}
	if err := CheckLineage(m.Lineage); err != nil {
		return err
	}
	var total int64
	dirs := map[string]bool{}
	seen := map[string]bool{}
	for i, e := range m.Entries {
		if i > 0 && (!fs.ValidPath(e.Path) || e.Path == "." || strings.ContainsAny(e.Path, "\x00")) {
			return fmt.Errorf("path %q is not within the checkpoint", e.Path)
		}
		if seen[e.Path] {
			return fmt.Errorf("path %q occurs twice", e.Path)
		}
		seen[e.Path] = true
		if i > 0 && !dirs[parent(e.Path)] {
			return fmt.Errorf("path %q comes before its directory", e.Path)
		}
		if e.Mode != e.Mode.Perm() {
			return fmt.Errorf("path %q has mode %v: only permission bits are kept", e.Path, e.Mode)
		}
		if e.Dir {
			dirs[e.Path] = true
			if e.Size != 0 || e.SHA256 != "" {
				return fmt.Errorf("directory %q has content", e.Path)
			}
			continue
		}
		if e.Size < 0 {
			return fmt.Errorf("file %q has size %d", e.Path, e.Size)
		}
		if total > math.MaxInt64-e.Size {
			return fmt.Errorf("file %q of %d bytes makes the checkpoint larger than %d", e.Path, e.Size, int64(math.MaxInt64))
		}
		total += e.Size
		if b, err := hex.DecodeString(e.SHA256); err != nil || len(b) != sha256.Size || strings.ToLower(e.SHA256) != e.SHA256 {
			return fmt.Errorf("file %q has hash %q, which is no SHA-256", e.Path, e.SHA256)
		}
	}
	return nil
}

// parent is the directory of an entry's path; that of a top-level entry is the checkpoint itself, "".
func parent(p string) string {
	if d := path.Dir(p); d != "." {
		return d
	}
	return ""
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
