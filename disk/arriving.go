package disk

import (
	"sync"

	"github.com/kvstored/kvstored/disk/internal/blockio"
	"github.com/kvstored/kvstored/internal/arena"
)

const mostPieces = arena.MaxPayload / blockio.PieceBytes

// arriving is the checksum of a payload that is being read. Each piece is hashed once
// all before it have been read, while the device reads those behind it, so that after
// the last one only that is left. It is valid when the transfer has finished well.
type arriving struct {
	bytes int
	sum   arena.RunningSum // of the goroutine that has set hashing, and in the end of the reader

	mu struct {
		sync.Mutex
		landed  [(mostPieces + 63) / 64]uint64 // a bit for each piece
		next    int                            // pieces that were taken to be hashed
		hashing bool
	}
}

// Landed implements blockio.Lander.
func (a *arriving) Landed(from, _ int) {
	piece := from / blockio.PieceBytes
	a.mu.Lock()
	a.mu.landed[piece/64] |= 1 << (piece % 64)
	if a.mu.hashing {
		a.mu.Unlock()
		return
	}
	a.mu.hashing = true
	for a.ready() {
		n := min(blockio.PieceBytes, a.bytes-a.mu.next*blockio.PieceBytes)
		a.mu.next++
		a.mu.Unlock()
		a.sum.Arrived(n)
		a.mu.Lock()
	}
	a.mu.hashing = false
	a.mu.Unlock()
}

// ready reports whether the next piece has been read; called with the mutex held.
func (a *arriving) ready() bool {
	next := a.mu.next
	return next*blockio.PieceBytes < a.bytes && a.mu.landed[next/64]&(1<<(next%64)) != 0
}
