// Package unseen makes system calls of which the Go runtime is not told. They wait for
// nothing but memory, and [Yield] for other threads: the thread keeps its processor of
// the runtime meanwhile.
//
// When all of a Go process has slept, the first system call that the runtime sees wakes
// its monitor, a thread that then looks every 20 us, which with the slack of timers is
// 70 us, for 4 ms. On a virtual machine each look takes 25 us from a thread that works
// on that processor: behind a pause, a lookup of 1,000 chunks takes 20 us and not 14. A
// call that is not seen leaves the monitor asleep.
//
// The monitor is there for goroutines that compute for long, and for the sockets while
// all processors do. So code that may go on to compute, after a sleep that ended unseen,
// calls [Wake], as the client does before it returns to a caller for whom it has slept.
//
// It owns nothing, has no locks and keeps no buffers. Elsewhere than on Linux, and under
// the race detector, which follows what is read and written, the runtime sees reads and
// writes of sockets; the other calls but Wake and Yield are for Linux only.
package unseen
