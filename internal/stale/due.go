package stale

import (
	"math"
	"slices"

	"github.com/kvstored/kvstored/key"
)

// slotSeconds is how much later than its end a chunk may be told as due: all stamps are
// looked at once in so long at most.
const slotSeconds = 4

// Due tells up to most chunks that are over, and tells them again until Removed has
// forgotten them. more says that there may be further ones.
func (b *Book) Due(most int) (ks []key.Key, more bool) {
	now := b.Now()
	if !b.isDue(now) {
		return nil, false
	}
	b.walk(func(part []key.Key) bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, k := range part {
			s := b.stampOf(k)
			b.await(s, now)
			if s.over(now) && len(ks) < most {
				ks = append(ks, k)
			}
		}
		return len(ks) < most
	})
	return ks, len(ks) == most
}

// isDue reports whether some chunk is over, and has the walk that follows find the next end.
func (b *Book) isDue(now uint32) bool {
	if !b.active() {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.next/slotSeconds >= now/slotSeconds {
		return false
	}
	b.mu.next = math.MaxUint32
	return true
}

// await has Due look for a stamp once it is over. The mutex is held.
func (b *Book) await(s Stamp, now uint32) {
	if s.over(now) { // perhaps only of a clock that is ahead
		s.Dies = min(s.Dies, now-slotSeconds)
	}
	if s.Bounded() {
		b.mu.next = min(b.mu.next, s.Dies)
	}
}

// walk calls do with the chunks that have stamps, up to round at a time and without the
// mutex, until it returns false. Those that come meanwhile may be missing.
func (b *Book) walk(do func(ks []key.Key) bool) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	ks := make([]key.Key, 0, round)
	tell := func() bool {
		b.mu.RUnlock()
		defer b.mu.RLock()
		defer func() { ks = ks[:0] }()
		return do(ks)
	}
	for id, sp := range b.mu.spaces {
		for h := range sp.stamps {
			if ks = append(ks, key.Key{Space: id, Hash: h}); len(ks) == round && !tell() {
				return
			}
		}
	}
	tell()
}

// stampOf is Of with the mutex held.
func (b *Book) stampOf(k key.Key) Stamp {
	if sp := b.mu.spaces[k.Space]; sp != nil {
		return sp.stamps[k.Hash].Stamp
	}
	return Stamp{}
}

// Removed forgets chunks that are over and in no tier any more. One that was stored
// anew meanwhile stays in the book.
func (b *Book) Removed(ks []key.Key) {
	now := b.Now()
	for part := range slices.Chunk(ks, round) {
		b.removed.Add(b.forgetIf(part, func(i int, h held) bool { return h.over(now) }))
	}
}

// Prune drops the stamps of chunks of which gone reports that no tier has them. It
// calls gone without a lock, until it returns false.
func (b *Book) Prune(gone func(ks []key.Key) (is []bool, goOn bool)) {
	if !b.active() {
		return
	}
	b.walk(func(ks []key.Key) bool {
		is, goOn := gone(ks)
		if now := uint64(b.Now()); goOn {
			b.forgetIf(ks, func(i int, h held) bool { return is[i] && uint64(h.noted)+graceSeconds <= now })
		}
		return goOn
	})
}

// forgetIf takes those of ks out of the book whose stamps may go, and returns how many.
func (b *Book) forgetIf(ks []key.Key, may func(i int, h held) bool) (n uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, k := range ks {
		sp := b.mu.spaces[k.Space]
		if sp == nil {
			continue
		}
		if h, known := sp.stamps[k.Hash]; known && may(i, h) {
			b.forget(sp, k.Hash)
			b.drop(k.Space, sp)
			n++
		}
	}
	return n
}

const graceSeconds = uint64(Grace / 1e9)
