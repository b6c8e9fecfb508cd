package writeback

import (
	"context"
	"errors"
	"math"
	"sync"

	"github.com/rs/zerolog"

	"github.com/kvstored/kvstored/internal/arena"
	"github.com/kvstored/kvstored/internal/base"
	"github.com/kvstored/kvstored/internal/explain"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// queue is what a writer has still to write, and what its workers are at. Chunks come in
// with committed, touched, add, forward, offerDeclined, push and remember; next gives one to
// a worker, and end is told how that ended. The mutex guards mu; doc.go has its order.
type queue struct {
	hot            tier.Hot
	transit        *transit
	to             *Tier // whose policy has a say; see worth.go
	when           rule  // a chunk is written
	refetch        bool  // a chunk that DRAM has evicted may be in a nearer tier
	workers        int   // chunks that are ready, at most
	maxUnprotected int64 // bytes neither written nor protected, beyond which clients wait
	maxHeld        int64 // bytes held to be written, at most; 0 = only the ledger bounds them
	count          *counters
	work           chan struct{} // capacity 1: there may be work for one more worker

	mu struct {
		sync.Mutex
		backlog backlog
		atWork  atWork
		flushes flushes
		changed base.Signal
		off     bool // the tier was off when something was written last
		watched bool // a worker waits for the budget
		stopped bool // the workers have ended
	}
}

// committed takes note of new chunks of one chain, from.. of c, and of how large they are.
func (q *queue) committed(c *key.Chain, from int, sizes []uint32) {
	now := q.when.clock()
	q.mu.Lock()
	defer q.mu.Unlock()
	for n, size := range sizes {
		q.mu.backlog.add(tier.RecordAt(c, from+n, size), q.mu.flushes.gen, now)
	}
	q.more()
}

// touched takes up chunks that the policy of the tier did not find worth writing.
func (q *queue) touched(c *key.Chain, from int, refs []tier.Ref) {
	q.mu.Lock()
	defer q.mu.Unlock()
	some := false
	for n, r := range refs {
		if !r.Dirty {
			continue
		}
		rec := tier.RecordAt(c, from+n, uint32(r.Block.Len()))
		if !q.mu.backlog.has(rec.Key) {
			q.mu.backlog.add(rec, q.mu.flushes.gen, q.when.clock())
			some = true
		}
	}
	if some {
		q.more()
	}
}

// add takes up chunks that the tier lacks.
func (q *queue) add(recs ...tier.Record) {
	now := q.when.clock()
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, r := range recs {
		q.mu.backlog.add(r, q.mu.flushes.gen, now)
	}
	q.more()
}

// forward is add of one that was committed before: flushes that wait do so for it too.
func (q *queue) forward(r tier.Record) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.backlog.add(r, q.mu.flushes.awaited(), q.when.clock())
	q.more()
}

// offerDeclined takes up chunks of a list that are in no state. With forced the policy of the
// tier has no say in these, and in those enqueued before.
func (q *queue) offerDeclined(list []tier.Record, forced bool) {
	now := q.when.clock()
	q.mu.Lock()
	defer q.mu.Unlock()
	if forced {
		q.mu.flushes.wanted = q.mu.flushes.gen + 1
	}
	for _, r := range list {
		if !q.mu.backlog.has(r.Key) {
			q.mu.backlog.add(r, q.mu.flushes.gen, now)
		}
	}
	q.more()
}

// push takes up a victim of DRAM with its block. It is false if the workers have ended.
func (q *queue) push(r tier.Record, b arena.Block, life uint64) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mu.stopped {
		q.count.drop(&r, explain.Stopped)
		return false
	}
	i := item{rec: r, gen: q.mu.flushes.awaited(), life: life}
	q.mu.backlog.move(&i, ready)
	q.mu.backlog.ready.push(task{item: i, ref: tier.Ref{Block: b}})
	q.more()
	return true
}

// more wakes one worker; that one wakes the next if there is work for both.
func (q *queue) more() { base.Poke(q.work) }

// await returns once met, which is called with the mutex held, is true; with an
// error if ctx ends before.
func (q *queue) await(ctx context.Context, met func() bool) error {
	for {
		q.mu.Lock()
		if met() {
			q.mu.Unlock()
			return nil
		}
		changed := q.mu.changed.Next()
		q.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// hasCaughtUp is what Writer.CaughtUp waits for.
func (q *queue) hasCaughtUp() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.isCaughtUp()
}

// isCaughtUp is hasCaughtUp with the mutex held.
func (q *queue) isCaughtUp() bool {
	return q.when.defers() || q.mu.backlog.pendingBytes <= q.maxUnprotected || q.mu.stopped
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
	t.declined = t.gen >= q.mu.flushes.wanted && !q.wants(&t)
	t.declinedBefore = q.markDeclined(&t)
	q.mu.atWork.take(t.rec.Key, !t.declined)
	if b.ready.len() > 0 || b.pending.len() > 0 || b.offered.len() > 0 {
		q.more()
	}
	return t, nil
}

// unwatch ends the watch over the budget of the worker that next gave it to.
func (q *queue) unwatch() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.watched = false
}

// source is the list whose front is to be written next; nil if there is none.
func (q *queue) source() *fifo[item] {
	old, bounded := q.when.old()
	return q.mu.backlog.source(q.when.defers(), q.mu.flushes.forced, old, bounded)
}

// protectNext makes items ready as far as the budget allows. If that ends it,
// the result is closed when there may be more.
func (q *queue) protectNext() (released <-chan struct{}) {
	b := &q.mu.backlog
	for from := q.source(); from != nil && b.ready.len() < q.workers; from = q.source() {
		i := *from.front()
		if q.maxHeld > 0 && b.heldBytes > 0 && b.heldBytes+int64(i.rec.Size) > q.maxHeld {
			return nil // end wakes a worker
		}
		var refs [1]tier.Ref
		n, err := q.hot.Hold(ledger.Daemon, ledger.Unwritten, []key.Key{i.rec.Key}, refs[:])
		switch {
		case errors.Is(err, ledger.ErrBusy) && released == nil:
			released = q.hot.Ledger().Released() // taken before the next try, to miss nothing
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
		case err == nil && q.refetch: // or deleted: Writer.refetch finds out
			b.move(&i, ready)
			b.ready.push(task{item: i, inNearer: true})
		default:
			if err != nil { // larger than DRAM may ever protect
				q.count.drop(&i.rec, explain.QueueFull)
			}
			b.move(&i, done) // else evicted or deleted
			q.mu.changed.Wake()
		}
	}
	return nil
}

// writeDeferred reports whether the writer is at work, or will be now.
func (q *queue) writeDeferred() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	b := &q.mu.backlog
	if q.when.defers() && b.pending.len() > 0 && q.source() == nil && !b.compacting {
		q.mu.flushes.force()
		q.more()
	}
	return b.ready.len() > 0 || b.heldBytes > 0 || len(q.mu.atWork) > 0 || b.compacting || q.source() != nil
}

// look has the rule look at the tier, and follows it.
func (q *queue) look(log *zerolog.Logger) {
	if !q.when.look(q.to, log) {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.more()
	q.mu.changed.Wake() // clients may wait for the queue
}

// begin waits until no other worker writes a key. Each begin has its wrote.
func (q *queue) begin(ctx context.Context, k key.Key) error {
	return q.await(ctx, func() bool { return q.mu.atWork.begin(k) })
}

// wrote lets the next worker write a key.
func (q *queue) wrote(k key.Key) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.atWork[k].busy = false
	q.mu.changed.Wake()
}

// end ends a task: its part in the budget and in a flush.
func (q *queue) end(t *task, how outcome) {
	q.mu.Lock()
	defer q.mu.Unlock()
	b := &q.mu.backlog
	if t.state == inFlight {
		q.mu.atWork.release(t.rec.Key)
	}
	switch {
	case how == putOff:
		b.toRetry(t.item)
	case how == refused && t.declined && t.life == 0 && t.gen < q.mu.flushes.wanted: // since it was taken
		b.again(t.item)
	default:
		b.move(&t.item, done)
	}
	if t.life == 0 {
		q.more()
	}
	q.mu.changed.Wake()
}

// isAt reports whether something of k is on its way to the tier.
func (q *queue) isAt(k key.Key) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.at(k)
}

// at is isAt with the mutex held.
func (q *queue) at(k key.Key) bool {
	_, writing := q.mu.atWork[k]
	return writing || q.transit.isWith(k, q)
}

// awaitTasks waits until nothing of k is on its way to the tier, and reports
// whether something was.
func (q *queue) awaitTasks(ctx context.Context, k key.Key) (was bool) {
	_ = q.await(ctx, func() bool {
		at := q.at(k)
		was = was || at
		return !at
	})
	return was
}

// awaitWrites waits until no worker is at anything that is deleted.
func (q *queue) awaitWrites(ctx context.Context, del Deletion) error {
	return q.await(ctx, func() bool { return !q.mu.atWork.touches(del) })
}

// offerSome offers chunks in retry again. While the tier may still be off that is one.
func (q *queue) offerSome() {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := math.MaxInt
	if q.mu.off {
		n = 1
	}
	q.offer(n)
}

// offer has up to n chunks tried again; flushes that wait do so for these too. The worker
// that wakes also finds chunks that were held for too long. Called with the mutex held.
func (q *queue) offer(n int) {
	q.mu.backlog.offer(n, q.mu.flushes.awaited())
	q.more()
}

// seemsOff and works note how the last write went.
func (q *queue) seemsOff() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.off = true
}

func (q *queue) works() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mu.off && !q.to.Scanning() { // it would have no room for most of them
		q.mu.off = false
		q.offer(math.MaxInt)
	}
}

// remember puts a chunk into retry that a nearer tier has, as this one is off.
func (q *queue) remember(r tier.Record) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.off = true
	q.mu.backlog.toRetry(item{rec: r})
}

// sums is how much a queue has.
type sums struct {
	waiting      int // in any state but retry
	pending      int
	pendingBytes int64
	retry        Volume
	bytes        int64 // in any state, victims aside
}

func (q *queue) sums() sums {
	q.mu.Lock()
	defer q.mu.Unlock()
	b := &q.mu.backlog
	retry := Volume{uint64(b.retry.len()), uint64(b.retryBytes)}
	return sums{b.waiting(), b.pending.len(), b.pendingBytes, retry, b.pendingBytes + b.heldBytes + b.retryBytes}
}

// stop ends the queue, and returns the tasks that no worker has taken.
func (q *queue) stop() (left fifo[task]) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.stopped = true
	left, q.mu.backlog.ready = q.mu.backlog.ready, left
	q.mu.changed.Wake()
	return left
}

func (q *queue) takePending() fifo[item] {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.mu.backlog.takePending()
}

// takeAll takes away all that is to be written and that no worker has yet, and
// the items in retry.
func (q *queue) takeAll() (list []item) {
	_ = q.await(context.Background(), func() bool { // giveBack ends a compaction
		if q.mu.backlog.compacting {
			return false
		}
		list = q.mu.backlog.takeAll(q.mu.flushes.gen)
		return true
	})
	return list
}

// finish drops items that were taken away and are gone.
func (q *queue) finish(gone []item) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range gone {
		q.mu.backlog.move(&gone[i], done)
	}
	q.mu.changed.Wake()
}

// giveBack makes left pending again, batch items a lock round.
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
