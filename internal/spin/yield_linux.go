package spin

import "golang.org/x/sys/unix"

// Yield lets another thread run that waits for this processor, for as long as it takes:
// the Go scheduler knows that the calling one may not come back soon.
func Yield() { _, _, _ = unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }
