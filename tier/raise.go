package tier

import (
	"context"
	"errors"

	"github.com/kvstored/kvstored/internal/ledger"
)

// raise brings a chunk up again that DRAM has evicted before it was written
// here: the tier in between has it, so that nothing but a read is lost. If that
// fails the task is over.
func (w *writer) raise(ctx context.Context, t *writeTask) bool {
	if !t.below {
		return true
	}
	has := w.stack.indexed(w.place, t.rec.Key)
	if has || isOff(w.to) {
		how := refused
		if !has {
			if !t.missed {
				w.count.drop(DropTierOff, t.rec.Size)
			}
			how = w.again(t, DropTierOff)
		}
		w.letGo(*t, how)
		return false
	}
	if w.stack.departing.isWith(t.rec.Key, w.before) {
		w.before.landed(ctx, t.rec.Key)
		w.letGo(*t, refused) // it is passed on from there
		return false
	}
	l, err := w.fromNearer(ctx, t.rec)
	if err != nil {
		w.notRaised(ctx, t.rec, err)
		w.letGo(*t, refused)
		return false
	}
	t.ref = l.ref
	return true
}

// notRaised counts a chunk that is lost to this tier. What is still on its way
// to the nearer one is not: it is passed on from there.
func (w *writer) notRaised(ctx context.Context, r Record, err error) {
	reason := dropReason(err)
	if errors.Is(err, ErrNotFound) {
		if w.mode == WriteBack || w.before.landed(ctx, r.Key) {
			return // with write-back all that DRAM evicts is passed on
		}
		reason = DropGone
	}
	w.count.drop(reason, r.Size)
	w.stack.log.Debug().Err(err).Stringer("tier", w.place).Msg("a chunk to be written could not be brought up")
}

// fromNearer brings a chunk up, if need be when there is room again.
func (w *writer) fromNearer(ctx context.Context, r Record) (l loaded, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, roomWait, errNoRoom)
	defer cancel()
	for {
		released := w.stack.hot.Ledger().Released() // taken before the try, to miss nothing
		l, _, err = w.stack.flight.Do(ctx, r.Key, func(ctx context.Context) (loaded, error) {
			return w.stack.bringUp(ctx, By{Owner: ledger.Daemon, Idle: true}, r, Of(Disk))
		})
		if !errors.Is(err, ErrNoSpace) {
			return l, err
		}
		select {
		case <-released:
		case <-ctx.Done():
			return l, err
		}
	}
}
