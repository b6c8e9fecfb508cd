package arena

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// HugeBytes is what one huge page maps, on amd64 and on arm64 with pages of 4 KiB.
const HugeBytes = 2 << 20

// MapHuge maps n bytes of f, shared, from a multiple of HugeBytes on. The caller makes sure
// that the file stays as long, and calls Unmap.
func MapHuge(f *os.File, n int64, writable bool) ([]byte, error) {
	prot, size := unix.PROT_READ, uintptr(n)
	if writable {
		prot |= unix.PROT_WRITE
	}
	room, err := unix.MmapPtr(-1, 0, nil, size+HugeBytes, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("reserve %d bytes of address space: %w", n, err)
	}
	head := -uintptr(room) % HugeBytes
	start := unsafe.Add(room, head)
	if _, err = unix.MmapPtr(int(f.Fd()), 0, start, size, prot, unix.MAP_SHARED|unix.MAP_FIXED); err != nil {
		return nil, errors.Join(fmt.Errorf("map %d bytes: %w", n, err), unix.MunmapPtr(room, size+HugeBytes))
	}
	// What the alignment did not need is given back; it was only address space.
	if head > 0 {
		err = unix.MunmapPtr(room, head)
	}
	page := uintptr(os.Getpagesize())
	end := (size + page - 1) &^ (page - 1) // a page is mapped whole
	if tail := size + HugeBytes - head - end; err == nil && tail > 0 {
		err = unix.MunmapPtr(unsafe.Add(start, end), tail)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("trim the mapping: %w", err), unix.MunmapPtr(start, size))
	}
	return unsafe.Slice((*byte)(start), n), nil
}

// Unmap ends a mapping of Map.
func Unmap(p []byte) error {
	return unix.MunmapPtr(unsafe.Pointer(unsafe.SliceData(p)), uintptr(len(p)))
}
