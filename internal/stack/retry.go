package stack

import (
	"context"
	"math"
	"time"
)

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
