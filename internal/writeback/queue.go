package writeback

import (
	"context"
	"errors"

	"github.com/kvstored/kvstored/internal/explain"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// Committed takes note of new chunks of one chain, from.. of c, and of how
// large they are.
func (w *Writer) Committed(c *key.Chain, from int, sizes []uint32) {
	if !w.Takes(c.Space) {
		return
	}
	now := w.when.clock()
	w.mu.Lock()
	defer w.mu.Unlock()
	for n, size := range sizes {
		w.mu.backlog.add(tier.RecordAt(c, from+n, size), w.mu.flushes.gen, now)
	}
	w.more()
}

// Touched takes up chunks that a policy that plans did not find worth writing: now
// that they are used it has another look at them.
func (w *Writer) Touched(c *key.Chain, from int, refs []tier.Ref) {
	if !w.worth.plans() || w.when.holds() || !w.Takes(c.Space) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	some := false
	for n, r := range refs {
		if !r.Dirty {
			continue
		}
		rec := tier.RecordAt(c, from+n, uint32(r.Block.Len()))
		if !w.mu.backlog.has(rec.Key) {
			w.mu.backlog.add(rec, w.mu.flushes.gen, w.when.clock())
			some = true
		}
	}
	if some {
		w.more()
	}
}

// Promoted takes up a chunk that came from a tier further away.
func (w *Writer) Promoted(r tier.Record) {
	if !w.Holds() {
		w.Add(r)
	}
}

// Add takes up chunks that the tier lacks and that others of this machine have.
func (w *Writer) Add(recs ...tier.Record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.add(recs, w.mu.flushes.gen)
}

// Forward takes up a victim that a nearer tier has now, or DRAM again.
func (w *Writer) Forward(r tier.Record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.add([]tier.Record{r}, w.mu.flushes.awaited())
}

// add is Add as part of a generation, with the mutex held.
func (w *Writer) add(recs []tier.Record, gen uint64) {
	now := w.when.clock()
	for _, r := range recs {
		w.mu.backlog.add(r, gen, now)
	}
	w.more()
}

// CaughtUp waits until the chunks that are neither written nor protected are
// few enough that DRAM can do without evicting them. Where they are held for DRAM to
// evict them they are meant to wait.
func (w *Writer) CaughtUp(ctx context.Context) error {
	return w.await(ctx, func() bool { return isCaughtUp(w) })
}

// HasCaughtUp reports whether CaughtUp would not wait.
func (w *Writer) HasCaughtUp() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return isCaughtUp(w)
}

// isCaughtUp is HasCaughtUp with the mutex held.
func isCaughtUp(q *Writer) bool {
	return q.when.holds() || q.mu.backlog.pendingBytes <= q.limits.behind || q.mu.stopped
}

// next returns the next chunk to write. If only a budget is in the way, one
// worker is told to watch it: released is closed when there is more room.
func (w *Writer) next() (t task, released <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	b := &w.mu.backlog
	if b.ready.len() == 0 {
		released = w.protectNext()
	}
	if b.ready.len() == 0 {
		if w.mu.watched {
			return task{}, nil
		}
		w.mu.watched = released != nil
		return task{}, released
	}
	t = b.ready.pop()
	b.move(&t.item, inFlight)
	t.declined = t.gen >= w.mu.flushes.wanted && !w.worth.wants(&t, w.mu.atWork, b)
	t.declinedBefore = w.worth.markDeclined(&t)
	w.mu.atWork.take(t.rec.Key, !t.declined)
	if b.ready.len() > 0 || b.pending.len() > 0 || b.offered.len() > 0 {
		w.more()
	}
	return t, nil
}

// source is the list whose front is to be written next; nil if there is none.
func (w *Writer) source() *fifo[item] {
	old, bounded := w.when.old()
	return w.mu.backlog.source(w.when.holds(), w.mu.flushes.forced, old, bounded)
}

// protectNext makes items ready as far as the budget allows. If that ends it,
// the result is closed when there may be more.
func (w *Writer) protectNext() (released <-chan struct{}) {
	b, hot := &w.mu.backlog, w.writers.o.Hot
	for from := w.source(); from != nil && b.ready.len() < w.limits.workers; from = w.source() {
		i := *from.front()
		if w.limits.held > 0 && b.heldBytes > 0 && b.heldBytes+int64(i.rec.Size) > w.limits.held {
			return nil // end wakes a worker
		}
		var refs [1]tier.Ref
		n, err := hot.Hold(ledger.Daemon, ledger.Unwritten, []key.Key{i.rec.Key}, refs[:])
		switch {
		case errors.Is(err, ledger.ErrBusy) && released == nil:
			released = hot.Ledger().Released() // taken before the next try, to miss nothing
			continue
		case errors.Is(err, ledger.ErrBusy):
			return released
		}
		released = nil
		from.pop()
		switch {
		case n == 1:
			b.move(&i, ready)
			b.ready.push(task{item: i, ref: refs[0]})
		case err == nil && w.nearer != nil: // or deleted: refetch finds out
			b.move(&i, ready)
			b.ready.push(task{item: i, inNearer: true})
		default:
			if err != nil { // larger than the queue can ever be
				w.count.drop(&i.rec, explain.QueueFull)
			}
			b.move(&i, done) // else evicted or deleted
			w.mu.changed.Wake()
		}
	}
	return nil
}

// setOut reports whether the writer is at work, or will be now.
func (w *Writer) setOut() bool {
	if w.to.Off() {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	b := &w.mu.backlog
	if w.when.holds() && b.pending.len() > 0 && w.source() == nil && !b.compacting {
		w.mu.flushes.force()
		w.more()
	}
	return b.ready.len() > 0 || b.heldBytes > 0 || len(w.mu.atWork) > 0 || b.compacting || w.source() != nil
}

// compact keeps pending from outgrowing the chunks that are there, when chunks are evicted or
// deleted, and perhaps stored again, without ever having come to the front:
// whenever it is twice as long as it was after the last time, a worker takes it
// away, without the mutex, and leaves out the chunks that are gone.
func (w *Writer) compact() {
	old := w.takePending()
	if old.len() == 0 {
		return
	}
	var left fifo[item]
	var gone []item
	seen := make(map[key.Key]struct{})
	for old.len() > 0 {
		i := old.pop()
		_, twice := seen[i.rec.Key]
		if !twice && w.isThere(i.rec.Key) {
			seen[i.rec.Key] = struct{}{}
			left.push(i)
			continue
		}
		if !twice && w.nearer != nil && !w.when.holds() && w.needs(i.rec.Key) {
			w.count.drop(&i.rec, explain.Gone)
		}
		if gone = append(gone, i); len(gone) == batch {
			w.finish(gone)
			gone = gone[:0]
		}
	}
	w.finish(gone)
	w.giveBack(&left)
}

// isThere reports whether a chunk is in DRAM, or in the nearer tier or on its
// way to that.
func (w *Writer) isThere(k key.Key) bool {
	return w.writers.o.Hot.Has(k) || w.nearer != nil && (w.nearer.to.Resident.Has(k) || w.nearer.isAt(k))
}

func (w *Writer) takePending() fifo[item] {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.backlog.takePending()
}

// finish drops pending items that are gone.
func (w *Writer) finish(gone []item) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range gone {
		w.mu.backlog.move(&gone[i], done)
	}
	w.mu.changed.Wake()
}

// giveBack makes left pending again, batch items a lock round.
func (w *Writer) giveBack(left *fifo[item]) {
	for all := false; !all; {
		w.mu.Lock()
		if all = w.mu.backlog.giveBack(left); all {
			w.more()
			w.mu.changed.Wake()
		}
		w.mu.Unlock()
	}
}
