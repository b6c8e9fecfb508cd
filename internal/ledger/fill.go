package ledger

import (
	"fmt"

	"github.com/kvstored/kvstored/key"
)

// Begin announces a chunk of size payload bytes whose parent is the chunk
// before it (the zero hash for the first). If the state is Absent the entry
// is Filling now, charged to o in class c, and the caller is its filler: it
// ends that with Publish, PublishHeld or Abort. Otherwise the state says what
// the key is already, nothing is charged, and the ID is good only as long as
// the caller knows from elsewhere that the entry stays.
//
// A filling entry protects its resident ancestors as a hold does.
//
// A parent that stands on the chunk is none: which chunk follows which may be only
// an engine's claim.
//
// The error is ErrOverBudget, ErrOverQuota, ErrFull or ErrBusy. A chunk that was
// removed is ErrBusy while it has both kids and a reader.
func (l *Ledger) Begin(o Owner, c Class, k key.Key, parent key.Hash, size uint32) (ID, State, error) {
	b := l.mu.lock()
	defer l.mu.unlock()
	id := b.find(k)
	if id != 0 {
		switch b.entries.At(id).life {
		case filling:
			return ID(id), Filling, nil
		case resident:
			return ID(id), Resident, nil
		case gone:
			return 0, Absent, fmt.Errorf("ledger: the removed chunk %x is still in use: %w", k.Hash, ErrBusy)
		}
	}
	up, parent := b.parentOf(k, id, parent)
	n := b.sizeOf(size)
	if err := b.policies.admits(k.Space, n); err != nil {
		return 0, Absent, err
	}
	if err := b.hasRoom(id, up, parent); err != nil {
		return 0, Absent, err
	}
	if err := b.budgets.fits(o, c, growth{n, n, n + b.exposed(up)}); err != nil {
		return 0, Absent, err
	}
	id = b.begin(k, id, up, parent, size)
	e := b.entries.At(id)
	e.life = filling
	rec := b.budgets.take(o, c, id)
	b.guards.of(e).fill = rec
	b.count.Filling++
	b.protect(id)
	b.policies.miss(e)
	return ID(id), Absent, nil
}

// parentOf finds the entry of a new chunk's parent, or 0, and returns its hash: zero
// for one that would make a cycle. Only a hole can have descendants before it is
// filled.
func (t *table) parentOf(k key.Key, id uint32, parent key.Hash) (uint32, key.Hash) {
	if parent == (key.Hash{}) || parent == k.Hash {
		return 0, key.Hash{}
	}
	up := t.find(key.Key{Space: k.Space, Hash: parent})
	for at := up; at != 0 && id != 0; at = t.entries.At(at).parent {
		if at == id {
			return 0, key.Hash{}
		}
	}
	return up, parent
}

// Rekey gives a fill without a parent another key of its space, before it is
// published. Absent means that it is done; any other state is what the new
// key is already, and nothing has changed.
func (l *Ledger) Rekey(id ID, to key.Key) State {
	b := l.mu.lock()
	defer l.mu.unlock()
	if !b.isFilling(uint32(id)) {
		return Filling
	}
	e := b.entries.At(uint32(id))
	if e.parent != 0 || e.kids != 0 || b.spaces.slots.At(e.space).id != to.Space {
		b.broken(uint32(id), "is part of a chain, or of another space, and gets another key")
		return Filling
	}
	if other := b.findIn(e.space, to.Hash); other != 0 {
		if b.entries.At(other).life == filling {
			return Filling
		}
		return Resident
	}
	b.unindex(uint32(id))
	e.hash = to.Hash
	b.index.Insert(b.hash(e.space, e.hash), uint32(id), &e.next)
	b.policies.miss(e)
	return Absent
}

// begin gives k an entry with bytes, linked to its parent; both may have to
// be made. The caller sets its life, which is not hole any more.
func (b *book) begin(k key.Key, id, up uint32, parent key.Hash, size uint32) uint32 {
	if id == 0 {
		id = b.add(k.Space, k.Hash)
	}
	if up == 0 && parent != (key.Hash{}) {
		up = b.add(k.Space, parent)
	}
	b.count.Holes--
	e := b.entries.At(id)
	e.size, e.parent = size, up
	b.occupy(e, b.sizeOf(size))
	if up != 0 {
		b.entries.At(up).kids++
		b.policies.offer(up)
	}
	return id
}

// Restore makes an entry resident at once, without a filler, a budget or a
// touch of its ancestors: for what an earlier process left. Call it in order
// of last use, oldest first, in any order of parents and kids. It returns
// false and changes nothing if the key is not Absent, or nothing is spare. e.ID
// is ignored.
func (l *Ledger) Restore(e Entry, parent key.Hash) (ID, bool) {
	b := l.mu.lock()
	defer l.mu.unlock()
	id := b.find(e.Key)
	if id != 0 && b.entries.At(id).life != hole {
		return ID(id), false
	}
	up, parent := b.parentOf(e.Key, id, parent)
	if b.hasRoom(id, up, parent) != nil {
		return 0, false
	}
	b.recency.renewPending()
	id = b.begin(e.Key, id, up, parent, e.Size)
	r := b.entries.At(id)
	r.life, r.value = resident, pack(e.Value)
	r.mark |= hit * mark(min(e.Hits, MaxHits))
	if e.Dirty {
		r.mark |= dirty
	}
	b.countResident(r, 1)
	b.policies.join(id)
	if b.protected(r) {
		b.protect(id)
	}
	return ID(id), true
}

// SetValue stores the tier's words. The caller is the filler or a holder.
func (l *Ledger) SetValue(id ID, v Value) {
	b := l.mu.lock()
	defer l.mu.unlock()
	b.entries.At(uint32(id)).value = pack(v)
}

// Exchange puts another word A in the place of one, if the entry is resident and
// not held: for a tier that moves a payload. False changes nothing; the entry may
// also be another one by now, or none. note, if any, is called with the entry under the
// ledger's lock, before anything can happen to it; it calls no ledger.
func (l *Ledger) Exchange(id ID, from, to uint64, note func(Entry)) bool {
	b := l.mu.lock()
	defer l.mu.unlock()
	if uint32(id) >= b.entries.Len() {
		return false
	}
	e := b.entries.At(uint32(id))
	v := e.value.unpack()
	if e.life != resident || b.isHeld(e) || v.A != from {
		return false
	}
	v.A = to
	e.value = pack(v)
	if note != nil {
		note(b.snapshot(uint32(id)))
	}
	return true
}

// SetDirty says whether the tiers below lack the entry. The caller holds it.
func (l *Ledger) SetDirty(id ID, is bool) {
	b := l.mu.lock()
	defer l.mu.unlock()
	e := b.entries.At(uint32(id))
	if e.life != resident || is == (e.mark&dirty != 0) {
		return
	}
	if e.mark ^= dirty; is {
		b.countDirty(e, 1)
	} else {
		b.countDirty(e, -1)
	}
}

// Abort ends a fill without an entry. The charge is given back and the ID is
// free; the caller has let go of what the Value names.
func (l *Ledger) Abort(id ID) {
	b := l.mu.lock()
	defer l.mu.unlock()
	if !b.isFilling(uint32(id)) {
		return
	}
	e := b.entries.At(uint32(id))
	b.unlink(uint32(id))
	b.budgets.drop(b.guards.filled(e))
	b.count.Filling--
	b.count.ProtectedBytes -= b.bytes(e)
	b.occupy(e, -b.bytes(e))
	b.makeHole(uint32(id))
	if e.kids == 0 {
		b.dropHole(uint32(id))
	}
}

// isFilling reports whether an entry is being filled. One that its filler ends, and is not,
// is put aside.
func (b *book) isFilling(id uint32) bool {
	e := b.entries.At(id)
	if e.life == filling && e.mark&publishing == 0 {
		return true
	}
	b.broken(id, "is not being filled")
	return false
}
