package writeback

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/kvstored/kvstored/internal/explain"
	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
	"github.com/kvstored/kvstored/tier"
)

// dropReasons is how many reasons there are for a writer to drop a chunk.
const dropReasons = explain.Lost + 1

func dropReason(err error) explain.Decline {
	switch {
	case errors.Is(err, tier.ErrOff):
		return explain.WhileOff
	case errors.Is(err, tier.ErrNoSpace), errors.Is(err, tier.ErrTooLarge):
		return explain.NoRoom
	case errors.Is(err, errBudget):
		return explain.WriteBudget
	case errors.Is(err, tier.ErrCorrupt):
		return explain.BadPayload
	case errors.Is(err, context.Canceled):
		return explain.Stopped
	}
	return explain.WriteFailed
}

// Volume is a number of chunks and the bytes in them.
type Volume struct {
	Chunks uint64 `json:"chunks"`
	Bytes  uint64 `json:"bytes"`
}

// Plus and Minus count both.
func (v Volume) Plus(o Volume) Volume { return Volume{v.Chunks + o.Chunks, v.Bytes + o.Bytes} }

// Minus is what v is above o.
func (v Volume) Minus(o Volume) Volume { return Volume{v.Chunks - o.Chunks, v.Bytes - o.Bytes} }

// Counter counts a Volume.
type Counter struct{ chunks, bytes atomic.Uint64 }

// Load is how much was counted.
func (v *Counter) Load() Volume { return Volume{v.chunks.Load(), v.bytes.Load()} }

// Add counts one chunk more, and returns how many there are.
func (v *Counter) Add(bytes uint32) (chunks uint64) {
	v.bytes.Add(uint64(bytes))
	return v.chunks.Add(1)
}

type counters struct {
	written Counter
	dropped [dropReasons]Counter

	evictLog *explain.EvictLog
	place    tier.Place // that is written to
}

// drop counts a chunk that is not written, and notes why, unless the reason is that the
// chunk was gone. It returns how many were dropped for that reason so far.
func (c *counters) drop(r *tier.Record, why explain.Decline) uint64 {
	if why < explain.Gone {
		c.evictLog.Add(r.Key, explain.Note{Reason: explain.Declined, Tier: uint8(c.place), Detail: uint8(why)})
	}
	return c.dropped[why].Add(r.Size)
}

// Written is what one tier below DRAM was given so far.
type Written struct {
	Written Volume                     `json:"written"`
	Dropped map[explain.Decline]Volume `json:"dropped"` // reasons that have occurred
	Waiting int                        `json:"waiting"` // chunks not yet written
	Missed  int                        `json:"missed"`  // of those dropped, chunks that will be offered again
	Workers int                        `json:"workers"` // that write at a time
	// Held says that chunks wait until DRAM evicts them, as the tier is full; HeldBytes is
	// what does.
	Held      bool  `json:"held"`
	HeldBytes int64 `json:"held_bytes"`
}

// Written returns the totals per tier since the start.
func (s *Writers) Written() map[tier.Place]Written {
	out := make(map[tier.Place]Written, len(s.list))
	for _, w := range s.list {
		out[w.to.Place] = w.tell()
	}
	return out
}

// tell says how many chunks wait at most, whether until DRAM evicts them, and the bytes that
// do. The queue also has chunks that DRAM has evicted and that were written as victims; it
// finds them later, so DRAM says how much it alone has, and no tier below.
func (w *Writer) tell() Written {
	dram, has := w.writers.o.Hot.Ledger().Stats(), w.queue.sums()
	out := Written{
		Written: w.count.written.Load(),
		Dropped: make(map[explain.Decline]Volume),
		Waiting: has.waiting,
		Missed:  int(has.retry.Chunks),
		Workers: w.queue.workers,
		Held:    w.Defers(),
	}
	if out.Held {
		if w.nearer == nil {
			out.Waiting -= max(0, has.pending-dram.DirtyEntries)
		}
		out.HeldBytes = min(has.pendingBytes, dram.DirtyBytes)
	}
	for r := range dropReasons {
		if v := w.count.dropped[r].Load(); v.Chunks > 0 {
			out.Dropped[r] = v
		}
	}
	return out
}

// dirty is the chunks that only DRAM has and the tier below has neither declined nor evicted,
// which is its decision; with dropped those of them that its writer has given up.
func (s *Writers) dirty(dropped bool) (v Volume) {
	if s.o.Hot.Ledger().Stats().DirtyEntries == 0 {
		return v
	}
	ledger.EachDirty(s.o.Hot.Ledger(), func(e *ledger.Entry) {
		if !tier.Declined(e.Value) && (!dropped || tier.Dropped(e.Value)) {
			v = v.Plus(Volume{1, uint64(e.Size)})
		}
	})
	return v
}

// Unflushed is the chunks that are in DRAM only and stay there, or not in a tier behind that
// failed, and why: a flush does not write them. told is the chunks that were told of before.
func (s *Writers) Unflushed(told Volume) (reason string, v Volume) {
	if len(s.list) == 0 {
		st := s.o.Hot.Stats()
		return "no_tier", Volume{uint64(st.Entries), uint64(st.PayloadBytes)}
	}
	v = s.dirty(true)
	for _, w := range s.list[1:] {
		v = v.Plus(w.queue.sums().retry)
	}
	if v.Chunks <= told.Chunks {
		return "", Volume{}
	}
	return "dropped_before", Volume{v.Chunks - told.Chunks, v.Bytes - min(v.Bytes, told.Bytes)}
}

// Flush returns when everything committed before the call has been written
// below or dropped: a chunk that is written survives the end of the process.
// With durable it survives a power failure too; chunks that a tier had to drop,
// as an earlier sync of them failed, are written again from DRAM. Written has the dropped
// chunks, and why. The policy of a tier has no say: a flush wants all of it there, also
// what the tier declined, or evicted, while DRAM has it.
func (s *Writers) Flush(ctx context.Context, durable bool) error {
	for _, w := range s.list {
		w.offerDeclined(true)
		if err := w.Flush(ctx, durable, true); err != nil {
			return err
		}
	}
	return nil
}

// Flush is that into one tier. Unless it is forced that may decline chunks.
func (w *Writer) Flush(ctx context.Context, durable, forced bool) error {
	for again := true; again; {
		drops := w.syncs.drops.Load()
		err := w.flush(ctx, forced)
		if w.to.Recoverer != nil && durable && err == nil {
			err = w.Sync(ctx)
		}
		if err != nil {
			return fmt.Errorf("flush to %s: %w", w.to.Place, err)
		}
		// What this call has synced is not all that it was to write.
		again = durable && w.syncs.drops.Load() != drops
	}
	return nil
}

func (w *Writer) flush(ctx context.Context, forced bool) error {
	written := w.count.written.chunks.Load()
	w.probeForRetry()
	target := w.queue.beginFlush(true, forced)
	defer w.queue.endFlush(target)
	for handed := false; ; {
		switch err := w.queue.awaitFlush(ctx, target); {
		case err != nil:
			return err
		case !handed: // a chunk that has left DRAM and the queue may not be a victim here yet
			w.writers.o.Hot.HandedOver()
			handed = true
		case !w.queue.offerRest(&written):
			return nil
		}
	}
}

// probeForRetry has a tier tried that is off and lacks chunks: an operator wants to know.
func (w *Writer) probeForRetry() {
	if w.queue.sums().retry.Chunks > 0 {
		w.to.Probe()
	}
}

// flushes is the flushes of a writer. Each waits for the generations before its
// own. The queue's mutex guards it.
type flushes struct {
	gen     uint64 // what is enqueued now belongs to this generation
	forced  uint64 // generations below are written whatever the mode says
	wanted  uint64 // and these whatever the policy of the tier says
	waiting map[uint64]struct{}
}

// force begins a generation and has all before it written.
func (f *flushes) force() (gen uint64) {
	f.gen++
	f.forced = f.gen
	return f.gen
}

// awaited is the generation of the chunks committed before any of the flushes
// that wait began, as far as is known.
func (f *flushes) awaited() uint64 {
	gen := f.gen
	for target := range f.waiting {
		gen = min(gen, target-1)
	}
	return gen
}

// beginFlush ends a generation and returns the number of the next. With retries chunks in
// retry are offered again, also to a tier that is off.
func (q *queue) beginFlush(retries, forced bool) uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	if retries {
		q.offer(math.MaxInt)
	}
	target := q.mu.flushes.force()
	q.mu.flushes.waiting[target] = struct{}{}
	if forced {
		q.mu.flushes.wanted = target
	}
	q.more()
	return target
}

func (q *queue) endFlush(target uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.mu.flushes.waiting, target)
}

// awaitFlush waits until all of the generations before target is done. It fails if workers
// have ended before.
func (q *queue) awaitFlush(ctx context.Context, target uint64) error {
	open := false
	err := q.await(ctx, func() bool {
		open = q.mu.backlog.openBefore(target)
		return !open || q.mu.stopped
	})
	if err == nil && open {
		err = fmt.Errorf("writing behind has stopped: %w", tier.ErrClosed)
	}
	return err
}

// offerRest offers again the chunks that were put off while the tier came back,
// and reports whether there were any. since is how many chunks had been written
// when they were offered last; if there are no more there is no hope. A tier that is being
// scanned has room for some chunks, and for others once the scan is over.
func (q *queue) offerRest(since *uint64) bool {
	n := q.count.written.chunks.Load()
	q.mu.Lock()
	defer q.mu.Unlock()
	if n == *since || q.mu.backlog.retry.len() == 0 || q.to.Scanning() {
		return false
	}
	*since = n
	q.offer(math.MaxInt)
	return true
}

// Left is what a tier below DRAM was not given when the daemon ended.
type Left struct {
	Volume
	Err error // why; nil where the tier would not take it
}

// FlushLast is the flush of a daemon that ends: durable, into all tiers at once
// and until ctx ends, the most valuable chunks first. No client may store any more. It
// returns what each tier is left without; a tier that has all is not named. What a
// tier's policy declines is not left: it is asked as it is when DRAM evicts a chunk.
func (s *Writers) FlushLast(ctx context.Context) map[tier.Place]Left {
	errs := make([]error, len(s.list))
	var flushes sync.WaitGroup
	for i, w := range s.list {
		flushes.Go(func() {
			w.offerDeclined(false)
			w.valuableFirst()
			errs[i] = w.Flush(ctx, true, false)
		})
	}
	flushes.Wait()
	left := make(map[tier.Place]Left)
	for i, w := range s.list {
		if v := w.left(); v.Chunks > 0 || errs[i] != nil {
			left[w.to.Place] = Left{v, errs[i]}
		}
	}
	return left
}

// left is what the tier lacks and would have taken.
func (w *Writer) left() (v Volume) {
	for _, r := range w.writers.transit.of(&w.queue, func(key.Key) bool { return true }) {
		v = v.Plus(Volume{1, uint64(r.Size)})
	}
	if w.rank == 1 {
		return v.Plus(w.writers.dirty(false))
	}
	has := w.queue.sums() // victims are among those that wait
	return Volume{uint64(has.waiting) + has.retry.Chunks, v.Bytes + uint64(has.bytes)}
}

// valuableFirst orders the chunks that a writer has to write by their uses: the
// most often used first, but no chunk before the prefix it stands on, for it is of
// use only with all before it. Of equals the youngest goes first. Chunks in retry
// are among them.
func (w *Writer) valuableFirst() {
	w.probeForRetry()
	list := w.queue.takeAll()
	ranked := make([]rankedItem, len(list))
	for i, of := range list {
		e, _ := w.writers.o.Hot.Ledger().Find(of.rec.Key)
		ranked[i] = rankedItem{item: of, uses: e.Hits, age: len(list) - i}
	}
	rankItems(ranked)
	var left fifo[item]
	for _, r := range ranked {
		left.push(r.item)
	}
	w.queue.giveBack(&left)
}

// rankedItem is a chunk that is to be written, with its uses: how often it was
// used, and no more than what the chunk before it is worth.
type rankedItem struct {
	item
	uses uint8
	age  int // 1 is the youngest
}

// rankItems sorts by worth.
func rankItems(is []rankedItem) {
	slices.SortFunc(is, func(a, b rankedItem) int { return cmp.Compare(a.rec.Depth, b.rec.Depth) })
	uses := make(map[key.Key]uint8, len(is))
	for n := range is {
		i := &is[n]
		if before, ok := uses[key.Key{Space: i.rec.Key.Space, Hash: i.rec.Parent}]; ok {
			i.uses = min(i.uses, before)
		}
		uses[i.rec.Key] = i.uses
	}
	slices.SortFunc(is, func(a, b rankedItem) int {
		return cmp.Or(cmp.Compare(b.uses, a.uses), cmp.Compare(a.rec.Depth, b.rec.Depth), cmp.Compare(a.age, b.age))
	})
}
