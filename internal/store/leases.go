package store

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/internal/explain"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/stale"
	"github.com/kvstored/kvstored/internal/writeback"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// Leases holds chunks that are in DRAM for clients, and checks a sample of them.
type Leases struct {
	levels      *levels
	index       *tierIndex
	lookups     *Lookups
	writers     *writeback.Writers
	ages        *stale.Book
	distrusted  *stale.Distrusted
	hotPrefixes *explain.HotPrefixes // of the ends of prompts
	log         zerolog.Logger
	verify      sampler
}

// NewOwner registers a client.
func (l *Leases) NewOwner() ledger.Owner { return l.levels.hot.Ledger().NewOwner() }

// CloseOwner forgets a client that holds nothing any more.
func (l *Leases) CloseOwner(o ledger.Owner) { l.levels.hot.Ledger().CloseOwner(o) }

// OwnerBytes is what a client holds in DRAM in a class, in occupied bytes.
func (l *Leases) OwnerBytes(o ledger.Owner, cl ledger.Class) int64 {
	return l.levels.hot.Ledger().OwnerBytes(o, cl)
}

// Hold takes chunks from..to of c as far as they are in DRAM and within
// budget, and returns how many. The error only says why a budget made it
// shorter.
func (l *Leases) Hold(o ledger.Owner, cl ledger.Class, c *key.Chain, from, to int, refs []tier.Ref) (int, error) {
	sc := borrow(0)
	defer sc.give()
	if l.distrusted.Has(c.Space) {
		return 0, nil
	}
	l.ages.EachExpired(c.Space, c.Hashes[from:to], func(i int) { to = min(to, from+i) })
	ks := sc.chain(c, from, to)
	n, err := l.levels.hot.Hold(o, cl, ks, refs)
	for n < len(ks) && err == nil && l.writers.Readmit(ks[n]) {
		var more int
		if more, err = l.levels.hot.Hold(o, cl, ks[n:], refs[n:]); more == 0 {
			break
		}
		n += more
	}
	if n < len(ks) && err == nil {
		l.index.Sync(tier.CPU, explain.Evicted, ks[n]) // the index believed it was there
	}
	if cl == ledger.Lease {
		n = l.verified(o, cl, ks, refs[:n])
		l.writers.Touched(c, from, refs[:n])
	}
	return n, err
}

// Release gives back what Hold took.
func (l *Leases) Release(o ledger.Owner, cl ledger.Class, refs []tier.Ref) {
	l.levels.hot.Release(o, cl, refs)
}

// verified checks a sample of the chunks just held. At a chunk whose bytes are
// wrong the run ends: it is dropped, and the chunks held behind it given back.
func (l *Leases) verified(o ledger.Owner, cl ledger.Class, ks []key.Key, refs []tier.Ref) int {
	for i, ok := l.verify.next(0, len(refs)); ok; i, ok = l.verify.next(i+1, len(refs)) {
		if refs[i].Block.Verify() {
			continue
		}
		l.log.Error().Hex("hash", ks[i].Hash[:]).Msg("a chunk in DRAM no longer has its checksum; it is dropped and recomputed")
		l.writers.DropCorrupt(context.Background(), ks[i])
		l.levels.hot.Release(o, cl, refs[i:])
		return i
	}
	return len(refs)
}

// Touch counts one use of chunks from..to of c, in every tier that has them:
// a chunk that is hit in DRAM must not grow old on disk. Tail first, so that a head
// is younger than its tail. It is called once for each request, when that
// knows its result; loading and committing count no use.
func (l *Leases) Touch(c *key.Chain, from, to int) {
	sc := borrow(0)
	defer sc.give()
	ks := sc.chain(c, from, to)
	for _, level := range l.levels.all {
		if level.Resident != nil {
			level.Resident.Touch(ks)
		}
	}
	if to > from && !c.Alone {
		l.hotPrefixes.Asked(c.Key(to - 1))
	}
}

// Sum is the checksum of chunk i of c and its bytes, if DRAM has it or a tier
// below knows it without I/O.
func (l *Leases) Sum(o ledger.Owner, c *key.Chain, i int) (sum uint64, size uint32, known bool) {
	var refs [1]tier.Ref
	if n, _ := l.Hold(o, ledger.IO, c, i, i+1, refs[:]); n == 1 {
		defer l.Release(o, ledger.IO, refs[:])
		return refs[0].Block.Sum(), uint32(refs[0].Block.Len()), true
	}
	for _, level := range l.levels.below {
		if level.Summed != nil && !known {
			sum, size, known = level.Summed.Sum(c.Key(i))
		}
	}
	return sum, size, known
}

// sampler picks every so-manieth of a stream.
type sampler struct {
	every atomic.Uint64 // 0 = none
	seen  atomic.Uint64
}

// next returns the first pick in from..to.
func (s *sampler) next(from, to int) (int, bool) {
	every := s.every.Load()
	if every == 0 || from >= to {
		return 0, false
	}
	n := uint64(to - from)
	before := s.seen.Add(n) - n
	skip := (every - 1 - before%every)
	if skip >= n {
		return 0, false
	}
	s.seen.Add(-(n - skip - 1)) // what lies behind the pick is not seen yet
	return from + int(skip), true
}

// Singles are chunks that are held each by itself, whether or not those before are there.
type Singles struct {
	owner ledger.Owner
	refs  []tier.Ref                     // leased in DRAM
	below map[*ledger.Ledger][]ledger.ID // not to be evicted; a tier that is opened again has another ledger
}

// mostSingles is how many chunks that follow each other are held at a time. Behind one that
// has left its tier it is one, and doubles, so that few are asked for in vain.
const mostSingles = 128

// HoldSingles adds to s the chunks of c from number from on that bounded tiers of the search
// range have: chunks in DRAM are leased to o, chunks of a tier below stay there. held is
// called for each chunk; EndSingles lets go of all. Tiers without bounds are not asked, as
// they may be wrong; of a tier whose budget is used up the rest is left out.
func (l *Leases) HoldSingles(s *Singles, o ledger.Owner, c *key.Chain, from int, search tier.Set, held func(i int)) {
	s.owner = o
	if s.below == nil {
		s.below = make(map[*ledger.Ledger][]ledger.ID)
	}
	alone := *c
	alone.Alone = true
	sc := borrow(c.Len())
	defer sc.give()
	l.lookups.locate(&alone, from, sc.at)
	mask := search & l.levels.those(func(l *level) bool { return l.Bounded != nil && !l.Off() })
	for i, most := from, mostSingles; i < c.Len(); {
		place, ok := l.levels.nearestOf(tier.Set(sc.at[i]) & mask)
		if !ok {
			i++
			continue
		}
		to := i + 1
		for ; to < min(i+most, c.Len()); to++ {
			if next, ok := l.levels.nearestOf(tier.Set(sc.at[to]) & mask); !ok || next != place {
				break
			}
		}
		n, err := l.holdSingles(s, c, i, to, place)
		for range n {
			held(i)
			i++
		}
		most = min(2*most, mostSingles)
		switch {
		case err != nil: // a budget is used up
			mask &^= tier.Of(place)
		case i < to: // it has left the tier
			sc.at[i] &^= uint8(tier.Of(place))
			most = 1
		}
	}
}

// holdSingles holds chunks from..to of c in a tier, up to one that is not there.
func (l *Leases) holdSingles(s *Singles, c *key.Chain, from, to int, place tier.Place) (n int, err error) {
	if place == tier.CPU {
		at := len(s.refs)
		s.refs = slices.Grow(s.refs, to-from)
		n, err = l.Hold(s.owner, ledger.Lease, c, from, to, s.refs[at:at+to-from])
		s.refs = s.refs[:at+n]
		return n, err
	}
	sc := borrow(0)
	defer sc.give()
	sc.entries = slices.Grow(sc.entries[:0], to-from)[:to-from]
	books := l.levels.at[place].Bounded.Ledger()
	n, err = books.Hold(ledger.Daemon, ledger.Lease, sc.chain(c, from, to), sc.entries)
	for _, e := range sc.entries[:n] {
		s.below[books] = append(s.below[books], e.ID)
	}
	return n, err
}

// EndSingles lets go of what HoldSingles has held.
func (l *Leases) EndSingles(s *Singles) {
	l.Release(s.owner, ledger.Lease, s.refs)
	for books, ids := range s.below {
		books.Unhold(ledger.Daemon, ledger.Lease, ids)
	}
	*s = Singles{}
}

// Claim says which chunks of a space are claimed, in each tier that has them; see
// ledger.Claim.
func (l *Leases) Claim(space key.SpaceID, hs []key.Hash, claimed []bool) {
	for _, at := range l.levels.all {
		if at.Bounded != nil {
			ledger.Claim(at.Bounded.Ledger(), space, hs, claimed)
		}
	}
}
