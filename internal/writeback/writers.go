package writeback

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/base"
	"github.com/kvstored/kvstored/internal/explain"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/stale"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// batch bounds how much is looked at under one hold of a lock (about 100 us).
const batch = 256

// Options of Writers.
type Options struct {
	Hot     tier.Hot
	Tiers   []*Tier // below DRAM, nearest first
	Index   Index
	When    When
	Workers int // writes at a time per tier; 0 = 32

	Ages       *stale.Book
	Distrusted *stale.Distrusted
	EvictLog   *explain.EvictLog // is told what tiers decline, take and evict
	Rivals     *explain.Rivals   // and which spaces come
	// Guard calls publish, unless a deletion of k is under way. None begins meanwhile.
	Guard func(k key.Key, publish func())
	// Fetch brings a chunk up to DRAM that is to be written further down. The caller
	// releases it.
	Fetch func(ctx context.Context, r tier.Record, from tier.Place) (Fetched, error)
	Log   zerolog.Logger
}

// When is when a committed chunk is written to a tier.
type When uint8

const (
	AtCommit   When = iota // right after its commit
	WhileRoom              // as AtCommit while the tier has room for all, then as AtEviction: see rule
	AtEviction             // when DRAM evicts it, for ever
)

// Index says which tiers have a chunk, and follows them.
type Index interface {
	Where(k key.Key) tier.Set
	// Insert notes entries of a tier, 256 at most, that the index may not know.
	Insert(p tier.Place, recs []tier.Record)
	// Sync brings the index in line with what a bounded tier has now. Chunks that it
	// does not have are gone for the reason.
	Sync(p tier.Place, gone explain.Reason, ks ...key.Key)
	// Clear notes that a tier does not have chunks; a bounded one is asked.
	Clear(p tier.Place, gone explain.Reason, ks ...key.Key)
}

// Tier is one tier below DRAM.
type Tier struct {
	tier.Roles
	Tier  tier.Tier
	Place tier.Place
	// Scanning reports whether what an earlier process left there is not all known.
	Scanning func() bool
	// KnowsLoss reports whether it is known what the tier has lost where it was opened
	// again.
	KnowsLoss func() bool
}

// IsShared reports whether others use the tier too: it is none of this machine.
func (t *Tier) IsShared() bool { return t.Shared != nil || t.Resident == nil }

// Has reports whether a tier with bounds has k. Memory only.
func (t *Tier) Has(k key.Key) bool { return t.Resident != nil && t.Resident.Has(k) }

// HasOther reports whether the tier, if it knows the sums of its payloads, has
// other bytes under k than those that sum to sum, or may have.
func (t *Tier) HasOther(k key.Key, sum uint64) bool {
	if t.Summed == nil {
		return false
	}
	have, _, known := t.Summed.Sum(k)
	return !known || have != sum
}

// Probe has a tier that is off tried at the next write.
func (t *Tier) Probe() {
	if t.Prober != nil {
		t.Prober.ProbeNow()
	}
}

// Fetched is a chunk that is held in DRAM until it is released.
type Fetched struct {
	Ref     tier.Ref
	From    tier.Place // DRAM: it was there
	Release func()
}

// Counts is what was found wrong.
type Counts struct {
	Corrupt     atomic.Uint64 // chunks with wrong bytes in DRAM
	CorruptDown atomic.Uint64 // of those, when they were demoted or written
	Replaced    atomic.Uint64 // chunks below, because they came after what was stored
}

// Writers is a writer for each tier below DRAM, and the chunks that have left DRAM and
// are in none of them yet. It is safe for concurrent use.
type Writers struct {
	o        Options
	capacity int64     // of DRAM, in bytes
	list     []*Writer // nearest first
	Count    Counts

	local     atomic.Pointer[key.SpaceID] // see KeepLocal
	transit   transit
	admission admission
	demoting  atomic.Int64  // bytes of victims that are still to be written
	shrink    chan struct{} // capacity 1: DRAM may be above its high watermark
	staying   atomic.Bool   // victims go back to DRAM: see Stay
}

// New makes the writers. Nothing is written before Run.
func New(o Options) *Writers {
	s := &Writers{o: o, capacity: o.Hot.Stats().CapacityBytes, shrink: make(chan struct{}, 1)}
	s.admission.place, s.admission.mu.clients = semaphore.NewWeighted(1), make(map[ledger.Owner]*client)
	for _, t := range o.Tiers {
		s.list = append(s.list, newWriter(s, t))
	}
	return s
}

// Run writes behind and keeps watermarks until ctx ends.
func (s *Writers) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.keepWatermark(ctx) })
	for _, w := range s.list {
		g.Go(func() error { return w.run(ctx) })
	}
	return g.Wait()
}

// Committed takes note of new chunks of one chain, from.. of c, and of how large they are.
func (s *Writers) Committed(c *key.Chain, from int, sizes []uint32) {
	for _, w := range s.list {
		if w.Takes(c.Space) {
			w.queue.committed(c, from, sizes)
		}
	}
}

// Touched takes up chunks that a policy that plans did not find worth writing: now
// that they are used it has another look at them.
func (s *Writers) Touched(c *key.Chain, from int, refs []tier.Ref) {
	for _, w := range s.list {
		if !w.Defers() && w.queue.plans() && w.Takes(c.Space) {
			w.queue.touched(c, from, refs)
		}
	}
}

// All is the writers, nearest first.
func (s *Writers) All() []*Writer { return s.list }

// Nearest is the writer that takes chunks of a space first; nil if they stay in DRAM.
func (s *Writers) Nearest(id key.SpaceID) *Writer {
	for _, w := range s.list {
		if w.Takes(id) {
			return w
		}
	}
	return nil
}

// KeepLocal keeps a space out of the tiers that are shared with others: nothing of it is
// written or looked for there, nor deleted. It is for keys whose payload may change, which
// a tier that never overwrites, and that others use too, cannot follow. Call it
// before anything of the space is stored; there is one such space.
func (s *Writers) KeepLocal(id key.SpaceID) { s.local.Store(&id) }

// IsLocal reports whether a space is kept local.
func (s *Writers) IsLocal(id key.SpaceID) bool {
	local := s.local.Load()
	return local != nil && *local == id
}

// Reach is the tiers that the chunks of a space may be in.
func (s *Writers) Reach(id key.SpaceID) tier.Set {
	reach := tier.All
	if s.IsLocal(id) {
		for _, w := range s.list {
			if w.to.IsShared() {
				reach &^= tier.Of(w.to.Place)
			}
		}
	}
	return reach
}

// Has reports whether k is in DRAM, or in transit from there. A chunk
// between the two is not told; see tier.Shrinker.HandedOver.
func (s *Writers) Has(k key.Key) bool { return s.o.Hot.Has(k) || s.transit.has(k) }

// InTransit is a chunk that has left DRAM and is in no tier yet.
func (s *Writers) InTransit(k key.Key) (tier.Record, bool) {
	r, b, ok := s.transit.take(k)
	if ok {
		b.Release()
	}
	return r, ok
}

// IsBelow reports whether a tier below DRAM has k. A bounded one is asked
// itself, for the index may be behind it.
func (s *Writers) IsBelow(k key.Key) bool {
	if s.o.Index.Where(k)&^tier.Of(tier.CPU) != 0 {
		return true
	}
	return slices.ContainsFunc(s.list, func(w *Writer) bool { return w.to.Has(k) })
}

// WriteDeferred reports whether chunks are on their way to the tiers below. Chunks
// that wait until DRAM evicts them are written now: the caller needs the room
// that they take by what stands on them.
func (s *Writers) WriteDeferred() (busy bool) {
	for _, w := range s.list {
		busy = !w.to.Off() && w.queue.writeDeferred() || busy
	}
	return busy
}

// Idle reports whether no store waits for room, none has entered, and no victim of DRAM
// is still to be written.
func (s *Writers) Idle() bool {
	return s.admission.wanted.Load() == 0 && s.admission.entered.Load() == 0 && s.demoting.Load() == 0
}

// Stay has victims of DRAM that are not written below yet stay in DRAM when Run ends, for
// a process that goes on with it. Call it before Run's context ends.
func (s *Writers) Stay() { s.staying.Store(true) }

// keepWatermark keeps eviction off the path of a put: it runs ahead of it.
func (s *Writers) keepWatermark(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.shrink:
			s.o.Hot.Shrink(ctx, s.leaving(), s.Demote)
		}
	}
}

// Filled wakes keepWatermark if there is something for it to do: waking a
// goroutine costs more than most commits.
func (s *Writers) Filled() {
	if s.o.Hot.Crowded(s.leaving()) {
		base.Poke(s.shrink)
	}
}

// KeepWatermarks has chunks evicted where a tier is above its high watermark, or a quota
// is exceeded.
func (s *Writers) KeepWatermarks() {
	s.Filled()
	for _, w := range s.list {
		w.room.filled()
	}
}

// Demote takes over a victim of DRAM: it is demoted first if no tier below has it,
// and true says that its memory stays in use until it has. The nearest writer that takes
// it forwards it; it is charged once, however many tiers it goes to.
func (s *Writers) Demote(v tier.Victim) bool {
	s.o.EvictLog.Leaving(uint8(tier.CPU), uint64(v.Size))
	taken := v.Dirty && slices.ContainsFunc(s.list, func(w *Writer) bool {
		return w.Takes(v.Key.Space) && !w.has(v.Key, v.Sum) && w.demote(v)
	})
	if taken {
		s.o.Index.Insert(tier.CPU, []tier.Record{v.Record}) // the index may have been told that it is gone
	} else {
		s.o.Index.Sync(tier.CPU, explain.Evicted, v.Key)
		s.refund(v)
		v.Block.Release()
	}
	return taken
}

// readmitTries bounds how many chunks go for one that comes back from transit: for itself
// and its parent's entry, and what others take meanwhile.
const readmitTries = 4

// Readmit makes a chunk in transit resident again, in the block it has, and
// reports whether it is. It is written all the same. Where DRAM has as many entries as
// it may have, others go for it, outside the guard.
func (s *Writers) Readmit(k key.Key) (back bool) {
	if !s.transit.has(k) {
		if !s.o.Index.Where(k).Has(tier.CPU) {
			return false
		}
		s.o.Hot.HandedOver() // perhaps just between the ledger and its writer
	}
	var r tier.Record
	for range readmitTries {
		var err error
		s.o.Guard(k, func() { r, back, err = s.takeIn(k) })
		if !errors.Is(err, ledger.ErrFull) || !s.o.Hot.EvictOne(s.Demote) {
			break
		}
	}
	if back {
		s.o.Index.Insert(tier.CPU, []tier.Record{r})
		s.Filled()
	}
	return back
}

// takeIn publishes a chunk in transit. A deletion that has ended by now has
// recalled it, and one that begins later finds it in DRAM.
func (s *Writers) takeIn(k key.Key) (r tier.Record, back bool, err error) {
	r, b, ok := s.transit.take(k)
	if !ok {
		return r, false, nil
	}
	defer b.Release()
	ref, st, err := s.o.Hot.Reserve(context.Background(), tier.Fill{Record: r, Owner: ledger.Daemon, Class: ledger.IO, Block: b})
	if err == nil && st == ledger.Absent {
		s.o.Hot.Publish([]tier.Ref{ref}, true, false)
	}
	return r, err == nil && st != ledger.Filling, err
}

// endTransit ends a demotion and frees its memory.
func (s *Writers) endTransit(t task) {
	s.transit.end(t.rec.Key, t.life)
	s.o.Index.Sync(tier.CPU, explain.Evicted, t.rec.Key)
	n := occupied(t.ref.Block)
	t.ref.Block.Release()
	s.demoting.Add(-n) // first: a store that the ledger wakes looks at it
	s.o.Hot.Ledger().Uncharge(ledger.Daemon, ledger.Unwritten, n)
	s.Filled() // it may have come back, so that its room is not free
}

// refund gives back the charge of a victim that no writer took.
func (s *Writers) refund(v tier.Victim) {
	if v.Charged {
		s.o.Hot.Ledger().Uncharge(ledger.Daemon, ledger.Unwritten, occupied(v.Block))
	}
}

// occupied is what a block takes in the arena.
func occupied(b arena.Block) int64 { return int64(len(b.Padded())) }

// Hold holds a resident chunk for the daemon; ok is false if there is none, or it is
// over.
func (s *Writers) Hold(k key.Key) (ref tier.Ref, ok bool) {
	if s.o.Ages.Expired(k) {
		return ref, false
	}
	if ref, ok = s.holdResident(k); !ok && s.Readmit(k) {
		return s.holdResident(k)
	}
	return ref, ok
}

func (s *Writers) holdResident(k key.Key) (ref tier.Ref, ok bool) {
	var refs [1]tier.Ref
	ks := [1]key.Key{k}
	n, _ := s.o.Hot.Hold(ledger.Daemon, ledger.IO, ks[:], refs[:])
	return refs[0], n == 1
}

// Unhold ends a hold of the daemon.
func (s *Writers) Unhold(ref tier.Ref) { s.o.Hot.Release(ledger.Daemon, ledger.IO, []tier.Ref{ref}) }

// DropCorrupt forgets a chunk whose bytes in DRAM are wrong. Readers keep the
// block until they let go.
func (s *Writers) DropCorrupt(ctx context.Context, k key.Key) {
	s.Count.Corrupt.Add(1)
	if err := s.o.Hot.Delete(ctx, []key.Key{k}); err != nil {
		s.o.Log.Error().Err(err).Msg("a chunk with a wrong checksum could not be dropped from DRAM")
	}
	s.transit.remove(k)
	s.o.Index.Sync(tier.CPU, explain.Corrupt, k)
}
