package tier

import (
	"context"
	"math"
	"time"
)

const (
	// maxMissed bounds what is remembered of a tier in trouble, at some 90 bytes
	// a chunk. Beyond it the oldest is forgotten.
	maxMissed = 1 << 18
	// maxFailed is how often a chunk is offered to a tier that works and yet
	// fails: the reason may be the chunk.
	maxFailed = 3
	// offerEvery is how often what was missed is offered again.
	offerEvery = 2 * time.Second
)

// again decides what becomes of a chunk that the tier did not take. It is
// offered again once the tier works if it is to be found by its name then: in
// DRAM, or in a nearer tier. A victim of DRAM's is nowhere but in its block.
func (w *writer) again(t *writeTask, r DropReason) outcome {
	switch r {
	case DropTierOff:
		w.seemsOff()
	case DropFailed:
		if t.failed++; t.failed == maxFailed {
			return refused
		}
	default:
		return refused
	}
	if t.victim > 0 {
		return refused
	}
	return missed
}

// miss remembers a chunk; called with the mutex held.
func (w *writer) miss(d dirtyKey) {
	if w.mu.missed.len() == maxMissed {
		delete(w.mu.queued, w.unmiss().rec.Key)
	}
	d.missed = true
	w.mu.lacks += int64(d.rec.Size)
	w.mu.missed.push(d)
}

// unmiss takes the oldest out; called with the mutex held.
func (w *writer) unmiss() dirtyKey {
	d := w.mu.missed.pop()
	w.mu.lacks -= int64(d.rec.Size)
	return d
}

// missHere remembers a chunk that a nearer tier has.
func (w *writer) missHere(r Record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.off = true
	w.miss(dirtyKey{rec: r})
}

// offer has up to n of what was missed tried again; flushes that wait do so for
// that too. Called with the mutex held.
func (w *writer) offer(n int) {
	for range min(n, w.mu.missed.len()) {
		d := w.unmiss()
		d.gen = w.awaited()
		w.mu.offered.push(d)
		w.mu.open[d.gen]++
	}
	w.more()
}

// offerRest offers again what was missed while the tier came back, and reports
// whether that was anything. since is how many chunks had been written when it
// was offered last; if there are no more there is no hope.
func (w *writer) offerRest(since *uint64) bool {
	n := w.count.written.chunks.Load()
	w.mu.Lock()
	defer w.mu.Unlock()
	if n == *since || w.mu.missed.len() == 0 {
		return false
	}
	*since = n
	w.offer(math.MaxInt)
	return true
}

// missing is what will be offered again.
func (w *writer) missing() Volume {
	w.mu.Lock()
	defer w.mu.Unlock()
	return Volume{uint64(w.mu.missed.len()), uint64(w.mu.lacks)}
}

// prober is a tier that is probed now and then while it is off.
type prober interface{ ProbeNow() }

// probe has a tier that is off tried at the next write, if it lacks anything.
func (w *writer) probe() {
	if b, ok := under[prober](w.to); ok && w.missing().Chunks > 0 {
		b.ProbeNow()
	}
}

// keepOffering offers again what was missed. While the tier may still be off
// that is one chunk at a time.
func (w *writer) keepOffering(ctx context.Context) error {
	tick := time.NewTicker(offerEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		if !isOff(w.to) {
			w.offerSome()
		}
	}
}

func (w *writer) offerSome() {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := math.MaxInt
	if w.mu.off {
		n = 1
	}
	w.offer(n)
}

// seemsOff and works note how the last write went.
func (w *writer) seemsOff() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.off = true
}

func (w *writer) works() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.off {
		w.mu.off = false
		w.offer(math.MaxInt)
	}
}
