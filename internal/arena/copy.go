package arena

import "github.com/zeebo/xxh3"

const (
	// copyPiece is how much is copied at a time. The runtime stores past the
	// caches from 1 MiB on, and what copies is not preempted.
	copyPiece = 256 << 10
	// streamedBytes is from where on a copy may store past the caches: a
	// shorter one is likely to be read, or to be overwritten, while it is hot.
	streamedBytes = 64 << 10
	// lineBytes is a line of the caches: stores past them are of whole ones.
	lineBytes = 64
)

// Sum is the checksum of p: XXH3-64, seed 0.
func Sum(p []byte) uint64 { return xxh3.Hash(p) }

// Copy copies as copy does, for a destination that is read or overwritten soon:
// it stays in the caches as far as it fits.
func Copy(dst, src []byte) int {
	n := min(len(dst), len(src))
	for at := 0; at < n; at += copyPiece {
		copy(dst[at:min(at+copyPiece, n)], src[at:])
	}
	return n
}

// CopyCold copies as copy does, for a destination that is in no cache of this
// processor and need not be: it stores past the caches where that is faster.
func CopyCold(dst, src []byte) int {
	n := min(len(dst), len(src))
	if !streams || n < streamedBytes {
		return Copy(dst, src[:n])
	}
	at := toLine(dst)
	copy(dst[:at], src)
	for at+lineBytes <= n {
		lines := min(n-at, copyPiece) / lineBytes
		streamLines(&dst[at], &src[at], lines)
		at += lines * lineBytes
	}
	return at + copy(dst[at:n], src[at:n])
}

// CopySum copies src into dst, which is as long, and returns the checksum of
// the stored bytes: src may be memory that another process is changing. The
// destination counts as cold.
func CopySum(dst, src []byte) uint64 {
	r := SumOver(dst)
	r.Copy(src)
	return r.Sum()
}
