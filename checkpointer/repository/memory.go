package repository

import (
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The first touch of a page costs more than coding what is in it, on virtual machines above all. So the memory of blocks
// and windows is cut from pieces that are asked for in huge pages, one fault for each 2 MiB instead of 512.

const (
	hugePage  = 2 << 20
	slabBytes = 8 << 20
)

// slab is what the next buffers are cut from. The collector frees a slab when nobody holds a part of it any more.
var slab struct {
	mu   sync.Mutex
	left []byte
}

// newMemory returns n bytes of any content; large ones may lie in huge pages.
func newMemory(n int) []byte {
	if n < hugePage/8 || n > slabBytes {
		return make([]byte, n)
	}
	slab.mu.Lock()
	defer slab.mu.Unlock()
	if len(slab.left) < n {
		b := make([]byte, slabBytes+hugePage)
		skip := -int(uintptr(unsafe.Pointer(&b[0]))) & (hugePage - 1) //nolint:gosec // an address, to align it
		b = b[skip:][:slabBytes]
		_ = unix.Madvise(b, unix.MADV_HUGEPAGE) // without huge pages it works as well
		slab.left = b
	}
	b := slab.left[:n:n]
	slab.left = slab.left[n:]
	return b
}
