package tier

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/kvstored/kvstored/internal/fair"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/radix"
	"github.com/kvstored/kvstored/key"
)

// GrantStatus is the answer to one chunk of a Reserve.
type GrantStatus uint8

// The answers.
const (
	Granted GrantStatus = iota // fill it
	Exists                     // some tier has it: nothing to send
	Pending                    // another client is filling it
)

// Grant is one chunk of a Reserve; Ref is valid if it was granted.
type Grant struct {
	Status GrantStatus
	Ref    Ref
}

// ErrInconsistent is returned for a chain that contradicts what is known: a
// hash that was stored before under another parent. Hashes must cover the
// whole prompt up to the end of their chunk.
var ErrInconsistent = errors.New("inconsistent chain")

// Reserve asks for room for the chunks of c from `from` on, of the given
// sizes. It fills grants for the longest leading run that could be answered
// and returns its length; the error says why it is shorter.
//
// It evicts what it must. With wait it also lets the writers catch up first,
// and waits for room for the first chunk, until ctx ends: never while it has
// something granted, so that nobody waits for each other.
//
// Where a policy plans it ends with ErrUnworthy at the first chunk that no
// tier wants to have.
func (s *Stack) Reserve(ctx context.Context, o ledger.Owner, c *key.Chain, from int, sizes []uint32, grants []Grant, wait bool) (int, error) {
	return s.ReserveFor(ctx, Store{Owner: o, Wait: wait}, c, from, sizes, grants)
}

// Store says how chunks are to be stored.
type Store struct {
	Owner   ledger.Owner
	Wait    bool
	Insists bool // whatever the policies think of it
}

// ReserveFor is Reserve for one who says more.
func (s *Stack) ReserveFor(ctx context.Context, want Store, c *key.Chain, from int, sizes []uint32, grants []Grant) (int, error) {
	if want.Wait {
		// The nearest only: what it has the others can still get from it.
		for _, w := range s.writers[:min(1, len(s.writers))] {
			if err := w.caughtUp(ctx); err != nil {
				return 0, fmt.Errorf("reserve: %s is behind: %w: %w", w.place, ErrNoSpace, err)
			}
		}
	}
	sc := borrow(c.Len())
	defer sc.give()
	if err := s.locateEach(c, max(from, s.locate(c, sc.at)), from+len(sizes), sc.at); err != nil {
		return 0, err
	}
	n, err := s.reserve(ctx, want, c, from, sizes, sc.at, grants)
	sure, unsure := s.reject(ctx, want.Wait, c, from, grants[:n])
	return sure, cmp.Or(unsure, err)
}

// yieldEvery is after how many chunks of a long request others may go first.
const yieldEvery = 64

// reserve is ReserveFor for chunks of which at says where they are.
func (s *Stack) reserve(ctx context.Context, want Store, c *key.Chain, from int, sizes []uint32, at []uint8, grants []Grant) (int, error) {
	f := Fill{Owner: want.Owner, Class: ledger.Lease, Wait: want.Wait, Patient: want.Wait, Writing: s.writing, Drop: s.drop}
	for n, size := range sizes {
		i := from + n
		if n%yieldEvery == yieldEvery-1 {
			fair.Yield(ctx)
		}
		if at[i] != 0 {
			grants[n] = Grant{Status: Exists}
			continue
		}
		if !want.Insists && s.worth(c, i, i+1, size) == 0 {
			return n, fmt.Errorf("reserve chunk %d: %w", i, ErrUnworthy)
		}
		f.Record = recordAt(c, i, size)
		f.Insists = want.Insists
		ref, st, err := s.hot.Reserve(ctx, f)
		if err != nil {
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
func (s *Stack) Commit(c *key.Chain, from int, refs []Ref) error {
	return s.CommitEach(c, from, refs, make([]bool, len(refs)))
}

// CommitEach is Commit, and sets stored[i] where the bytes of refs[i] are the
// chunk's now.
func (s *Stack) CommitEach(c *key.Chain, from int, refs []Ref, stored []bool) error {
	for i, r := range refs {
		if stored[i] = !s.isBelow(c.Key(from + i)); !stored[i] {
			s.reveal(recordAt(c, from+i, uint32(r.Block.Len())))
		} else if s.unscanned.Load() {
			s.untold.add(c.Key(from+i), r.Block.Sum())
		}
	}
	return s.commit(c, from, refs, stored)
}

// commit is CommitEach for those of refs that are to be stored.
func (s *Stack) commit(c *key.Chain, from int, refs []Ref, stored []bool) error {
	sc := borrow(0)
	defer sc.give()
	to := from + len(refs)
	ks := sc.chain(c, from, to)
	for _, r := range refs {
		sc.sizes = append(sc.sizes, uint32(r.Block.Len()))
	}
	// Before anybody can see them: who knows such a hash under its true parent
	// must not be handed these bytes, not even for a moment.
	if err := s.consistent(c, from, to); err != nil {
		s.hot.Abort(refs)
		return s.refused(err, len(ks))
	}
	for i := 0; i < len(refs); {
		n := runOf(stored[i:])
		if stored[i] {
			s.hot.Publish(refs[i:i+n], s.nearest(c.Space) != nil, false)
		} else {
			s.hot.Abort(refs[i : i+n])
		}
		i += n
	}
	if err := s.learn(c, from, to, CPU); err != nil { // somebody contradicted it just now
		if derr := s.hot.Delete(context.Background(), ks); derr != nil {
			return fmt.Errorf("commit: %w", derr)
		}
		s.settle(CPU, ks...)
		return s.refused(err, len(ks))
	}
	// What was evicted between the two steps must not stay in the index.
	s.settle(CPU, ks...)
	for _, w := range s.writers {
		w.committed(c, from, sc.sizes)
	}
	s.filled()
	return nil
}

// runOf is how many of the first values are equal.
func runOf(v []bool) int {
	n := slices.Index(v, !v[0])
	if n < 0 {
		return len(v)
	}
	return n
}

// consistent says whether chunks from..to of c, and those before, contradict
// what is known.
func (s *Stack) consistent(c *key.Chain, from, to int) error {
	if c.Alone {
		return s.eachAlone(from, to, func(i int) error { return s.mu.tree.Check(c.Space, c.Hashes[i:i+1]) })
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.tree.Check(c.Space, c.Hashes[:to])
}

// refused counts n chunks that the index did not take.
func (s *Stack) refused(err error, n int) error {
	s.count.inconsistent.Add(uint64(n))
	if errors.Is(err, radix.ErrInconsistent) {
		return fmt.Errorf("commit: %w: %w", ErrInconsistent, err)
	}
	return fmt.Errorf("commit: %w", err)
}

// Abort gives up reserved chunks; their keys are free again.
func (s *Stack) Abort(refs []Ref) { s.hot.Abort(refs) }
