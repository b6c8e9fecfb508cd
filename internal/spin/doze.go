package spin

import "time"

// dozeFor is how long a doze lasts at most. Whatever ends the read of a socket, its
// deadline or Close, is seen as much later.
const dozeFor = 2 * time.Millisecond

// Doze is called when Again has said no, and sleeps until fd can be read: once a
// wait, for 2 ms at most, and only where messages have come soon. It reports whether
// to look once more.
//
// The sleep is a system call of its own. The thread goes on as soon as the kernel
// lets it, where a goroutine that the runtime's poller wakes waits for one thread to
// wake another: on a busy machine each of them waits for a processor. So a doze is the
// next best where polling is off. It takes a place as a poll does: until the runtime
// notices, no other goroutine has its processor. So it is not for many connections: they
// need the processors more.
func (w *Wait) Doze(fd uintptr) bool {
	if w.dozed || w.window == 0 || w.longest <= 0 || w.host.many(int64(w.since.Sub(w.host.start)/tick)) || !w.host.take() {
		return false
	}
	w.dozed = true
	came := w.host.sleep(fd, dozeFor)
	w.host.pollers.Add(-1)
	w.host.dozes.Add(1)
	if came {
		w.host.woken.Add(1)
	}
	return came
}
