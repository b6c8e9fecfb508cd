package stale

import (
	"maps"
	"slices"
	"time"

	"github.com/kvstored/kvstored/key"
)

// slotSeconds is how finely chunks are sorted by their ends: one is told as due up to
// so much later.
const slotSeconds = 4

// slotsAtOnce bounds how many empty slots one call of Due passes.
const slotsAtOnce = 1 << 10

// calendar is the chunks with an expiry by the time at which they end, in slots. A chunk
// may still be in slots of earlier expiries too.
type calendar struct {
	first uint32 // no slot before it has a chunk
	lists map[uint32][]key.Key
}

// add puts a chunk into the slot of its expiry, or, where it has expired at once, into one
// that is due.
func (c *calendar) add(k key.Key, s Expiry, now uint32) {
	n := s.Expires / slotSeconds
	if s.expired(now) {
		n = min(n, now/slotSeconds-1)
	}
	if len(c.lists) == 0 || n < c.first {
		c.first = n
	}
	c.lists[n] = append(c.lists[n], k)
}

// skip passes empty slots before one where there are more of them than slots with
// chunks: the clock has leapt.
func (c *calendar) skip(end uint32) {
	if uint64(end-c.first) <= uint64(len(c.lists))+slotsAtOnce {
		return
	}
	least := end
	for n := range c.lists {
		least = min(least, n)
	}
	c.first = least
}

// Due takes up to most chunks that have expired. None is told again by itself: those that
// could not be removed are to be given to Again, the others to Removed. A chunk whose
// end was changed to and fro may be told twice. more says that there may be further
// ones.
func (b *Book) Due(most int) (ks []key.Key, more bool) {
	if !b.active() {
		return nil, false
	}
	now := b.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	c := &b.mu.slots
	for range slotsAtOnce {
		if len(c.lists) == 0 || c.first >= now/slotSeconds {
			return ks, false
		}
		c.skip(now / slotSeconds)
		list := c.lists[c.first]
		left := max(0, len(list)-(most-len(ks)))
		for _, k := range list[left:] {
			switch s := b.expiryOf(k); {
			case !s.HasTTL(): // forgotten
			case s.expired(now):
				ks = append(ks, k)
			default: // stored anew, or no longer ahead of the clock
				c.add(k, s, now)
			}
		}
		if left > 0 {
			c.lists[c.first] = list[:left]
			return ks, true
		}
		delete(c.lists, c.first)
		c.first++
	}
	return ks, true
}

// expiryOf is Of with the mutex held.
func (b *Book) expiryOf(k key.Key) Expiry {
	if sp := b.mu.spaces[k.Space]; sp != nil {
		return sp.expiries[k.Hash].Expiry
	}
	return Expiry{}
}

// Again has chunks told by Due once more, those that are still expired.
func (b *Book) Again(ks []key.Key) { b.settle(ks, false) }

// Removed forgets chunks that have expired and are in no tier any more. One that was stored
// anew meanwhile stays in the book.
func (b *Book) Removed(ks []key.Key) { b.settle(ks, true) }

func (b *Book) settle(ks []key.Key, removed bool) {
	now := b.Now()
	for part := range slices.Chunk(ks, round) {
		b.settleSome(part, removed, now)
	}
}

func (b *Book) settleSome(ks []key.Key, removed bool, now uint32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, k := range ks {
		s := b.expiryOf(k)
		switch {
		case !s.expired(now):
		case removed:
			sp := b.mu.spaces[k.Space]
			b.forget(sp, k.Hash)
			b.drop(k.Space, sp)
			b.removed.Add(1)
		default:
			b.mu.slots.add(k, s, now)
		}
	}
}

// Prune drops the expiries of chunks of which gone reports that no tier has them. It
// calls gone without a lock, for one slot after the other, until it returns false.
func (b *Book) Prune(gone func(ks []key.Key) (is []bool, goOn bool)) {
	if !b.active() {
		return
	}
	for _, n := range b.slots() {
		list := b.list(n)
		for part := range slices.Chunk(list, round) {
			is, goOn := gone(part)
			if !goOn {
				return
			}
			b.dropGone(part, is)
		}
		b.compact(n, list)
	}
}

// slots are the numbers of all slots.
func (b *Book) slots() []uint32 {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return slices.Collect(maps.Keys(b.mu.slots.lists))
}

func (b *Book) list(n uint32) []key.Key {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return slices.Clone(b.mu.slots.lists[n])
}

func (b *Book) dropGone(ks []key.Key, gone []bool) {
	now := b.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, k := range ks {
		sp := b.mu.spaces[k.Space]
		if !gone[i] || sp == nil || uint64(sp.expiries[k.Hash].noted)+uint64(Grace/time.Second) > uint64(now) {
			continue
		}
		b.forget(sp, k.Hash)
		b.drop(k.Space, sp)
	}
}

// compact leaves out of a slot that is not due yet, which began with list, the chunks
// that do not belong there any more.
func (b *Book) compact(n uint32, list []key.Key) {
	kept := list[:0:0]
	for part := range slices.Chunk(list, round) {
		kept = b.keep(n, part, kept)
	}
	now := b.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	c := &b.mu.slots
	if n <= now/slotSeconds || len(c.lists[n]) < len(list) {
		return // Due has it, or has had it
	}
	if kept = append(kept, c.lists[n][len(list):]...); len(kept) == 0 {
		delete(c.lists, n)
		return
	}
	c.lists[n] = kept
}

// keep appends to kept those of ks that belong into a slot.
func (b *Book) keep(n uint32, ks, kept []key.Key) []key.Key {
	b.mu.RLock()
	defer b.mu.RUnlock()
	for _, k := range ks {
		if b.expiryOf(k).Expires/slotSeconds == n {
			kept = append(kept, k)
		}
	}
	return kept
}
