package sealed

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/tink-crypto/tink-go/v2/streamingaead/subtle/noncebased"

	"nomad-spotter/checkpointer/store"
)

// A sealed object, in Tink's wire format of AES256-GCM-HKDF with segments of 64 KiB
// (https://developers.google.com/tink/wire-format, "Streaming AEAD"):
//
//	offset 0      1             33             40                  65536       131072
//	       +------+-------------+--------------+-------------------+-----------+---- - -
//	       |  40  | salt, 32 B  | prefix, 7 B  | segment 0         | segment 1 | …
//	       +------+-------------+--------------+-------------------+-----------+---- - -
//
// A segment is AES-256-GCM of its part of the plaintext, the 16-byte tag at its end. All but the last end at a multiple of
// 65536; the last has at least one byte of plaintext unless it is the only one. The nonce is
// prefix ‖ number of the segment (4 bytes, big endian) ‖ 1 for the last segment, else 0. The key of the object is
// HKDF-SHA256(key of the repository's objects, salt, info = key of the object in the store).
const (
	saltSize    = 32
	prefixSize  = 7
	nonceSize   = prefixSize + 4 + 1
	headerSize  = 1 + saltSize + prefixSize // bytes
	tagSize     = 16                        // bytes
	segmentSize = 64 << 10                  // bytes of ciphertext that lie between two boundaries
	plainSize   = segmentSize - tagSize     // bytes of plaintext in a segment; the header takes some of those of the first

	maxSegments = math.MaxUint32
	maxPlain    = maxSegments*plainSize - headerSize // bytes of plaintext in an object
)

// ErrDamaged is a store.ErrDamaged: an object is not what was sealed under its name, but changed, cut, extended, moved, or
// never sealed. It is never returned for an error of the store below.
var ErrDamaged = fmt.Errorf("%w: it is not what was sealed under this name with this repository's key", store.ErrDamaged)

// errBeyond says that a range begins where there is no ciphertext any more.
var errBeyond = errors.New("range begins after the last segment")

// segmentOf returns the number of the segment that holds the plaintext byte at off, in bytes, and how many plaintext
// bytes of that segment come before it.
func segmentOf(off int64) (index int64, skip int) {
	index, skip = (off+headerSize)/plainSize, int((off+headerSize)%plainSize)
	if index == 0 {
		skip -= headerSize
	}
	return index, skip
}

// lengthOf returns the length of the plaintext, in bytes, of an object that has size bytes when sealed; ok is false when
// no sealed object has that size.
func lengthOf(size int64) (n int64, ok bool) {
	if size < headerSize+tagSize {
		return 0, false
	}
	segments := (size-1)/segmentSize + 1
	if last := size - (segments-1)*segmentSize; segments > maxSegments || segments > 1 && last <= tagSize {
		return 0, false
	}
	return size - headerSize - segments*tagSize, true
}

// objectCipher is what an object's header and name make of the repository's key. It is safe for concurrent use.
type objectCipher struct {
	aead   cipher.AEAD
	prefix [prefixSize]byte
}

// newObjectCipher derives the cipher of the object name from the repository's key for objects and the header.
func newObjectCipher(key []byte, name string, header []byte) (*objectCipher, error) {
	if len(header) != headerSize || header[0] != headerSize {
		return nil, fmt.Errorf("%w: it has no header", ErrDamaged)
	}
	own, err := hkdf.Key(sha256.New, key, header[1:1+saltSize], name, 32)
	if err != nil {
		return nil, fmt.Errorf("derive key of %s: %w", name, err)
	}
	block, err := aes.NewCipher(own)
	if err != nil {
		return nil, fmt.Errorf("make cipher of %s: %w", name, err)
	}
	c := &objectCipher{prefix: [prefixSize]byte(header[1+saltSize:])}
	if c.aead, err = cipher.NewGCM(block); err != nil {
		return nil, fmt.Errorf("make cipher of %s: %w", name, err)
	}
	return c, nil
}

// open decrypts a segment in place.
func (c *objectCipher) open(segment []byte, index int64, last bool) ([]byte, error) {
	if index >= maxSegments || index > 0 && len(segment) <= tagSize {
		return nil, fmt.Errorf("%w: segment %d cannot be", ErrDamaged, index)
	}
	var nonce [nonceSize]byte
	copy(nonce[:], c.prefix[:])
	binary.BigEndian.PutUint32(nonce[prefixSize:], uint32(index))
	if last {
		nonce[nonceSize-1] = 1
	}
	plain, err := c.aead.Open(segment[:0], nonce[:], segment, nil)
	if err != nil {
		return nil, fmt.Errorf("%w: segment %d is not authentic", ErrDamaged, index)
	}
	return plain, nil
}

// EncryptSegment implements noncebased.SegmentEncrypter.
func (c *objectCipher) EncryptSegment(segment, nonce []byte) ([]byte, error) {
	return c.EncryptSegmentWithDst(nil, segment, nonce)
}

// EncryptSegmentWithDst lets noncebased.Writer use one buffer for all segments.
func (c *objectCipher) EncryptSegmentWithDst(dst, segment, nonce []byte) ([]byte, error) {
	return c.aead.Seal(dst, nonce, segment, nil), nil
}

// sealer reads plaintext and gives ciphertext. An error of the source is passed on in place of the end, so that what was
// read until then is never taken for a whole object.
type sealer struct {
	src io.Reader
	w   *noncebased.Writer
	in  []byte
	out bytes.Buffer
	err error // io.EOF after the last segment
}

// newSealer seals src as the object name.
func newSealer(key []byte, name string, src io.Reader) (*sealer, error) {
	header := make([]byte, headerSize)
	header[0] = headerSize
	if _, err := rand.Read(header[1:]); err != nil {
		return nil, fmt.Errorf("seal %s: %w", name, err)
	}
	c, err := newObjectCipher(key, name, header)
	if err != nil {
		return nil, err
	}
	s := &sealer{src: src, in: make([]byte, 32<<10)}
	s.out.Write(header)
	s.w, err = noncebased.NewWriter(noncebased.WriterParams{
		W:                            &s.out,
		SegmentEncrypter:             c,
		NonceSize:                    nonceSize,
		NoncePrefix:                  c.prefix[:],
		PlaintextSegmentSize:         plainSize,
		FirstCiphertextSegmentOffset: headerSize,
	})
	if err != nil {
		return nil, fmt.Errorf("seal %s: %w", name, err)
	}
	return s, nil
}

// Read implements io.Reader.
func (s *sealer) Read(p []byte) (int, error) {
	for s.out.Len() == 0 {
		if s.err != nil {
			return 0, s.err
		}
		n, err := s.src.Read(s.in)
		if _, werr := s.w.Write(s.in[:n]); werr != nil {
			s.err = werr
			continue
		}
		if err == io.EOF { //nolint:errorlint // a wrapped io.EOF is not the end
			if cerr := s.w.Close(); cerr != nil {
				err = cerr
			}
		}
		s.err = err
	}
	return s.out.Read(p)
}

// source remembers the error of a reader that is not its end, which io.ReadFull alone cannot tell from a short object.
type source struct {
	io.ReadCloser
	err error
}

// Read implements io.Reader.
func (s *source) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	if err != nil && err != io.EOF { // a wrapped io.EOF is not the end
		s.err = err
	}
	return n, err
}

// opener reads ciphertext from a boundary on and gives authentic plaintext, segment by segment. It needs to see one byte
// after a segment to know that this is not the last. It never gives a byte of a segment that is not authentic, and gives
// io.EOF only after the segment that was sealed as the last, or after as many bytes as were asked for.
type opener struct {
	src   *source
	key   []byte
	name  string
	c     *objectCipher // nil until the header is read
	index int64         // of the next segment
	skip  int           // plaintext bytes to drop from the next segment
	left  int64         // plaintext bytes still to give
	last  bool          // the last segment was opened
	ahead int           // 1 if a byte of the next segment was read, else 0
	peek  byte          // that byte
	buf   []byte        // of segmentSize+1 bytes
	plain []byte        // not yet given, within buf
	err   error         // what all further reads return
}

// Close closes the source.
func (o *opener) Close() error { return o.src.Close() }

// Read implements io.Reader.
func (o *opener) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for len(o.plain) == 0 {
		if o.err != nil {
			return 0, o.err
		}
		if o.last || o.left == 0 {
			return 0, io.EOF
		}
		if o.err = o.next(); o.err != nil {
			o.err = fmt.Errorf("open %s: %w", o.name, o.err)
		}
	}
	n := copy(p, o.plain)
	o.plain = o.plain[n:]
	return n, nil
}

// fill reads into p and returns how much there was.
func (o *opener) fill(p []byte) (int, error) {
	n, _ := io.ReadFull(o.src, p) // an end is told by n, an error by src
	return n, o.src.err
}

// next opens the next segment.
func (o *opener) next() error {
	if o.buf == nil {
		o.buf = make([]byte, segmentSize+1)
	}
	if o.c == nil {
		n, err := o.fill(o.buf[:headerSize])
		if err != nil {
			return err
		}
		if o.c, err = newObjectCipher(o.key, o.name, o.buf[:n]); err != nil {
			return err
		}
	}
	size := segmentSize
	if o.index == 0 {
		size -= headerSize
	}
	o.buf[0] = o.peek
	n, err := o.fill(o.buf[o.ahead : size+1])
	if err != nil {
		return err
	}
	n += o.ahead
	if n == 0 && o.index > 0 {
		return errBeyond
	}
	last := n <= size
	if !last {
		o.peek, o.ahead, n = o.buf[size], 1, size
	}
	plain, err := o.c.open(o.buf[:n], o.index, last)
	if err != nil {
		return err
	}
	o.index, o.last = o.index+1, last
	plain = plain[min(o.skip, len(plain)):]
	plain = plain[:min(o.left, int64(len(plain)))]
	o.plain, o.skip, o.left = plain, 0, o.left-int64(len(plain))
	return nil
}
