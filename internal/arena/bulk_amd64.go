package arena

import (
	"unsafe"

	"golang.org/x/sys/cpu"
)

// vectors says that the functions below can be called.
var vectors = cpu.X86.HasAVX2

// streams says that stores past the caches are the faster ones for memory that
// is in no cache. AMD's are: copied and hashed were 11 GiB/s so and 6.5
// through the caches (Zen 3); Intel's are not: 3.2 and 4.9 for the copy alone
// (Cascade Lake).
var streams = vectors && isAMD()

// hashBlocks takes in n blocks from src on; n > 0.
//
//go:noescape
func hashBlocks(lanes *[8]uint64, secret *[192]byte, src *byte, n int)

// copyBlocks is hashBlocks, and stores to dst the bytes that it hashes.
//
//go:noescape
func copyBlocks(lanes *[8]uint64, secret *[192]byte, dst, src *byte, n int)

// streamBlocks is copyBlocks past the caches. dst is the begin of a line.
//
//go:noescape
func streamBlocks(lanes *[8]uint64, secret *[192]byte, dst, src *byte, n int)

// streamLines copies n lines past the caches; n > 0. dst is the begin of one.
//
//go:noescape
func streamLines(dst, src *byte, n int)

// isAMD asks the processor who made it.
func isAMD() bool

// toLine is how many bytes of p come before the first line that begins in it.
func toLine(p []byte) int {
	return int(-uintptr(unsafe.Pointer(unsafe.SliceData(p))) % lineBytes)
}
