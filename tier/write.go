package tier

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kvstored/kvstored/key"
)

// WriteMode says when a committed chunk goes down.
type WriteMode uint8

// The write modes.
const (
	WriteThrough   WriteMode = iota // right after commit
	WriteSelective                  // after WriteOptions.MinHits uses
	WriteBack                       // when DRAM evicts it
)

// ParseWriteMode reads the configuration's name of a mode.
func ParseWriteMode(s string) (WriteMode, error) {
	switch s {
	case "through":
		return WriteThrough, nil
	case "selective":
		return WriteSelective, nil
	case "back":
		return WriteBack, nil
	}
	return 0, fmt.Errorf("write mode %q: use through, selective or back", s)
}

// WriteOptions say what is written behind.
type WriteOptions struct {
	Mode    WriteMode
	MinHits int // for WriteSelective
	Workers int // writes at a time per tier; 0 = 32
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
// It is the slower one, and what it has not written yet the nearer one has.
const farShare = 20

// makeRoomTries bounds how often one write evicts below to get its room.
const makeRoomTries = 4

// writer writes committed chunks behind into one tier. Commits never wait
// for it: what the queue has no room for stays in DRAM, unprotected, and is
// taken up as room appears; if DRAM must evict it first it goes down as a
// victim, and if there is no room for that either it is dropped and counted.
//
// An entry of DRAM is dirty from when it was stored here until the nearest tier
// below that may have it does, and only dirty ones go down when DRAM evicts
// them. Tiers behind that one find a chunk there, or are handed the victim when
// that one is done with it, whether it took it or not.
//
// Lock order: the writer's mutex is held around ledger calls, never the
// other way round and never around the index's.
type writer struct {
	stack   *Stack
	to      Tier
	planner Planner  // the same, if its policies may plan; otherwise nil
	nearer  Resident // the tier between DRAM and this one; nil if there is none
	before  *writer  // into that
	place   Place
	mode    WriteMode
	minHits uint8
	workers int
	budget  *budget
	work    chan struct{} // capacity 1: there may be work for one more worker
	grown   chan struct{} // capacity 1: the tier may be above its high watermark
	// maxBehind bounds, for those who wait for it, what is neither written
	// nor protected.
	maxBehind int64
	// maxHeld bounds what is held to be written; 0 = only the ledger does.
	maxHeld int64

	mu struct {
		sync.Mutex
		ready   fifo[writeTask]      // protected, in order of commit
		dirty   fifo[dirtyKey]       // resident, not protected, no room in ready yet
		queued  map[key.Key]struct{} // selective, or for a planner: what is in dirty or being written
		writing map[key.Key]atWork   // what workers are at
		behind  int64                // bytes of dirty
		missed  fifo[dirtyKey]       // what the tier was off for, or failed: see again
		lacks   int64                // bytes of that
		offered fifo[dirtyKey]       // of that, what is to be written now; nobody is held back for it
		off     bool                 // it was off when something was written last
		sifting bool                 // somebody has taken dirty away for a moment: see sift
		sift    int                  // how long dirty may become
		held    int64                // bytes held to be written, victims aside
		watched bool                 // a worker waits for the budget
		gen     uint64               // what is enqueued now belongs to this flush generation
		forced  uint64               // generations below are written whatever the mode says
		flushes map[uint64]struct{}  // that wait: each for the generations below its own
		open    map[uint64]int       // unfinished per generation
		change  chan struct{}        // closed at the next change; nil while nobody waits
		stopped bool                 // run has ended
	}
	count writeCounters
}

type dirtyKey struct {
	rec    Record // without its checksum
	gen    uint64
	missed bool  // as in writeTask
	failed uint8 // so too
}

func newWriter(s *Stack, p Place, o WriteOptions) *writer {
	w := &writer{stack: s, to: s.tiers[p], place: p, mode: o.Mode, workers: o.Workers}
	w.planner, _ = under[Planner](w.to)
	w.budget = newBudget(0) // see Stack.Set
	if res, ok := s.tiers[Disk].(Resident); ok && p > Disk {
		w.nearer, w.before = res, s.writers[0]
		w.maxHeld = s.room / farShare
	}
	w.minHits = uint8(min(o.MinHits, 255))
	if w.workers == 0 {
		w.workers = defaultWorkers
	}
	w.work, w.grown = make(chan struct{}, 1), make(chan struct{}, 1)
	w.maxBehind = s.room / behindShare
	w.mu.sift = siftSlack
	w.mu.open = make(map[uint64]int)
	w.mu.flushes = make(map[uint64]struct{})
	w.mu.queued = make(map[key.Key]struct{})
	w.mu.writing = make(map[key.Key]atWork)
	return w
}

// run writes until ctx ends; then it lets go of what it could not write.
func (w *writer) run(ctx context.Context) error {
	defer w.stop()
	var g errgroup.Group
	for range w.workers {
		g.Go(func() error {
			for {
				t, err := w.take(ctx)
				if err != nil {
					return err
				}
				switch {
				case t.vain:
					w.letGo(t, w.refuse(&t))
				case w.raise(ctx, &t):
					how := w.write(ctx, &t)
					w.letGo(t, how)
				}
				w.written(t.rec.Key)
			}
		})
	}
	if res, bounded := w.to.(Resident); bounded {
		g.Go(func() error { return w.keepWatermark(ctx, res) })
	}
	g.Go(func() error { return w.keepOffering(ctx) })
	return g.Wait()
}

// trimEvery is how often a bounded tier below may give room back though nothing
// is written to it: others may fill its file system.
const trimEvery = 2 * time.Second

// keepWatermark evicts below ahead of the writes, so that they find room.
func (w *writer) keepWatermark(ctx context.Context, res Resident) error {
	tick := time.NewTicker(trimEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.grown:
		case <-tick.C:
		}
		if !isOff(res) {
			w.trim(ctx, res, 0)
		}
	}
}

// filled wakes keepWatermark.
func (w *writer) filled() {
	select {
	case w.grown <- struct{}{}:
	default:
	}
}

// take returns the next chunk to write.
func (w *writer) take(ctx context.Context) (writeTask, error) {
	for {
		if err := ctx.Err(); err != nil {
			return writeTask{}, err
		}
		w.sift()
		t, released := w.next()
		if t.ref.Valid() || t.below {
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

// unwatch ends the watch over the budget of the worker that next gave it to.
func (w *writer) unwatch() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.watched = false
}

// stop lets go of what was not written before run ended.
func (w *writer) stop() {
	w.mu.Lock()
	w.mu.stopped = true
	left := w.mu.ready
	w.mu.ready = fifo[writeTask]{}
	w.wake()
	w.mu.Unlock()
	for left.len() > 0 {
		t := left.pop()
		w.count.drop(DropStopped, t.rec.Size)
		w.letGo(t, refused)
	}
}

// errChanged is a payload that no longer has the checksum of its commit.
var errChanged = fmt.Errorf("the payload changed in memory: %w", ErrCorrupt)

// put stores e, evicting below where there is no room.
func (w *writer) put(ctx context.Context, e Entry) error {
	if isOff(w.to) {
		return fmt.Errorf("write to %s: %w", w.place, ErrOff)
	}
	if !e.Block.Verify() {
		return fmt.Errorf("write to %s: %w", w.place, errChanged)
	}
	err := w.putNew(ctx, e)
	res, bounded := w.to.(Resident)
	for range makeRoomTries {
		if !bounded || !errors.Is(err, ErrNoSpace) {
			break
		}
		if !w.trim(ctx, res, int64(e.Size)) {
			break
		}
		err = w.putNew(ctx, e)
	}
	if q, ok := under[Quoted](w.to); ok && bounded && err == nil && q.OverQuota() {
		w.trim(ctx, res, 0)
	}
	return err
}

// putNew stores e in place of other bytes that the tier has under its key: they
// were out of reach when e was committed, for the tier was not scanned or did
// not answer, and must not come after it now.
func (w *writer) putNew(ctx context.Context, e Entry) error {
	err := w.to.Put(ctx, e)
	if err != nil || !w.hasOther(e.Key, e.Block.Sum()) {
		return err
	}
	if err := w.to.Delete(ctx, []key.Key{e.Key}); err != nil {
		return fmt.Errorf("write to %s: other bytes under the key stay: %w", w.place, err)
	}
	w.stack.count.replaced.Add(1)
	return w.to.Put(ctx, e)
}

// hasOther reports whether the tier, if it knows the sums of what it has, has
// other bytes under k than those that sum to sum, or may have.
func (w *writer) hasOther(k key.Key, sum uint64) bool {
	t, ok := under[Summed](w.to)
	if !ok {
		return false
	}
	have, _, known := t.Sum(k)
	return !known || have != sum
}

// has reports whether the tier is known to have a chunk with these bytes.
func (w *writer) has(k key.Key, sum uint64) bool {
	return w.stack.indexed(w.place, k) && !w.hasOther(k, sum)
}

// trim makes room below and tells the index; false if none could be made.
func (w *writer) trim(ctx context.Context, res Resident, n int64) bool {
	gone, err := res.Trim(ctx, n, nil)
	w.stack.settle(w.place, gone...)
	if err != nil {
		w.stack.log.Debug().Err(err).Stringer("tier", w.place).Msg("trim failed")
	}
	return len(gone) > 0 || err == nil
}
