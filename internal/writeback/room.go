package writeback

import (
	"context"
	"errors"
	"fmt"
	"sync"
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

// keepWatermark evicts below ahead of the writes, so that they find room.
func (w *Writer) keepWatermark(ctx context.Context) error {
	tick := time.NewTicker(trimEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.grown:
		case <-tick.C:
		}
		if !w.to.Off() {
			w.trim(ctx, 0)
		}
	}
}

// filled wakes keepWatermark.
func (w *Writer) filled() {
	base.Poke(w.grown)
}

// store stores e if the write budget allows it, evicting below where there is no
// room.
func (w *Writer) store(ctx context.Context, e tier.Entry) error {
	if !w.budget.take(e.Size) {
		return errBudget
	}
	err := w.put(ctx, e)
	if err != nil {
		w.budget.giveBack(e.Size)
	}
	return err
}

// put is store without a budget.
func (w *Writer) put(ctx context.Context, e tier.Entry) error {
	if w.to.Off() {
		return fmt.Errorf("write to %s: %w", w.to.Place, tier.ErrOff)
	}
	if !e.Block.Verify() {
		return fmt.Errorf("write to %s: %w", w.to.Place, errChanged)
	}
	err := w.putNew(ctx, e)
	for range makeRoomTries {
		if w.to.Resident == nil || !errors.Is(err, tier.ErrNoSpace) {
			break
		}
		if !w.trim(ctx, int64(e.Size)) {
			break
		}
		err = w.putNew(ctx, e)
	}
	if w.to.Bounded != nil && err == nil && w.to.Bounded.Ledger().OverQuota() {
		w.trim(ctx, 0)
	}
	return err
}

// putNew stores e in place of other bytes that the tier has under its key: they
// were out of reach when e was committed, for the tier was not scanned or did
// not answer, and must not come after it now.
func (w *Writer) putNew(ctx context.Context, e tier.Entry) error {
	err := w.to.Tier.Put(ctx, e)
	if err != nil || !w.HasOther(e.Key, e.Block.Sum()) {
		return err
	}
	if err := w.to.Tier.Delete(ctx, []key.Key{e.Key}); err != nil {
		return fmt.Errorf("write to %s: other bytes under the key stay: %w", w.to.Place, err)
	}
	w.writers.Count.Replaced.Add(1)
	return w.to.Tier.Put(ctx, e)
}

// HasOther reports whether the tier, if it knows the sums of its payloads, has
// other bytes under k than those that sum to sum, or may have.
func (w *Writer) HasOther(k key.Key, sum uint64) bool {
	if w.to.Summed == nil {
		return false
	}
	have, _, known := w.to.Summed.Sum(k)
	return !known || have != sum
}

// has reports whether the tier is known to have a chunk with these bytes.
func (w *Writer) has(k key.Key, sum uint64) bool {
	return w.writers.o.Index.Where(k).Has(w.to.Place) && !w.HasOther(k, sum)
}

// Takes reports whether a space is written to the tier.
func (w *Writer) Takes(id key.SpaceID) bool { return w.writers.Reach(id).Has(w.to.Place) }

// needs reports whether a chunk belongs into the tier and is not known to be
// there.
func (w *Writer) needs(k key.Key) bool {
	return w.Takes(k.Space) && !w.writers.o.Index.Where(k).Has(w.to.Place)
}

// trim makes room below and tells the index; false if none could be made.
func (w *Writer) trim(ctx context.Context, n int64) bool {
	gone, err := w.to.Resident.Trim(ctx, n, nil)
	w.countEvicted()
	w.writers.o.Index.Sync(w.to.Place, explain.Evicted, gone...)
	if len(gone) > 0 {
		w.shrunk.Store(true)
	}
	if w.exclusive {
		w.noteGone(gone)
	}
	if err != nil {
		w.writers.o.Log.Debug().Err(err).Stringer("tier", w.to.Place).Msg("trim failed")
	}
	return len(gone) > 0 || err == nil
}

// countEvicted tells the log of absences how much the tier has evicted since the last
// call. A tier that was opened again counts from 0.
func (w *Writer) countEvicted() {
	if w.to.Bounded == nil {
		return
	}
	w.evicted.Lock()
	defer w.evicted.Unlock()
	total := w.to.Bounded.Ledger().Stats().EvictedBytes
	if total < w.evicted.told {
		w.evicted.told = 0
	}
	w.writers.o.Departed.Leaving(uint8(w.to.Place), total-w.evicted.told)
	w.evicted.told = total
}

// takeBack deletes below a chunk that was deleted while it was being written.
func (w *Writer) takeBack(ctx context.Context, k key.Key) {
	if err := w.to.Tier.Delete(ctx, []key.Key{k}); err != nil {
		w.writers.o.Log.Error().Err(err).Stringer("tier", w.to.Place).Msg("a chunk that was deleted while it was written stays; delete it again")
		return
	}
	w.writers.o.Index.Clear(w.to.Place, explain.Deleted, k)
}

// Probe has a tier that is off tried at the next write.
func (w *Writer) Probe() {
	if w.to.Prober != nil {
		w.to.Prober.ProbeNow()
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

// SetBudget bounds the bytes that are written a day; 0 = unlimited.
func (w *Writer) SetBudget(bytesPerDay int64) { w.budget.set(bytesPerDay) }

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
