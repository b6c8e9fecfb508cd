package tier

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
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
	dropReasons
)

func (r DropReason) String() string {
	return [...]string{"queue_full", "tier_off", "no_space", "corrupt", "write_budget", "failed", "stopped", "not_worth", "gone"}[r]
}

// MarshalText makes a reason a key of a JSON object.
func (r DropReason) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

func dropReason(err error) DropReason {
	switch {
	case errors.Is(err, ErrOff):
		return DropTierOff
	case errors.Is(err, ErrNoSpace), errors.Is(err, ErrTooLarge):
		return DropNoSpace
	case errors.Is(err, errBudget):
		return DropBudget
	case errors.Is(err, ErrCorrupt):
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

type writeCounters struct {
	written  volume
	filtered volume // selective: evicted before it was used often enough
	dropped  [dropReasons]volume
}

func (c *writeCounters) add(v *volume, n uint32) (chunks uint64) {
	v.bytes.Add(uint64(n))
	return v.chunks.Add(1)
}

// drop returns how many chunks were dropped for that reason so far.
func (c *writeCounters) drop(r DropReason, n uint32) uint64 { return c.add(&c.dropped[r], n) }

// Written is what one tier below DRAM was given so far.
type Written struct {
	Written  Volume                `json:"written"`
	Filtered Volume                `json:"filtered"` // never used often enough (write mode selective)
	Dropped  map[DropReason]Volume `json:"dropped"`  // reasons that have occurred
	Waiting  int                   `json:"waiting"`  // chunks not yet written
	Missed   int                   `json:"missed"`   // of those dropped, chunks that will be offered again
}

// Written returns the totals per tier since the start.
func (s *Stack) Written() map[Place]Written {
	out := make(map[Place]Written, len(s.writers))
	for _, w := range s.writers {
		wr := Written{
			Written:  w.count.written.load(),
			Filtered: w.count.filtered.load(),
			Dropped:  make(map[DropReason]Volume),
			Waiting:  w.waiting(),
			Missed:   int(w.missing().Chunks),
		}
		for r := range dropReasons {
			if v := w.count.dropped[r].load(); v.Chunks > 0 {
				wr.Dropped[r] = v
			}
		}
		out[w.place] = wr
	}
	return out
}

// Kept is what is in DRAM only and stays there, or not in a tier behind that
// failed, and why: a flush does not write it. told is what has been said of it
// already.
func (s *Stack) Kept(told Volume) (reason string, v Volume) {
	if len(s.writers) == 0 {
		st := s.hot.Stats()
		return "no_tier", Volume{uint64(st.Entries), uint64(st.PayloadBytes)}
	}
	l := s.hot.Ledger().Stats()
	v = Volume{uint64(l.DirtyEntries), uint64(l.DirtyBytes)}
	if s.writers[0].mode == WriteSelective {
		return "min_hits", v
	}
	for _, w := range s.writers[1:] {
		v = v.Plus(w.missing())
	}
	told.Chunks += uint64(s.writers[0].waiting()) // what came meanwhile
	if v.Chunks <= told.Chunks {
		return "", Volume{}
	}
	return "dropped_before", Volume{v.Chunks - told.Chunks, v.Bytes - min(v.Bytes, told.Bytes)}
}

// Flush returns when everything committed before the call has been written
// below or dropped: what is written then survives the end of the process.
// With durable it survives a power failure too. What was dropped, and why,
// is in Written. Write mode selective stays selective: what was not used often
// enough is not written.
func (s *Stack) Flush(ctx context.Context, durable bool) error {
	for _, w := range s.writers {
		if err := w.flushTo(ctx, durable); err != nil {
			return err
		}
	}
	return nil
}

// flushTo is Flush into one tier.
func (w *writer) flushTo(ctx context.Context, durable bool) error {
	err := w.flush(ctx)
	if r, ok := w.to.(Recoverer); ok && durable && err == nil {
		err = r.Sync(ctx)
	}
	if err != nil {
		return fmt.Errorf("flush to %s: %w", w.place, err)
	}
	return nil
}

// SyncDisk makes what is on disk survive a power failure. To a disk that is
// switched off it is a probe. Without a disk it does nothing.
func (s *Stack) SyncDisk(ctx context.Context) error {
	r, ok := s.tiers[Disk].(Recoverer)
	if !ok {
		return nil
	}
	if err := r.Sync(ctx); err != nil {
		return fmt.Errorf("sync %s: %w", Disk, err)
	}
	return nil
}

func (w *writer) flush(ctx context.Context) error {
	written := w.count.written.chunks.Load()
	target := w.beginFlush()
	defer w.endFlush(target)
	handed := false
	for {
		change, err := w.unfinished(target)
		if change == nil {
			switch {
			case err != nil:
				return err
			case !handed: // what has left DRAM and the queue may not be a victim here yet
				w.stack.hot.HandedOver()
				handed = true
			case !w.offerRest(&written):
				return nil
			}
			continue
		}
		select {
		case <-change:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// beginFlush ends a generation and returns the number of the next. What was
// missed is offered again, also to a tier that is off: somebody wants to know.
func (w *writer) beginFlush() uint64 {
	w.probe()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.offer(math.MaxInt)
	w.mu.gen++
	w.mu.forced = w.mu.gen
	w.mu.flushes[w.mu.gen] = struct{}{}
	w.more()
	return w.mu.gen
}

func (w *writer) endFlush(target uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.mu.flushes, target)
}

// unfinished returns what to wait for while something of the generations
// before gen is not done, and nil once it is, or nobody does it any more.
func (w *writer) unfinished(gen uint64) (<-chan struct{}, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for g, n := range w.mu.open {
		switch {
		case g >= gen || n == 0:
		case w.mu.stopped:
			return nil, fmt.Errorf("writing behind has stopped: %w", ErrClosed)
		default:
			return w.changed(), nil
		}
	}
	return nil, nil
}

func (w *writer) waiting() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, open := range w.mu.open {
		n += open
	}
	return n
}
