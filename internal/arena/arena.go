package arena

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"github.com/kvstored/kvstored/internal/base"
)

// MaxPayload is the largest block in bytes.
const MaxPayload = 64 << 20

// AlignBytes is the alignment of every block in the arena, and the unit its
// memory is handed out in: what direct I/O asks for.
const AlignBytes = UnitBytes

// The errors of this package. They arrive as they are or wrapped.
var (
	// ErrFull says that no free run is large enough now.
	ErrFull = errors.New("arena: no free run is large enough; evict, or wait for a free")
	// ErrTooLarge says that the size can never be granted.
	ErrTooLarge = errors.New("arena: larger than a block or the arena can be")
	// ErrClosed says that the arena was closed.
	ErrClosed = errors.New("arena: closed")
)

// Values of Options.HugePages.
const (
	HugeAuto = "auto" // take what the kernel gives; the zero value means the same
	HugeOn   = "on"   // New fails if the kernel gives none
	HugeOff  = "off"
)

// Options describe an arena.
type Options struct {
	CapacityBytes int64  // rounded down to AlignBytes
	HugePages     string // HugeAuto, HugeOn or HugeOff; only pages that were touched can tell what was got
	Mlock         bool   // lock all pages in memory; needs RLIMIT_MEMLOCK or CAP_IPC_LOCK
	// Touch faults a part of the arena in and changes no byte of it, as the function Touch does.
	// New has it fault in the first slice, Populate the others, and nothing else is handed
	// out. nil: all of the arena is, and its pages come as they are used.
	Touch func(part []byte, huge bool) error
	// Keep has the next process go on with the arena: see Files. It lacks
	// F_SEAL_FUTURE_WRITE then.
	Keep bool
}

// Arena is one shared mapping and the blocks in it. Create it with New. It is
// safe for concurrent use.
type Arena struct {
	mapping  mapping // changed by Close only, when no block is left to use it
	capacity int64
	states   []atomic.Pointer[statePage] // grown a page at a time, never moved
	freed    func(id uint32)             // see NoteFrees; never nil
	huge     atomic.Int64
	touch    func(part []byte) error // see Options

	populated  atomic.Int64 // bytes from the front on; changed with the mutex held
	populating atomic.Bool

	aside, asideBytes atomic.Int64 // blocks; see putAside

	mu struct {
		sync.Mutex
		space  *Allocator
		spare  []uint32 // ids of freed blocks; the last one freed is used first
		used   uint32   // ids ever used; ids start at 1, so that 0 is no block
		freed  base.Signal
		closed bool
	}

	compacting chan struct{} // has one element while a Compact is at work
	clearing   clearing      // of the Compact at work
}

// Stats is a snapshot of an arena.
type Stats struct {
	CapacityBytes    int64 `json:"capacity_bytes"`
	PopulatedBytes   int64 `json:"populated_bytes"` // of the capacity; no other is used or free
	UsedBytes        int64 `json:"used_bytes"`      // handed out, padding included
	FreeBytes        int64 `json:"-"`
	LargestFreeBytes int64 `json:"largest_free_bytes"` // the largest block that Alloc would grant now, if below MaxPayload
	Blocks           int64 `json:"blocks"`
	HugeBytes        int64 `json:"huge_bytes"` // mapped by huge pages when New returned, or CountHuge was called last
	Locked           bool  `json:"locked"`     // all pages are locked in memory
}

// New creates an arena. A capacity above MemoryLimit is an error, because
// memory that is promised and not there ends the daemon later.
func New(o Options) (*Arena, error) {
	o.CapacityBytes = o.CapacityBytes / AlignBytes * AlignBytes
	if err := o.check(); err != nil {
		return nil, err
	}
	m, err := newMapping(o)
	if err != nil {
		return nil, fmt.Errorf("arena: %w", err)
	}
	return newArena(m, &o), nil
}

// newArena makes an arena of which nothing is handed out.
func newArena(m mapping, o *Options) *Arena {
	capacity := o.CapacityBytes
	a := &Arena{
		mapping:  m,
		capacity: capacity,
		freed:    func(uint32) {},
		touch:    o.touch,
		states:   make([]atomic.Pointer[statePage], capacity/AlignBytes/statesPerPage+1),

		compacting: make(chan struct{}, 1),
	}
	a.huge.Store(m.hugeBytes)
	a.clearing.arena = a
	a.mu.space = NewAllocator(capacity)
	a.withhold(m.populated)
	a.populating.Store(a.missing() > 0)
	return a
}

func (o *Options) touch(part []byte) error { return o.Touch(part, o.HugePages != HugeOff) }

func (o *Options) check() error {
	switch o.HugePages {
	case "", HugeAuto, HugeOn, HugeOff:
	default:
		return fmt.Errorf("arena: huge pages %q: want auto, on or off", o.HugePages)
	}
	if o.CapacityBytes <= 0 {
		return fmt.Errorf("arena: capacity of %d bytes: want at least %d", o.CapacityBytes, AlignBytes)
	}
	limit, source, err := MemoryLimit()
	if err != nil {
		return fmt.Errorf("arena: %w", err)
	}
	if o.CapacityBytes > limit {
		return fmt.Errorf("arena: capacity of %d bytes is above the %d that %s allows; lower cpu.capacity", o.CapacityBytes, limit, source)
	}
	return nil
}

// Close unmaps the arena. It refuses while blocks are held, because their
// holders would fault; clients keep their own mappings. Closing twice is no
// error.
func (a *Arena) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.closed {
		return nil
	}
	if n := a.blocks(); n > 0 {
		return fmt.Errorf("arena: close: %d blocks are still held", n)
	}
	a.mu.closed = true
	if err := a.mapping.close(); err != nil {
		return fmt.Errorf("arena: close: %w", err)
	}
	return nil
}

// Alloc returns an unsealed block of n bytes with one reference, owned by the
// caller. Its content is that of the block before; only the padding behind n
// is zero. Errors: ErrFull, ErrTooLarge (n below 1 too), ErrClosed.
func (a *Arena) Alloc(n int) (Block, error) {
	if n <= 0 || n > MaxPayload || int64(n) > a.capacity {
		return Block{}, ErrTooLarge
	}
	id, off, err := a.take(int64(n))
	if err != nil {
		return Block{}, err
	}
	return a.begin(id, off, n), nil
}

// begin makes a block of an id and an extent that were taken for it.
func (a *Arena) begin(id uint32, off int64, n int) Block {
	s := a.state(id)
	s.off, s.n = off, int32(n)
	s.sum.Store(0)
	s.flags.Store(0)
	b := Block{a: a, id: id, gen: s.gen.Load()}
	// The refs make the id live, so they come last.
	s.refs.Store(1)
	clear(b.Padded()[n:])
	return b
}

// take reserves an extent and an id for a block of n bytes.
func (a *Arena) take(n int64) (id uint32, off int64, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.closed {
		return 0, 0, ErrClosed
	}
	off, ok := a.mu.space.AllocTag(n, a.nextID())
	if !ok {
		return 0, 0, ErrFull
	}
	return a.takeID(), off, nil
}

// nextID is what takeID returns next; the mutex is held.
func (a *Arena) nextID() uint32 {
	if k := len(a.mu.spare); k > 0 {
		return a.mu.spare[k-1]
	}
	return a.mu.used + 1
}

// takeID returns the id of a new block; the mutex is held.
func (a *Arena) takeID() uint32 {
	id := a.nextID()
	if k := len(a.mu.spare); k > 0 {
		a.mu.spare = a.mu.spare[:k-1]
		return id
	}
	a.mu.used = id
	if p := &a.states[id/statesPerPage]; p.Load() == nil {
		p.Store(new(statePage))
	}
	return id
}

// free takes back the memory and the id of a block without references.
func (a *Arena) free(id uint32, off, n int64) {
	a.freed(id)
	a.mu.Lock()
	a.mu.space.Free(off, n)
	a.mu.spare = append(a.mu.spare, id)
	a.mu.freed.Wake()
	a.mu.Unlock()
}

// putAside keeps the memory of a block whose references were counted wrongly, if it is free
// by now, from being handed out again: its last holder may still be there.
func (a *Arena) putAside(s *state) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.space.ReserveTag(s.off, int64(s.n), 0) {
		a.aside.Add(1)
		a.asideBytes.Add(padded(s.n))
	}
}

// Aside is how many blocks were put aside, and their bytes.
func (a *Arena) Aside() (blocks, bytes int64) { return a.aside.Load(), a.asideBytes.Load() }

// NoteFrees has f called, without locks, for each block whose memory can be handed out
// again from then on. Call it before anything is handed out.
func (a *Arena) NoteFrees(f func(id uint32)) { a.freed = f }

// Freed returns a channel that is closed when the next block is freed. Take it
// before the Alloc that fails, or a free in between is missed.
func (a *Arena) Freed() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.mu.freed.Next()
}

// File returns the descriptor to pass to clients, which can map it read-only. The
// arena owns it: do not close it.
func (a *Arena) File() *os.File { return a.mapping.file }

// Block returns the handle of a live block from its id and its tag. The caller holds a
// reference. An id that is not live, or another's by now, is a broken invariant, and its
// handle that of a block that was freed.
func (a *Arena) Block(id, tag uint32) Block {
	s := a.state(id)
	b := Block{a: a, id: id, gen: s.gen.Load()}
	if s.refs.Load() <= 0 || s.flags.Load()>>tagShift != tag {
		base.Broken("arena: block %d is not live, or not that of %d", id, tag)
		b.gen-- // of no block
	}
	return b
}

// blocks is how many are handed out; the mutex is held.
func (a *Arena) blocks() int64 {
	if a.missing() > 0 {
		return a.mu.space.Extents() - 1
	}
	return a.mu.space.Extents()
}

// Stats returns a snapshot.
func (a *Arena) Stats() Stats {
	a.mu.Lock()
	defer a.mu.Unlock()
	return Stats{
		CapacityBytes:    a.capacity,
		PopulatedBytes:   a.Populated(),
		UsedBytes:        a.mu.space.UsedBytes() - a.missing(),
		FreeBytes:        a.mu.space.FreeBytes(),
		LargestFreeBytes: a.mu.space.LargestFree(),
		Blocks:           a.blocks(),
		HugeBytes:        a.huge.Load(),
		Locked:           a.mapping.locked,
	}
}
