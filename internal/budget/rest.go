package budget

import (
	"context"
	"net"
	"net/netip"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kvstored/kvstored/internal/base"
	"github.com/kvstored/kvstored/internal/socket"
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
	go b.watchGhosts(ctx)
	for base.Sleep(ctx, restLook) == nil {
		b.limitHeap()
		if b.rest.due(b.turned(), b.free()) {
			b.trim()
			b.rest.kept = b.free()
		}
	}
	return nil
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

const (
	// maxGhosts bounds the descriptors that are kept for ghosts.
	maxGhosts = 1024
	// ghostEvery is how often ghosts are looked at.
	ghostEvery = time.Second
)

// ghost is what a connection has left in the kernel. What a client on this machine
// has not read stays there, charged to the control group of the daemon, until the
// client reads it or closes its end too: closing ours does not help. So it is
// charged to its holder until then.
type ghost struct {
	holder Holder
	bytes  int64
	fd     int // a duplicate, by which the kernel is asked
}

// haunt keeps what an account that closes has left in its socket.
func (b *Budget) haunt(a *Account) {
	s := &a.outbox
	if s.raw == nil || s.charged.Load() == 0 {
		return
	}
	n := unread(s.raw)
	if n <= freeBytes {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.mu.ghosts) >= maxGhosts {
		return
	}
	fd, err := socket.Duplicate(s.raw)
	if err != nil {
		return
	}
	b.mu.ghosts = append(b.mu.ghosts, ghost{a.holder, n, fd})
	b.holding(a.holder).used += n
	b.holding(a.holder).ghosts += n
	b.mu.used += n
	b.sockets.Add(n)
	base.Poke(b.died)
}

// exorcise looks at the ghosts, and reports how many are left. One goroutine at a
// time may. The kernel is asked without the mutex: meanwhile haunt may add ghosts
// behind those that are looked at, and nothing else changes the list.
func (b *Budget) exorcise() int {
	b.mu.Lock()
	fds := make([]int, len(b.mu.ghosts))
	for i, g := range b.mu.ghosts {
		fds[i] = g.fd
	}
	b.mu.Unlock()
	unread := make([]int64, len(fds))
	for i, fd := range fds {
		unread[i] = b.unread(fd)
	}
	for i, fd := range fds {
		if unread[i] == 0 {
			_ = unix.Close(fd)
		}
	}
	return b.shrink(unread)
}

// shrink lowers the first ghosts to their unread bytes, drops those that have
// none, and reports how many ghosts there are then.
func (b *Budget) shrink(unread []int64) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	left := b.mu.ghosts[:0]
	for i, g := range b.mu.ghosts {
		n := g.bytes
		if i < len(unread) {
			n = unread[i]
		}
		gone := g.bytes - n
		h := b.mu.holders[g.holder]
		h.used -= gone
		h.ghosts -= gone
		b.mu.used -= gone
		b.sockets.Add(-gone)
		if g.bytes = n; n > 0 {
			left = append(left, g)
			continue
		}
		b.drop(g.holder)
	}
	clear(b.mu.ghosts[len(left):])
	b.mu.ghosts = left
	b.mu.freed.Wake()
	return len(left)
}

// watchGhosts looks at the ghosts while there are any, until ctx ends.
func (b *Budget) watchGhosts(ctx context.Context) {
	for base.Await(ctx, b.died) {
		for b.exorcise() > 0 {
			if base.Sleep(ctx, ghostEvery) != nil {
				return
			}
		}
	}
}

// Holder is who answers for connections: a user of this machine, or where the
// connection tells none, an address.
type Holder struct {
	UID     uint32
	Address netip.Addr // valid: of a client that has no user id
}

// String is the holder for people.
func (h Holder) String() string {
	if h.Address.IsValid() {
		return "host " + h.Address.String()
	}
	return "user " + strconv.FormatUint(uint64(h.UID), 10)
}

// HolderOf is who is at the other end of a connection. Clients of which that is
// not known are one holder, the unspecified address.
func HolderOf(conn net.Conn) Holder {
	if tcp, ok := conn.RemoteAddr().(*net.TCPAddr); ok {
		return Holder{Address: tcp.AddrPort().Addr().Unmap().WithZone("")}
	}
	if uid, err := socket.PeerOf(conn); err == nil {
		return Holder{UID: uid}
	}
	return Holder{Address: netip.IPv6Unspecified()}
}
