package spin

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// move takes the calling thread to another of the processors that it may be on,
// if there is one: it gives up its own for a moment, which moves it at once.
func move() {
	runtime.LockOSThread() // what it may be on is the thread's
	defer runtime.UnlockOSThread()
	var all unix.CPUSet
	if unix.SchedGetaffinity(0, &all) != nil || all.Count() < 2 {
		return
	}
	here, ok := processor()
	if !ok {
		return
	}
	others := all
	others.Clear(here)
	if unix.SchedSetaffinity(0, &others) == nil {
		_ = unix.SchedSetaffinity(0, &all) // it was so before
	}
}

// processor is the one that the calling thread is on.
func processor() (n int, ok bool) {
	var at uint32
	_, _, err := unix.RawSyscall(unix.SYS_GETCPU, uintptr(unsafe.Pointer(&at)), 0, 0)
	return int(at), err == 0
}
