package sample

import (
	"encoding/binary"
	"math/bits"
	"sync/atomic"

	"github.com/kvstored/kvstored/key"
)

// gate says which chains are in the sample. It never changes, but for its guess: the book
// makes a new one.
type gate struct {
	shift uint8               // one of 1<<shift sessions is in
	heads map[uint64]struct{} // chunks that belong to no session; with one, all before it
	// spaces are those whose heads were looked for.
	spaces map[uint64]struct{}
	guess  atomic.Int32 // how many heads the last chain had
}

// hashOf is what the sample knows of a key.
func hashOf(space *key.SpaceID, h *key.Hash) uint64 {
	return mix(fold(h) ^ binary.LittleEndian.Uint64(space[:]))
}

func fold(h *key.Hash) uint64 {
	return binary.LittleEndian.Uint64(h[:]) ^ bits.RotateLeft64(binary.LittleEndian.Uint64(h[8:]), 29)
}

// mix spreads what engines may have counted up.
func mix(x uint64) uint64 {
	x = (x ^ x>>32) * 0xd6e8feb86659fd93
	x = (x ^ x>>32) * 0xd6e8feb86659fd93
	return x ^ x>>32
}

// in reports whether a session is in a sample of one in 1<<shift.
func in(session uint64, shift uint8) bool { return session>>(64-uint(shift)) == 0 }

// groupOf is the group of a session, from bits that do not decide whether it is in.
func groupOf(session uint64) int { return int(session % Groups) }

// takes reports whether the session of a chain is in the sample.
func (g *gate) takes(c *key.Chain) bool {
	if c.Len() == 0 || c.Alone {
		return false
	}
	return g.shift == 0 || g.isNew(spaceOf(c)) || in(g.session(c), g.shift)
}

// isNew reports whether nothing is known of a space, though there are few.
func (g *gate) isNew(space uint64) bool {
	_, known := g.spaces[space]
	return !known && len(g.spaces) < mostSpaces
}

// spaceOf is what the sample knows of a space.
func spaceOf(c *key.Chain) uint64 { return binary.LittleEndian.Uint64(c.Space[:]) }

// session is the hash that decides about a chain.
func (g *gate) session(c *key.Chain) uint64 {
	return g.of(c.Len(), func(i int) uint64 { return hashOf(&c.Space, &c.Hashes[i]) })
}

// of is the hash of the first of n chunks that is no head, or of the last.
func (g *gate) of(n int, at func(int) uint64) uint64 {
	heads, end := 0, 1 // so many are heads; number end-1 is none, or is not known yet
	guess := int(g.guess.Load())
	if guess > 0 && guess < n {
		if end = guess; g.isHead(at(guess - 1)) {
			heads, end = guess, guess+1
		}
	}
	for end < n && g.isHead(at(end-1)) {
		heads, end = end, min(2*end, n)
	}
	for heads < end-1 {
		if m := (heads + end) / 2; g.isHead(at(m - 1)) {
			heads = m
		} else {
			end = m
		}
	}
	if heads != guess {
		g.guess.Store(int32(heads))
	}
	return at(end - 1)
}

func (g *gate) isHead(h uint64) bool {
	_, head := g.heads[h]
	return head
}
