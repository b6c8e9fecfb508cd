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
)

// rest says when the memory of a daemon is given back: once after each time of work,
// when that has ended. Whether work left garbage behind, only another collection would
// tell. So rest goes by what may have become garbage, which is turned over: all that
// was allocated, and all that clients have let go of, be it without a further
// allocation. One goroutine uses it.
type rest struct {
	seen int64 // bytes turned over at the last look, since the start
	gave int64 // and when memory was last given back
}

// due reports whether little was turned over since the last look, and much since memory
// was last given back; it is given back then.
func (r *rest) due(turned int64) bool {
	little := turned-r.seen <= restTurn
	r.seen = turned
	if !little || turned-r.gave < restBytes {
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
		if b.rest.due(b.turned()) {
			b.trim()
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

// allocatedBytes is all that the Go heap has allocated since the start. Nothing stops
// for it.
func allocatedBytes() int64 {
	sample := [1]metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample[:])
	return int64(sample[0].Value.Uint64())
}
