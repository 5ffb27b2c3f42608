package sealed

import (
	"bytes"
	"context"
	"io"
	"testing"

	"github.com/shoenig/test/must"
	"golang.org/x/sys/unix"

	"nomad-spotter/checkpointer/store/storetest"
)

const benchSize = 16 << 20 // bytes

// perCPU reports MB (10^6 bytes) per second of CPU time, which other work on the machine disturbs less than MB/s.
func perCPU(b *testing.B, n int64, run func()) {
	b.Helper()
	b.SetBytes(n)
	var before, after unix.Rusage
	must.NoError(b, unix.Getrusage(unix.RUSAGE_SELF, &before))
	for b.Loop() {
		run()
	}
	must.NoError(b, unix.Getrusage(unix.RUSAGE_SELF, &after))
	ns := after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano()
	b.ReportMetric(float64(n)*float64(b.N)*1e3/float64(ns), "MB/CPU-s")
}

func BenchmarkSeal(b *testing.B) {
	plain := random(benchSize)
	perCPU(b, benchSize, func() {
		s, err := newSealer(objectsKey, "k", bytes.NewReader(plain))
		must.NoError(b, err)
		_, err = io.Copy(io.Discard, s)
		must.NoError(b, err)
	})
}

func BenchmarkOpen(b *testing.B) {
	s, _ := memory()
	put(b, s, "k", random(benchSize))
	perCPU(b, benchSize, func() {
		rc, err := s.Get(context.Background(), "k")
		must.NoError(b, err)
		n, err := io.Copy(io.Discard, rc)
		must.NoError(b, err)
		must.EqOp(b, int64(benchSize), n)
	})
}

// One range of 512 KiB, a block of a pack, at a time, from an object whose header is known.
func BenchmarkOpenRange(b *testing.B) {
	s, _ := memory()
	put(b, s, "k", random(benchSize))
	const n = 512 << 10
	var off int64
	perCPU(b, n, func() {
		rc, err := s.GetRange(context.Background(), "k", off, n)
		must.NoError(b, err)
		got, err := io.Copy(io.Discard, rc)
		must.NoError(b, err)
		must.EqOp(b, n, got)
		off = (off + n) % benchSize
	})
}

// What AES-256-GCM alone does with a segment: the bound.
func BenchmarkGCM(b *testing.B) {
	c, err := newObjectCipher(objectsKey, "k", append([]byte{headerSize}, make([]byte, headerSize-1)...))
	must.NoError(b, err)
	buf := make([]byte, plainSize, segmentSize)
	nonce := make([]byte, nonceSize)
	perCPU(b, plainSize, func() { c.aead.Seal(buf[:0], nonce, buf, nil) })
}

// A passphrase opens one slot.
func BenchmarkPassphrase(b *testing.B) {
	k, err := ParseKey([]byte("correct horse"))
	must.NoError(b, err)
	m := &storetest.Memory{}
	_, err = Create(context.Background(), m, k)
	must.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		_, err := Open(context.Background(), m, &k)
		must.NoError(b, err)
	}
}
