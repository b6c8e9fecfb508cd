package tier

import (
	"context"
	"errors"

	"github.com/kvstored/kvstored/internal/ledger"
	"github.com/kvstored/kvstored/key"
)

// committed takes note of new chunks of one chain, from.. of c, and of how
// large they are.
func (w *writer) committed(c *key.Chain, from int, sizes []uint32) {
	if w.mode == WriteSelective || !w.takes(c.Space) {
		return // selective: touched will say when
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for n, size := range sizes {
		w.enqueue(recordAt(c, from+n, size), w.mu.gen)
	}
	w.more()
}

// touched takes up chunks that have been used often enough; Hits is without
// the use that refs were taken for. A policy that plans and did not find a
// chunk worth writing has another look at it.
func (w *writer) touched(c *key.Chain, from int, refs []Ref) {
	if w.mode != WriteSelective && (w.planner == nil || w.mode == WriteBack || !w.planner.Plans()) || !w.takes(c.Space) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	some := false
	for n, r := range refs {
		if !r.Dirty || w.mode == WriteSelective && r.Hits+1 < w.minHits {
			continue
		}
		rec := recordAt(c, from+n, uint32(r.Block.Len()))
		if _, waits := w.mu.queued[rec.Key]; !waits {
			w.enqueue(rec, w.mu.gen)
			some = true
		}
	}
	if some {
		w.more()
	}
}

// promoted takes up a chunk that came from a tier further away.
func (w *writer) promoted(r Record) {
	if w.mode != WriteThrough {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.enqueue(r, w.mu.gen)
	w.more()
}

// recordAt is what is known of chunk i of c before its checksum is.
func recordAt(c *key.Chain, i int, size uint32) Record {
	return Record{Key: c.Key(i), Parent: c.Parent(i), Depth: c.Depth(i), Tokens: c.Tokens[i], Size: size}
}

// enqueue is called with the mutex held, and more after the last.
func (w *writer) enqueue(r Record, gen uint64) {
	if w.mode == WriteSelective || w.planner != nil {
		if _, twice := w.mu.queued[r.Key]; twice && w.mode == WriteSelective {
			return
		}
		w.mu.queued[r.Key] = struct{}{}
	}
	w.mu.dirty.push(dirtyKey{rec: r, gen: gen})
	w.mu.behind += int64(r.Size)
	w.mu.open[gen]++
}

// more wakes one worker; that one wakes the next if there is work for both.
func (w *writer) more() {
	select {
	case w.work <- struct{}{}:
	default:
	}
}

// caughtUp waits until the chunks that are neither written nor protected are
// few enough that DRAM can do without evicting them. With write-back they are
// meant to wait.
func (w *writer) caughtUp(ctx context.Context) error {
	for w.mode != WriteBack {
		w.mu.Lock()
		if w.mu.behind <= w.maxBehind || w.mu.stopped {
			w.mu.Unlock()
			return nil
		}
		change := w.changed()
		w.mu.Unlock()
		select {
		case <-change:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// changed returns a channel that is closed at the next change; called with
// the mutex held.
func (w *writer) changed() <-chan struct{} {
	if w.mu.change == nil {
		w.mu.change = make(chan struct{})
	}
	return w.mu.change
}

// wake is called with the mutex held.
func (w *writer) wake() {
	if w.mu.change != nil {
		close(w.mu.change)
		w.mu.change = nil
	}
}

// next returns the next chunk to write. If only a budget is in the way, one
// worker is told to watch it: released is closed when there is more room.
func (w *writer) next() (t writeTask, released <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.ready.len() == 0 {
		released = w.protectNext()
	}
	if w.mu.ready.len() == 0 {
		if w.mu.watched {
			return writeTask{}, nil
		}
		w.mu.watched = released != nil
		return writeTask{}, released
	}
	t = w.mu.ready.pop()
	t.vain = !w.wants(&t)
	t.again = w.markVain(&t)
	at := w.mu.writing[t.rec.Key]
	at.tasks++
	at.wanted = at.wanted || !t.vain
	w.mu.writing[t.rec.Key] = at
	if w.mu.ready.len() > 0 || w.mu.dirty.len() > 0 || w.mu.offered.len() > 0 {
		w.more()
	}
	return t, nil
}

// source is the list whose front is to be written next; nil if there is none.
func (w *writer) source() *fifo[dirtyKey] {
	switch {
	case w.mu.offered.len() > 0:
		return &w.mu.offered
	case w.mu.sifting || w.mu.dirty.len() == 0:
		return nil
	case w.mode == WriteBack && w.mu.dirty.front().gen >= w.mu.forced:
		return nil
	}
	return &w.mu.dirty
}

// protectNext moves dirty chunks to ready as far as the budget allows. If
// that ends it, the result is closed when there may be more.
func (w *writer) protectNext() (released <-chan struct{}) {
	for from := w.source(); from != nil && w.mu.ready.len() < w.workers; from = w.source() {
		d := *from.front()
		if w.maxHeld > 0 && w.mu.held > 0 && w.mu.held+int64(d.rec.Size) > w.maxHeld {
			return nil // letGo wakes a worker
		}
		var refs [1]Ref
		n, err := w.stack.hot.Hold(ledger.Daemon, ledger.Unwritten, []key.Key{d.rec.Key}, refs[:])
		switch {
		case errors.Is(err, ledger.ErrBusy) && released == nil:
			released = w.stack.hot.Ledger().Released() // taken before the next try, to miss nothing
			continue
		case errors.Is(err, ledger.ErrBusy):
			return released
		}
		released = nil
		from.pop()
		if from == &w.mu.dirty {
			w.mu.behind -= int64(d.rec.Size)
		}
		if n == 1 {
			w.mu.held += int64(d.rec.Size)
			w.mu.ready.push(writeTask{rec: d.rec, ref: refs[0], missed: d.missed, failed: d.failed, gen: d.gen})
			continue
		}
		if err == nil && w.nearer != nil { // or deleted: raise will tell
			w.mu.held += int64(d.rec.Size)
			w.mu.ready.push(writeTask{rec: d.rec, below: true, missed: d.missed, failed: d.failed, gen: d.gen})
			continue
		}
		delete(w.mu.queued, d.rec.Key)
		if err != nil { // larger than the queue can ever be
			w.count.drop(DropQueueFull, d.rec.Size)
		}
		w.finish(d.gen) // else evicted or deleted
	}
	return nil
}

// finish is called with the mutex held.
func (w *writer) finish(gen uint64) {
	if w.mu.open[gen]--; w.mu.open[gen] == 0 {
		delete(w.mu.open, gen)
	}
	w.wake()
}

// writing reports whether chunks are on their way to the tiers below. Chunks
// that wait until DRAM evicts them set out now: the caller needs the room
// that they take by what stands on them.
func (s *Stack) writing() (busy bool) {
	for _, w := range s.writers {
		busy = w.setOut() || busy
	}
	return busy
}

// setOut reports whether the writer is at work, or will be now.
func (w *writer) setOut() bool {
	if isOff(w.to) {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mode == WriteBack && w.mu.dirty.len() > 0 && w.source() == nil && !w.mu.sifting {
		w.mu.gen++
		w.mu.forced = w.mu.gen
		w.more()
	}
	return w.mu.ready.len() > 0 || w.mu.held > 0 || len(w.mu.writing) > 0 || w.mu.sifting || w.source() != nil
}
