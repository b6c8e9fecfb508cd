package budget

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// restLook is the time between two looks at what a daemon does, and so the least
	// that it must have been at rest before its memory is given back: clients that go
	// on would need it again.
	restLook = 5 * time.Second
	// restTurn is the most that is turned over from look to look while a daemon rests:
	// answers with its metrics, and the like. One that does more is left to the
	// runtime, which collects often then.
	restTurn = 2 << 20
	// restBytes is how much must have been turned over before memory is given back.
	restBytes = 4 << 20
	// restFree is how much more of the heap must be free than then, where less was turned
	// over: the runtime has collected on its own since, and keeps the pages.
	restFree = 2 << 20
)

// rest says when the memory of a daemon is given back: once after each time of work,
// when that has ended. Whether work left garbage behind, only another collection would
// tell. So rest goes by what may have become garbage, which is turned over: all that
// was allocated, and all that clients have let go of, be it without a further
// allocation. One goroutine uses it.
type rest struct {
	seen int64 // bytes turned over at the last look, since the start
	gave int64 // and when memory was last given back
	kept int64 // the least that was free at a look since, and right after
}

// due reports whether little was turned over since the last look, and much since memory
// was last given back, or much is free; it is given back then.
func (r *rest) due(turned, free int64) bool {
	little := turned-r.seen <= restTurn
	r.seen, r.kept = turned, min(r.kept, free)
	if !little || turned-r.gave < restBytes && free-r.kept < restFree {
		return false
	}
	r.gave = turned
	return true
}

// Run gives memory back to the system when the daemon has come to rest, until ctx
// ends. The runtime would keep it until the next collection, which may be minutes away
// when little is allocated, and lets the heap grow to twice its live bytes then.
func (b *Budget) Run(ctx context.Context) error {
	if b == nil {
		return nil
	}
	go b.watchGhosts(ctx.Done())
	looks := time.NewTicker(restLook)
	defer looks.Stop()
	for {
		select {
		case <-looks.C:
		case <-ctx.Done():
			return nil
		}
		b.limitHeap()
		if b.rest.due(b.turned(), b.free()) {
			b.trim()
			b.rest.kept = b.free()
		}
	}
}

// turned is the bytes turned over since the start.
func (b *Budget) turned() int64 {
	b.mu.Lock()
	given := b.mu.given
	b.mu.Unlock()
	return b.allocated() + given
}

// trim collects the heap twice, as pools and finalizers keep theirs over one
// collection, and gives the system all free pages.
func trim() {
	runtime.GC()
	debug.FreeOSMemory()
}

// allocatedBytes is all that the Go heap has allocated since the start.
func allocatedBytes() int64 { return measure("/gc/heap/allocs:bytes") }

// freeBytesOfHeap is the free pages of the Go heap that the system has not got back.
func freeBytesOfHeap() int64 { return measure("/memory/classes/heap/free:bytes") }

// measure reads a number of the runtime. Nothing stops for it.
func measure(name string) int64 {
	sample := [1]metrics.Sample{{Name: name}}
	metrics.Read(sample[:])
	return int64(sample[0].Value.Uint64())
}
