package spin

import (
	"runtime"
	"sync/atomic"
	"time"
)

// Wait is one connection's waits for its peer. It belongs to one goroutine at a
// time.
//
// How long it polls follows the waits there were, as KVM's halt polling does
// (Linux, Documentation/virt/kvm/halt-polling): a wait that a longer poll would
// have caught doubles the window up to the longest, one that no poll would have
// caught halves it, down to none.
type Wait struct {
	longest time.Duration // window
	mutual  bool          // the peer polls as well
	window  time.Duration // for how long this wait polls
	since   time.Time     // start of this wait; zero while there is none
	polled  time.Duration // from then to the last poll
	yielded time.Duration // from then to when another thread could last have run
	slot    bool          // it has one of the places in pollers
	crowd   int           // above 0: another thread wants this processor
}

// leastWindow: the shortest window is this part of the longest.
const leastWindow = 16

// pollers counts the Waits that poll now, of all connections of the process: at
// most half of the processors it had at its start, so that others find one. With
// one processor no connection polls.
var (
	pollers    atomic.Int32
	busy       atomic.Int32
	processors = int32(runtime.GOMAXPROCS(0))
)

// Busy says how many processors more or less are in use for longer than a poll
// takes. Together with pollers they leave one free: while all have something to
// run, the Go scheduler looks only every 10 ms at the sockets on which others
// sleep.
func Busy(change int) { busy.Add(int32(change)) }

// maxPollers is how many may poll.
func maxPollers() int32 { return min(processors/2, processors-1-busy.Load()) }

// Start sets the longest window, 0 = never poll, and whether the peer may poll
// as well.
func (w *Wait) Start(longest time.Duration, mutual bool) {
	*w = Wait{longest: longest, mutual: mutual, window: longest / leastWindow}
}

// Again is called when there was nothing to read, and reports whether to look
// once more at once rather than sleep. A wait may go on after a sleep. Before it
// says yes it lets other goroutines run, and if need be other threads.
func (w *Wait) Again() bool {
	switch {
	case w.longest <= 0:
		return false
	case w.since.IsZero():
		w.since, w.polled, w.yielded = time.Now(), 0, 0
		w.slot = w.window > 0 && takeSlot()
	case w.slot:
		if w.poll() > w.window || pollers.Load() > maxPollers() {
			w.leaveSlot()
		}
	}
	switch {
	case !w.slot:
	case w.crowd > 0, w.polled-w.yielded >= yieldAfter:
		yield()
		w.yielded = w.polled
	default:
		runtime.Gosched()
	}
	return w.slot
}

// Over ends a wait, if there was one, and draws the conclusions from it.
func (w *Wait) Over() {
	if w.since.IsZero() {
		return
	}
	d := w.poll()
	w.leaveSlot()
	w.window = nextWindow(w.window, w.longest, d)
	w.since = time.Time{}
}

// Forget ends a wait that says nothing about the peer.
func (w *Wait) Forget() {
	w.leaveSlot()
	w.since = time.Time{}
}

// nextWindow is for how long to poll after a wait of d under window.
func nextWindow(window, longest, d time.Duration) time.Duration {
	least := longest / leastWindow
	switch {
	case d <= window:
		return window
	case d <= longest:
		return min(longest, 2*max(window, least))
	case window/2 >= least:
		return window / 2
	}
	return 0
}

// poll notes when a poll was over, and returns how long this wait has taken.
func (w *Wait) poll() time.Duration {
	d := time.Since(w.since)
	if w.mutual && w.slot {
		w.crowd = nextCrowd(w.crowd, d-w.polled)
	}
	w.polled = d
	return d
}

// nextCrowd follows whether another thread wants this processor, from how long a
// poll took. Where both ends of a socket poll on one processor, each makes the
// other wait for a whole time slice unless it yields. Alone it yields only now
// and then (see yieldAfter): yielding makes the scheduler keep both on one.
func nextCrowd(crowd int, poll time.Duration) int {
	switch {
	case poll >= lostFor:
		return crowded
	case poll < aloneFor:
		return max(0, crowd-1)
	}
	return crowd
}

const (
	lostFor  = 100 * time.Microsecond // another thread had the processor for a while
	aloneFor = 2 * time.Microsecond   // no other thread had it
	crowded  = 8                      // such polls until it counts as alone
	// yieldAfter is how long a peer that has slept may have to wait for the
	// processor: not every scheduler lets it interrupt the poller there.
	yieldAfter = 200 * time.Microsecond
)

func takeSlot() bool {
	if pollers.Add(1) <= maxPollers() {
		return true
	}
	pollers.Add(-1)
	return false
}

func (w *Wait) leaveSlot() {
	if w.slot {
		w.slot = false
		pollers.Add(-1)
	}
}
