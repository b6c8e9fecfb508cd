package stack

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"

	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/internal/missing"
	"github.com/kvstored/kvstored/tier"
)

// DropReason says why a chunk was not written below.
type DropReason uint8

// The reasons.
const (
	DropQueueFull DropReason = iota // DRAM needed the room before the queue had any
	DropTierOff                     // the tier is switched off after failures
	DropNoSpace                     // the tier had no room and could make none
	DropCorrupt                     // the payload no longer had its checksum
	DropBudget                      // the daily write budget was spent
	DropFailed                      // any other error of the tier
	DropStopped                     // the daemon stopped before
	DropNotWorth                    // the tier's policy has better use for the room
	DropGone                        // it had left the nearer tiers too, evicted or deleted, before it was its turn
	DropLost                        // the tier had stored it and has lost it, and no other has it; its bytes are not known
	dropReasons
)

func (r DropReason) String() string {
	return [...]string{"queue_full", "tier_off", "no_space", "corrupt", "write_budget", "failed", "stopped", "not_worth", "gone", "lost"}[r]
}

// MarshalText makes a reason a key of a JSON object.
func (r DropReason) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

func dropReason(err error) DropReason {
	switch {
	case errors.Is(err, tier.ErrOff):
		return DropTierOff
	case errors.Is(err, tier.ErrNoSpace), errors.Is(err, tier.ErrTooLarge):
		return DropNoSpace
	case errors.Is(err, errBudget):
		return DropBudget
	case errors.Is(err, tier.ErrCorrupt):
		return DropCorrupt
	case errors.Is(err, context.Canceled):
		return DropStopped
	}
	return DropFailed
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

type volume struct{ chunks, bytes atomic.Uint64 }

func (v *volume) load() Volume { return Volume{v.chunks.Load(), v.bytes.Load()} }

// add counts one chunk more, and returns how many there are.
func (v *volume) add(bytes uint32) (chunks uint64) {
	v.bytes.Add(uint64(bytes))
	return v.chunks.Add(1)
}

type writeCounters struct {
	written  volume
	filtered volume // selective: evicted before it was used often enough
	dropped  [dropReasons]volume

	absences *absences
	place    tier.Place // that is written to
}

// drop counts a chunk that is not written, and notes why, unless the reason is that the
// chunk was gone. It returns how many were dropped for that reason so far.
func (c *writeCounters) drop(r *tier.Record, why DropReason) uint64 {
	if why < DropGone {
		c.absences.declined(c.place, r.Key, missing.Decline(why))
	}
	return c.dropped[why].add(r.Size)
}

// Written is what one tier below DRAM was given so far.
type Written struct {
	Written  Volume                `json:"written"`
	Filtered Volume                `json:"filtered"` // never used often enough (write mode selective)
	Dropped  map[DropReason]Volume `json:"dropped"`  // reasons that have occurred
	Waiting  int                   `json:"waiting"`  // chunks not yet written
	Missed   int                   `json:"missed"`   // of those dropped, chunks that will be offered again
	// Held says that chunks wait until DRAM evicts them, as in mode back, and in mode
	// auto while the tier is full; HeldBytes is what does.
	Held      bool  `json:"held"`
	HeldBytes int64 `json:"held_bytes"`
}

// Written returns the totals per tier since the start.
func (s *flusher) Written() map[tier.Place]Written { return s.levels.written() }

func (ls *levels) written() map[tier.Place]Written {
	out := make(map[tier.Place]Written, len(ls.below))
	for _, l := range ls.below {
		w := l.writer
		wr := Written{
			Written:  w.count.written.load(),
			Filtered: w.count.filtered.load(),
			Dropped:  make(map[DropReason]Volume),
			Waiting:  w.waiting(),
			Missed:   int(w.missing().Chunks),
		}
		wr.Held, wr.HeldBytes = w.held()
		for r := range dropReasons {
			if v := w.count.dropped[r].load(); v.Chunks > 0 {
				wr.Dropped[r] = v
			}
		}
		out[l.place] = wr
	}
	return out
}

// flusher writes down the chunks that are only in DRAM.
type flusher struct{ *dram }

// unwritten is what only DRAM has, but for chunks that the tier below has declined or
// evicted: that is its decision.
func (s *flusher) unwritten() (v Volume) {
	if s.hot.Ledger().Stats().DirtyEntries == 0 {
		return v
	}
	ledger.EachDirty(s.hot.Ledger(), func(e *ledger.Entry) {
		if !tier.Declined(e.Value) {
			v = v.Plus(Volume{1, uint64(e.Size)})
		}
	})
	return v
}

// Unflushed is the chunks that are in DRAM only and stay there, or not in a tier behind that
// failed, and why: a flush does not write them. told is what Unflushed has said of them
// already.
func (s *flusher) Unflushed(told Volume) (reason string, v Volume) {
	if len(s.levels.below) == 0 {
		st := s.hot.Stats()
		return "no_tier", Volume{uint64(st.Entries), uint64(st.PayloadBytes)}
	}
	if s.levels.below[0].writer.when.mode == WriteSelective {
		l := s.hot.Ledger().Stats()
		return "min_hits", Volume{uint64(l.DirtyEntries), uint64(l.DirtyBytes)}
	}
	v = s.unwritten()
	for _, l := range s.levels.below[1:] {
		v = v.Plus(l.writer.missing())
	}
	told.Chunks += uint64(s.levels.below[0].writer.waiting()) // what came meanwhile
	if v.Chunks <= told.Chunks {
		return "", Volume{}
	}
	return "dropped_before", Volume{v.Chunks - told.Chunks, v.Bytes - min(v.Bytes, told.Bytes)}
}

// Flush returns when everything committed before the call has been written
// below or dropped: a chunk that is written survives the end of the process.
// With durable it survives a power failure too; chunks that a tier had to drop,
// as an earlier sync of them failed, are written again from DRAM. The dropped
// chunks, and why, are in Written. Write mode selective stays selective: a chunk that was not used
// often enough is not written. The policy of a tier has no say: a flush wants
// all of it there, also what the tier declined, or evicted, while DRAM has it.
func (s *flusher) Flush(ctx context.Context, durable bool) error {
	for _, l := range s.levels.below {
		l.writer.offerDeclined(true)
		if err := l.writer.flushTo(ctx, durable, true); err != nil {
			return err
		}
	}
	return nil
}

// flushTo is Flush into one tier. Unless it is forced that may decline chunks.
func (w *writer) flushTo(ctx context.Context, durable, forced bool) error {
	for again := true; again; {
		drops := w.drops()
		err := w.flush(ctx, forced)
		if w.to.Recoverer != nil && durable && err == nil {
			err = w.sync(ctx)
		}
		if err != nil {
			return fmt.Errorf("flush to %s: %w", w.to.place, err)
		}
		// What this call has synced is not all that it was to write.
		again = durable && w.drops() != drops
	}
	return nil
}

// SyncDisk makes what the tiers below that outlive the process have survive a
// power failure. To one that is switched off it is a probe.
func (s *flusher) SyncDisk(ctx context.Context) error { return s.sync(ctx) }

func (w *writer) flush(ctx context.Context, forced bool) error {
	written := w.count.written.chunks.Load()
	target := w.beginFlush(forced)
	defer w.endFlush(target)
	for handed := false; ; {
		err := w.await(ctx, func() bool { return !w.mu.backlog.openBefore(target) || w.mu.stopped })
		switch {
		case err != nil:
			return err
		case w.stoppedBefore(target):
			return fmt.Errorf("writing behind has stopped: %w", tier.ErrClosed)
		case !handed: // a chunk that has left DRAM and the queue may not be a victim here yet
			w.dram.hot.HandedOver()
			handed = true
		case !w.offerRest(&written):
			return nil
		}
	}
}

// flushes is the flushes of a writer. Each waits for the generations before its
// own. The writer's mutex guards it.
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

// beginFlush ends a generation and returns the number of the next. Chunks in
// retry are offered again, also to a tier that is off: an operator wants to know.
func (q *queue) beginFlush(forced bool) uint64 {
	if q.missing().Chunks > 0 {
		q.probe()
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.offer(math.MaxInt)
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

// stoppedBefore reports whether run has ended with something of the generations
// before target not done.
func (q *queue) stoppedBefore(target uint64) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.mu.stopped && q.mu.backlog.openBefore(target)
}

// offerRest offers again the chunks that were put off while the tier came back,
// and reports whether there were any. since is how many chunks had been written
// when they were offered last; if there are no more there is no hope.
func (q *queue) offerRest(since *uint64) bool {
	n := q.count.written.chunks.Load()
	q.mu.Lock()
	defer q.mu.Unlock()
	if n == *since || q.mu.backlog.retry.len() == 0 {
		return false
	}
	*since = n
	q.offer(math.MaxInt)
	return true
}

func (q *queue) waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.mu.backlog.waiting()
}
