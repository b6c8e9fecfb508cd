package store

import (
	"cmp"
	"context"
	"math"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kvstored/kvstored/internal/base"
)

// WriteOptions say which chunks are written behind.
type WriteOptions struct {
	Auto    bool // chunks wait while a tier is full: see writeRule; else each is written right after its commit
	Workers int  // writes at a time per tier; 0 = 32
}

// defaultWorkers is enough small chunks at a time that their records are
// committed in groups worth the name; how many are in the device at once is
// the tier's own business.
const defaultWorkers = 32

// behindShare: a client that waits for room is held back while more than one
// in so many bytes of DRAM are neither written nor protected. Above half, LRU
// would soon come to chunks that no tier has.
const behindShare = 2

// farShare: a tier behind another one protects at most one in so many bytes of
// DRAM while it writes, a quarter of what unwritten chunks may have by default.
// It is the slower one, and its unwritten chunks the nearer one has.
const farShare = 20

// writer writes committed chunks behind into one tier. Commits never wait
// for it: chunks that the queue has no room for stay in DRAM, unprotected, and
// are taken up as room appears; if DRAM must evict one first it is demoted, and
// if there is no room for that either it is dropped and counted.
//
// An entry of DRAM is dirty from when it was stored here until the nearest tier
// below that may have it does, and only dirty ones are demoted when DRAM
// evicts them. Tiers behind that one find a chunk there, or have the victim
// forwarded when that one is done with it, whether it took it or not.
//
// Lock order: the writer's mutex is held around ledger calls, never the
// other way round and never around the index's.
type writer struct {
	queue
	loader *loader
	syncs  syncs
}

// queue is what a writer is to write, and in which order, and what its workers
// are at.
type queue struct {
	sink
	nearer *level // a bounded tier between DRAM and this one; nil if there is none
	when   writeRule
	limits writeLimits
	work   chan struct{} // capacity 1: there may be work for one more worker

	mu struct {
		sync.Mutex
		backlog backlog
		atWork  atWork
		flushes flushes
		changed base.Signal
		off     bool // the tier was off when something was written last
		watched bool // a worker waits for the budget
		stopped bool // run has ended
	}
	count writeCounters
}

// writeLimits bound what a writer does, and protects, at a time.
type writeLimits struct {
	workers int
	// behind bounds, for clients that wait for it, the bytes that are neither
	// written nor protected.
	behind int64
	// held bounds the bytes held to be written; 0 = only the ledger does.
	held int64
}

func newWriter(l *loader, to *level, o WriteOptions) *writer {
	w := &writer{queue: queue{sink: newSink(l.dram, to), work: make(chan struct{}, 1)}, loader: l, syncs: syncs{turn: make(chan struct{}, 1)}}
	w.count.absences, w.count.place = l.absences, to.place
	w.when.auto = o.Auto && to.Resident != nil // else it has room for all
	w.exclusive = w.when.auto && to.rank == 1
	w.limits = writeLimits{workers: cmp.Or(o.Workers, defaultWorkers), behind: l.room / behindShare}
	for _, nearer := range l.levels.below[:to.rank-1] {
		if nearer.Resident != nil {
			w.nearer = nearer
			w.limits.held = l.room / farShare
		}
	}
	if to.rank == 1 && len(l.levels.below) > 1 { // what the far one holds takes room too, and its ancestors with it
		w.limits.behind /= 2
	}
	w.when.began = time.Now()
	w.mu.backlog = newBacklog(to.Planner != nil)
	w.mu.atWork = make(atWork)
	w.mu.flushes.waiting = make(map[uint64]struct{})
	return w
}

// run writes until ctx ends; then it drops the chunks that it could not write.
func (w *writer) run(ctx context.Context) error {
	defer w.stop()
	var g errgroup.Group
	for range w.limits.workers {
		g.Go(func() error { return w.worker(ctx) })
	}
	if w.to.Resident != nil {
		g.Go(func() error { return w.keepWatermark(ctx) })
	}
	g.Go(func() error { return w.keepRetrying(ctx) })
	return g.Wait()
}

// worker writes one chunk after the other.
func (w *writer) worker(ctx context.Context) error {
	for {
		t, err := w.take(ctx)
		if err != nil {
			return err
		}
		w.end(t, w.perform(ctx, &t))
		w.release(t.rec.Key)
	}
}

// take returns the next chunk to write.
func (q *queue) take(ctx context.Context) (task, error) {
	for {
		if err := ctx.Err(); err != nil {
			return task{}, err
		}
		q.compact()
		t, released := q.next()
		if t.state == inFlight {
			return t, nil
		}
		select {
		case <-q.work:
		case <-released:
		case <-ctx.Done():
		}
		if released != nil {
			q.unwatch()
		}
	}
}

// unwatch ends the watch over the budget of the worker that next gave it to.
func (q *queue) unwatch() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.watched = false
}

// more wakes one worker; that one wakes the next if there is work for both.
func (q *queue) more() {
	base.Poke(q.work)
}

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

// stop drops the chunks that were not written before run ended.
func (w *writer) stop() {
	w.mu.Lock()
	w.mu.stopped = true
	left := w.mu.backlog.ready
	w.mu.backlog.ready = fifo[task]{}
	w.mu.changed.Wake()
	w.mu.Unlock()
	for left.len() > 0 {
		t := left.pop()
		w.count.drop(&t.rec, DropStopped)
		w.end(t, refused)
	}
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
func (w *writer) putOff(t *task, r DropReason) outcome {
	switch r {
	case DropTierOff:
		w.seemsOff()
	case DropFailed:
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

// missing is what will be offered again.
func (q *queue) missing() Volume {
	q.mu.Lock()
	defer q.mu.Unlock()
	return Volume{uint64(q.mu.backlog.retry.len()), uint64(q.mu.backlog.retryBytes)}
}

// keepRetrying offers chunks in retry again. While the tier may still be off
// that is one chunk at a time.
func (w *writer) keepRetrying(ctx context.Context) error {
	tick := time.NewTicker(offerEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		if !w.to.Off() {
			w.offerSome()
			w.noteRoom()
			w.wakeForOld()
		}
	}
}

func (q *queue) offerSome() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mu.off {
		q.offer(1)
	} else {
		q.offer(math.MaxInt)
	}
}

// offer has up to n chunks tried again; flushes that wait do so for these too.
// Called with the mutex held.
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
	if q.mu.off {
		q.mu.off = false
		q.offer(math.MaxInt)
	}
}
