package daemon

import (
	"context"
	"time"

	"github.com/kvstored/kvstored/internal/keep"
	"github.com/kvstored/kvstored/internal/socket"
)

// keeperPauseMost is between two looks for a keeper that keeps nothing.
const keeperPauseMost = time.Minute

// watch binds sockets again whose files were removed, and gives memory and sockets to a keeper
// that comes in place of one that has gone, until ctx ends.
func watch(ctx context.Context, d *Daemon) error {
	w := watcher{d: d, pause: socket.LookEvery}
	for ctx.Err() == nil {
		ended, silent := w.await(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if ended {
			w.gone, w.silent, w.next = true, silent, time.Now()
			d.kept.Store(false)
			d.log.Warn().Str("keeper", d.keeper.Name()).Msg("it has ended, or does not answer: DRAM ends with this process unless it starts again")
		}
		if w.look() && d.keeper != nil && !w.gone {
			keepMemory(d, false)
		}
		if w.gone && !time.Now().Before(w.next) {
			w.find()
		}
	}
	return nil
}

// watcher is watch at work.
type watcher struct {
	d      *Daemon
	gone   bool          // the keeper has
	silent bool          // it does not answer, and may still have files
	next   time.Time     // that a keeper is looked for
	pause  time.Duration // between two of these that keep nothing
}

// await returns after a while, or when a keeper has ended that had not.
func (w *watcher) await(ctx context.Context) (ended, silent bool) {
	ctx, cancel := context.WithTimeout(ctx, socket.LookEvery)
	defer cancel()
	if w.d.keeper == nil || w.gone {
		<-ctx.Done()
		return false, false
	}
	silent = w.d.keeper.Await(ctx)
	return silent || ctx.Err() == nil, silent
}

// look reports whether a socket was bound again.
func (w *watcher) look() (again bool) {
	var lost *error
	for _, e := range w.d.endpoints() {
		bound, err := e.look(&w.d.log)
		again = again || bound
		if err != nil {
			lost = &err
		}
	}
	w.d.lost.Store(lost)
	return again
}

// find gives everything to a keeper, if there is one again.
func (w *watcher) find() {
	k, err := keep.Find(w.d.cfg.KeeperSocket())
	if err != nil {
		return
	}
	before := w.d.keeper
	w.d.keeper = k
	if w.gone = !keepMemory(w.d, w.silent); w.gone {
		w.pause = min(2*w.pause, keeperPauseMost)
		w.next = time.Now().Add(w.pause)
	} else {
		w.pause = socket.LookEvery
	}
	_ = before.Close() // not sooner: a keeper that has files gives them away when no daemon has it
}
