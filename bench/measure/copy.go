package measure

import (
	"math"
	"time"

	"github.com/kvstored/kvstored/internal/arena"
)

// A Copy copies as copy does.
type Copy func(dst, src []byte) int

// copies are the ways to copy. The runtime's copy stores past the caches from 1
// MiB on, which is the best way on some processors and the worst on others.
var copies = []Copy{
	func(dst, src []byte) int { return copy(dst, src) },
	inPieces(32 << 10), inPieces(128 << 10), inPieces(512 << 10),
	arena.CopyCold,
}

// inPieces is a copy in pieces of so many bytes.
func inPieces(bytes int) Copy {
	return func(dst, src []byte) int {
		for at := 0; at < len(src); at += bytes {
			copy(dst[at:], src[at:min(at+bytes, len(src))])
		}
		return len(src)
	}
}

// Fastest is the way that copies src to dst, piece by piece of so many bytes, in
// the least time, and that time for a piece. It copies all whole pieces in each way.
func Fastest(dst, src []byte, piece int) (best Copy, took time.Duration) {
	took = math.MaxInt64
	n := len(src) / piece
	for _, way := range copies {
		start := time.Now()
		for at := 0; at+piece <= len(src); at += piece {
			way(dst[at:at+piece], src[at:at+piece])
		}
		if d := time.Since(start) / time.Duration(n); d < took {
			best, took = way, d
		}
	}
	return best, took
}
