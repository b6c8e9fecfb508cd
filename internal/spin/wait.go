package spin

import (
	"runtime"
	"time"

	"github.com/kvstored/kvstored/internal/unseen"
)

// Wait is one connection's waits for its peer. It belongs to one goroutine at a
// time.
//
// How long it polls follows the waits there were, as KVM's halt polling does
// (Linux, Documentation/virt/kvm/halt-polling): a wait that a longer poll would
// have caught doubles the window up to the longest, one that no poll would have
// caught halves it, down to none.
type Wait struct {
	host    *host
	longest time.Duration // window
	mutual  bool          // the peer polls as well
	window  time.Duration // for how long this wait polls
	since   time.Time     // start of this wait; zero while there is none
	polled  time.Duration // from then to the last poll
	slot    bool          // it has one of the places of the host
	yielded time.Time     // when another thread could last run
	asked   bool          // that was after the last poll
	paused  time.Time     // when another goroutine could
	crowd   int           // above 0: another thread wants this processor
	beside  int           // polls one after the other in each of which another thread ran
	parts   bool          // it leaves a processor that it shares with its peer
	tick    int64         // of the host, in which it was last active
}

// leastWindow: the shortest window is this part of the longest.
const leastWindow = 16

// Start sets the longest window, 0 = never poll, and whether the peer may poll
// as well.
func (w *Wait) Start(longest time.Duration, mutual bool) { w.start(process, longest, mutual) }

func (w *Wait) start(h *host, longest time.Duration, mutual bool) {
	*w = Wait{host: h, longest: longest, mutual: mutual, window: longest / leastWindow, tick: -1}
}

// Parts has this end leave a processor on which its peer polls, too, where there
// is another one idle. Only one of the two may: both would meet there again.
func (w *Wait) Parts() { w.parts = true }

// Again is called when there was nothing to read, and reports whether to look
// once more at once rather than sleep. A wait may go on after a sleep. Before it
// says yes it lets other goroutines run, and if need be other threads.
func (w *Wait) Again() bool {
	switch {
	case w.longest <= 0:
		return false
	case w.since.IsZero():
		w.since, w.polled, w.asked = time.Now(), 0, false
		w.slot = w.window > 0 && w.host.enter(w.since)
	case w.slot:
		now := w.poll()
		switch {
		case !w.host.mayPoll(now):
			w.leave(cut)
		case w.polled > w.window:
			w.leave(vain)
		}
	}
	if w.slot {
		w.letRun()
	}
	return w.slot
}

// letRun lets other threads and goroutines run, where it is time.
func (w *Wait) letRun() {
	now := w.since.Add(w.polled)
	if w.beside >= partAfter {
		w.beside = 0
		w.host.part(now)
	}
	if w.asked = w.crowd > 0 || now.Sub(w.yielded) >= yieldAfter; w.asked {
		unseen.Yield()
		w.yielded = now
	}
	if now.Sub(w.paused) >= pauseAfter {
		runtime.Gosched()
		w.paused = now
	}
}

// Over ends a wait, if there was one, and draws the conclusions from it.
func (w *Wait) Over() {
	if w.since.IsZero() {
		return
	}
	now := w.poll()
	w.leave(gained)
	w.host.active(w, now)
	w.window = nextWindow(w.window, w.longest, w.polled)
	w.since = time.Time{}
}

// Forget ends a wait that says nothing about the peer.
func (w *Wait) Forget() {
	w.leave(cut)
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

// poll notes when a poll was over, and returns that.
func (w *Wait) poll() time.Time {
	d := time.Since(w.since) // reads one clock; time.Now reads two
	now := w.since.Add(d)
	if w.slot {
		took := d - w.polled
		if w.mutual {
			w.crowd = nextCrowd(w.crowd, took, w.asked)
		}
		if w.parts {
			w.beside = nextBeside(w.beside, took, w.asked)
		}
		if took >= lostFor {
			w.host.interrupted(now, took)
		}
	}
	w.polled = d
	return now
}

// nextCrowd follows whether another thread wants this processor, from how long a
// poll took and whether it began with a yield. Where both ends of a socket poll on
// one processor, each makes the other wait for a whole time slice unless it yields.
// Alone it yields only now and then (see yieldAfter): yielding makes the scheduler
// keep both on one.
func nextCrowd(crowd int, poll time.Duration, yielded bool) int {
	switch {
	case poll >= lostFor, yielded && poll >= aloneFor:
		return crowded
	case poll < aloneFor:
		return max(0, crowd-1)
	}
	return crowd
}

// nextBeside counts the polls one after the other in which another thread ran for a
// moment, as the peer does on the same processor for each message.
func nextBeside(beside int, poll time.Duration, yielded bool) int {
	if yielded && poll >= aloneFor && poll < lostFor {
		return beside + 1
	}
	return 0
}

const (
	lostFor  = 100 * time.Microsecond // another thread had the processor for a while
	aloneFor = 2 * time.Microsecond   // no other thread had it
	crowded  = 8                      // such polls until it counts as alone
	// partAfter is after how many polls beside another thread a Wait leaves its
	// processor. The kernel parts two ends by itself, after 4 to 8 ms: a round trip
	// takes 10 us until then, and 4.6 after (two processors, Linux 6.18).
	partAfter = 32
	// yieldAfter is how long another thread may have to wait for the processor, be it
	// the peer that has slept or of no concern to this process: not every scheduler
	// lets it interrupt the poller.
	yieldAfter = 200 * time.Microsecond
	// pauseAfter is how long the poller keeps its place among goroutines. Others have
	// an idle processor of the runtime to run on, as maxPollers leaves one free, so
	// they do not wait for that. To pause at each poll would wake a thread each time
	// that looks for work and finds none, which takes a second processor; never to
	// pause makes the runtime's monitor interrupt the goroutine every 10 ms, and look
	// every 20 us for a while.
	pauseAfter = 2 * time.Millisecond
)

// leave gives the place back, if it has one, and counts the outcome of the poll.
func (w *Wait) leave(as outcome) {
	if w.slot {
		w.slot = false
		w.host.leave(as)
	}
}
