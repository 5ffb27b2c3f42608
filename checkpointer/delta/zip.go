package delta

import (
	"crypto/subtle"
	"fmt"

	"github.com/klauspost/compress/zstd"
)

// zipper compresses blocks that are no numbers, with zstd (RFC 8878).
type zipper struct {
	fast    *zstd.Encoder
	work    []byte
	trial   []byte
	counter [256]uint32
}

const trialSize = 8 << 10 // bytes of a block that are compressed to see whether it pays

// choose finds out by a part of cur whether zstd pays, on cur itself or on its difference from ref, which may take about so
// many bytes; 0: any number.
func (z *zipper) choose(cur, ref []byte, maxDelta int) method {
	n := min(len(cur), trialSize)
	at := (len(cur) - n) / 2
	plain := cur[at : at+n]
	least := n - n>>5
	best := stored
	if size := z.try(plain); size < least {
		best, least = zipped, size
	}
	if ref != nil {
		z.work = sized(z.work, n)
		subtle.XORBytes(z.work, plain, ref[at:at+n])
		if size := z.try(z.work); size < least-n>>6 && (maxDelta <= 0 || size <= maxDelta*n/len(cur)) {
			best, least = xored, size
		}
	}
	if best != stored {
		z.counter = [256]uint32{} // a skewed plane of bytes is smaller in tables than in zstd, which then finds no strings
		for _, b := range plain {
			z.counter[b]++
		}
		if int(entropy(&z.counter)>>19)+n>>6 < least {
			return stored
		}
	}
	return best
}

func (z *zipper) try(b []byte) int {
	z.trial = z.compress(z.trial[:0], b)
	return len(z.trial)
}

func (z *zipper) compress(dst, b []byte) []byte {
	if z.fast == nil {
		// Only impossible options make an error here.
		enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1),
			zstd.WithEncoderCRC(false), zstd.WithSingleSegment(true))
		if err != nil {
			return append(dst, b...)
		}
		z.fast = enc
	}
	return z.fast.EncodeAll(b, dst)
}

// encode appends cur, or its difference from ref, compressed.
func (z *zipper) encode(dst []byte, m method, cur, ref []byte) []byte {
	if m == xored {
		z.work = sized(z.work, len(cur))
		subtle.XORBytes(z.work, cur, ref)
		cur = z.work
	}
	return z.compress(dst, cur)
}

// unzipper undoes it.
type unzipper struct {
	dec  *zstd.Decoder
	work []byte
}

func (u *unzipper) decode(dst, enc, ref []byte) error {
	if u.dec == nil {
		dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxMemory(MaxBlock), zstd.WithDecoderMaxWindow(MaxBlock))
		if err != nil {
			return fmt.Errorf("make zstd decoder: %w", err)
		}
		u.dec = dec
	}
	var err error
	u.work, err = u.dec.DecodeAll(enc, u.work[:0])
	if err != nil {
		return fmt.Errorf("%w: zstd: %w", ErrCorrupt, err)
	}
	if len(u.work) != len(dst) {
		return corrupt("zstd frame of another length")
	}
	if ref != nil {
		subtle.XORBytes(dst, u.work, ref)
	} else {
		copy(dst, u.work)
	}
	return nil
}
