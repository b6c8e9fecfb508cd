package tier

import (
	"context"
	"errors"

	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
)

// committed takes note of new chunks of one chain and of how large they are.
func (w *writer) committed(ks []key.Key, sizes []uint32) {
	if w.mode == WriteSelective {
		return // touched will say when
	}
	w.enqueue(ks, sizes)
}

// touched takes up chunks that have been used often enough; Hits is without
// the use that refs were taken for.
func (w *writer) touched(ks []key.Key, refs []Ref) {
	if w.mode != WriteSelective {
		return
	}
	for i, r := range refs {
		if r.Dirty && r.Hits+1 >= w.minHits {
			w.enqueue(ks[i:i+1], []uint32{uint32(r.Block.Len())})
		}
	}
}

func (w *writer) enqueue(ks []key.Key, sizes []uint32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, k := range ks {
		if w.mode == WriteSelective {
			if _, twice := w.mu.queued[k]; twice {
				continue
			}
			w.mu.queued[k] = struct{}{}
		}
		w.mu.dirty.push(dirtyKey{k, w.mu.gen, sizes[i]})
		w.mu.behind += int64(sizes[i])
		w.mu.open[w.mu.gen]++
	}
	w.forgetGone()
	w.more()
}

// more wakes one worker; that one wakes the next if there is work for both.
func (w *writer) more() {
	select {
	case w.work <- struct{}{}:
	default:
	}
}

// caughtUp waits until the chunks that are neither written nor protected are
// few enough that DRAM can do without evicting them. With write-back they are
// meant to wait.
func (w *writer) caughtUp(ctx context.Context) error {
	for w.mode != WriteBack {
		w.mu.Lock()
		if w.mu.behind <= w.maxBehind || w.mu.stopped {
			w.mu.Unlock()
			return nil
		}
		change := w.changed()
		w.mu.Unlock()
		select {
		case <-change:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// changed returns a channel that is closed at the next change; called with
// the mutex held.
func (w *writer) changed() <-chan struct{} {
	if w.mu.change == nil {
		w.mu.change = make(chan struct{})
	}
	return w.mu.change
}

// wake is called with the mutex held.
func (w *writer) wake() {
	if w.mu.change != nil {
		close(w.mu.change)
		w.mu.change = nil
	}
}

// forgetGone keeps the list of dirty keys from outgrowing DRAM when chunks
// are evicted, and perhaps stored again, without ever having come to the front.
func (w *writer) forgetGone() {
	const slack = 4096
	entries := w.stack.hot.Ledger().Stats().Entries
	if w.mu.dirty.len() < 2*entries+slack {
		return
	}
	seen := make(map[key.Key]struct{}, entries)
	w.mu.dirty.filter(func(d *dirtyKey) bool {
		if _, twice := seen[d.key]; !twice && w.stack.hot.Has(d.key) {
			seen[d.key] = struct{}{}
			return true
		}
		delete(w.mu.queued, d.key)
		w.mu.behind -= int64(d.size)
		w.finish(d.gen)
		return false
	})
}

// next returns the next chunk to write. If only a budget is in the way, one
// worker is told to watch it: released is closed when there is more room.
func (w *writer) next() (t writeTask, released <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.ready.len() == 0 {
		released = w.protectNext()
	}
	if w.mu.ready.len() == 0 {
		if w.mu.watched {
			return writeTask{}, nil
		}
		w.mu.watched = released != nil
		return writeTask{}, released
	}
	t = w.mu.ready.pop()
	at := w.mu.writing[t.rec.Key]
	at.tasks++
	w.mu.writing[t.rec.Key] = at
	if w.mu.ready.len() > 0 || w.mu.dirty.len() > 0 {
		w.more()
	}
	return t, nil
}

// protectNext moves dirty chunks to ready as far as the budget allows. If
// that ends it, the result is closed when there may be more.
func (w *writer) protectNext() (released <-chan struct{}) {
	for w.mu.dirty.len() > 0 && w.mu.ready.len() < w.workers {
		d := *w.mu.dirty.at(0)
		if w.mode == WriteBack && d.gen >= w.mu.forced {
			return nil
		}
		var refs [1]Ref
		n, err := w.stack.hot.Hold(ledger.Daemon, ledger.Unwritten, []key.Key{d.key}, refs[:])
		switch {
		case errors.Is(err, ledger.ErrBusy) && released == nil:
			released = w.stack.hot.Ledger().Released() // taken before the next try, to miss nothing
			continue
		case errors.Is(err, ledger.ErrBusy):
			return released
		}
		released = nil
		w.mu.dirty.pop()
		w.mu.behind -= int64(d.size)
		if n == 1 {
			w.mu.ready.push(writeTask{rec: Record{Key: d.key}, ref: refs[0], gen: d.gen})
			continue
		}
		delete(w.mu.queued, d.key)
		if err != nil { // larger than the queue can ever be
			e, _ := w.stack.hot.Ledger().Find(d.key)
			w.count.drop(DropQueueFull, e.Size)
		}
		w.finish(d.gen) // else evicted or deleted
	}
	return nil
}

// finish is called with the mutex held.
func (w *writer) finish(gen uint64) {
	if w.mu.open[gen]--; w.mu.open[gen] <= 0 && gen < w.mu.gen {
		delete(w.mu.open, gen)
	}
	w.wake()
}
