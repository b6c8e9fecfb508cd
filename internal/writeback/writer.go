package writeback

import (
	"cmp"
	"context"
	"math"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kvstored/kvstored/internal/base"
	"github.com/kvstored/kvstored/internal/explain"
	"github.com/kvstored/kvstored/key"
)

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
// Lock order: the writer's mutex is held around ledger calls, never the
// other way round and never around the index's.
type Writer struct {
	writers *Writers
	to      *Tier
	rank    int     // 1 is the nearest
	nearer  *Writer // to a bounded tier between DRAM and this one; nil if there is none
	when    rule
	worth   worth
	limits  limits
	count   counters
	work    chan struct{} // capacity 1: there may be work for one more worker
	room    room

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
	syncs syncs
}

// limits bound what a writer does, and protects, at a time.
type limits struct {
	workers int
	// behind bounds, for clients that wait for it, the bytes that are neither
	// written nor protected.
	behind int64
	// held bounds the bytes held to be written; 0 = only the ledger does.
	held int64
}

// newWriter makes the writer to one tier, behind those that s has.
func newWriter(s *Writers, to *Tier) *Writer {
	w := &Writer{
		writers: s, to: to, rank: len(s.list) + 1, worth: worth{to, s.o.Hot},
		limits: limits{workers: cmp.Or(s.o.Workers, defaultWorkers), behind: s.capacity / behindShare},
		count:  counters{departed: s.o.Departed, place: to.Place},
		work:   make(chan struct{}, 1),
		room:   room{o: &s.o, to: to, count: &s.Count, grown: make(chan struct{}, 1)},
		syncs:  syncs{turn: make(chan struct{}, 1)},
	}
	w.when.auto, w.when.began = s.o.When == WhileRoom && to.Resident != nil, time.Now() // else it has room for all
	w.when.full.Store(s.o.When == AtEviction)
	if w.when.auto && w.rank == 1 { // DRAM and the tier are one cache
		w.room.gone = s.noteGone
	}
	for _, nearer := range s.list {
		if nearer.to.Resident != nil {
			w.nearer = nearer
			w.limits.held = s.capacity / farShare
		}
	}
	if w.rank == 1 && len(s.o.Tiers) > 1 { // what the far one holds takes room too, and its ancestors with it
		w.limits.behind /= 2
	}
	w.mu.backlog = newBacklog(to.Planner != nil)
	w.mu.atWork = make(atWork)
	w.mu.flushes.waiting = make(map[uint64]struct{})
	return w
}

// run writes until ctx ends; then it drops the chunks that it could not write.
func (w *Writer) run(ctx context.Context) error {
	defer w.stop()
	var g errgroup.Group
	for range w.limits.workers {
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
		w.release(t.rec.Key)
	}
}

// take returns the next chunk to write.
func (w *Writer) take(ctx context.Context) (task, error) {
	for {
		if err := ctx.Err(); err != nil {
			return task{}, err
		}
		w.compact()
		t, released := w.next()
		if t.state == inFlight {
			return t, nil
		}
		select {
		case <-w.work:
		case <-released:
		case <-ctx.Done():
		}
		if released != nil {
			w.unwatch()
		}
	}
}

// has reports whether the tier is known to have a chunk with these bytes.
func (w *Writer) has(k key.Key, sum uint64) bool {
	return w.writers.o.Index.Where(k).Has(w.to.Place) && !w.to.HasOther(k, sum)
}

// Takes reports whether a space is written to the tier.
func (w *Writer) Takes(id key.SpaceID) bool { return w.writers.Reach(id).Has(w.to.Place) }

// needs reports whether a chunk belongs into the tier and is not known to be
// there.
func (w *Writer) needs(k key.Key) bool {
	return w.Takes(k.Space) && !w.writers.o.Index.Where(k).Has(w.to.Place)
}

// SetBudget bounds the bytes that are written a day; 0 = unlimited.
func (w *Writer) SetBudget(bytesPerDay int64) { w.room.budget.set(bytesPerDay) }

// unwatch ends the watch over the budget of the worker that next gave it to.
func (w *Writer) unwatch() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.watched = false
}

// more wakes one worker; that one wakes the next if there is work for both.
func (w *Writer) more() {
	base.Poke(w.work)
}

// await returns once met, which is called with the mutex held, is true; with an
// error if ctx ends before.
func (w *Writer) await(ctx context.Context, met func() bool) error {
	for {
		w.mu.Lock()
		if met() {
			w.mu.Unlock()
			return nil
		}
		changed := w.mu.changed.Next()
		w.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// stop drops the chunks that were not written before run ended.
func (w *Writer) stop() {
	w.mu.Lock()
	w.mu.stopped = true
	left := w.mu.backlog.ready
	w.mu.backlog.ready = fifo[task]{}
	w.mu.changed.Wake()
	w.mu.Unlock()
	for left.len() > 0 {
		t := left.pop()
		w.count.drop(&t.rec, explain.Stopped)
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
func (w *Writer) putOff(t *task, r explain.Decline) outcome {
	switch r {
	case explain.WhileOff:
		w.seemsOff()
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

// missing is what will be offered again.
func (w *Writer) missing() Volume {
	w.mu.Lock()
	defer w.mu.Unlock()
	return Volume{uint64(w.mu.backlog.retry.len()), uint64(w.mu.backlog.retryBytes)}
}

// keepRetrying offers chunks in retry again. While the tier may still be off
// that is one chunk at a time.
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
			w.offerSome()
			w.noteRoom()
			w.wakeForOld()
		}
	}
}

func (w *Writer) offerSome() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.off {
		w.offer(1)
	} else {
		w.offer(math.MaxInt)
	}
}

// offer has up to n chunks tried again; flushes that wait do so for these too.
// Called with the mutex held.
func (w *Writer) offer(n int) {
	w.mu.backlog.offer(n, w.mu.flushes.awaited())
	w.more()
}

// seemsOff and works note how the last write went.
func (w *Writer) seemsOff() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.off = true
}

func (w *Writer) works() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.off {
		w.mu.off = false
		w.offer(math.MaxInt)
	}
}
