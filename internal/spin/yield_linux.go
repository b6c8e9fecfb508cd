package spin

import "golang.org/x/sys/unix"

// yield lets another thread run that waits for this processor.
func yield() { _, _, _ = unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0) }
