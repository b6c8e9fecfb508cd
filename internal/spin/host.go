package spin

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// host is what all Waits of a process know of the processors that they poll on.
// Times in its atomic fields are nanoseconds since start.
type host struct {
	processors int32
	waited     func() (thread int, d time.Duration, ok bool)
	pressure   func() (machine, group time.Duration)
	runnable   func() (threads int, ok bool)
	move       func() // takes the calling thread to the other of two processors
	start      time.Time

	pollers atomic.Int32 // Waits that poll now
	off     atomic.Int64 // no Wait polls before
	now     atomic.Int64 // tick<<connectionBits | connections that were active in it
	before  atomic.Int64 // the same of an earlier tick
	looked  atomic.Int64 // when the pressure was read; 0 before, and after polling was off
	parted  atomic.Int64 // when a thread left its processor last; 0 before

	polls atomic.Uint64
	ends  [outcomes]atomic.Uint64
	offs  [reasons]atomic.Uint64

	mu struct {
		sync.Mutex
		pause   time.Duration         // for how long it was off last
		off     time.Duration         // until when, since start; a moment's pause is not counted
		debt    time.Duration         // lost to others, as of at
		at      time.Duration         // since start
		waited  map[int]time.Duration // by a thread, when it was looked at last
		stalls  [2]time.Duration      // the pressure that was read last
		shared  int                   // times that too many connections were active since sharing
		sharing time.Duration         // since start
	}
}

// outcome is how a poll ended.
type outcome int

const (
	gained   outcome = iota // the message came
	vain                    // it did not within the window
	cut                     // polling was no longer right, or the connection ended
	outcomes = iota
)

// reason is why polling was switched off.
type reason int

const (
	lost    reason = iota // another thread had the processor
	shared                // more connections were active than processors are left for
	pressed               // threads waited for processors
	reasons = iota
)

const (
	// firstPause is for how long polling stays off at first. Each time that it is
	// switched off before it was on for as long, that doubles up to longestPause:
	// looking anew costs a time slice of the scheduler, some ms, in that time.
	firstPause   = time.Second
	longestPause = 8 * time.Second
	// A process may lose one part in lostOfTime of its time to others and be
	// mostLost behind: the daemons of a machine and its kernel wake up now and then
	// for some tens of us, the garbage collectors of both ends for a ms, and two ends
	// that find themselves on one processor take some 100 us from each other until
	// the kernel parts them. A thread that computes takes time slices of 1.4 to 4 ms,
	// one after the other.
	mostLost   = 6 * time.Millisecond
	lostOfTime = 10
	// Connections count as active at the same time by ticks. With too many of them
	// none polls for sharedPause; with too many for sharedTimes within sharedTime, for
	// as long as for the other reasons: a client that asks for statistics once does
	// not stop an engine's polling.
	tick           = time.Millisecond
	connectionBits = 20
	sharedPause    = 2 * tick
	sharedTimes    = 4
	sharedTime     = 100 * time.Millisecond
	// The kernel reckons the pressure every two seconds. Where threads waited for
	// more than one part in pressedOfTime of the time while polling was on, it is
	// switched off. Waits while it is off say nothing: two processes that
	// wake each other for every message are pressure enough, on two processors 40 %.
	// Nor do counts older than stalePressure.
	pressureEvery = 2 * time.Second
	stalePressure = 2 * longestPause
	pressedOfTime = 2
	// partEvery is how long two ends that have met again on one processor stay there.
	partEvery = 20 * time.Millisecond
	// mostThreads bounds the table of threads.
	mostThreads = 1024
)

var process = newHost(time.Now(), runtime.GOMAXPROCS(0), waited, pressure, runnable)

// newHost returns a host. runnable says how many threads run or want to, if all
// processors that they may be on are this process's too. waited says how long the calling thread has waited for a
// processor since it began; pressure, how long threads have since the boot, of the
// machine and of the control group, 0 where that cannot be read.
func newHost(start time.Time, processors int, waited func() (int, time.Duration, bool), pressure func() (machine, group time.Duration), runnable func() (int, bool)) *host {
	h := &host{start: start, processors: int32(processors), waited: waited, pressure: pressure, runnable: runnable, move: move}
	h.mu.waited = make(map[int]time.Duration)
	return h
}

// maxPollers is how many may poll: at most half of the processors that there were
// at the start, so that others find one. With one processor none polls.
func (h *host) maxPollers() int32 { return h.processors / 2 }

// enter takes a place, if there is one and polling is on.
func (h *host) enter(now time.Time) bool {
	if now.Sub(h.start) < time.Duration(h.off.Load()) || h.underPressure(now) {
		return false
	}
	if h.pollers.Add(1) > h.maxPollers() {
		h.pollers.Add(-1)
		return false
	}
	h.polls.Add(1)
	return true
}

// leave gives a place back.
func (h *host) leave(as outcome) {
	h.pollers.Add(-1)
	h.ends[as].Add(1)
}

// mayPoll reports whether those that poll may go on.
func (h *host) mayPoll(now time.Time) bool {
	return now.Sub(h.start) >= time.Duration(h.off.Load()) && h.pollers.Load() <= h.maxPollers()
}

// switchOff ends all polling for a while.
func (h *host) switchOff(now time.Time, why reason) {
	h.mu.Lock()
	defer h.mu.Unlock()
	at, off := now.Sub(h.start), h.mu.off
	switch {
	case at < off && why == shared: // as long as that lasts
		h.mu.off = max(off, at+firstPause)
		h.off.Store(int64(max(h.mu.off, time.Duration(h.off.Load()))))
		return
	case at < off:
		return
	case at-off < h.mu.pause:
		h.mu.pause = min(2*h.mu.pause, longestPause)
	default:
		h.mu.pause = firstPause
	}
	h.mu.off = at + h.mu.pause
	h.off.Store(int64(h.mu.off))
	h.looked.Store(0)
	h.offs[why].Add(1)
}

// active notes that a message came for w. Where each of those connections that are
// active would have to have a processor to poll on and one for its peer, and there
// are not as many, none polls.
func (h *host) active(w *Wait, now time.Time) {
	t := int64(now.Sub(h.start) / tick)
	if w.tick == t {
		return
	}
	w.tick = t
	for {
		old := h.now.Load()
		next := t<<connectionBits | 1
		switch {
		case old>>connectionBits > t:
			return
		case old>>connectionBits == t:
			next = old + 1
		default:
			h.before.Store(old)
		}
		if h.now.CompareAndSwap(old, next) {
			break
		}
	}
	if n := h.connections(t); n > 1 && 2*n > h.processors {
		h.crowded(now)
	}
}

// crowded ends all polling for a moment, because too many connections are active,
// or for a while where that is so again and again.
func (h *host) crowded(now time.Time) {
	at := now.Sub(h.start)
	h.mu.Lock()
	if at-h.mu.sharing > sharedTime {
		h.mu.shared, h.mu.sharing = 0, at
	}
	h.mu.shared++
	often := h.mu.shared >= sharedTimes
	if !often {
		h.off.Store(max(h.off.Load(), int64(at+sharedPause)))
	}
	h.mu.Unlock()
	if often {
		h.switchOff(now, shared)
	}
}

// connections is how many were active in tick t or in the one before it.
func (h *host) connections(t int64) int32 {
	n := int32(h.now.Load() & (1<<connectionBits - 1))
	if b := h.before.Load(); b>>connectionBits == t-1 {
		n = max(n, int32(b&(1<<connectionBits-1)))
	}
	return n
}

// interrupted notes that a poll took so long that another thread may have had the
// processor. Had it not, that was the hypervisor or a goroutine of this process,
// neither of which polling harms. Nor is it harm where there is a processor for
// each thread: the two ends find themselves on one until the kernel parts them.
func (h *host) interrupted(now time.Time, took time.Duration) {
	if n, ok := h.runnable(); ok && n <= int(h.processors) {
		return
	}
	thread, d, known := h.waited()
	at := now.Sub(h.start)
	h.mu.Lock()
	if known {
		took = min(took, d-h.mu.waited[thread])
		if len(h.mu.waited) >= mostThreads {
			clear(h.mu.waited)
		}
		h.mu.waited[thread] = d
	}
	h.mu.debt = max(0, h.mu.debt-(at-h.mu.at)/lostOfTime) + took
	h.mu.at = at
	over := h.mu.debt > mostLost
	if over {
		h.mu.debt = 0
	}
	h.mu.Unlock()
	if over {
		h.switchOff(now, lost)
	}
}

// part takes the calling thread away from the processor that it shares with its
// peer, if there are two and the other is idle. With more of them the kernel
// finds an idle one itself when it wakes a thread, and better knows which is near.
func (h *host) part(now time.Time) {
	at, last := now.Sub(h.start), h.parted.Load()
	if h.processors != 2 || last > 0 && at-time.Duration(last) < partEvery {
		return
	}
	if n, ok := h.runnable(); !ok || n > int(h.processors) {
		return
	}
	h.parted.Store(max(1, int64(at)))
	h.move()
}

// underPressure reports whether threads have waited for processors of late, and
// switches polling off where they did.
func (h *host) underPressure(now time.Time) bool {
	at, looked := int64(now.Sub(h.start)), h.looked.Load()
	since := time.Duration(at - looked)
	if looked > 0 && since < pressureEvery || !h.looked.CompareAndSwap(looked, max(1, at)) {
		return false
	}
	machine, group := h.pressure()
	h.mu.Lock()
	before := h.mu.stalls
	h.mu.stalls = [2]time.Duration{machine, group}
	h.mu.Unlock()
	if most := max(machine-before[0], group-before[1]); looked == 0 || since > stalePressure || most*pressedOfTime < since {
		return false
	}
	h.switchOff(now, pressed)
	return true
}

// Stats is what polling came to since the process began. Each poll is the wait of
// one connection for one message, as far as it polled.
type Stats struct {
	Polls   uint64 `json:"polls"`
	Gained  uint64 `json:"gained"`           // the message came
	Vain    uint64 `json:"vain"`             // it did not within the window
	Cut     uint64 `json:"cut"`              // polling was switched off meanwhile, or the connection ended
	Off     bool   `json:"off"`              // now
	Lost    uint64 `json:"off_for_lost"`     // times switched off because a poll lost the processor
	Shared  uint64 `json:"off_for_others"`   // because more connections were active than processors are left for
	Pressed uint64 `json:"off_for_pressure"` // because threads waited for processors
}

// Read returns the counts of the process.
func Read() Stats { return process.stats(time.Now()) }

func (h *host) stats(now time.Time) Stats {
	return Stats{
		Polls: h.polls.Load(), Gained: h.ends[gained].Load(), Vain: h.ends[vain].Load(), Cut: h.ends[cut].Load(),
		Off:  now.Sub(h.start) < time.Duration(h.off.Load()),
		Lost: h.offs[lost].Load(), Shared: h.offs[shared].Load(), Pressed: h.offs[pressed].Load(),
	}
}
