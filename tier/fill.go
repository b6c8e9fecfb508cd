package tier

import (
	"context"
	"errors"
	"fmt"
	"slices"

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
func (s *Stack) Reserve(ctx context.Context, o ledger.Owner, c *key.Chain, from int, sizes []uint32, grants []Grant, wait bool) (int, error) {
	if wait {
		// The nearest only: what it has the others can still get from it.
		for _, w := range s.writers[:min(1, len(s.writers))] {
			if err := w.caughtUp(ctx); err != nil {
				return 0, fmt.Errorf("reserve: %s is behind: %w: %w", w.place, ErrNoSpace, err)
			}
		}
	}
	sc := borrow(c.Len())
	defer sc.give()
	known := s.locate(c, sc.at)
	f := Fill{Owner: o, Class: ledger.Lease, Wait: wait, Drop: s.drop}
	for n, size := range sizes {
		i := from + n
		if i < known && sc.at[i] != 0 {
			grants[n] = Grant{Status: Exists}
			continue
		}
		f.Record = Record{Key: c.Key(i), Parent: c.Parent(i), Depth: c.Depth(i), Tokens: c.Tokens[i], Size: size}
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
func (s *Stack) Commit(c *key.Chain, from int, refs []Ref) error {
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
	s.hot.Publish(refs, len(s.writers) > 0, false)
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

// Delete forgets the keys in every tier and returns how many were known. What
// is being written below right now is deleted there once it is.
func (s *Stack) Delete(ctx context.Context, ks []key.Key) (int, error) {
	return s.delete(ctx, ks, false)
}

// Erase is Delete, but waits for what is being written below: once it has
// returned without an error nobody will find the keys, not even for a moment.
func (s *Stack) Erase(ctx context.Context, ks []key.Key) (int, error) {
	return s.delete(ctx, ks, true)
}

// delete is Delete. If last, it waits for what is being written: after it,
// nothing of the keys is on its way to a tier below.
func (s *Stack) delete(ctx context.Context, ks []key.Key, last bool) (int, error) {
	known := s.known(ks)
	return known, s.deleteFrom(ctx, All, ks, last)
}

// deleteFrom is delete for some tiers.
func (s *Stack) deleteFrom(ctx context.Context, from Set, ks []key.Key, last bool) error {
	var errs []error
	if from.Has(CPU) {
		errs = append(errs, s.deleteIn(ctx, CPU, ks))
		s.handedOver(ctx) // what is on its way down counts as DRAM's
	}
	for _, w := range s.writers {
		if !from.Has(w.place) {
			continue
		}
		w.recall(ks)
		if !last {
			continue
		}
		if err := w.idle(ctx, ks); err != nil {
			errs = append(errs, fmt.Errorf("delete in %s: it is still being written: %w", w.place, err))
		}
	}
	for p := Disk; p < Places; p++ {
		if from.Has(p) && s.tiers[p] != nil {
			errs = append(errs, s.deleteIn(ctx, p, ks))
		}
	}
	if from.Has(CPU) {
		// A load may have brought some of it up meanwhile; one that ends later
		// sees for itself: see fetch.
		errs = append(errs, s.deleteIn(ctx, CPU, ks))
	}
	return errors.Join(errs...)
}

// known counts the keys that are in some tier.
func (s *Stack) known(ks []key.Key) (n int) {
	for part := range slices.Chunk(ks, settleBatch) {
		s.mu.Lock()
		for _, k := range part {
			if at, _ := s.mu.tree.Get(k.Space, k.Hash); at != 0 {
				n++
			}
		}
		s.mu.Unlock()
	}
	return n
}

// deleteIn forgets the keys in one tier.
func (s *Stack) deleteIn(ctx context.Context, p Place, ks []key.Key) error {
	if err := s.tiers[p].Delete(ctx, ks); err != nil {
		return fmt.Errorf("delete in %s: %w", p, err)
	}
	for _, k := range ks {
		s.forget(p, k)
	}
	return nil
}

// DeleteSpace forgets every chunk of a space, in a shared tier also what others
// stored there, and returns how many were known.
func (s *Stack) DeleteSpace(ctx context.Context, id key.SpaceID) (int, error) {
	n, err := s.Delete(ctx, s.Known(id))
	if far, ok := s.tiers[Remote].(Shared); ok {
		more, perr := far.Purge(ctx, id)
		n += more
		if perr != nil {
			err = errors.Join(err, fmt.Errorf("delete in %s: %w", Remote, perr))
		}
	}
	return n, err
}

// Known returns the keys of a space that are in some tier, in no order. It
// holds the index for some 20 ns a key: it is for what somebody asks by hand.
func (s *Stack) Known(id key.SpaceID) []key.Key { return s.keysOf(id, All) }

// keysOf lists what some tier of a set has of a space.
func (s *Stack) keysOf(id key.SpaceID, in Set) (ks []key.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.tree.Walk(id, func(hash, _ key.Hash, _ int, at radix.Loc) bool {
		if Set(at)&in != 0 {
			ks = append(ks, key.Key{Space: id, Hash: hash})
		}
		return true
	})
	return ks
}
