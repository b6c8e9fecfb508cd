package store

import (
	"context"
	"errors"

	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// committed takes note of new chunks of one chain, from.. of c, and of how
// large they are.
func (q *queue) committed(c *key.Chain, from int, sizes []uint32) {
	if !q.takes(c.Space) {
		return
	}
	now := q.when.clock()
	q.mu.Lock()
	defer q.mu.Unlock()
	for n, size := range sizes {
		q.mu.backlog.add(recordAt(c, from+n, size), q.mu.flushes.gen, now)
	}
	q.more()
}

// touched takes up chunks that a policy that plans did not find worth writing: now
// that they are used it has another look at them.
func (q *queue) touched(c *key.Chain, from int, refs []tier.Ref) {
	if q.to.Planner == nil || q.when.holds() || !q.to.Planner.Plans() || !q.takes(c.Space) {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	some := false
	for n, r := range refs {
		if !r.Dirty {
			continue
		}
		rec := recordAt(c, from+n, uint32(r.Block.Len()))
		if !q.mu.backlog.has(rec.Key) {
			q.mu.backlog.add(rec, q.mu.flushes.gen, q.when.clock())
			some = true
		}
	}
	if some {
		q.more()
	}
}

// promoted takes up a chunk that came from a tier further away.
func (q *queue) promoted(r tier.Record) {
	if q.when.holds() {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.backlog.add(r, q.mu.flushes.gen, q.when.clock())
	q.more()
}

// forwarded takes up a victim that a nearer tier has now.
func (q *queue) forwarded(r tier.Record) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.backlog.add(r, q.mu.flushes.awaited(), q.when.clock())
	q.more()
}

// recordAt is the record of chunk i of c before its checksum is known.
func recordAt(c *key.Chain, i int, size uint32) tier.Record {
	return tier.Record{Key: c.Key(i), Parent: c.Parent(i), Depth: c.Depth(i), Tokens: c.Tokens[i], Size: size}
}

// caughtUp waits until the chunks that are neither written nor protected are
// few enough that DRAM can do without evicting them. Where they are held for DRAM to
// evict them they are meant to wait.
func (q *queue) caughtUp(ctx context.Context) error {
	return q.await(ctx, func() bool { return isCaughtUp(q) })
}

// hasCaughtUp reports whether caughtUp would not wait.
func (q *queue) hasCaughtUp() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return isCaughtUp(q)
}

// isCaughtUp is hasCaughtUp with the mutex held.
func isCaughtUp(q *queue) bool {
	return q.when.holds() || q.mu.backlog.pendingBytes <= q.limits.behind || q.mu.stopped
}

// next returns the next chunk to write. If only a budget is in the way, one
// worker is told to watch it: released is closed when there is more room.
func (q *queue) next() (t task, released <-chan struct{}) {
	q.mu.Lock()
	defer q.mu.Unlock()
	b := &q.mu.backlog
	if b.ready.len() == 0 {
		released = q.protectNext()
	}
	if b.ready.len() == 0 {
		if q.mu.watched {
			return task{}, nil
		}
		q.mu.watched = released != nil
		return task{}, released
	}
	t = b.ready.pop()
	b.move(&t.item, inFlight)
	t.declined = !q.wants(&t)
	t.declinedBefore = q.markDeclined(&t)
	q.mu.atWork.take(t.rec.Key, !t.declined)
	if b.ready.len() > 0 || b.pending.len() > 0 || b.offered.len() > 0 {
		q.more()
	}
	return t, nil
}

// source is the list whose front is to be written next; nil if there is none.
func (q *queue) source() *fifo[item] {
	old, bounded := q.when.old()
	return q.mu.backlog.source(q.when.holds(), q.mu.flushes.forced, old, bounded)
}

// protectNext makes items ready as far as the budget allows. If that ends it,
// the result is closed when there may be more.
func (q *queue) protectNext() (released <-chan struct{}) {
	b, hot := &q.mu.backlog, q.dram.hot
	for from := q.source(); from != nil && b.ready.len() < q.limits.workers; from = q.source() {
		i := *from.front()
		if q.limits.held > 0 && b.heldBytes > 0 && b.heldBytes+int64(i.rec.Size) > q.limits.held {
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
		case err == nil && q.nearer != nil: // or deleted: refetch finds out
			b.move(&i, ready)
			b.ready.push(task{item: i, inNearer: true})
		default:
			if err != nil { // larger than the queue can ever be
				q.count.drop(&i.rec, DropQueueFull)
			}
			b.move(&i, done) // else evicted or deleted
			q.mu.changed.Wake()
		}
	}
	return nil
}

// setOut reports whether the writer is at work, or will be now.
func (q *queue) setOut() bool {
	if q.to.Off() {
		return false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	b := &q.mu.backlog
	if q.when.holds() && b.pending.len() > 0 && q.source() == nil && !b.compacting {
		q.mu.flushes.force()
		q.more()
	}
	return b.ready.len() > 0 || b.heldBytes > 0 || len(q.mu.atWork) > 0 || b.compacting || q.source() != nil
}

// compact keeps pending from outgrowing the chunks that are there, when chunks are evicted or
// deleted, and perhaps stored again, without ever having come to the front:
// whenever it is twice as long as it was after the last time, a worker takes it
// away, without the mutex, and leaves out the chunks that are gone.
func (q *queue) compact() {
	old := q.takePending()
	if old.len() == 0 {
		return
	}
	var left fifo[item]
	var gone []item
	seen := make(map[key.Key]struct{})
	for old.len() > 0 {
		i := old.pop()
		_, twice := seen[i.rec.Key]
		if !twice && q.isThere(i.rec.Key) {
			seen[i.rec.Key] = struct{}{}
			left.push(i)
			continue
		}
		if !twice && q.nearer != nil && !q.when.holds() && q.needs(i.rec.Key) {
			q.count.drop(&i.rec, DropGone)
		}
		if gone = append(gone, i); len(gone) == indexBatch {
			q.finish(gone)
			gone = gone[:0]
		}
	}
	q.finish(gone)
	q.giveBack(&left)
}

// isThere reports whether a chunk is in DRAM, or in the nearer tier or on its
// way to that.
func (q *queue) isThere(k key.Key) bool {
	return q.dram.hot.Has(k) || q.nearer != nil && (q.nearer.Resident.Has(k) || q.nearer.writer.isAt(k))
}

func (q *queue) takePending() fifo[item] {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.mu.backlog.takePending()
}

// finish drops pending items that are gone.
func (q *queue) finish(gone []item) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range gone {
		q.mu.backlog.move(&gone[i], done)
	}
	q.mu.changed.Wake()
}

// giveBack makes left pending again, indexBatch items a lock round.
func (q *queue) giveBack(left *fifo[item]) {
	for all := false; !all; {
		q.mu.Lock()
		if all = q.mu.backlog.giveBack(left); all {
			q.more()
			q.mu.changed.Wake()
		}
		q.mu.Unlock()
	}
}
