package writeback

import (
	"cmp"
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kvstored/kvstored/internal/explain"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// defaultWorkers is enough small chunks at a time that their records are
// committed in groups worth the name; how many are in the device at once is
// the tier's own business.
const defaultWorkers = 32

// unprotectedShare: a client that waits for room is held back while more than one
// in so many bytes of DRAM are neither written nor protected. Above half, LRU
// would soon come to chunks that no tier has.
const unprotectedShare = 2

// farShare: a tier behind another one protects at most one in so many bytes of
// DRAM while it writes, a quarter of what unwritten chunks may have by default.
// It is the slower one, and its unwritten chunks the nearer one has.
const farShare = 20

// Writer writes committed chunks behind into one tier. Commits never wait
// for it: chunks that the queue has no room for stay in DRAM, unprotected, and
// are taken up as room appears; if DRAM must evict one first it is demoted, and
// if there is no room for that either it is dropped and counted.
//
// An entry of DRAM is dirty from when it was stored here until the nearest tier
// below that may have it does, and only dirty ones are demoted when DRAM
// evicts them. Tiers behind that one find a chunk there, or have the victim
// forwarded when that one is done with it, whether it took it or not.
//
// A worker takes a chunk from the queue, stores it by way of the room, and tells the index,
// the ledger and the queue how that ended. State and locks are in the parts.
type Writer struct {
	writers *Writers
	to      *Tier
	rank    int     // 1 is the nearest
	nearer  *Writer // to a bounded tier between DRAM and this one; nil if there is none
	count   *counters
	queue   queue
	room    room
	syncs   syncs
}

// newWriter makes the writer to one tier, behind those that s has.
func newWriter(s *Writers, to *Tier) *Writer {
	count := &counters{evictLog: s.o.EvictLog, place: to.Place}
	w := &Writer{
		writers: s, to: to, rank: len(s.list) + 1, count: count,
		queue: queue{
			hot: s.o.Hot, transit: &s.transit, to: to, count: count, work: make(chan struct{}, 1),
			workers: cmp.Or(s.o.Workers, defaultWorkers), maxUnprotected: s.capacity / unprotectedShare,
		},
		room:  room{o: &s.o, to: to, count: &s.Count, grown: make(chan struct{}, 1)},
		syncs: syncs{turn: make(chan struct{}, 1)},
	}
	q := &w.queue
	q.when.auto, q.when.began = s.o.When == WhileRoom && to.Resident != nil, time.Now() // else it has room for all
	q.when.full.Store(s.o.When == AtEviction)
	if q.when.auto && w.rank == 1 { // DRAM and the tier are one cache
		w.room.gone = s.noteGone
	}
	for _, nearer := range s.list {
		if nearer.to.Resident != nil {
			w.nearer, q.refetch = nearer, true
			q.maxHeld = s.capacity / farShare
		}
	}
	if w.rank == 1 && len(s.o.Tiers) > 1 { // what the far one holds takes room too, and its ancestors with it
		q.maxUnprotected /= 2
	}
	q.mu.backlog = newBacklog(to.Planner != nil)
	q.mu.atWork = make(atWork)
	q.mu.flushes.waiting = make(map[uint64]struct{})
	return w
}

// run writes until ctx ends; then it drops the chunks that it could not write.
func (w *Writer) run(ctx context.Context) error {
	defer w.stop()
	var g errgroup.Group
	for range w.queue.workers {
		g.Go(func() error { return w.worker(ctx) })
	}
	if w.to.Resident != nil {
		g.Go(func() error { return w.room.keepWatermark(ctx) })
	}
	g.Go(func() error { return w.keepRetrying(ctx) })
	return g.Wait()
}

// worker writes one chunk after the other.
func (w *Writer) worker(ctx context.Context) error {
	for {
		t, err := w.take(ctx)
		if err != nil {
			return err
		}
		w.end(t, w.perform(ctx, &t))
	}
}

// take returns the next chunk to write.
func (w *Writer) take(ctx context.Context) (task, error) {
	for {
		if err := ctx.Err(); err != nil {
			return task{}, err
		}
		w.compact()
		t, released := w.queue.next()
		if t.state == inFlight {
			return t, nil
		}
		select {
		case <-w.queue.work:
		case <-released:
		case <-ctx.Done():
		}
		if released != nil {
			w.queue.unwatch()
		}
	}
}

// stop drops the chunks that were not written before run ended.
func (w *Writer) stop() {
	left := w.queue.stop()
	for left.len() > 0 {
		t := left.pop()
		w.count.drop(&t.rec, explain.Stopped)
		w.end(t, refused)
	}
}

// compact keeps pending from outgrowing the chunks that are there, when chunks are evicted or
// deleted, and perhaps stored again, without ever having come to the front:
// whenever it is twice as long as it was after the last time, a worker takes it
// away, without the mutex, and leaves out the chunks that are gone.
func (w *Writer) compact() {
	old := w.queue.takePending()
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
		if !twice && w.nearer != nil && !w.Defers() && w.needs(i.rec.Key) {
			w.count.drop(&i.rec, explain.Gone)
		}
		if gone = append(gone, i); len(gone) == batch {
			w.queue.finish(gone)
			gone = gone[:0]
		}
	}
	w.queue.finish(gone)
	w.queue.giveBack(&left)
}

// isThere reports whether a chunk is in DRAM, or in the nearer tier or on its
// way to that.
func (w *Writer) isThere(k key.Key) bool {
	return w.writers.o.Hot.Has(k) || w.nearer != nil && (w.nearer.to.Resident.Has(k) || w.nearer.queue.isAt(k))
}

// Add takes up chunks that the tier lacks and that others of this machine have.
func (w *Writer) Add(recs ...tier.Record) { w.queue.add(recs...) }

// Forward takes up a victim that a nearer tier has now, or DRAM again.
func (w *Writer) Forward(r tier.Record) { w.queue.forward(r) }

// Promoted takes up a chunk that came from a tier further away.
func (w *Writer) Promoted(r tier.Record) {
	if !w.Defers() {
		w.Add(r)
	}
}

// Defers reports whether chunks that are committed wait until DRAM evicts them.
func (w *Writer) Defers() bool { return w.queue.when.defers() }

// HasCaughtUp reports whether CaughtUp would not wait.
func (w *Writer) HasCaughtUp() bool { return w.queue.hasCaughtUp() }

// CaughtUp waits until the chunks that are neither written nor protected are
// few enough that DRAM can do without evicting them. Where they are held for DRAM to
// evict them they are meant to wait.
func (w *Writer) CaughtUp(ctx context.Context) error { return w.queue.await(ctx, w.queue.isCaughtUp) }

// SetUnsafeAge bounds how long a chunk may be in DRAM alone over a full tier; 0 = for ever.
func (w *Writer) SetUnsafeAge(age time.Duration) {
	w.queue.when.unsafeAge.Store(int64(age))
	w.queue.more() // for those that are too old now
}

// SetBudget bounds the bytes that are written a day; 0 = unlimited.
func (w *Writer) SetBudget(bytesPerDay int64) { w.room.budget.set(bytesPerDay) }

// has reports whether the tier is known to have a chunk with these bytes.
func (w *Writer) has(k key.Key, sum uint64) bool {
	return w.writers.o.Index.Where(k).Has(w.to.Place) && !w.to.HasOther(k, sum)
}

// Takes reports whether a space is written to the tier.
func (w *Writer) Takes(id key.SpaceID) bool { return w.writers.Reach(id).Has(w.to.Place) }

// needs reports whether a chunk belongs into the tier and is not known to be there.
func (w *Writer) needs(k key.Key) bool {
	return w.Takes(k.Space) && !w.writers.o.Index.Where(k).Has(w.to.Place)
}

const (
	// maxRetry bounds the items remembered for a tier in trouble, at some 90 bytes
	// a chunk. Beyond it the oldest is forgotten.
	maxRetry = 1 << 18
	// maxFailed is how often a chunk is offered to a tier that works and yet
	// fails: the reason may be the chunk.
	maxFailed = 3
	// offerEvery is how often chunks in retry are offered again.
	offerEvery = 2 * time.Second
)

// putOff decides about a chunk that the tier did not take. It is offered again
// once the tier works if it is to be found by its name then: in DRAM, or in a
// nearer tier. A victim of DRAM's is nowhere but in its block.
func (w *Writer) putOff(t *task, r explain.Decline) outcome {
	switch r {
	case explain.WhileOff:
		w.queue.seemsOff()
	case explain.WriteFailed:
		if t.item.failed++; t.item.failed == maxFailed {
			return refused
		}
	default:
		return refused
	}
	if t.life > 0 {
		return refused
	}
	return putOff
}

// keepRetrying offers chunks in retry again, and has the rule look.
func (w *Writer) keepRetrying(ctx context.Context) error {
	tick := time.NewTicker(offerEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		if !w.to.Off() {
			w.queue.offerSome()
			w.queue.look(&w.writers.o.Log)
		}
	}
}
