package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/explain"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/stale"
	"github.com/kvstored/kvstored/internal/writeback"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// Filler takes chunks from clients.
type Filler struct {
	levels      *levels
	index       *tierIndex
	lookups     *Lookups
	planning    *Planning
	remover     *Remover
	writers     *writeback.Writers
	ages        *stale.Book
	distrusted  *stale.Distrusted
	absences    *absences
	hotPrefixes *explain.HotPrefixes
	log         zerolog.Logger
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

// Reservation says how chunks are to be stored.
type Reservation struct {
	Owner ledger.Owner
	tier.Patience
	Force bool // whatever the policies think of it
	Free  bool // take only room that is free
}

// Reserve asks for room for the chunks of c from `from` on, of the given
// sizes. It fills grants for the longest leading run that could be answered
// and returns its length; the error says why it is shorter.
//
// It evicts chunks where it must. With tier.Wait it also lets the writers catch up first,
// takes its turn where victims are written first, and waits for room for the first
// chunk, until ctx ends: never while it has
// something granted, so that no two clients wait for each other.
//
// Where a policy plans it ends with ErrNotAdmitted at the first chunk that no
// tier wants to have.
func (s *Filler) Reserve(ctx context.Context, want Reservation, c *key.Chain, from int, sizes []uint32, grants []Grant) (int, error) {
	if want.Waits() {
		if err := s.awaitWriter(ctx, want.Patience == tier.Try); err != nil {
			return 0, err
		}
	}
	to := from + len(sizes)
	sc := borrow(to)
	defer sc.give()
	s.locateEach(ctx, c, from, sc.at)
	if n := roomOf(sizes, sc.at[from:to]); n > 0 && want.Waits() && !want.Free && s.writesVictims(c.Space) {
		waited, leave, err := s.writers.Enter(ctx, want.Owner, want.Patience == tier.Try, n)
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
	sure, unsure := s.reject(ctx, want.Patience == tier.Wait, c, from, grants[:n])
	return sure, cmp.Or(unsure, err)
}

// awaitWriter waits until the writer to the nearest tier below has caught up: what that
// has, the others can still get from it. A try also ends while a tier is being scanned,
// which is asked for what is granted.
func (s *Filler) awaitWriter(ctx context.Context, try bool) error {
	if len(s.levels.below) == 0 {
		return nil
	}
	nearest := s.levels.below[0]
	if try {
		if s.levels.scanning() != 0 || !nearest.writer.HasCaughtUp() {
			return fmt.Errorf("reserve: %w", tier.ErrMustWait)
		}
		return nil
	}
	if err := nearest.writer.CaughtUp(ctx); err != nil {
		return fmt.Errorf("reserve: %s is behind: %w: %w", nearest.Place, tier.ErrNoSpace, err)
	}
	return nil
}

// writesVictims reports whether what DRAM evicts of a space is mostly to be written
// first.
func (s *Filler) writesVictims(id key.SpaceID) bool {
	w := s.writers.Nearest(id)
	return w != nil && w.Defers()
}

// locateEach is locate that also looks at each chunk behind those that are known.
func (s *Filler) locateEach(ctx context.Context, c *key.Chain, from int, at []uint8) {
	s.index.matchEach(c, s.lookups.locate(c, from, at), len(at), at)
}

// roomOf is what the chunks that are in no tier take in the arena, by at; nil: all.
func roomOf(sizes []uint32, at []uint8) (n int64) {
	for i, size := range sizes {
		if at == nil || at[i] == 0 {
			n += arena.RoundUp(int64(size))
		}
	}
	return n
}

// reserve is Reserve for chunks of which at says where they are.
func (s *Filler) reserve(ctx context.Context, want Reservation, c *key.Chain, from int, sizes []uint32, at []uint8, grants []Grant) (int, error) {
	f := tier.Fill{Owner: want.Owner, Class: ledger.Lease, Patience: want.Patience, Writing: s.writers.WriteDeferred, Drop: s.writers.Demote}
	for n, size := range sizes {
		i := from + n
		if at[i] != 0 {
			grants[n] = Grant{Status: Exists}
			continue
		}
		if s.distrusted.Has(c.Space) || !want.Force && s.planning.Admit(c, i, i+1, size) == 0 {
			s.absences.refused(c.Key(i), ErrNotAdmitted)
			return n, fmt.Errorf("reserve chunk %d: %w", i, ErrNotAdmitted)
		}
		f.Record = tier.RecordAt(c, i, size)
		f.Force, f.Free = want.Force, want.Free
		ref, st, err := s.levels.hot.Reserve(ctx, f)
		if err != nil {
			s.absences.refused(f.Record.Key, err) // says nothing of one that must wait
			return n, fmt.Errorf("reserve chunk %d: %w", i, err)
		}
		grants[n] = Grant{Status: statusOf(st), Ref: ref}
		if ref.Valid() {
			f.Patience = min(f.Patience, tier.Patient)
		}
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
// a chunk since it was reserved, that one stays and the new bytes are dropped. It sets
// stored[i] where the bytes of refs[i] are the chunk's now.
//
// The chunks may become so old as maxAge says, 0 for any age; the shorter of that and the
// bound of their space counts.
func (s *Filler) Commit(c *key.Chain, from int, refs []tier.Ref, maxAge time.Duration, stored []bool) {
	distrusted := s.distrusted.Has(c.Space) // since it was reserved
	for i, r := range refs {
		if distrusted {
			stored[i] = false
		} else if stored[i] = !s.writers.IsBelow(c.Key(from + i)); !stored[i] {
			s.reveal(tier.RecordAt(c, from+i, uint32(r.Block.Len())))
		} else {
			s.storedUnchecked(c.Key(from+i), r.Block.Sum())
		}
	}
	s.commit(c, from, refs, maxAge, stored)
}

// commit is Commit for those of refs that are to be stored.
func (s *Filler) commit(c *key.Chain, from int, refs []tier.Ref, maxAge time.Duration, stored []bool) {
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
			s.levels.hot.Publish(refs[i:i+n], s.writers.Nearest(c.Space) != nil, false)
		} else {
			s.levels.hot.Abort(refs[i : i+n])
		}
		i += n
	}
	s.index.add(c, from, to, tier.CPU)
	came := uint64(0)
	for i, k := range ks {
		if stored[i] {
			came += uint64(sc.sizes[i])
			s.absences.evictLog.Taken(k)
			s.index.retained(tier.CPU, k, sc.sizes[i])
		}
	}
	s.absences.rivals.Came(uint8(tier.CPU), c.Space, came)
	s.writers.Committed(c, from, sc.sizes)
	s.writers.Came(roomOf(sc.sizes, nil))
	if to > from && !c.Alone {
		s.hotPrefixes.Stored(c.Key(to - 1))
	}
	s.writers.Filled()
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
func (s *Filler) Abort(refs []tier.Ref) { s.levels.hot.Abort(refs) }

// reject takes grants back for chunks that some tier has after all. Only the
// caller that fills a key can be sure of that: before, another client might have
// stored it, and DRAM evicted it, since the tiers were asked. It returns how many of
// the first grants are certain; an error says why there are fewer.
func (s *Filler) reject(ctx context.Context, wait bool, c *key.Chain, from int, grants []Grant) (int, error) {
	if !slices.ContainsFunc(grants, isGranted) {
		return len(grants), nil
	}
	scanning := s.levels.scanning() // before the index: what a scan brings is there before it ends
	s.levels.hot.HandedOver()
	for i, g := range grants {
		k := c.Key(from + i)
		if !isGranted(g) {
			continue
		}
		if _, moving := s.writers.InTransit(k); moving || s.writers.IsBelow(k) {
			s.exists(&grants[i])
			s.reveal(tier.RecordAt(c, from+i, 0))
		}
	}
	for _, l := range s.levels.below {
		if !scanning.Has(l.Place) || l.Off() {
			continue
		}
		if n, err := s.rejectUnscanned(ctx, l, wait, c, from, grants); err != nil {
			for i := range grants[n:] {
				if isGranted(grants[n+i]) {
					s.exists(&grants[n+i])
				}
			}
			return n, err
		}
	}
	return len(grants), nil
}

func isGranted(g Grant) bool { return g.Status == Granted }

// exists takes one grant back.
func (s *Filler) exists(g *Grant) {
	s.levels.hot.Abort([]tier.Ref{g.Ref})
	*g = Grant{Status: Exists}
}

// reveal has the index follow tiers that were ahead of it.
func (s *Filler) reveal(r tier.Record) {
	for _, l := range s.levels.below {
		if l.Has(r.Key) && !s.index.Where(r.Key).Has(l.Place) {
			s.index.Insert(l.Place, []tier.Record{r})
		}
	}
}

// storedUnchecked remembers a chunk that was stored while a tier could not be asked.
func (s *Filler) storedUnchecked(k key.Key, sum uint64) {
	for _, l := range s.levels.below {
		if l.scan.unknown.Load() {
			l.scan.offline.add(k, sum)
		}
	}
}

// rejectUnscanned asks a tier that is still being scanned for its chunks. What
// it does not say in time is not granted: the old bytes would come back once
// the new ones have left DRAM. A tier that fails has nothing; see offline.
func (s *Filler) rejectUnscanned(ctx context.Context, of *level, wait bool, c *key.Chain, from int, grants []Grant) (int, error) {
	if !wait {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, askFor)
		defer cancel()
	}
	sc := borrow(0)
	defer sc.give()
	var have [askBatch]bool
	for n := 0; n < len(grants); n += askBatch {
		ks := sc.chain(c, from+n, from+min(n+askBatch, len(grants)))
		clear(have[:])
		err := of.Tier.Tier.Contains(ctx, ks, have[:len(ks)])
		switch {
		case ctx.Err() != nil:
			return n, fmt.Errorf("reserve chunk %d: the %s tier is being scanned and does not say in time whether it has it; try again: %w: %w", from+n, of.Place, tier.ErrNoSpace, context.Cause(ctx))
		case err != nil:
			s.log.Debug().Err(err).Stringer("tier", of.Place).Msg("a tier that is being scanned does not say what it has")
			return len(grants), nil
		}
		for i := range ks {
			if g := &grants[n+i]; have[i] && isGranted(*g) {
				s.exists(g)
				s.index.add(c, from+n+i, from+n+i+1, of.Place)
			}
		}
	}
	return len(grants), nil
}

// offlineSums is the checksums of chunks stored while a tier could not be
// asked: should it turn out to have other bytes under such a key, those
// are the older ones, and go. It is empty once a scan has come to its end. At
// most maxOffline are remembered.
type offlineSums struct {
	mu struct {
		sync.Mutex
		sums map[key.Key]uint64
	}
}

const maxOffline = 1 << 18

func (u *offlineSums) add(k key.Key, sum uint64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.mu.sums == nil {
		u.mu.sums = make(map[key.Key]uint64)
	}
	if len(u.mu.sums) < maxOffline {
		u.mu.sums[k] = sum
	}
}

// sum is the checksum of the chunk stored under k last.
func (u *offlineSums) sum(k key.Key) (sum uint64, ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	sum, ok = u.mu.sums[k]
	return sum, ok
}

func (u *offlineSums) reset() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.mu.sums = nil
}

// dropOutlived deletes in a tier what a scan has brought and was stored anew
// since, while the tier could not be asked.
func (r *Recovery) dropOutlived(ctx context.Context, l *level, recs []tier.Record) {
	var ks []key.Key
	for i := range recs {
		k := recs[i].Key
		if sum, ok := l.scan.offline.sum(k); ok && l.HasOther(k, sum) {
			ks = append(ks, k)
		}
	}
	if len(ks) == 0 {
		return
	}
	if err := l.Tier.Tier.Delete(ctx, ks); err != nil {
		r.log.Error().Err(err).Stringer("tier", l.Place).Msg("chunks that were stored anew while the tier could not be asked stay there with their old bytes")
	}
	r.writers.Count.Replaced.Add(uint64(len(ks)))
	r.index.Sync(l.Place, explain.Gap, ks...)
}

// Open reserves room for n bytes that no chain knows. They get their key only
// when they have arrived, with Replace; until then k, which no other caller may
// use, stands for them. Abort gives the room back.
//
// It evicts chunks where it must.
func (s *Filler) Open(ctx context.Context, o ledger.Owner, k key.Key, n int, patience tier.Patience) (tier.Ref, error) {
	ref, st, err := s.levels.hot.Reserve(ctx, tier.Fill{
		Record: tier.Record{Key: k, Tokens: 1, Size: uint32(n)},
		Owner:  o, Class: ledger.Lease, Patience: patience, Writing: s.writers.WriteDeferred, Drop: s.writers.Demote,
	})
	if err != nil {
		return tier.Ref{}, fmt.Errorf("open: %w", err)
	}
	if st != ledger.Absent {
		return tier.Ref{}, fmt.Errorf("open: key %v is in use", k)
	}
	return ref, nil
}

// Replace makes a filled and sealed block from Open visible as c, a chain of
// one chunk, in place of the chunk that was stored under that key. Readers of the
// old bytes keep them. The ref is the caller's no more, also after an error,
// and then nothing is stored under the key or the old chunk is still there.
//
// Two calls for one key must not overlap, nor one with a Delete of it: the
// caller sees to that.
func (s *Filler) Replace(ctx context.Context, c *key.Chain, ref tier.Ref) error {
	k := c.Key(0)
	var released <-chan struct{}
	for {
		if _, err := s.remover.Delete(ctx, []key.Key{k}); err != nil {
			s.levels.hot.Abort([]tier.Ref{ref})
			return fmt.Errorf("replace: %w", err)
		}
		switch st := s.levels.hot.Ledger().Rekey(ref.ID, k); {
		case st == ledger.Absent:
			s.commit(c, 0, []tier.Ref{ref}, 0, []bool{true})
			return nil
		case st == ledger.Resident: // somebody has stored it just now
			continue
		case released == nil: // taken before the next try, to miss nothing
			released = s.levels.hot.Ledger().Released()
			continue
		}
		select { // a load is at it, and will find that they were deleted
		case <-released:
			released = nil
		case <-ctx.Done():
			s.levels.hot.Abort([]tier.Ref{ref})
			return fmt.Errorf("replace: the old bytes are still in flight to DRAM: %w", context.Cause(ctx))
		}
	}
}
