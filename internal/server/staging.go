package server

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvstored/kvstored/internal/arena"
)

const (
	// segmentBytes is the unit in which a window is given back: a huge page.
	segmentBytes = 2 << 20
	// biteBytes is how much is given back at a time: what frees its pages within
	// about a millisecond.
	biteBytes = 16 << 20
	// A segment is given back at the fifth tick of which it saw no use, so after
	// 60 to 75 seconds.
	stagingTick = 15 * time.Second
	keepTicks   = 5
)

// staging is a client's window and who has which part of it.
//
// What no slot had for a minute is given back to the kernel. It is taken from
// the room for that long, so that no slot gets it meanwhile. A client that
// writes to it all the same has pages there again, of zeros before.
//
// A driver that has page-locked the window would go on writing to the pages that
// were given back, and no fill reads them. So a window that keeps its pages has
// them until the connection ends.
type staging struct {
	window *arena.Window
	keeps  bool // its pages
	// whileOpen runs the work of a timer unless the connection is being closed.
	whileOpen func(func())
	count     *stagingCounters
	mu        struct {
		sync.Mutex
		room     *arena.Allocator
		warm     []uint8       // ticks that each segment keeps its pages for; 0: it has none
		ticking  bool          // a tick is at work, or will be
		timer    *time.Timer   // of the next tick; nil before the first
		punching chan struct{} // closed when what is being given back is there again
	}
}

// stagingCounters are of all windows.
type stagingCounters struct {
	bytes     atomic.Int64 // of segments that may have pages
	givenBack atomic.Uint64
}

func newStaging(n int64, keeps bool, count *stagingCounters, whileOpen func(func())) (*staging, error) {
	w, err := arena.NewWindow(n)
	if err != nil {
		return nil, err
	}
	s := &staging{window: w, keeps: keeps, whileOpen: whileOpen, count: count}
	s.mu.room = arena.NewAllocator(n)
	s.mu.warm = make([]uint8, (n+segmentBytes-1)/segmentBytes)
	return s, nil
}

// alloc takes a part of n bytes. It waits where a part is just being given back
// and there is no other.
func (s *staging) alloc(n uint32) (int64, bool) {
	for {
		off, ok, wait := s.tryAlloc(int64(n))
		if ok || wait == nil {
			return off, ok
		}
		<-wait
	}
}

func (s *staging) tryAlloc(n int64) (off int64, ok bool, wait <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if off, ok = s.mu.room.Alloc(n); ok {
		s.use(off, n)
	}
	return off, ok, s.mu.punching
}

// look looks for the pages of the first n slots of a run, at least one: of those that
// lie one behind the other, as far as one look reaches.
func (s *staging) look(run []slot) (l arena.Look, n int) {
	from, to := run[0].window, run[0].window
	for _, next := range run {
		end := next.window + int64(next.ref.Block.Len())
		if next.window != arena.RoundUp(to) || end > from+arena.LookBytes {
			break
		}
		to = end
		n++
	}
	if n == 0 { // it is longer
		return arena.Look{}, 1
	}
	return s.window.Look(from, to-from), n
}

func (s *staging) free(off int64, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.room.Free(off, int64(n))
	s.use(off, int64(n))
}

// use has the pages of a part stay for a while. The mutex is held.
func (s *staging) use(off, n int64) {
	for i := off / segmentBytes; i*segmentBytes < off+n; i++ {
		if s.mu.warm[i] == 0 {
			s.count.bytes.Add(segmentBytes)
		}
		s.mu.warm[i] = keepTicks
	}
	if !s.mu.ticking && !s.keeps {
		s.mu.ticking = true
		s.tickLater()
	}
}

// tickLater has one tick made. The mutex is held.
func (s *staging) tickLater() {
	if s.mu.timer == nil {
		s.mu.timer = time.AfterFunc(stagingTick, func() { s.whileOpen(s.tick) })
		return
	}
	s.mu.timer.Reset(stagingTick)
}

// tick gives back the segments that were not used for long enough, and goes on
// while there are others. Without pages there is no timer.
func (s *staging) tick() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := 0; i < len(s.mu.warm); i++ {
		switch warm := s.mu.warm[i]; {
		case warm == 0 || !s.unused(i):
		case warm == 1:
			n := 1
			for i+n < len(s.mu.warm) && n < biteBytes/segmentBytes && s.mu.warm[i+n] == 1 && s.unused(i+n) {
				n++
			}
			s.giveBack(i, n)
		default:
			s.mu.warm[i]--
		}
	}
	// Some may have been used while the kernel was at work.
	if s.mu.ticking = slices.Max(s.mu.warm) > 0; s.mu.ticking {
		s.tickLater()
	}
}

// bytes is how long the window is.
func (s *staging) bytes() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.room.Capacity()
}

// span is where n segments from the i-th on lie.
func (s *staging) span(i, n int) (off, bytes int64) {
	off = int64(i) * segmentBytes
	return off, min(int64(n)*segmentBytes, s.mu.room.Capacity()-off)
}

// unused reports whether no slot has any of segment i. The mutex is held.
func (s *staging) unused(i int) bool {
	off, n := s.span(i, 1)
	return s.mu.room.FreeFrom(off) >= n
}

// giveBack gives back n unused segments from the i-th on. The mutex is held, but
// not while the kernel works.
func (s *staging) giveBack(i, n int) {
	off, bytes := s.span(i, n)
	if !s.mu.room.Reserve(off, bytes) {
		return // a broken invariant, which costs pages only
	}
	clear(s.mu.warm[i : i+n])
	done := make(chan struct{})
	s.mu.punching = done
	s.mu.Unlock()
	err := s.window.GiveBack(off, bytes)
	s.mu.Lock()
	s.mu.punching = nil
	close(done)
	s.mu.room.Free(off, bytes)
	if err != nil { // the kernel is asked again later
		for j := i; j < i+n; j++ {
			s.mu.warm[j] = keepTicks
		}
		return
	}
	s.count.bytes.Add(-int64(n) * segmentBytes)
	s.count.givenBack.Add(uint64(bytes))
}

// close gives all back. No timer's work is under way, or comes.
func (s *staging) close() {
	s.forget()
	_ = s.window.Close() // fails only if it was closed before
}

// forget ends the timer, which would keep the connection, and the count.
func (s *staging) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.timer != nil {
		s.mu.timer.Stop()
	}
	for _, warm := range s.mu.warm {
		if warm > 0 {
			s.count.bytes.Add(-segmentBytes)
		}
	}
}
