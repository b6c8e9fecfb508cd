package writeback

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

// room is the room that a tier has for the chunks of its writer. They are stored by way of
// it: within the budget of writes, and in the place of what the tier evicts for them.
type room struct {
	o       *Options
	to      *Tier
	count   *Counts
	gone    func([]key.Key) // is told what the tier has evicted; nil: nothing is
	budget  budget
	grown   chan struct{} // capacity 1: the tier may be above its high watermark
	shrunk  atomic.Bool   // the tier has evicted since the rule looked last
	evicted struct {
		sync.Mutex
		told uint64 // bytes; see countEvicted
	}
}

// keepWatermark evicts below ahead of the writes, so that they find room.
func (r *room) keepWatermark(ctx context.Context) error {
	tick := time.NewTicker(trimEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-r.grown:
		case <-tick.C:
		}
		if !r.to.Off() {
			r.trim(ctx, 0)
		}
	}
}

// filled wakes keepWatermark.
func (r *room) filled() { base.Poke(r.grown) }

// store stores e if the write budget allows it, evicting below where there is no
// room.
func (r *room) store(ctx context.Context, e tier.Entry) (err error) {
	if !r.budget.take(e.Size) {
		return errBudget
	}
	if err = r.put(ctx, e); err != nil {
		r.budget.refund(e.Size)
	}
	return err
}

// put is store without a budget.
func (r *room) put(ctx context.Context, e tier.Entry) error {
	if r.to.Off() {
		return fmt.Errorf("write to %s: %w", r.to.Place, tier.ErrOff)
	}
	if !e.Block.Verify() {
		return fmt.Errorf("write to %s: %w", r.to.Place, errChanged)
	}
	err := r.putNew(ctx, e)
	for range makeRoomTries {
		if r.to.Resident == nil || !errors.Is(err, tier.ErrNoSpace) || !r.trim(ctx, int64(e.Size)) {
			break
		}
		err = r.putNew(ctx, e)
	}
	if r.to.Bounded != nil && err == nil && r.to.Bounded.Ledger().OverQuota() {
		r.trim(ctx, 0)
	}
	return err
}

// putNew stores e in place of other bytes that the tier has under its key: they
// were out of reach when e was committed, for the tier was not scanned or did
// not answer, and must not come after it now.
func (r *room) putNew(ctx context.Context, e tier.Entry) error {
	err := r.to.Tier.Put(ctx, e)
	if err != nil || !r.to.HasOther(e.Key, e.Block.Sum()) {
		return err
	}
	if err := r.to.Tier.Delete(ctx, []key.Key{e.Key}); err != nil {
		return fmt.Errorf("write to %s: other bytes under the key stay: %w", r.to.Place, err)
	}
	r.count.Replaced.Add(1)
	return r.to.Tier.Put(ctx, e)
}

// trim makes room below and tells the index; false if none could be made.
func (r *room) trim(ctx context.Context, n int64) bool {
	gone, err := r.to.Resident.Trim(ctx, n, nil)
	r.countEvicted()
	r.o.Index.Sync(r.to.Place, explain.Evicted, gone...)
	if len(gone) > 0 {
		r.shrunk.Store(true)
	}
	if r.gone != nil {
		r.gone(gone)
	}
	if err != nil {
		r.o.Log.Debug().Err(err).Stringer("tier", r.to.Place).Msg("trim failed")
	}
	return len(gone) > 0 || err == nil
}

// countEvicted tells the log of absences how much the tier has evicted since the last
// call. A tier that was opened again counts from 0.
func (r *room) countEvicted() {
	if r.to.Bounded == nil {
		return
	}
	r.evicted.Lock()
	defer r.evicted.Unlock()
	total := r.to.Bounded.Ledger().Stats().EvictedBytes
	if total < r.evicted.told {
		r.evicted.told = 0
	}
	r.o.EvictLog.Leaving(uint8(r.to.Place), total-r.evicted.told)
	r.evicted.told = total
}

// takeBack deletes below a chunk that was deleted while it was being written.
func (r *room) takeBack(ctx context.Context, k key.Key) {
	if err := r.to.Tier.Delete(ctx, []key.Key{k}); err != nil {
		r.o.Log.Error().Err(err).Stringer("tier", r.to.Place).Msg("a chunk that was deleted while it was written stays; delete it again")
		return
	}
	r.o.Index.Clear(r.to.Place, explain.Deleted, k)
}

// errBudget is a write that would wear the device more than is allowed.
var errBudget = errors.New("the daily write budget is spent")

// budgetBurst is how much of a day's budget may be saved up: enough for the
// bursts in which prompts come, too little to spend a day's in one night.
const budgetBurst = time.Hour

// budget is a token bucket of bytes. It begins full, also after a restart; the zero budget is
// unlimited.
type budget struct {
	mu struct {
		sync.Mutex
		perDay int64   // 0 = unlimited
		left   float64 // below 0 after a payload larger than what was left
		at     time.Time
	}
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

// refund undoes the take of a payload that was not written after all.
func (b *budget) refund(n uint32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.left += float64(n)
}
