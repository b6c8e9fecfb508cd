package ledger

import (
	"hash/maphash"

	"github.com/kvstored/kvstored/internal/base"
	"github.com/kvstored/kvstored/key"
)

// spaces gives every space in use a small number, so that an entry stores 4
// bytes instead of 16. A number is free again when no entry names it.
type spaces struct {
	number map[key.SpaceID]uint32 // few; no pointers in it
	slots  base.Pool[space]
	quotas map[key.SpaceID]uint32 // of those that are under one, in use or not
	order  []key.SpaceID          // of assignment, as far as they are in quotas
	last   uint32                 // the one asked for last: chains are of one space
	moving bool                   // spaces that get a number now are moving; see SetQuotas
}

type space struct {
	id   key.SpaceID
	refs uint32
	mix  uint64 // seeded hash of id, goes into the hash of every key in it

	quota  uint32 // the scope of its quota; 0 for none
	bounds bool   // its prefixes are usable where Need says so only
	moving bool   // its entries join the order of no quota now; see SetQuotas
	bytes  int64  // occupied by its entries
	cold   int64  // of these, by those that go first
	here   uint32 // resident entries
}

// noSpace is the slot that is never used; an entry never names it.
const noSpace = 0

// find returns the number of id, or noSpace.
func (s *spaces) find(id key.SpaceID) uint32 {
	if s.last != noSpace && s.slots.At(s.last).id == id {
		return s.last
	}
	n := s.number[id]
	s.last = n
	return n
}

// maxQuotas is how many spaces are remembered to be under a quota although they
// may have no entries: far more than there are models, and a few MB.
const maxQuotas = 1 << 16

// assign puts a space under the quota of a scope. Others that have no entries
// are forgotten in the order in which they came.
func (s *spaces) assign(id key.SpaceID, scope uint32) {
	s.quotas[id] = scope
	s.order = append(s.order, id)
	for range 8 { // those in use go to the end, and must not hold up the rest
		if len(s.order) <= maxQuotas {
			return
		}
		oldest := s.order[0]
		s.order = s.order[1:]
		if s.find(oldest) == noSpace {
			delete(s.quotas, oldest)
		} else {
			s.order = append(s.order, oldest)
		}
	}
}

// ref returns the number of id for one more entry.
func (s *spaces) ref(id key.SpaceID, seed maphash.Seed) uint32 {
	n := s.find(id)
	if n == noSpace {
		n = s.slots.Take()
		*s.slots.At(n) = space{id: id, mix: maphash.Bytes(seed, id[:]), quota: s.quotas[id], moving: s.moving}
		s.number[id] = n
		s.last = n
	}
	s.slots.At(n).refs++
	return n
}

// Keys lists the filling and resident entries of a space, in no order. It takes
// a space with entries some 10 ns for each entry of the ledger, in short rounds:
// it is for questions by hand. Entries that come or go meanwhile may be missing.
func (l *Ledger) Keys(id key.SpaceID) (ks []key.Key) {
	if l.SpaceBytes(id) == 0 {
		return nil
	}
	l.mu.each(maxRound, func(b *book, _ uint32, e *entry) {
		if (e.life == filling || e.life == resident) && b.spaces.slots.At(e.space).id == id {
			ks = append(ks, key.Key{Space: id, Hash: e.hash})
		}
	})
	return ks
}

// Occupancy is what the resident entries of a space are, and take with others of it.
type Occupancy struct {
	Entries          int
	Bytes, ColdBytes int64 // see Stats
}

// Occupancies calls fn with what each of some spaces takes, in their order, without the lock.
func Occupancies(l *Ledger, ids []key.SpaceID, fn func(i int, o Occupancy)) {
	var some [handOverRound]Occupancy
	for from := 0; from < len(ids); from += len(some) {
		part := ids[from:min(len(ids), from+len(some))]
		l.mu.round(func(b *book) {
			for i, id := range part {
				sp := b.spaces.slots.At(b.spaces.find(id)) // of no space: nothing
				some[i] = Occupancy{int(sp.here), sp.bytes, sp.cold}
			}
		})
		for i := range part {
			fn(from+i, some[i])
		}
	}
}

// unref gives back what ref counted.
func (s *spaces) unref(n uint32) {
	sp := s.slots.At(n)
	if sp.refs--; sp.refs > 0 {
		return
	}
	delete(s.number, sp.id)
	s.slots.Give(n)
	if s.last == n {
		s.last = noSpace
	}
}
