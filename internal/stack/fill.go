package stack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kvstored/kvstored/internal/extent"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// filler takes chunks from clients.
type filler struct {
	lookups
	planning *planning
	remover  *remover
}

// GrantStatus is the answer to one chunk of a Reserve.
type GrantStatus uint8

// The answers.
const (
	Granted  GrantStatus = iota // fill it
	Exists                      // some tier has it: nothing to send
	Pending                     // another client is filling it
	Unwanted                    // no prefix that is worth having needs it; see Family.Wanted
)

// Grant is one chunk of a Reserve; Ref is valid if it was granted.
type Grant struct {
	Status GrantStatus
	Ref    tier.Ref
}

// Reserve asks for room for the chunks of c from `from` on, of the given
// sizes. It fills grants for the longest leading run that could be answered
// and returns its length; the error says why it is shorter.
//
// It evicts chunks where it must. With wait it also lets the writers catch up first,
// takes its turn where victims are written first, and waits for room for the first
// chunk, until ctx ends: never while it has
// something granted, so that no two clients wait for each other.
//
// Where a policy plans it ends with ErrNotAdmitted at the first chunk that no
// tier wants to have.
func (s *filler) Reserve(ctx context.Context, o ledger.Owner, c *key.Chain, from int, sizes []uint32, grants []Grant, wait bool) (int, error) {
	return s.ReserveFor(ctx, Store{Owner: o, Wait: wait}, c, from, sizes, grants)
}

// Store says how chunks are to be stored.
type Store struct {
	Owner   ledger.Owner
	Wait    bool
	Try     bool // with Wait: end with tier.ErrMustWait, and nothing granted, where it would begin to wait
	Patient bool // as Wait, but that it takes less instead: nothing is lost that the writers have no room for yet
	Force   bool // whatever the policies think of it
	Free    bool // take only room that is free
}

// ReserveFor is Reserve for one who says more.
func (s *filler) ReserveFor(ctx context.Context, want Store, c *key.Chain, from int, sizes []uint32, grants []Grant) (int, error) {
	if want.Wait {
		if err := s.awaitWriter(ctx, want.Try); err != nil {
			return 0, err
		}
	}
	to := from + len(sizes)
	sc := borrow(to)
	defer sc.give()
	s.locateEach(ctx, c, from, sc.at)
	if n := roomOf(sizes, sc.at[from:to]); n > 0 && want.Wait && !want.Free && s.writesVictims(c.Space) {
		waited, leave, err := s.enterTurn(ctx, &want, n)
		switch {
		case err == nil:
			defer leave()
		case !errors.Is(err, context.DeadlineExceeded): // else it takes what is there
			return 0, err
		}
		if waited { // chunks have come and gone
			s.locateEach(ctx, c, from, sc.at)
		}
	}
	n, err := s.reserve(ctx, want, c, from, sizes, sc.at, grants)
	if errors.Is(err, tier.ErrMustWait) {
		return 0, err
	}
	sure, unsure := s.reject(ctx, want.Wait && !want.Try, c, from, grants[:n])
	return sure, cmp.Or(unsure, err)
}

// awaitWriter waits until the writer to the nearest tier below has caught up: what that
// has, the others can still get from it. A try also ends while a tier is being scanned,
// which is asked for what is granted.
func (s *filler) awaitWriter(ctx context.Context, try bool) error {
	if len(s.levels.below) == 0 {
		return nil
	}
	nearest := s.levels.below[0]
	if try {
		if s.scanning() != 0 || !nearest.writer.hasCaughtUp() {
			return fmt.Errorf("reserve: %w", tier.ErrMustWait)
		}
		return nil
	}
	if err := nearest.writer.caughtUp(ctx); err != nil {
		return fmt.Errorf("reserve: %s is behind: %w: %w", nearest.place, tier.ErrNoSpace, err)
	}
	return nil
}

// writesVictims reports whether what DRAM evicts of a space is mostly to be written
// first.
func (d *dram) writesVictims(id key.SpaceID) bool {
	w := d.nearest(id)
	return w != nil && w.when.holds()
}

// locateEach is locate that also looks at each chunk behind those that are known.
func (s *filler) locateEach(ctx context.Context, c *key.Chain, from int, at []uint8) {
	s.index.matchEach(c, s.locate(c, from, at), len(at), at)
}

// roomOf is what the chunks that are in no tier take in the arena, by at; nil: all.
func roomOf(sizes []uint32, at []uint8) (n int64) {
	for i, size := range sizes {
		if at == nil || at[i] == 0 {
			n += extent.RoundUp(int64(size))
		}
	}
	return n
}

// reserve is ReserveFor for chunks of which at says where they are.
func (s *filler) reserve(ctx context.Context, want Store, c *key.Chain, from int, sizes []uint32, at []uint8, grants []Grant) (int, error) {
	f := tier.Fill{Owner: want.Owner, Class: ledger.Lease, Wait: want.Wait, Try: want.Try, Patient: want.Wait || want.Patient, Writing: s.writing, Drop: s.demote}
	for n, size := range sizes {
		i := from + n
		if at[i] != 0 {
			grants[n] = Grant{Status: Exists}
			continue
		}
		if !want.Force && s.planning.admit(c, i, i+1, size) == 0 {
			s.absences.refused(c.Key(i), ErrNotAdmitted)
			return n, fmt.Errorf("reserve chunk %d: %w", i, ErrNotAdmitted)
		}
		f.Record = recordAt(c, i, size)
		f.Force, f.Free = want.Force, want.Free
		ref, st, err := s.hot.Reserve(ctx, f)
		if err != nil {
			s.absences.refused(f.Record.Key, err) // says nothing of one that must wait
			return n, fmt.Errorf("reserve chunk %d: %w", i, err)
		}
		grants[n] = Grant{Status: statusOf(st), Ref: ref}
		f.Wait = f.Wait && !ref.Valid()
	}
	return len(sizes), nil
}

func statusOf(st ledger.State) GrantStatus {
	switch st {
	case ledger.Filling:
		return Pending
	case ledger.Resident:
		return Exists
	}
	return Granted
}

// Commit makes filled and sealed chunks visible: refs are chunks from..
// of c, without a gap. They are the caller's no more. From now on lookups
// find them, and they are written behind as the mode says.
//
// A key has one value until it is deleted: where a tier below has come to have
// a chunk since it was reserved, that one stays and the new bytes are dropped.
func (s *filler) Commit(c *key.Chain, from int, refs []tier.Ref) {
	s.CommitEach(c, from, refs, 0, make([]bool, len(refs)))
}

// CommitEach is Commit of chunks that may become so old, 0 for any age; the shorter of
// that and the bound of their space counts. It sets stored[i] where the bytes of refs[i]
// are the chunk's now.
func (s *filler) CommitEach(c *key.Chain, from int, refs []tier.Ref, maxAge time.Duration, stored []bool) {
	for i, r := range refs {
		if stored[i] = !s.isBelow(c.Key(from + i)); !stored[i] {
			s.reveal(recordAt(c, from+i, uint32(r.Block.Len())))
		} else {
			s.storedUnasked(c.Key(from+i), r.Block.Sum())
		}
	}
	s.commit(c, from, refs, maxAge, stored)
}

// commit is CommitEach for those of refs that are to be stored.
func (s *filler) commit(c *key.Chain, from int, refs []tier.Ref, maxAge time.Duration, stored []bool) {
	sc := borrow(0)
	defer sc.give()
	to := from + len(refs)
	ks := sc.chain(c, from, to)
	for _, r := range refs {
		sc.sizes = append(sc.sizes, uint32(r.Block.Len()))
	}
	for i := 0; i < len(refs); {
		n := runOf(stored[i:])
		if stored[i] {
			s.ages.Stored(c.Space, c.Hashes[from+i:from+i+n], maxAge) // before anything can find them
			s.hot.Publish(refs[i:i+n], s.nearest(c.Space) != nil, false)
		} else {
			s.hot.Abort(refs[i : i+n])
		}
		i += n
	}
	s.index.add(c, from, to, tier.CPU)
	for i, k := range ks {
		if stored[i] {
			s.absences.log.Taken(k)
			s.index.retained(tier.CPU, k, sc.sizes[i])
		}
	}
	// A chunk that was evicted between the two steps must not stay in the index.
	s.index.sync(tier.CPU, ks...)
	for _, l := range s.levels.below {
		l.writer.committed(c, from, sc.sizes)
	}
	s.turns.forget(roomOf(sc.sizes, nil))
	if to > from && !c.Alone {
		s.heat.Stored(c.Key(to - 1))
	}
	s.filled()
}

// runOf is how many of the first values are equal.
func runOf(v []bool) int {
	n := slices.Index(v, !v[0])
	if n < 0 {
		return len(v)
	}
	return n
}

// Abort gives up reserved chunks; their keys are free again.
func (s *filler) Abort(refs []tier.Ref) { s.hot.Abort(refs) }
