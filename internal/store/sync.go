package store

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
	drops atomic.Uint64 // see writer.drops
}

// drops changes when a Sync of the tier has dropped chunks, or a scan has found some
// lost.
func (w *writer) drops() uint64 { return w.syncs.drops.Load() }

// errUnscanned says that chunks stored before may be lost.
var errUnscanned = fmt.Errorf("%w: it was opened again, and has not been scanned yet for what it has lost; flush again", tier.ErrOff)

// sync has what the tier has stored survive a power failure, but for the chunks
// that the tier had to drop: these are to be written again, or lost.
func (w *writer) sync(ctx context.Context) error {
	select {
	case w.syncs.turn <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-w.syncs.turn }()
	err := w.to.Recoverer.Sync(ctx)
	var dropped *tier.DroppedError
	if !errors.As(err, &dropped) {
		if err == nil && !w.to.knowsLoss() {
			err = errUnscanned
		}
		return err
	}
	w.writeAgain("the tier has dropped chunks that could not be synced", dropped.Keys)
	return dropped.Err
}

// writeAgain takes up the chunks that the tier no longer has and DRAM has. It
// counts those that no tier has any more; how large these were is not known. It
// tells the index, and the log why.
func (w *writer) writeAgain(why string, ks []key.Key) {
	w.dram.hot.HandedOver() // a victim between DRAM and its writer is in transit from now on
	again, lost := 0, 0
	for _, k := range ks {
		ref, resident := w.dram.hold(k)
		if resident {
			w.markUnwritten(k, ref)
			again++
		}
		w.dram.index.syncGone(w.to.place, explain.Gap, k)
		if resident {
			w.dram.unhold(ref)
		} else if w.dram.index.where(k) == 0 {
			w.count.drop(&tier.Record{Key: k}, DropLost)
			lost++
		}
	}
	w.syncs.drops.Add(1) // once they wait: a flush that began before goes round again
	w.dram.log.Warn().Stringer("tier", w.to.place).Int("chunks", len(ks)).Int("written_again", again).Int("lost", lost).Msg(why)
}

// markUnwritten has a chunk of DRAM written to the tier, or evicted from DRAM as
// one that is not there. The caller holds it. A task that is in flight may have
// written it before the tier lost it, so that this is one more.
func (w *writer) markUnwritten(k key.Key, ref tier.Ref) {
	l := w.dram.hot.Ledger()
	if w == w.dram.nearest(k.Space) {
		l.SetDirty(ref.ID, true)
	}
	if e, st := l.Find(k); st == ledger.Resident && e.ID == ref.ID && w.takes(k.Space) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.mu.backlog.add(tier.HotRecord(e, 0), w.mu.flushes.gen, w.when.clock())
		w.more()
	}
}
