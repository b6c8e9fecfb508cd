package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvstored/kvstored/internal/base"
	"github.com/kvstored/kvstored/internal/explain"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// makeRoomTries bounds how often one write evicts below to get its room.
const makeRoomTries = 4

// trimEvery is how often a bounded tier below may give room back though nothing
// is written to it: others may fill its file system.
const trimEvery = 2 * time.Second

// errChanged is a payload that no longer has the checksum of its commit.
var errChanged = fmt.Errorf("the payload changed in memory: %w", tier.ErrCorrupt)

// sink stores chunks in one tier, and makes room for them there.
type sink struct {
	dram   *dram
	to     *level
	budget *budget
	grown  chan struct{} // capacity 1: the tier may be above its high watermark
	shrunk atomic.Bool   // the tier has evicted since noteRoom looked last

	exclusive bool // DRAM and the tier are one cache: see noteGone

	evicted struct {
		sync.Mutex
		told uint64 // bytes; see countEvicted
	}
}

func newSink(d *dram, to *level) sink {
	return sink{dram: d, to: to, budget: newBudget(0), grown: make(chan struct{}, 1)} // see operator.Set
}

// keepWatermark evicts below ahead of the writes, so that they find room.
func (s *sink) keepWatermark(ctx context.Context) error {
	tick := time.NewTicker(trimEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.grown:
		case <-tick.C:
		}
		if !s.to.Off() {
			s.trim(ctx, 0)
		}
	}
}

// filled wakes keepWatermark.
func (s *sink) filled() {
	base.Poke(s.grown)
}

// store stores e if the write budget allows it, evicting below where there is no
// room.
func (s *sink) store(ctx context.Context, e tier.Entry) error {
	if !s.budget.take(e.Size) {
		return errBudget
	}
	err := s.put(ctx, e)
	if err != nil {
		s.budget.giveBack(e.Size)
	}
	return err
}

// put is store without a budget.
func (s *sink) put(ctx context.Context, e tier.Entry) error {
	if s.to.Off() {
		return fmt.Errorf("write to %s: %w", s.to.place, tier.ErrOff)
	}
	if !e.Block.Verify() {
		return fmt.Errorf("write to %s: %w", s.to.place, errChanged)
	}
	err := s.putNew(ctx, e)
	for range makeRoomTries {
		if s.to.Resident == nil || !errors.Is(err, tier.ErrNoSpace) {
			break
		}
		if !s.trim(ctx, int64(e.Size)) {
			break
		}
		err = s.putNew(ctx, e)
	}
	if s.to.Bounded != nil && err == nil && s.to.Bounded.Ledger().OverQuota() {
		s.trim(ctx, 0)
	}
	return err
}

// putNew stores e in place of other bytes that the tier has under its key: they
// were out of reach when e was committed, for the tier was not scanned or did
// not answer, and must not come after it now.
func (s *sink) putNew(ctx context.Context, e tier.Entry) error {
	err := s.to.tier.Put(ctx, e)
	if err != nil || !s.hasOther(e.Key, e.Block.Sum()) {
		return err
	}
	if err := s.to.tier.Delete(ctx, []key.Key{e.Key}); err != nil {
		return fmt.Errorf("write to %s: other bytes under the key stay: %w", s.to.place, err)
	}
	s.dram.count.replaced.Add(1)
	return s.to.tier.Put(ctx, e)
}

// hasOther reports whether the tier, if it knows the sums of its payloads, has
// other bytes under k than those that sum to sum, or may have.
func (s *sink) hasOther(k key.Key, sum uint64) bool {
	if s.to.Summed == nil {
		return false
	}
	have, _, known := s.to.Summed.Sum(k)
	return !known || have != sum
}

// has reports whether the tier is known to have a chunk with these bytes.
func (s *sink) has(k key.Key, sum uint64) bool {
	return s.dram.index.has(s.to.place, k) && !s.hasOther(k, sum)
}

// takes reports whether a space is written to the tier.
func (s *sink) takes(id key.SpaceID) bool { return s.dram.reach(id).Has(s.to.place) }

// needs reports whether a chunk belongs into the tier and is not known to be
// there.
func (s *sink) needs(k key.Key) bool { return s.takes(k.Space) && !s.dram.index.has(s.to.place, k) }

// trim makes room below and tells the index; false if none could be made.
func (s *sink) trim(ctx context.Context, n int64) bool {
	gone, err := s.to.Resident.Trim(ctx, n, nil)
	s.countEvicted()
	s.dram.index.sync(s.to.place, gone...)
	if len(gone) > 0 {
		s.shrunk.Store(true)
	}
	if s.exclusive {
		s.noteGone(gone)
	}
	if err != nil {
		s.dram.log.Debug().Err(err).Stringer("tier", s.to.place).Msg("trim failed")
	}
	return len(gone) > 0 || err == nil
}

// countEvicted tells the log of absences how much the tier has evicted since the last
// call. A tier that was opened again counts from 0.
func (s *sink) countEvicted() {
	if s.to.Bounded == nil {
		return
	}
	s.evicted.Lock()
	defer s.evicted.Unlock()
	total := s.to.Bounded.Ledger().Stats().EvictedBytes
	if total < s.evicted.told {
		s.evicted.told = 0
	}
	s.dram.absences.log.Leaving(uint8(s.to.place), total-s.evicted.told)
	s.evicted.told = total
}

// takeBack deletes below a chunk that was deleted while it was being written.
func (s *sink) takeBack(ctx context.Context, k key.Key) {
	if err := s.to.tier.Delete(ctx, []key.Key{k}); err != nil {
		s.dram.log.Error().Err(err).Stringer("tier", s.to.place).Msg("a chunk that was deleted while it was written stays; delete it again")
		return
	}
	s.dram.index.clear(s.to.place, explain.Deleted, k)
}

// probe has a tier that is off tried at the next write.
func (s *sink) probe() {
	if s.to.Prober != nil {
		s.to.Prober.ProbeNow()
	}
}

// errBudget is a write that would wear the device more than is allowed.
var errBudget = errors.New("the daily write budget is spent")

// budgetBurst is how much of a day's budget may be saved up: enough for the
// bursts in which prompts come, too little to spend a day's in one night.
const budgetBurst = time.Hour

// budget is a token bucket of bytes. It begins full, also after a restart.
type budget struct {
	mu struct {
		sync.Mutex
		perDay int64   // 0 = unlimited
		left   float64 // below 0 after a payload larger than what was left
		at     time.Time
	}
}

func newBudget(perDay int64) *budget {
	b := new(budget)
	b.set(perDay)
	return b
}

// set changes the bytes a day; the bucket is full then, unless they are the
// same.
func (b *budget) set(perDay int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if perDay != b.mu.perDay {
		b.mu.perDay = perDay
		b.mu.left, b.mu.at = b.most(), time.Now()
	}
}

// most is what can be saved up. Called with the mutex held.
func (b *budget) most() float64 { return float64(b.mu.perDay) * budgetBurst.Hours() / 24 }

// take spends n bytes if anything is left, so that no payload is too large.
func (b *budget) take(n uint32) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.perDay == 0 {
		return true
	}
	now := time.Now()
	earned := float64(b.mu.perDay) * now.Sub(b.mu.at).Hours() / 24
	b.mu.left, b.mu.at = min(b.most(), b.mu.left+earned), now
	if b.mu.left <= 0 {
		return false
	}
	b.mu.left -= float64(n)
	return true
}

// giveBack undoes the take of a payload that was not written after all.
func (b *budget) giveBack(n uint32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.left += float64(n)
}
