package budget

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"
)

const (
	// trimBytes is how much must have become free to be given back at once. Less
	// is given back by the runtime, within some minutes.
	trimBytes = 8 << 20
	// trimPause is from then to giving it back, and between two times: a client
	// that goes on would need it again.
	trimPause = 2 * time.Second
	// socketStep is how much the sockets grow before the limit of the heap is set
	// anew, which stops the world for some microseconds.
	socketStep = 16 << 20
	// collectPause is the least from one collection for sockets to the next: each
	// takes a processor for some time, and little has become free since.
	collectPause = 500 * time.Millisecond
	// leastHeap is the limit that the heap has at least.
	leastHeap = 128 << 20
)

// Run gives memory back to the system after connections have let go of much of
// it, and once a daemon has come to do little, until ctx ends. The
// runtime would keep it until the next collection, which may be minutes away when
// little is allocated, and lets the heap grow to twice its live bytes then.
func (b *Budget) Run(ctx context.Context) error {
	if b == nil {
		return nil
	}
	go b.watchGhosts(ctx.Done())
	looks := time.NewTicker(restLook)
	defer looks.Stop()
	for {
		select {
		case <-b.fell:
		case <-looks.C:
			if b.rest.due(b.allocated()) {
				b.trim()
			}
			continue
		case <-ctx.Done():
			return nil
		}
		select {
		case <-time.After(trimPause):
		case <-ctx.Done():
			return nil
		}
		if b.o.HeapBytes > 0 {
			b.heap.Lock()
			b.heap.limit(b.o.HeapBytes, b.sockets.Load())
			b.heap.Unlock()
		}
		if b.fallen() {
			b.trim()
		}
	}
}

// trim collects the heap twice, as pools and finalizers keep what they have over one
// collection, and gives the system all free pages.
func trim() {
	runtime.GC()
	debug.FreeOSMemory()
}

// fallen reports whether half of the most that was used since it was last true is
// free, and much: a use that falls slowly has fallen in the end.
func (b *Budget) fallen() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	free := b.mu.peak - b.mu.used
	if free < trimBytes || free < b.mu.used {
		return false
	}
	b.mu.peak = b.mu.used
	return true
}

// heap is the Go heap, garbage included. Its mutex is held while it is collected:
// what waits for it is sockets that need the memory.
type heap struct {
	sync.Mutex
	samples []metrics.Sample
	// collected is when sockets have last had the heap collected.
	collected time.Time
	step      int64 // of the sockets, for which the limit was set
}

// bytes is the memory that the runtime has from the system. Called with the mutex
// held.
func (h *heap) bytes() int64 {
	if h.samples == nil {
		h.samples = []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	}
	metrics.Read(h.samples)
	return int64(h.samples[0].Value.Uint64() - h.samples[1].Value.Uint64())
}

// socketsGrew has the heap collected where it and the sockets, which are about to
// have n bytes more, would take more than both may. Sockets that grow wait for it.
func (b *Budget) socketsGrew(n int64) {
	now := b.sockets.Add(n)
	if b.o.HeapBytes == 0 {
		return
	}
	b.heap.Lock()
	defer b.heap.Unlock()
	b.heap.limit(b.o.HeapBytes, now)
	if b.heap.bytes()+now > b.o.HeapBytes-socketStep {
		if time.Since(b.heap.collected) > collectPause {
			debug.FreeOSMemory()
			b.heap.collected = time.Now()
		}
	}
}

// limit has the runtime keep to what the sockets leave of most, when that has
// changed by a step. Called with the mutex held.
func (h *heap) limit(most, sockets int64) {
	if step := sockets / socketStep; step != h.step {
		h.step = step
		debug.SetMemoryLimit(max(most-(step+1)*socketStep, leastHeap))
	}
}
