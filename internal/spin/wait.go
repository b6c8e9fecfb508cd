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
	window  time.Duration // for how long this wait polls
	since   time.Time     // start of this wait; zero while there is none
	slot    bool          // it has one of the places in pollers
}

// leastWindow: the shortest window is this part of the longest.
const leastWindow = 16

// pollers counts who polls now, in all connections of the process: at most half
// of the processors it had at its start, so that others find one. With one
// processor nobody polls.
var (
	pollers    atomic.Int32
	maxPollers = int32(runtime.GOMAXPROCS(0) / 2)
)

// Start sets the longest window; 0 = never poll.
func (w *Wait) Start(longest time.Duration) {
	*w = Wait{longest: longest, window: longest / leastWindow}
}

// Again is called when there was nothing to read, and reports whether to look
// once more at once rather than sleep. A wait may go on after a sleep. Before it
// says yes it lets others run: the peer may be waiting for this very processor.
func (w *Wait) Again() bool {
	switch {
	case w.longest <= 0:
		return false
	case w.since.IsZero():
		w.since = time.Now()
		w.slot = w.window > 0 && takeSlot()
	case w.slot && time.Since(w.since) > w.window:
		w.leaveSlot()
	}
	if w.slot {
		yield()
	}
	return w.slot
}

// Over ends a wait, if there was one, and draws the conclusions from it.
func (w *Wait) Over() {
	if w.since.IsZero() {
		return
	}
	w.leaveSlot()
	w.window = nextWindow(w.window, w.longest, time.Since(w.since))
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

func takeSlot() bool {
	if pollers.Add(1) <= maxPollers {
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
