package budget

import (
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"
)

const (
	// socketStep is how much the sockets grow before the limit of the heap is set
	// anew, which stops the world for some microseconds.
	socketStep = 16 << 20
	// collectPause is the least from one collection for sockets to the next: each
	// takes a processor for some time, and little has become free since.
	collectPause = 500 * time.Millisecond
	// leastHeap is the limit that the heap has at least.
	leastHeap = 128 << 20
)

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

// limitHeap sets the limit of the heap anew: sockets may hold less than they did.
func (b *Budget) limitHeap() {
	if b.o.HeapBytes == 0 {
		return
	}
	b.heap.Lock()
	defer b.heap.Unlock()
	b.heap.limit(b.o.HeapBytes, b.sockets.Load())
}

// limit has the runtime keep to what the sockets leave of most, when that has
// changed by a step. Called with the mutex held.
func (h *heap) limit(most, sockets int64) {
	if step := sockets / socketStep; step != h.step {
		h.step = step
		debug.SetMemoryLimit(max(most-(step+1)*socketStep, leastHeap))
	}
}
