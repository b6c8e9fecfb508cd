package ledger

import (
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/policy"
)

// Evict takes out the policy's next victim: a resident entry that nobody
// holds and that has no kid, resident or filling, in this ledger. It cannot
// be found any more; its bytes count as used until the caller, having let go
// of what the Value names, calls Free. False means that everything is
// protected.
func (l *Ledger) Evict() (Entry, bool) {
	l.mu.Lock()
	defer l.unlock()
	b := &l.mu.book
	b.settle()
	return b.evict(everything)
}

// evict takes out the next victim of rank r.
func (b *book) evict(r uint32) (Entry, bool) {
	id, ok := b.rankEvict(r)
	if !ok {
		return Entry{}, false
	}
	v, n := b.snapshot(id), uint64(b.bytes(b.entries.at(id)))
	b.count.Evictions++
	b.count.EvictedBytes += n
	b.condemn(id)
	return v, true
}

// Remove takes out a resident key whether or not it has kids or is held. Kids
// stay, below a hole that heals when the key is stored again. The bytes of a
// held entry count as used and protected until its last Unhold. The caller
// calls Free as after Evict. False means that k was not resident.
func (l *Ledger) Remove(k key.Key) (Entry, bool) {
	l.mu.Lock()
	defer l.unlock()
	b := &l.mu.book
	id := b.find(k)
	if id == 0 || b.entries.at(id).life != resident {
		return Entry{}, false
	}
	b.settle()
	v := b.snapshot(id)
	b.rankRemove(id)
	b.condemn(id)
	return v, true
}

// Free ends an entry that Evict or Remove returned.
func (l *Ledger) Free(id ID) {
	l.mu.Lock()
	defer l.unlock()
	b := &l.mu.book
	e := b.entries.at(uint32(id))
	if e.life != gone || e.mark&freed != 0 {
		panic("ledger: freeing an entry that was not evicted or removed")
	}
	e.mark |= freed
	if !b.isHeld(e) {
		b.bury(uint32(id))
	}
}

// condemn ends the residency of an entry that the policy has forgotten.
func (b *book) condemn(id uint32) {
	e := b.entries.at(id)
	was, n := b.protected(e), b.bytes(e)
	b.cold.drop(id)
	b.cut(id)
	e.life = gone
	e.mark &^= fresh
	b.count.Entries--
	if e.mark&dirty != 0 { // it stays so, for whoever takes the entry over
		b.count.DirtyEntries--
		b.count.DirtyBytes -= int64(e.size)
	}
	if !b.isHeld(e) {
		b.count.LeavingBytes += n
		if was {
			b.count.ProtectedBytes -= n
		}
	}
	if e.kids == 0 {
		b.unindex(id)
	}
}

// bury gives back the bytes of what is gone, once it was freed and nobody
// holds it, and its number unless kids still need it as a hole.
func (b *book) bury(id uint32) {
	e := b.entries.at(id)
	if e.mark&freed == 0 {
		return
	}
	b.count.LeavingBytes -= b.bytes(e)
	b.occupy(e, -b.bytes(e))
	b.released = true
	if e.kids > 0 {
		b.hollow(id)
	} else {
		b.recycle(id)
	}
}

// acceptable is ok for Policy.Evict.
func (b *book) acceptable(id policy.ID) bool { return b.evictable(b.entries.at(uint32(id))) }
