package writeback

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/kvstored/kvstored/internal/explain"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// syncs is the calls of Sync of one tier, one at a time: a call must not return
// while chunks that another has dropped are neither known to be gone nor to be
// written again.
type syncs struct {
	turn  chan struct{} // capacity 1, held by the one at work
	drops atomic.Uint64 // changes when a call has dropped chunks, or a scan has found some lost
}

// errUnscanned says that chunks stored before may be lost.
var errUnscanned = fmt.Errorf("%w: it was opened again, and has not been scanned yet for what it has lost; flush again", tier.ErrOff)

// Sync has what the tier has stored survive a power failure, but for the chunks
// that the tier had to drop: these are to be written again, or lost.
func (w *Writer) Sync(ctx context.Context) error {
	select {
	case w.syncs.turn <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-w.syncs.turn }()
	err := w.to.Recoverer.Sync(ctx)
	var dropped *tier.DroppedError
	if !errors.As(err, &dropped) {
		if err == nil && !w.to.KnowsLoss() {
			err = errUnscanned
		}
		return err
	}
	w.WriteAgain("the tier has dropped chunks that could not be synced", dropped.Keys)
	return dropped.Err
}

// WriteAgain takes up the chunks that the tier no longer has and DRAM has. It
// counts those that no tier has any more; how large these were is not known. It
// tells the index, and the log why.
func (w *Writer) WriteAgain(why string, ks []key.Key) {
	w.writers.o.Hot.HandedOver() // a victim between DRAM and its writer is in transit from now on
	again, lost := 0, 0
	for _, k := range ks {
		ref, resident := w.writers.Hold(k)
		if resident {
			w.markUnwritten(k, ref)
			again++
		}
		w.writers.o.Index.Sync(w.to.Place, explain.Gap, k)
		if resident {
			w.writers.Unhold(ref)
		} else if w.writers.o.Index.Where(k) == 0 {
			w.count.drop(&tier.Record{Key: k}, explain.Lost)
			lost++
		}
	}
	w.syncs.drops.Add(1) // once they wait: a flush that began before goes round again
	w.writers.o.Log.Warn().Stringer("tier", w.to.Place).Int("chunks", len(ks)).Int("written_again", again).Int("lost", lost).Msg(why)
}

// markUnwritten has a chunk of DRAM written to the tier, or evicted from DRAM as
// one that is not there. The caller holds it. A task that is in flight may have
// written it before the tier lost it, so that this is one more.
func (w *Writer) markUnwritten(k key.Key, ref tier.Ref) {
	l := w.writers.o.Hot.Ledger()
	if w == w.writers.Nearest(k.Space) {
		l.SetDirty(ref.ID, true)
	}
	if e, st := l.Find(k); st == ledger.Resident && e.ID == ref.ID && w.Takes(k.Space) {
		w.queue.add(tier.HotRecord(e, 0))
	}
}

// SyncDisk has what every tier below that outlives the process has done up to now survive a
// power failure. To one that is switched off it is a probe.
func (s *Writers) SyncDisk(ctx context.Context) error {
	for _, w := range s.list {
		if w.to.Recoverer != nil {
			if err := w.Sync(ctx); err != nil {
				return fmt.Errorf("sync %s: %w", w.to.Place, err)
			}
		}
	}
	return nil
}
