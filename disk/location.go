package disk

import (
	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/database"
)

// location packs where a payload lies into one word of the ledger: the segment, and
// the first page of its extent, which begins with a header.
type location uint64

// A segment's number says in its upper bits in which path of the set it lies,
// so that a path that comes back brings no number that is taken.
const (
	segmentBits = 24 // of the rest
	maxSegments = 1<<segmentBits - 1
)

// inlined is the location of a payload in Badger. No segment has number 0.
const inlined location = 0

func locate(e database.Extent) location {
	return location(uint64(e.Segment)<<32 | uint64(e.Offset/alignBytes))
}

// pathOf is the index of the path in which a segment lies.
func pathOf(segment uint32) int { return int(segment >> segmentBits) }

func (l location) inline() bool    { return l == inlined }
func (l location) segment() uint32 { return uint32(l >> 32) }

// offset is where the extent begins, payload where the payload does.
func (l location) offset() int64  { return int64(uint32(l)) * alignBytes }
func (l location) payload() int64 { return l.offset() + database.HeaderBytes }

// extentBytes is the size of the extent for a payload of n bytes.
func extentBytes(n int64) int64 { return database.HeaderBytes + arena.RoundUp(n) }
