package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// A checkpoint is, in little-endian order:
//
//	magic     8 bytes   "SPTRAIN1"
//	header              struct header
//	perm      4 × examples
//	weights   4 × parameters
//	m         4 × parameters
//	v         4 × parameters
//	sha256    32 bytes  of everything before
const magic = "SPTRAIN1"

type header struct {
	Hidden uint32
	Step   int64
	RNG    uint64
	Pos    uint32
	Epoch  uint32
}

// encode returns the state as bytes.
func (s *state) encode() []byte {
	var b bytes.Buffer
	b.Grow(256 + 4*(len(s.order.perm)+3*len(s.weights)))
	b.WriteString(magic)
	h := header{Hidden: uint32(s.hidden), Step: s.step, RNG: s.rng.state, Pos: s.order.pos, Epoch: s.order.epoch}
	for _, v := range []any{h, s.order.perm, s.weights, s.m, s.v} {
		_ = binary.Write(&b, binary.LittleEndian, v) // a bytes.Buffer does not fail, and all values have fixed sizes
	}
	sum := sha256.Sum256(b.Bytes())
	b.Write(sum[:])
	return b.Bytes()
}

// decode reads what encode wrote.
func decode(b []byte) (*state, error) {
	if len(b) < len(magic)+sha256.Size || string(b[:len(magic)]) != magic {
		return nil, errors.New("not a checkpoint of this program")
	}
	body, sum := b[:len(b)-sha256.Size], b[len(b)-sha256.Size:]
	if got := sha256.Sum256(body); !bytes.Equal(got[:], sum) {
		return nil, fmt.Errorf("checkpoint is damaged: sha256 is %x, the file says %x", got, sum)
	}
	r := bytes.NewReader(body[len(magic):])
	var h header
	if err := binary.Read(r, binary.LittleEndian, &h); err != nil {
		return nil, fmt.Errorf("read header: %w", err)
	}
	n := parameters(int(h.Hidden))
	if want := 4 * (examples + 3*n); r.Len() != want {
		return nil, fmt.Errorf("checkpoint of %d hidden units holds %d bytes after its header, not %d", h.Hidden, r.Len(), want)
	}
	s := &state{
		hidden: int(h.Hidden), step: h.Step, rng: rng{state: h.RNG},
		order:   order{perm: make([]uint32, examples), pos: h.Pos, epoch: h.Epoch},
		weights: make([]float32, n), m: make([]float32, n), v: make([]float32, n),
	}
	for _, v := range []any{s.order.perm, s.weights, s.m, s.v} {
		if err := binary.Read(r, binary.LittleEndian, v); err != nil {
			return nil, fmt.Errorf("read checkpoint: %w", err)
		}
	}
	return s, nil
}

// model returns the weights alone: what training is for.
func (s *state) model() []byte {
	b := make([]byte, 0, 4*len(s.weights))
	b, _ = binary.Append(b, binary.LittleEndian, s.weights) // float32 values have a fixed size
	return b
}

// load reads the checkpoint at path.
func load(path string) (*state, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	s, err := decode(b)
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", path, err)
	}
	return s, nil
}

// checkpointName is the name of the checkpoint of a step; names sort by step.
func checkpointName(step int64) string { return fmt.Sprintf("step-%08d.ckpt", step) }

// save writes the state into dir and removes all but the newest keep checkpoints. It returns the file's path.
func (s *state) save(dir string, keep int) (string, error) {
	path := filepath.Join(dir, checkpointName(s.step))
	if err := writeDurably(path, s.encode()); err != nil {
		return "", err
	}
	old, err := filepath.Glob(filepath.Join(dir, "step-*.ckpt"))
	if err != nil {
		return "", err
	}
	slices.Sort(old)
	for _, p := range old[:max(0, len(old)-keep)] {
		if err := os.Remove(p); err != nil && !errors.Is(err, os.ErrNotExist) {
			return "", err
		}
	}
	return path, nil
}

// writeDurably replaces path by b, or leaves it as it was: temporary name, fsync, rename, fsync of the directory.
func writeDurably(path string, b []byte) error {
	tmp := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".tmp")
	f, err := os.Create(tmp)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", tmp, err)
	}
	if err := os.Rename(tmp, path); err != nil {
		return err
	}
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
